// Score against what it cost, and the front: judged where `fedbench compare pareto` judges it, and only drawn here.
const UNITS = { rounds: "", bytes: "B", flops: "", seconds: "s", joules: "J", memory: "B" };
const inUnit = (value, what) => {
  const text = brief(value), unit = UNITS[what] || "";
  return unit ? (text.includes(" ") ? text + unit : `${text} ${unit}`) : text;
};

const pareto = (board, W) => {
  const there = Object.keys(board.fronts);
  if (!there.length || state.seed !== "") return null; // a front is one of means
  const what = there.includes(state.cost) ? state.cost : there[0], columns = board.page.tables[0].columns;
  const places = new Map(drawnOf(board).map((row) => [row.label, row.at]));
  const points = board.fronts[what].filter((p) => places.has(p.label) && p.spent > 0)
    .map((p) => ({ ...p, y: worth(scoreIn(columns, "average", places.get(p.label), "score")) })).filter((p) => p.y !== null);
  if (points.length < 2) return null;
  const front = points.filter((p) => p.front).sort((a, b) => a.spent - b.spent);
  const H = Math.round(Math.min(330, 200 + W * 0.16)), margin = { left: 42, right: 12, top: 22, bottom: 42 };
  const xs = points.map((p) => p.spent), log = Math.max(...xs) / Math.min(...xs) > 12;
  const [x0, x1] = log ? [Math.min(...xs) / 1.5, Math.max(...xs) * 1.9] : widened(Math.min(...xs), Math.max(...xs), 0.14);
  const [y0, y1] = widened(Math.min(...points.map((p) => p.y)), Math.max(...points.map((p) => p.y)), 0.1);
  const { px, py, parts } = framed(W, H, margin,
    { low: log ? x0 : Math.max(0, x0), high: x1, log, label: `${DATA.resources[what]}${log ? " (logarithmic)" : ""}`, format: (t) => inUnit(t, what) },
    { low: y0, high: y1, label: `${DATA.metric}${DATA.fraction ? ", %" : ""}` });
  if (front.length) {
    let path = `M${px(front[0].spent)},${py(front[0].y)}`;
    for (const p of front.slice(1)) path += `H${px(p.spent)}V${py(p.y)}`;
    parts.push(svg("path", { class: "front", d: `${path}H${W - margin.right}` }));
  }
  const sign = DATA.higher ? -1 : 1, ordered = [...points].sort((a, b) => b.front - a.front || sign * (a.y - b.y));
  const looks = looksOf(ordered.map((p) => p.label));
  for (const p of [...ordered].reverse()) {
    const spot = mark(p.label, px(p.spent), py(p.y), 1.15, looks(p.label));
    if (p.verdict === "beaten") spot.setAttribute("opacity", "0.45");
    spot.append(svg("title", {}, `${p.label}: ${p.y} at ${inUnit(p.spent, what)}`));
    parts.push(spot);
  }
  parts.push(...labelled(ordered.map((p) => ({ text: clipped(p.label, 18), full: p.label, x: px(p.spent), y: py(p.y) })), W));
  const text = `Points of ${DATA.metric} against ${DATA.resources[what]}. On the front: ${front.map((p) => p.label).join(", ") || "none"}. ` +
    points.map((p) => `${p.label} ${p.y} at ${inUnit(p.spent, what)}`).join(", ") + ".";
  const numbers = () => plainTable("Score and cost", ["method", DATA.metric, what, "front", "verdict"],
    points.map((p) => [p.label, textOf(scoreIn(columns, "average", places.get(p.label), "score")), inUnit(p.spent, what), p.front ? "yes" : "", p.verdict]));
  return figure("What it costs", picture(W, H, text, ...parts), {
    choices: select("against", Object.fromEntries(there.map((name) => [name, DATA.resources[name]])), what, (cost) => choose({ cost })),
    note: "Dotted line: Pareto front. Faded: a method that costs no more is significantly better.", numbers,
  });
};

// Names next to their points, where there is room; one that fits nowhere is left to its mark, as in the table.
const labelled = (points, W) => {
  const taken = points.map((p) => ({ x0: p.x - 6, x1: p.x + 6, y0: p.y - 6, y1: p.y + 6 }));
  const free = (box) => box.x0 >= 2 && box.x1 <= W - 2 && box.y0 >= 8 &&
    !taken.some((t) => box.x0 < t.x1 && box.x1 > t.x0 && box.y0 < t.y1 && box.y1 > t.y0);
  const parts = [];
  for (const p of points) {
    const wide = 6.6 * [...p.text].length;
    const spots = [[8, 4, "start"], [-8, 4, "end"], [0, -9, "middle"], [0, 17, "middle"], [8, -7, "start"], [8, 15, "start"], [-8, -7, "end"], [-8, 15, "end"]];
    for (const [dx, dy, anchor] of spots) {
      const x0 = p.x + dx - (anchor === "end" ? wide : anchor === "middle" ? wide / 2 : 0);
      const box = { x0, x1: x0 + wide, y0: p.y + dy - 10, y1: p.y + dy + 3 };
      if (!free(box)) continue;
      taken.push(box);
      parts.push(svg("text", { class: "name", x: p.x + dx, y: p.y + dy, "text-anchor": anchor }, p.text, svg("title", {}, p.full)));
      break;
    }
  }
  return parts;
};
