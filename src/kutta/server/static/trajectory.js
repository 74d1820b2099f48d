// The paths of all tokens through the blocks, in a plane.
import { chart, hue, linear, path, svg } from "./charts.js";

const SIDE = 64; // room for a word on either side
const LINE = 15; // height of a word

// Draws the paths of a stack up to a depth, which may be between two blocks.
export function trajectory(element, { path: places, tokens, blocks }, depth) {
  const flat = places.flat().filter((place) => place); // the mark of the end has no path
  const span = (axis) => [Math.min(...flat.map((p) => p[axis] ?? 0)), Math.max(...flat.map((p) => p[axis] ?? 0))];
  const label = `Paths of ${tokens.length - 1} tokens through ${blocks.length} blocks, in a plane`;
  chart(element, 400, label, (width, height) => {
    const x = linear(span(0), [SIDE, width - SIDE]);
    const y = linear(span(1), [height - 28, 24]);
    const point = ([a, b]) => [x(a ?? 0), y(b ?? 0)];
    const words = [...tokens.keys()].filter((n) => places[0][n]);
    const paths = words.map((n) => places.map((row) => point(row[n])));
    const heads = paths.map((all) => upTo(all, depth));
    const taken = heads.map((gone) => ({ top: gone.at(-1)[1], from: gone.at(-1)[0] - 5, width: 10 }));
    return words.map((n, k) => {
      const [all, gone] = [paths[k], heads[k]];
      const stroke = hue(n, tokens.length);
      const [cx, cy] = gone.at(-1);
      return svg("g", { class: "token", "data-token": n },
        svg("path", { class: "series ghost", d: path(all), stroke }),
        svg("path", { class: "series", d: path(gone), stroke }),
        ...gone.slice(0, -1).map(([left, top]) => svg("circle", { cx: left, cy: top, r: 2.5, fill: stroke })),
        svg("circle", { cx, cy, r: 5, fill: stroke }),
        word(tokens[n], gone, taken),
        svg("path", { class: "hit", d: path(all) }));
    });
  });
}

function upTo(points, depth) {
  const whole = Math.floor(depth);
  const gone = points.slice(0, whole + 1);
  if (whole < points.length - 1) {
    const part = depth - whole;
    gone.push(points[whole].map((value, axis) => value + part * (points[whole + 1][axis] - value)));
  }
  return gone;
}

// The word at the head of a path, on the side that it goes to, and clear of the places `taken`.
function word(text, gone, taken) {
  const [x, y] = gone.at(-1);
  const before = gone.findLast((place) => Math.abs(place[0] - x) > 1) ?? [x];
  const left = before[0] > x;
  const width = 7 * text.length;
  const from = left ? x - 9 - width : x + 9;
  const free = (top) => taken.every((one) =>
    Math.abs(one.top - top) >= LINE || one.from > from + width || one.from + one.width < from);
  const top = [0, -LINE, LINE, -2 * LINE, 2 * LINE].map((shift) => y + shift).find(free) ?? y;
  taken.push({ top, from, width });
  return svg("text", { class: "halo", x: left ? x - 9 : x + 9, y: top + 4, "text-anchor": left ? "end" : "start" }, text);
}
