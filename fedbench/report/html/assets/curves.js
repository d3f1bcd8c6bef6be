// A metric over rounds, or over what the clients spend: the mean over seeds, and a band of one standard deviation.
const domainAsked = (board) => {
  const asked = state.domain ? board.domains.filter((d) => state.domain.has(d)) : [];
  return asked.length === 1 ? asked[0] : null;
};
const lineOf = (seeds, axis, domain) => {
  const points = new Map();
  for (const line of seeds) {
    const x = line.x[axis];
    if (!x) return null;
    const values = domain ? line.domains[domain] || [] : line.average;
    line.x.rounds.forEach((t, i) => {
      if (values[i] === null || values[i] === undefined) return;
      if (!points.has(t)) points.set(t, { x: [], y: [] });
      points.get(t).x.push(x[i]);
      points.get(t).y.push(values[i]);
    });
  }
  const found = [...points.entries()].sort(([a], [b]) => a - b);
  return found.map(([t, { x, y }]) => ({ t, x: mean(x), y: mean(y), sd: deviation(y), n: y.length }));
};

const curves = (board, W) => {
  const factor = percent(DATA.fraction), domain = domainAsked(board);
  const there = Object.entries(DATA.axes).filter(([axis]) => Object.values(board.lines).some((seeds) => seeds.every((s) => s.x[axis])));
  const axis = there.some(([name]) => name === state.x) ? state.x : "rounds";
  const lines = {};
  for (const label of drawnOf(board).filter((row) => !row.output).map((row) => row.label)) {
    const seeds = (board.lines[label] || []).filter((line) => state.seed === "" || String(line.seed) === state.seed);
    const points = seeds.length ? lineOf(seeds, axis, domain) : null;
    if (points && points.length) lines[label] = points;
  }
  const all = Object.values(lines).flat();
  if (new Set(all.map((p) => p.t)).size < 2) return null;
  const H = Math.round(Math.min(330, 200 + W * 0.16)), margin = { left: 42, right: Object.keys(lines).length > COLOURED ? 96 : 12, top: 22, bottom: 42 };
  const low = Math.min(...all.map((p) => p.y - (p.sd || 0))) * factor, high = Math.max(...all.map((p) => p.y + (p.sd || 0))) * factor;
  const [y0, y1] = widened(low, high);
  const xs = all.map((p) => p.x), x0 = axis === "rounds" ? Math.min(...xs) : 0, x1 = Math.max(...xs);
  const name = domain || (board.byClient ? "mean over clients" : "average");
  const { px, py, parts } = framed(W, H, margin,
    { low: x0, high: x1 === x0 ? x0 + 1 : x1, label: DATA.axes[axis], format: (t) => inUnit(t, axis) },
    { low: y0, high: y1, label: `${DATA.metric}${DATA.fraction ? ", %" : ""} (${name})` });
  const sign = DATA.higher ? -1 : 1, ordered = Object.keys(lines).sort((a, b) => sign * (lines[a].at(-1).y - lines[b].at(-1).y));
  const looks = looksOf(ordered), many = ordered.length > COLOURED;
  for (const [label, points] of Object.entries(lines)) {
    if (looks(label).grey) continue;
    const at = (p, d = 0) => `${px(p.x).toFixed(1)},${py((p.y + d) * factor).toFixed(1)}`;
    const banded = points.filter((p) => p.sd !== null);
    if (banded.length > 1) parts.push(svg("path", { class: "band", color: look(label).color,
      d: `M${banded.map((p) => at(p, p.sd)).join("L")}L${[...banded].reverse().map((p) => at(p, -p.sd)).join("L")}z` }));
  }
  for (const label of [...ordered].reverse()) { // what matters most is drawn last, on top
    const points = lines[label], own = looks(label);
    parts.push(svg("path", { class: own.grey ? "ink thin" : "ink", color: own.color, "stroke-dasharray": dashes(own),
      d: `M${points.map((p) => `${px(p.x).toFixed(1)},${py(p.y * factor).toFixed(1)}`).join("L")}` }));
    const every = Math.max(1, Math.ceil(points.length / 8));
    points.forEach((p, i) => {
      if (i % every && i !== points.length - 1) return;
      const spot = mark(label, px(p.x), py(p.y * factor), own.grey ? 0.6 : 0.9, own);
      spot.append(svg("title", {}, `${label}: ${shortly(p.y * factor, DATA.fraction)} after round ${p.t}`));
      parts.push(spot);
    });
  }
  if (many) parts.push(...labelled(ordered.map((label) => ({ text: clipped(label, 18), full: label, x: px(lines[label].at(-1).x), y: py(lines[label].at(-1).y * factor) })), W));
  const last = Object.entries(lines).map(([label, points]) => `${label} ${shortly(points.at(-1).y * factor, DATA.fraction)}`);
  const text = `Lines of ${DATA.metric} over ${DATA.axes[axis]}. At the end: ${last.join(", ")}.`;
  const rounds = [...new Set(all.map((p) => p.t))].sort((a, b) => a - b);
  const numbers = () => plainTable(`${DATA.metric}, ${name}, by round`, ["method", ...rounds.map((t) => `round ${t}`)],
    Object.entries(lines).map(([label, points]) => [label, ...rounds.map((t) => {
      const p = points.find((one) => one.t === t);
      return p ? [shortly(p.y * factor, DATA.fraction), p.sd === null ? "" : `±${shortly(p.sd * factor, DATA.fraction)}`] : "";
    })]));
  return figure(state.seed === "" ? "As it trains" : `As it trains, seed ${state.seed}`, picture(W, H, text, ...parts), {
    choices: there.length > 1 ? select("over", Object.fromEntries(there), axis, (x) => choose({ x })) : null,
    legend: keys(Object.keys(lines).filter((label) => !looks(label).grey)), numbers,
  });
};
