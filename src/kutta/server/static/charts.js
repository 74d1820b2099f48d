// Small charts in SVG. A chart is drawn into an element at its width, and again when that changes.

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { top: 14, right: 12, bottom: 34, left: 44 };

export function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const redraws = new Map();
const observer = new ResizeObserver((entries) => {
  for (const { target } of entries) redraws.get(target)?.();
});

// Draws `picture(width, height)` into an element; `label` says what is seen for those who do not.
export function chart(element, height, label, picture) {
  const draw = () => {
    const width = element.clientWidth;
    if (!width) return;
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label });
    root.append(...picture(width, height));
    element.querySelector(":scope > svg")?.remove();
    element.append(root);
  };
  redraws.set(element, draw);
  observer.observe(element);
  draw();
}

export function linear([low, high], [from, to]) {
  const span = high - low || 1;
  return (value) => from + ((value - low) / span) * (to - from);
}

export function logarithmic([low, high], range) {
  const scale = linear([Math.log10(low), Math.log10(high)], range);
  return (value) => scale(Math.log10(value));
}

// The colour of a token.
export const hue = (n, count) => `hsl(${195 + (150 * n) / Math.max(count - 1, 1)} 52% 52%)`;

// Some round numbers from 0 to at least `most`.
export function ticks(most, count = 4) {
  const rough = (most || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((one) => one * power >= rough) * power;
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, n) => n * step);
}

export const number = (value) =>
  value === null || value === undefined ? "–" : Number(value.toPrecision(2)).toLocaleString("en", { maximumSignificantDigits: 3 });

// The frame of a chart with blocks along x: grid lines, their numbers and the names of the blocks.
export function frame(width, height, y, values, names, x) {
  const lines = values.map((value) =>
    svg("line", { class: "axis", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }));
  const labels = values.map((value) =>
    svg("text", { x: MARGIN.left - 8, y: y(value) + 4, "text-anchor": "end" }, number(value)));
  const room = (width - MARGIN.left) / Math.max(names.length, 1);
  const long = names.every((name) => name.long.length * 6.5 < room);
  const every = long ? 1 : Math.ceil(26 / room);
  const below = names.map((name, n) => {
    const again = n > 0 && name.short === names[n - 1].short; // another block of the same layer
    if (n % every || (again && !long)) return "";
    return svg("text", { x: x(n), y: height - 12, "text-anchor": "middle" }, long ? name.long : name.short);
  });
  return [...lines, ...labels, ...below];
}

export const inner = (width, height) => ({
  x: [MARGIN.left, width - MARGIN.right],
  y: [height - MARGIN.bottom, MARGIN.top],
});

export function path(points) {
  return points.map(([x, y], n) => `${n ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}

export function legend(element, entries) {
  const list = document.createElement("ul");
  list.className = "legend";
  for (const [kind, text] of entries) {
    const item = document.createElement("li");
    item.append(dot(kind), text);
    list.append(item);
  }
  element.querySelector(".legend")?.remove();
  element.prepend(list);
}

export const dot = (kind) =>
  svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("circle", { class: kind, cx: 5, cy: 5, r: 4.5 }));
