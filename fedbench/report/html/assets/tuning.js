// The best score to expect of so many candidates, drawn at random (Dodge et al. 2019), and every candidate's own.
const tuned = (contest, W) => {
  const factor = percent(contest.fraction), shown = Object.entries(contest.methods).filter(([name]) => wanted("method", name));
  if (!shown.length) return null;
  const n = shown[0][1].expected.length, H = Math.round(Math.min(330, 200 + W * 0.16)), margin = { left: 42, right: shown.length > COLOURED ? 96 : 12, top: 22, bottom: 42 };
  const values = shown.flatMap(([, one]) => one.expected).map((v) => v * factor);
  const [y0, y1] = widened(Math.min(...values), Math.max(...values));
  const { px, py, parts } = framed(W, H, margin, { low: 1, high: Math.max(2, n), label: "candidates tried", ticks: [...Array(n).keys()].map((i) => i + 1).filter((t) => n <= 12 || t === 1 || t % Math.ceil(n / 8) === 0) },
    { low: y0, high: y1, label: `${contest.metric} on validation images${contest.fraction ? ", %" : ""}` });
  const ordered = shown.map(([label]) => label).sort((a, b) => contest.methods[b].expected.at(-1) - contest.methods[a].expected.at(-1));
  const looks = looksOf(ordered);
  for (const [label, one] of shown) {
    parts.push(svg("path", { class: "ink", color: looks(label).color, "stroke-dasharray": dashes(look(label)),
      d: `M${one.expected.map((v, i) => `${px(i + 1).toFixed(1)},${py(v * factor).toFixed(1)}`).join("L")}` }));
    one.expected.forEach((v, i) => { if (i % Math.max(1, Math.ceil(n / 8)) === 0 || i === n - 1) parts.push(mark(label, px(i + 1), py(v * factor), 0.9, looks(label))); });
  }
  if (ordered.length > COLOURED) parts.push(...labelled(ordered.map((label) => ({ text: clipped(label, 18), full: label, x: px(n), y: py(contest.methods[label].expected.at(-1) * factor) })), W));
  const text = `Lines of the best ${contest.metric} to expect of 1 to ${n} candidates. With all: ${shown.map(([label, one]) => `${label} ${shortly(one.expected.at(-1) * factor, contest.fraction)}`).join(", ")}.`;
  const numbers = () => plainTable("Best score to expect", ["method", ...[...Array(n).keys()].map((i) => `${i + 1}`)],
    shown.map(([label, one]) => [label, ...one.expected.map((v) => shortly(v * factor, contest.fraction))]));
  return figure("What so many trials give", picture(W, H, text, ...parts), { legend: keys(shown.map(([label]) => label).filter((label) => !looks(label).grey)), numbers });
};
