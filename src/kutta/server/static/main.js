// The page: views, theme, key, and what both views share.
import { get, key } from "./api.js";
import { startInside } from "./inside.js";
import { startTranslate } from "./translate.js";

const byId = (id) => document.getElementById(id);

function startTheme() {
  const root = document.documentElement;
  const dark = () =>
    (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const button = byId("theme");
  const label = () => {
    button.setAttribute("aria-label", `Switch to the ${dark() ? "light" : "dark"} theme`);
    button.title = button.getAttribute("aria-label");
  };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    label();
  });
  label();
}

function startKey(required) {
  byId("key-field").hidden = !required;
  byId("key").value = key.get();
  byId("key-field").addEventListener("submit", (event) => event.preventDefault());
  byId("key").addEventListener("change", (event) => {
    key.set(event.target.value);
    dispatchEvent(new Event("key"));
  });
}

async function start() {
  startTheme();
  const [settings, languages, views] = await Promise.all([
    get("/frontend/settings"), get("/languages"), get("/inside"),
  ]);
  startKey(settings.keyRequired);
  const translate = startTranslate(settings, languages);
  const inside = startInside(languages, views);

  const show = () => {
    const looking = location.hash === "#inside";
    byId("translate-view").hidden = looking;
    byId("inside-view").hidden = !looking;
    const [here, there] = looking ? ["to-inside", "to-translate"] : ["to-translate", "to-inside"];
    byId(here).setAttribute("aria-current", "page");
    byId(there).removeAttribute("aria-current");
    document.title = looking ? "Inside the solver – Kutta" : "Kutta";
    if (looking) inside.open(translate.sentence());
  };
  addEventListener("hashchange", show);
  show();
}

start().catch((error) => {
  byId("status").textContent = error.message;
});
