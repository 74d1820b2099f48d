// The API, drawn from its OpenAPI document.
import { get } from "./api.js";

const make = (name, facts = {}, ...children) => {
  const node = Object.assign(document.createElement(name), facts);
  node.append(...children);
  return node;
};

const type = (schema = {}) => {
  if (schema.oneOf) return schema.oneOf.map(type).join(" or ");
  if (schema.enum) return schema.enum.join(" or ");
  if (schema.type === "array") return `list of ${type(schema.items)}`;
  return schema.type ?? "";
};

const table = (head, rows) => {
  const cells = (kind, row) => make("tr", {}, ...row.map((cell) => make(kind, {}, cell)));
  return make("table", {}, make("thead", {}, cells("th", head)), make("tbody", {}, ...rows.map((row) => cells("td", row))));
};

const code = (text) => make("code", { textContent: text });

function example(path, schema) {
  const values = { q: "Where is the station?", source: "en", target: "de" };
  const fields = Object.fromEntries(schema.required.map((name) => [name, values[name] ?? ""]));
  return `curl ${location.origin}${path} \\\n  -H 'content-type: application/json' \\\n  -d '${JSON.stringify(fields)}'`;
}

function route(path, method, facts) {
  const inside = make("div");
  const schema = facts.requestBody?.content["application/json"]?.schema;
  if (schema) {
    const rows = Object.entries(schema.properties).map(([name, one]) => [
      code(name), schema.required.includes(name) ? "required" : "", type(one), one.description ?? "",
    ]);
    inside.append(table(["field", "", "type", ""], rows), make("pre", {}, example(path, schema)));
  } else inside.append(make("pre", {}, `curl ${location.origin}${path}`));
  const answers = Object.entries(facts.responses).map(([status, one]) => [code(status), one.description]);
  inside.append(make("p"), table(["status", ""], answers));
  return make("details", {},
    make("summary", {}, make("b", { textContent: method.toUpperCase() }), code(path), make("span", { textContent: facts.description ?? "" })),
    inside);
}

const page = document.getElementById("docs");
const document_ = await get("/openapi.json");
page.append(make("p", { className: "quiet", textContent: document_.info.description }));
const groups = new Map();
for (const [path, methods] of Object.entries(document_.paths)) {
  for (const [method, facts] of Object.entries(methods)) {
    const group = facts.tags?.[0] ?? "";
    groups.set(group, [...(groups.get(group) ?? []), route(path, method, facts)]);
  }
}
for (const [name, routes] of groups) page.append(make("h2", { textContent: name }), ...routes);
