// A small panel for each domain, a bar for each method; of many domains a line for each method, a point for each domain.
const bars = (board, W) => {
  const columns = columnsOf(board);
  const domains = board.domains.filter((d) => wanted("domain", d));
  const rows = rowsOf(board).filter((row) => !row.output && domains.some((d) => worth(scoreIn(columns, d, row.at)) !== null));
  if (!rows.length || (board.domains.length < 2)) return null;
  if (domains.length > MANY) return points(domains, rows, columns, W);
  const label = Math.min(150, 12 + 6.6 * Math.max(...rows.map((row) => Math.min(20, row.label.length))));
  const least = 84, across = Math.max(1, Math.min(domains.length, Math.floor((W - label) / least)));
  const width = (W - label) / across, step = 17, head = 22, height = head + rows.length * step + 14;
  const values = domains.map((d) => rows.map((row) => worth(scoreIn(columns, d, row.at))));
  const top = DATA.fraction ? 100 : Math.max(...values.flat().filter((v) => v !== null)) || 1;
  const H = Math.ceil(domains.length / across) * height, parts = [];
  domains.forEach((domain, k) => {
    const x0 = label + (k % across) * width, y0 = Math.floor(k / across) * height, room = width - 50;
    parts.push(svg("text", { class: "name", x: x0, y: y0 + 13 }, clipped(domain, Math.floor(width / 7.4)), svg("title", {}, domain)));
    parts.push(svg("line", { class: "axis", x1: x0, x2: x0, y1: y0 + head - 2, y2: y0 + head + rows.length * step }));
    rows.forEach((row, i) => {
      const y = y0 + head + i * step, value = values[k][i];
      if (k % across === 0) {
        parts.push(svg("text", { class: "name", x: label - 8, y: y + 11.5, "text-anchor": "end" }, clipped(row.label, 20), svg("title", {}, row.label)));
      }
      if (value === null) return;
      const length = Math.max(0, (value / top) * room);
      parts.push(svg("rect", { class: "fill", color: look(row.label).color, x: x0, y: y + 3.5, width: length.toFixed(1), height: step - 8 }),
        svg("text", { x: x0 + length + 4, y: y + 11.5 }, textOf(scoreIn(columns, domain, row.at))));
    });
  });
  const text = `Bars of ${DATA.metric} by domain. ${domains.map((d, k) => `${d}: ${rows.map((r, i) => `${r.label} ${values[k][i] ?? "none"}`).join(", ")}`).join(". ")}.`;
  return figure("Domain by domain", picture(W, H, text, ...parts), { wide: domains.length > 3 && rows.length > 0 });
};
const scoreIn = (columns, title, at, part = "domain") => columns?.find((c) => c.title === title && c.part === part)?.cells[at] ?? "";
const MANY = 8;
const points = (domains, rows, columns, W) => {
  const label = Math.min(150, 12 + 6.6 * Math.max(...rows.map((row) => Math.min(20, row.label.length)))), step = 24;
  const values = rows.map((row) => domains.map((d) => worth(scoreIn(columns, d, row.at))));
  const all = values.flat().filter((v) => v !== null), margin = { left: label, right: 14, top: 8, bottom: 40 };
  const [low, high] = widened(Math.min(...all), Math.max(...all), 0.03), H = margin.top + rows.length * step + margin.bottom;
  const px = scale(low, high, label, W - margin.right), foot = margin.top + rows.length * step, parts = [];
  for (const t of ticks(low, high, Math.max(2, (W - label) / 70))) {
    parts.push(svg("line", { class: "grid", x1: px(t), x2: px(t), y1: margin.top, y2: foot }),
      svg("text", { x: px(t), y: foot + 15, "text-anchor": "middle" }, brief(t)));
  }
  parts.push(svg("text", { x: (label + W - margin.right) / 2, y: H - 4, "text-anchor": "middle" }, `${DATA.metric}${DATA.fraction ? ", %" : ""}`));
  const said = rows.map((row, i) => {
    const own = domains.map((d, k) => [d, values[i][k]]).filter(([, v]) => v !== null), y = margin.top + (i + 0.5) * step;
    parts.push(svg("text", { class: "name", x: label - 8, y: y + 4, "text-anchor": "end" }, clipped(row.label, 20), svg("title", {}, row.label)));
    for (const [d, v] of own) {
      parts.push(svg("circle", { class: "fill", color: look(row.label).color, "fill-opacity": 0.55, cx: px(v).toFixed(1), cy: y, r: 4 }, svg("title", {}, `${d}: ${v}`)));
    }
    const sorted = own.map(([, v]) => v).sort((a, b) => a - b), middle = (sorted[Math.floor((sorted.length - 1) / 2)] + sorted[Math.ceil((sorted.length - 1) / 2)]) / 2;
    if (sorted.length) parts.push(svg("line", { class: "ink", color: look(row.label).color, x1: px(middle), x2: px(middle), y1: y - 9, y2: y + 9 }));
    return `${row.label}: ${sorted.length ? `${brief(sorted[0])} to ${brief(sorted.at(-1))}, median ${brief(middle)}` : "none"}`;
  });
  const text = `${DATA.metric} of ${domains.length} domains, a point each. ${said.join(". ")}.`;
  return figure("Domain by domain", picture(W, H, text, ...parts), { wide: true, note: "A point is a domain, and the line is their median." });
};
