// Mean ranks over scenarios, the best on top, and who stands within the critical difference of whom.
const diagram = (found, W) => {
  const shown = found.methods.filter((name) => wanted("method", name));
  if (!found || shown.length < 2) return null;
  const k = found.methods.length, label = Math.min(W * 0.36, 20 + 6.8 * Math.max(...shown.map((name) => Math.min(24, name.length))));
  const side = 16 + 9 * found.bars.length, right = Math.max(label + 80, W - side), step = 21, head = 82;
  const H = head + shown.length * step + 8, px = scale(1, k, label, right - 12), parts = [];
  const cd = Math.min(found.cd, k - 1);
  parts.push(svg("line", { class: "axis", x1: px(1), x2: px(k), y1: 62, y2: 62 }));
  const every = Math.max(1, Math.ceil(k / Math.max(2, (right - label) / 30)));
  for (let r = 1; r <= k; r += every) {
    parts.push(svg("line", { class: "tick", x1: px(r), x2: px(r), y1: 58, y2: 62 }), svg("text", { x: px(r), y: 53, "text-anchor": "middle" }, String(r)));
  }
  const words = `CD ${found.cd.toFixed(2)}${found.cd > k - 1 ? ", longer than the axis" : ""}`;
  parts.push(svg("path", { class: "axis", d: `M${px(1)},18v8M${px(1)},22H${px(1 + cd)}M${px(1 + cd)},18v8` }));
  parts.push(svg("text", { x: px(1), y: 12, "text-anchor": "start" }, words));
  const place = {};
  shown.forEach((name, i) => {
    const y = place[name] = head + i * step, rank = found.ranks[name];
    parts.push(svg("line", { class: "lead", x1: label, x2: px(rank), y1: y, y2: y }),
      svg("text", { class: "name", x: label - 9, y: y + 4, "text-anchor": "end" }, clipped(name, 24), svg("title", {}, name)),
      mark(name, px(rank), y, 1.15),
      svg("text", { x: px(rank) > right - 80 ? px(rank) - 10 : px(rank) + 10, y: y + 4, "text-anchor": px(rank) > right - 80 ? "end" : "start" },
        `${rank.toFixed(2)}${found.groups[name] ? ` ${found.groups[name]}` : ""}`));
  });
  found.bars.forEach(([first, last], i) => {
    const within = shown.filter((name) => found.ranks[name] >= first - 1e-6 && found.ranks[name] <= last + 1e-6);
    if (within.length < 2) return;
    const x = right + 6 + 9 * i;
    parts.push(svg("line", { class: "thick", x1: x, x2: x, y1: place[within[0]] - 5, y2: place[within.at(-1)] + 5 }));
  });
  const text = `Mean ranks over ${found.scenarios} scenarios, 1 the best: ${shown.map((name) => `${name} ${found.ranks[name].toFixed(2)}`).join(", ")}. Critical difference ${found.cd.toFixed(2)}.`;
  return figure(`Mean ranks over ${found.scenarios} scenarios`, picture(W, H, text, ...parts), {
    note: "Thick lines join methods within Nemenyi's critical difference (CD), which depends on the pool of methods. " +
      (Object.keys(found.groups).length ? "Letters: methods that share one are not significantly different by paired tests; they decide, the lines do not."
        : found.crossing ? "No letters: which of two methods is better depends on the scenario."
          : "Seeds and scenarios are too few for paired tests: nothing is concluded about two methods."),
  });
};
