// Who trained which layer, in how many of its rounds: darker is more often; below, how many clients a layer had.
const heat = (board, W) => {
  const found = board.allocation;
  if (!found) return null;
  const shown = rowsOf(board).filter((row) => found.methods[row.label]).map((row) => row.label);
  if (!shown.length) return null;
  const rows = found.rows.length, L = found.methods[shown[0]].share[0].length;
  const side = Math.min(130, 10 + 5.8 * Math.max(...found.rows.map((name) => Math.min(20, name.length))));
  const across = Math.max(1, Math.min(shown.length, Math.floor((W - side) / 150)));
  const width = (W - side) / across, cell = Math.min(16, (width - 18) / L), high = 13;
  const head = 36, sums = 26, height = head + rows * high + sums + 30;
  const most = Math.max(...shown.flatMap((label) => found.methods[label].holders));
  const parts = [];
  shown.forEach((label, k) => {
    const one = found.methods[label], x0 = side + (k % across) * width, y0 = Math.floor(k / across) * height;
    parts.push(svg("text", { class: "name", x: x0, y: y0 + 13 }, clipped(label, Math.floor(width / 7)), svg("title", {}, label)),
      svg("text", { x: x0, y: y0 + 28 }, `Γ* ${one.gamma}, cover ${one.coverage.toFixed(2)}`));
    one.share.forEach((line, i) => {
      const y = y0 + head + i * high;
      if (k % across === 0) parts.push(svg("text", { x: side - 8, y: y + 10, "text-anchor": "end" }, clipped(found.rows[i], 20)));
      line.forEach((share, j) => parts.push(svg("rect", { class: share ? "cell" : "empty", x: (x0 + j * cell).toFixed(1), y, width: (cell - 1).toFixed(1), height: high - 1,
        "fill-opacity": share ? (0.12 + 0.88 * share / 100).toFixed(2) : null })));
    });
    const floor = y0 + head + rows * high + sums;
    one.holders.forEach((n, j) => parts.push(svg("rect", { class: "cell", x: (x0 + j * cell).toFixed(1), y: (floor - 22 * n / most).toFixed(1),
      width: (cell - 1).toFixed(1), height: (22 * n / most).toFixed(1), "fill-opacity": 0.55 })));
    for (const j of [0, L - 1]) parts.push(svg("text", { x: x0 + (j + 0.5) * cell, y: floor + 14, "text-anchor": "middle" }, String(j + 1)));
    parts.push(svg("text", { x: x0 + L * cell / 2, y: floor + 14, "text-anchor": "middle" }, "layer"));
  });
  const H = Math.ceil(shown.length / across) * height;
  const text = `Heat-maps of the share of rounds in which a client trained a layer, seed ${found.methods[shown[0]].seed}. ` +
    shown.map((label) => `${label}: smallest number of clients of a layer ${found.methods[label].gamma}, mean ${found.methods[label].coverage}`).join("; ") + ".";
  const layers = [...Array(L).keys()].map((j) => `layer ${j + 1}`);
  const numbers = () => plainTable("Percent of its rounds in which a client trained a layer", ["method, client", ...layers],
    shown.flatMap((label) => found.methods[label].share.map((line, i) => [`${label}, ${found.rows[i]}`, ...line.map((v) => (v === null ? "" : String(v)))])));
  return figure(`Who trains which layer, seed ${found.methods[shown[0]].seed}`, picture(W, H, text, ...parts), {
    wide: true, numbers,
    note: `Rows: ${found.alone ? "client · domain · layers it can hold" : "domain (clients)"}. The stronger the colour, the more of its rounds, up to all. Below: clients of a layer in a mean round, up to ${brief(most)}.`,
  });
};
