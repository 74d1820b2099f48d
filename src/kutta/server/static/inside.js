// Inside the solver: what the blocks do with one sentence.
import { debounced, post } from "./api.js";
import { chart, dot, frame, hue, inner, legend, linear, logarithmic, number, path, svg, ticks } from "./charts.js";
import { trajectory } from "./trajectory.js";

const byId = (id) => document.getElementById(id);
const METHODS = { own: "as trained", euler: "Euler", rk2: "RK2", rk4: "RK4" };

export function startInside(languages, views) {
  const input = byId("sentence");
  const pair = byId("pair");
  const names = Object.fromEntries(languages.map(({ code, name }) => [code, name]));
  let states = null;
  let errors = null;
  let stack = "encoder";
  let substeps = 1;

  const fields = () => {
    const [source, target] = pair.value.split("-");
    return { q: input.value.trim(), source, target };
  };
  const notice = (text) => {
    byId("inside-notice").textContent = text;
    byId("inside-notice").hidden = !text;
  };
  const choice = (id, options, chosen, change) => {
    const field = byId(id);
    const labels = options.map(([value, text]) => {
      const label = document.createElement("label");
      const radio = Object.assign(document.createElement("input"), { type: "radio", name: id, value, checked: value === chosen });
      radio.addEventListener("change", () => change(value));
      label.append(radio, text);
      return label;
    });
    field.replaceChildren(field.querySelector("legend"), ...labels);
  };

  // Requests: the trajectory first, then the translations, then the errors, which take longest.

  const look = debounced(400, async (signal) => {
    if (!pair.value) return; // no model can be looked into, and the notice says why
    if (!fields().q) {
      byId("charts").hidden = true;
      return notice("");
    }
    errors = null;
    for (const id of ["trajectory", "norms", "stages", "truncation"]) byId(id).classList.add("waiting");
    byId("methods").replaceChildren();
    try {
      states = await post("/inside/states", fields(), signal);
      notice("");
      byId("charts").hidden = false;
      drawStates();
      if (states.ode) throw new Error(`Errors and other methods are not shown: ${states.ode}.`);
      await showMethods(signal);
      errors = await post("/inside/truncation", fields(), signal);
      drawErrors();
    } catch (error) {
      if (!signal.aborted) notice(error.message);
    }
  });
  const showMethods = async (signal) => {
    const answer = await post("/inside/methods", { ...fields(), stack, substeps }, signal);
    drawMethods(answer.rows);
  };
  const swap = debounced(0, async (signal) => {
    byId("methods").replaceChildren();
    try {
      await showMethods(signal);
    } catch (error) {
      if (!signal.aborted) notice(error.message);
    }
  });

  // Drawing

  const current = () => states.stacks.find((one) => one.name === stack);
  const nameOf = ({ layer, sublayers }) => ({ short: String(layer), long: `${layer} ${sublayers}` });
  const blockNames = () =>
    current().blocks.map(nameOf);

  const drawStates = () => {
    const { method, blocks, tokens, explained } = current();
    byId("summary").textContent =
      `${tokens.length} tokens · ${blocks.length} blocks · ${METHODS[method] ?? method} · ` +
      `the plane shows ${Math.round(100 * (explained[0] + (explained[1] ?? 0)))}% of the variance`;
    byId("time").max = blocks.length;
    if (Number(byId("time").value) > blocks.length || byId("time").value === "0") byId("time").value = blocks.length;
    drawTrajectory();
    drawNorms();
    drawStages();
  };

  const drawTrajectory = () => {
    const depth = Number(byId("time").value);
    const { blocks } = current();
    byId("depth").textContent =
      depth === 0 ? "embedding" : `after block ${Number.isInteger(depth) ? depth : depth.toFixed(1)} of ${blocks.length}`;
    byId("trajectory").classList.remove("waiting");
    trajectory(byId("trajectory"), current(), depth);
    light();
  };

  // Pointing at a token lights it in all charts of tokens, also while they are drawn again.
  let pointed;
  const light = () => {
    for (const id of ["trajectory", "norms"]) {
      const tokens = [...byId(id).querySelectorAll(".token")];
      for (const one of tokens) one.classList.toggle("on", one.dataset.token === pointed);
      byId(id).classList.toggle("focused", tokens.some((one) => one.dataset.token === pointed));
    }
  };
  for (const id of ["trajectory", "norms"]) {
    const point = (token) => { pointed = token; light(); };
    byId(id).addEventListener("pointerover", (event) => point(event.target.closest(".token")?.dataset.token));
    byId(id).addEventListener("pointerleave", () => point());
  }

  const drawNorms = () => {
    const { norms, tokens } = current();
    const element = byId("norms");
    element.classList.remove("waiting");
    const values = ticks(Math.max(...norms.flat()));
    const labels = [{ short: "0", long: "input" }, ...blockNames()];
    chart(element, 260, `Length of the states after each block, up to ${number(Math.max(...norms.flat()))}`, (width, height) => {
      const area = inner(width, height);
      const x = linear([0, norms.length - 1], [area.x[0] + 14, area.x[1] - 44]);
      const y = linear([0, values.at(-1)], area.y);
      const lines = tokens.map((text, n) => {
        const points = norms.map((row, k) => [x(k), y(row[n])]);
        const stroke = hue(n, tokens.length);
        const [endX, endY] = points.at(-1);
        return svg("g", { class: "token", "data-token": n },
          svg("path", { class: "series", d: path(points), stroke, "stroke-width": 1.5 }),
          svg("circle", { cx: endX, cy: endY, r: 3, fill: stroke }),
          svg("path", { class: "hit", d: path(points) }),
          svg("title", {}, `${text}: ${norms.map((row) => number(row[n])).join(" → ")}`));
      });
      const ends = [...tokens.keys()].sort((a, b) => norms.at(-1)[b] - norms.at(-1)[a]);
      const labelled = [ends[0], ends.at(-1)].map((n) =>
        svg("text", { x: x(norms.length - 1) + 8, y: y(norms.at(-1)[n]) + 4 }, tokens[n]));
      return [...frame(width, height, y, values, labels, x), ...lines, ...labelled];
    });
    light();
  };

  const drawStages = () => {
    const { blocks } = current();
    const element = byId("stages");
    element.classList.remove("waiting");
    const weights = (block) => block.coefficients.gamma ?? block.stages.map(() => 1);
    const adds = (block) => block.stages.map((length, i) => Math.abs(weights(block)[i] ?? 1) * length);
    const values = ticks(Math.max(...blocks.flatMap(adds)));
    const most = Math.max(...blocks.map((block) => block.stages.length));
    legend(element, Array.from({ length: most }, (_, i) => [`stage-${i + 1}`, `stage ${i + 1}`]));
    chart(element, 240, `Contribution of the stages of ${blocks.length} blocks`, (width, height) => {
      const area = inner(width, height);
      const room = (area.x[1] - area.x[0]) / blocks.length;
      const x = (n) => area.x[0] + room * (n + 0.5);
      const y = linear([0, values.at(-1)], area.y);
      const bars = blocks.flatMap((block, n) => {
        const thick = Math.min(30, (room * 0.7) / block.stages.length);
        return adds(block).flatMap((length, i) => {
          const left = x(n) + (i - block.stages.length / 2) * thick;
          const gamma = weights(block)[i] ?? 1;
          const bar = svg("rect", { class: `stage-${i + 1}`, x: left + 1, width: Math.max(thick - 2, 1), y: y(length), height: Math.max(area.y[0] - y(length), 1), rx: 3 },
            svg("title", {}, `block ${block.layer} ${block.sublayers}, stage ${i + 1}: γ = ${number(gamma)}, |F| = ${number(block.stages[i])}, cosine to the first ${number(block.cosine_to_first[i])}`));
          const text = thick >= 24 ? [svg("text", { x: left + thick / 2, y: y(length) - 5, "text-anchor": "middle" }, number(gamma))] : [];
          return [bar, ...text];
        });
      });
      return [...frame(width, height, y, values, blockNames(), x), ...bars];
    });
  };

  const drawErrors = () => {
    const rows = errors.blocks.filter((block) => block.stack === stack);
    const element = byId("truncation");
    element.classList.remove("waiting");
    const kinds = Object.keys(METHODS);
    const known = rows.flatMap((row) => kinds.map((kind) => row.errors[kind])).filter((value) => value > 0);
    legend(element, kinds.map((kind) => [kind, METHODS[kind]]));
    if (!known.length) return;
    const low = 10 ** Math.floor(Math.log10(Math.min(...known)));
    const high = 10 ** Math.ceil(Math.log10(Math.max(...known)));
    const powers = Array.from({ length: Math.round(Math.log10(high / low)) + 1 }, (_, n) => low * 10 ** n);
    const labels = rows.map(nameOf);
    chart(element, 240, `Truncation error of ${rows.length} blocks, from ${number(Math.min(...known))} to ${number(Math.max(...known))}`, (width, height) => {
      const area = inner(width, height);
      const x = (n) => area.x[0] + ((area.x[1] - area.x[0]) / rows.length) * (n + 0.5);
      const y = logarithmic([low, high], area.y);
      const series = [...kinds].reverse().flatMap((kind) => {
        const points = rows.map((row, n) => [x(n), row.errors[kind], row]).filter(([, value]) => value > 0);
        return [
          svg("path", { class: `series ${kind} ghost`, fill: "none", d: path(points.map(([a, value]) => [a, y(value)])) }),
          ...points.map(([cx, value, row]) => svg("circle", { class: kind, cx, cy: y(value), r: kind === "own" ? 6 : 4.5, "fill-opacity": kind === "own" ? 0 : 1, "stroke-width": 2 },
            svg("title", {}, `block ${row.layer} ${row.sublayers}, ${METHODS[kind]}: ${number(value)} over the time ${number(row.span)}`))),
        ];
      });
      return [...frame(width, height, y, powers, labels, x), ...series];
    });
  };

  const drawMethods = (rows) => {
    const words = new Set(rows[0].translation.split(/\s+/));
    const parts = rows.flatMap(({ method, translation, score }) => {
      const kind = method === "trained" ? "own" : method;
      const name = document.createElement("dt");
      name.append(dot(kind), METHODS[kind]);
      const text = document.createElement("dd");
      text.append(...translation.split(/(\s+)/).map((word) => {
        if (!word.trim() || words.has(word)) return word;
        return Object.assign(document.createElement("mark"), { textContent: word });
      }));
      const points = Object.assign(document.createElement("dd"), { textContent: score === null ? "" : score.toFixed(2), title: "log-probability, divided by length" });
      return [name, text, points];
    });
    byId("methods").replaceChildren(...parts);
  };

  // Controls

  let playing = 0;
  const play = () => {
    cancelAnimationFrame(playing);
    const end = Number(byId("time").max);
    const started = performance.now();
    const seconds = 0.7 * end;
    const step = (now) => {
      const depth = Math.min(end, ((now - started) / 1000 / seconds) * end);
      byId("time").value = depth;
      drawTrajectory();
      if (depth < end) playing = requestAnimationFrame(step);
    };
    playing = requestAnimationFrame(step);
  };
  byId("play").addEventListener("click", play);
  byId("time").addEventListener("input", () => { cancelAnimationFrame(playing); drawTrajectory(); });
  input.addEventListener("input", () => look());
  pair.addEventListener("change", () => look(true));
  addEventListener("key", () => look(true));
  byId("sentence-form").addEventListener("submit", (event) => { event.preventDefault(); look(true); });
  choice("stack", [["encoder", "encoder"], ["decoder", "decoder"]], stack, (value) => {
    stack = value;
    drawStates();
    if (errors) drawErrors();
    swap(true);
  });
  choice("substeps", [[1, "1"], [2, "2"], [4, "4"]], substeps, (value) => { substeps = value; swap(true); });

  const label = (code) => code.split("-").map((one) => names[one] ?? one).join(" → ");
  pair.replaceChildren(...views.pairs.map((code) => Object.assign(document.createElement("option"), { value: code, textContent: label(code) })));
  if (!views.pairs.length) {
    byId("sentence-form").hidden = true;
    notice(Object.values(views.missing)[0] ?? "There is no model to look into.");
  }

  return {
    // Shows the view, for a sentence that was typed elsewhere unless there is one already.
    open({ text, source, target }) {
      const wanted = `${source}-${target}`;
      if (wanted in views.missing) return notice(views.missing[wanted]);
      if (views.pairs.includes(wanted)) pair.value = wanted;
      if (text && text !== input.value) {
        input.value = text;
        look(true);
      } else if (states) drawStates();
    },
  };
}
