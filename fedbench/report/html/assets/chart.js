// What pictures share: scales, axes, marks and the words that say the same without a picture.
const DASHES = { "-": null, "--": "7 4", ":": "2 3", "-.": "8 3 2 3" };
const SHAPES = {
  o: "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z", s: "M-3.6,-3.6h7.2v7.2h-7.2z", D: "M0,-4.8L4.8,0L0,4.8L-4.8,0z",
  d: "M0,-5L3.2,0L0,5L-3.2,0z", "^": "M0,-4.6L4.4,3.6H-4.4z", v: "M0,4.6L4.4,-3.6H-4.4z", "<": "M-4.6,0L3.6,-4.4V4.4z",
  ">": "M4.6,0L-3.6,-4.4V4.4z", p: "M0,-4.6L4.4,-1.4L2.7,3.7H-2.7L-4.4,-1.4z", h: "M0,-4.6L4,-2.3V2.3L0,4.6L-4,2.3V-2.3z",
  "*": "M0,-5.4L1.4,-1.7L5.2,-1.6L2.2,0.8L3.2,4.5L0,2.4L-3.2,4.5L-2.2,0.8L-5.2,-1.6L-1.4,-1.7z",
  X: "M-3.6,-3.6L3.6,3.6M-3.6,3.6L3.6,-3.6", P: "M0,-4.6V4.6M-4.6,0H4.6",
};
const COLOURED = 8; // methods of a picture in colour; of more, the others are grey, and all are named where there is room
const FAINT = "#9a9a9a";
const look = (label) => DATA.looks[label] || { color: "#777777", linestyle: "-", marker: "o" };
// The looks of one picture; ordered: its labels, what matters most first.
const looksOf = (ordered) => {
  const first = new Set(ordered.length > COLOURED ? ordered.slice(0, COLOURED) : ordered);
  return (label) => (first.has(label) ? look(label) : { ...look(label), color: FAINT, grey: true });
};
const dashes = ({ linestyle }) => (Array.isArray(linestyle) ? linestyle[1].map((n) => 1.8 * n).join(" ") : DASHES[linestyle]);
const mark = (label, x, y, size = 1, { color, marker } = look(label)) => {
  return svg("path", { d: SHAPES[marker] || SHAPES.o, class: "XP".includes(marker) ? "cross" : "mark", color,
    transform: `translate(${x.toFixed(1)},${y.toFixed(1)}) scale(${size})` });
};
const key = (label) => svg("svg", { class: "key", viewBox: "0 0 22 12", "aria-hidden": "true", focusable: "false" },
  svg("line", { x1: 0, x2: 22, y1: 6, y2: 6, class: "ink", color: look(label).color, "stroke-dasharray": dashes(look(label)) }),
  mark(label, 11, 6, 0.95));
const keys = (labels) => el("ul", { class: "keys" }, labels.map((label) => el("li", {}, key(label), el("bdi", {}, label))));

const ticks = (low, high, most) => {
  const raw = (high - low) / Math.max(1, most) || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const found = [];
  for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + step * 1e-9; t += step) found.push(Number(t.toPrecision(12)));
  return found;
};
const decades = (low, high) => {
  const found = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++) {
    for (const m of [1, 2, 5]) if (m * 10 ** p >= low * 0.999 && m * 10 ** p <= high * 1.001) found.push(m * 10 ** p);
  }
  return found.length > 6 ? found.filter((t) => String(t / 10 ** Math.floor(Math.log10(t) + 1e-9)).startsWith("1")) : found;
};
const scale = (low, high, from, to, log = false) => {
  const f = log ? Math.log10 : (v) => v;
  const span = f(high) - f(low) || 1;
  return (v) => from + ((f(v) - f(low)) / span) * (to - from);
};
const widened = (low, high, part = 0.05) => {
  const room = (high - low || Math.abs(high) || 1) * part;
  return [low - room, high + room];
};

// Axes of a picture of W x H with its margins; x and y are {low, high, log, label, format, ticks}.
const framed = (W, H, margin, x, y) => {
  const right = W - margin.right, bottom = H - margin.bottom;
  const px = scale(x.low, x.high, margin.left, right, x.log), py = scale(y.low, y.high, bottom, margin.top);
  const along = x.ticks || (x.log ? decades(x.low, x.high) : ticks(x.low, x.high, Math.max(2, (right - margin.left) / 70)));
  const parts = [];
  for (const t of ticks(y.low, y.high, Math.max(2, (bottom - margin.top) / 44))) {
    parts.push(svg("line", { class: "grid", x1: margin.left, x2: right, y1: py(t), y2: py(t) }),
      svg("text", { x: margin.left - 7, y: py(t) + 4, "text-anchor": "end" }, (y.format || brief)(t)));
  }
  for (const t of along) {
    parts.push(svg("line", { class: "tick", x1: px(t), x2: px(t), y1: bottom, y2: bottom + 4 }),
      svg("text", { x: px(t), y: bottom + 17, "text-anchor": "middle" }, (x.format || brief)(t)));
  }
  parts.push(svg("line", { class: "axis", x1: margin.left, x2: right, y1: bottom, y2: bottom }),
    svg("text", { x: (margin.left + right) / 2, y: H - 4, "text-anchor": "middle" }, x.label));
  if (y.label) parts.push(svg("text", { x: margin.left, y: margin.top - 8, "text-anchor": "start" }, y.label));
  return { px, py, parts };
};

const picture = (W, H, label, ...parts) =>
  svg("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": label }, ...parts);

// A figure with its title, what the reader may choose, and the same numbers as a table.
const figure = (title, drawing, { choices = null, legend = null, numbers = null, wide = false, note = null } = {}) =>
  el("figure", { class: wide ? "wide" : null }, el("figcaption", {}, el("span", {}, title), choices), drawing, legend,
    note ? el("p", { class: "caption" }, note) : null,
    numbers ? more("The same as a table", () => drawTable(numbers(), { label: title })) : null);

const select = (label, options, value, changed) => el("label", {}, `${label} `,
  el("select", { "data-choice": label, on: { change: (event) => changed(event.target.value) } },
    Object.entries(options).map(([id, name]) => el("option", { value: id, selected: id === value }, name))));
const plainTable = (caption, titles, rows) => ({ caption, faint: [],
  columns: titles.map((title, k) => ({ title, part: k ? "score" : "name", left: !k, cells: rows.map((row) => row[k]) })) });
const percent = (fraction) => (fraction ? 100 : 1);
const shortly = (value, fraction) => (value === null || value === undefined ? "" : fraction ? value.toFixed(1) : value.toFixed(3));
