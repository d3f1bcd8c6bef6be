// A small panel for each domain, a bar for each method: the numbers of the leaderboard's columns.
const bars = (board, W) => {
  const columns = columnsOf(board);
  const domains = board.domains.filter((d) => wanted("domain", d));
  const rows = rowsOf(board).filter((row) => !row.output && domains.some((d) => worth(scoreIn(columns, d, row.at)) !== null));
  if (!rows.length || (board.domains.length < 2)) return null;
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
const scoreIn = (columns, title, at) => columns?.find((c) => c.title === title && c.part === "score")?.cells[at] ?? "";
