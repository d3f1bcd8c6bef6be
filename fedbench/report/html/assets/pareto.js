// Score against what it cost: on the front stand the methods that no other beats in both.
const pareto = (board, W) => {
  const columns = columnsOf(board) || [];
  const costs = columns.filter((c) => c.part === "cost" && !["Γ*", "cover"].includes(c.title));
  const cost = costs.find((c) => c.title === state.cost) || costs[0];
  if (!cost) return null;
  const points = rowsOf(board).filter((row) => !row.output)
    .map((row) => ({ row, x: worth(cost.cells[row.at]), y: worth(scoreIn(columns, "average", row.at)), shown: textOf(cost.cells[row.at]) }))
    .filter((p) => p.x !== null && p.y !== null && p.x > 0);
  if (points.length < 2) return null;
  const better = DATA.higher ? 1 : -1;
  const ranked = points.filter((p) => p.row.ranked);
  const front = ranked.filter((p) => !ranked.some((q) => q !== p && q.x <= p.x && better * q.y >= better * p.y && (q.x < p.x || q.y !== p.y)))
    .sort((a, b) => a.x - b.x);
  const H = Math.round(Math.min(330, 200 + W * 0.16)), margin = { left: 42, right: 12, top: 22, bottom: 42 };
  const xs = points.map((p) => p.x), log = Math.max(...xs) / Math.min(...xs) > 12;
  const [x0, x1] = log ? [Math.min(...xs) / 1.5, Math.max(...xs) * 1.9] : widened(Math.min(...xs), Math.max(...xs), 0.14);
  const [y0, y1] = widened(Math.min(...points.map((p) => p.y)), Math.max(...points.map((p) => p.y)), 0.1);
  const bytes = /B$/.test(points[0].shown) ? "B" : "";
  const { px, py, parts } = framed(W, H, margin,
    { low: log ? x0 : Math.max(0, x0), high: x1, log, label: `${cost.title}${log ? ", logarithmic" : ""}`, format: (t) => `${brief(t)}${bytes}` },
    { low: y0, high: y1, label: `${DATA.metric}${DATA.fraction ? ", %" : ""}` });
  if (front.length > 1) parts.push(svg("path", { class: "front", d: `M${front.map((p) => `${px(p.x)},${py(p.y)}`).join("L")}` }));
  for (const p of points) {
    const spot = mark(p.row.label, px(p.x), py(p.y), 1.15);
    spot.append(svg("title", {}, `${p.row.label}: ${p.y} at ${p.shown}`));
    parts.push(spot);
  }
  parts.push(...labelled(points.map((p) => ({ text: clipped(p.row.label, 18), full: p.row.label, x: px(p.x), y: py(p.y) })), W));
  const told = `Points of ${DATA.metric} against ${cost.title}. On the front: ${front.map((p) => p.row.label).join(", ")}. ` +
    points.map((p) => `${p.row.label} ${p.y} at ${p.shown}`).join(", ") + ".";
  return figure("What it costs", picture(W, H, told, ...parts), {
    choices: select("against", Object.fromEntries(costs.map((c) => [c.title, c.title])), cost.title, (title) => choose({ cost: title })),
    note: front.length > 1 ? "Dotted: the front, of methods that no other ranked one beats at a lower cost." : null,
  });
};

// Names beside their points, each where the most room is: right, left, above or below; one that fits nowhere is left to its mark.
const labelled = (points, W) => {
  const taken = points.map((p) => ({ x0: p.x - 6, x1: p.x + 6, y0: p.y - 6, y1: p.y + 6 }));
  const free = (box) => box.x0 >= 2 && box.x1 <= W - 2 && box.y0 >= 8 && !taken.some((t) => box.x0 < t.x1 && box.x1 > t.x0 && box.y0 < t.y1 && box.y1 > t.y0);
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
