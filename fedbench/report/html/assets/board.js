// One leaderboard: its table, what to mind, and its pictures.
const boardTable = (board) => {
  const columns = columnsOf(board);
  if (!columns) return el("p", { class: "note" }, `No finished cell of seed ${state.seed}.`);
  const table = { ...board.page.tables[0], columns };
  const rows = rowsOf(board), byPlace = new Map(rows.map((row) => [row.at, row]));
  const intervals = columns.find((c) => c.title === "95 % interval");
  const spans = (intervals?.cells || []).map((cell) => bounds(textOf(cell)));
  const ends = drawnOf(board).flatMap((row) => spans[row.at] || []), low = Math.min(...ends), high = Math.max(...ends);
  const lead = best(board, columns);
  const [title, way] = [state.sort.slice(0, -1), state.sort.slice(-1)];
  return drawTable(table, {
    rows: rows.map((row) => row.at), label: board.title, quiet: `${board.title}: ${board.caption}`,
    sort: state.sort ? [title, way === "-"] : null,
    sorted: (column) => {
      const sort = next(state.sort ? [title, way === "-"] : null, column);
      choose({ sort: sort ? sort[0] + (sort[1] ? "-" : "+") : "" });
      [...document.querySelectorAll(`#${CSS.escape(idOf(board))} th button`)].find((b) => b.textContent === column.title)?.focus();
    },
    titles: (name) => (board.domains.includes(name) ? wanted("domain", name) && (!board.many || state.domain !== null) : columnShown(name)),
    head: (at) => {
      const row = byPlace.get(at);
      const long = row.label.length > 22 ? "who long" : "who";
      return el("span", { class: long }, key(row.label), el("bdi", {}, row.label), row.role === "method" || row.output ? null : el("span", { class: "role" }, row.role));
    },
    body: (td, column, at) => {
      if (column.title === "average" && lead === at) td.classList.add("best");
      if (column === intervals && spans[at] && spans[at][0] >= low && spans[at][1] <= high) td.append(strip(spans[at], low, high));
    },
  });
};
// The place of the best mean of all ranked methods; -1 for fewer than two.
const best = (board, columns) => {
  const sign = DATA.higher ? 1 : -1, average = columns.find((c) => c.title === "average");
  const ranked = board.rows.map((row, at) => ({ ...row, at, value: worth(average.cells[at]) })).filter((row) => row.ranked && row.value !== null);
  return ranked.length > 1 ? ranked.reduce((a, b) => (sign * b.value > sign * a.value ? b : a)).at : -1;
};
const strip = ([a, b], low, high) => {
  const x = scale(low, high === low ? low + 1 : high, 1, 99);
  return svg("svg", { class: "strip", viewBox: "0 0 100 5", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("line", { x1: x(a), x2: x(b), y1: 2.5, y2: 2.5 }));
};

const idOf = (board) => board.key.replace(" ", "-");
const DETAILS = { costs: "Costs in detail", pairs: "Pair by pair", clients: "Client by client" };

const boardSection = (board, width) => {
  const half = Math.min(width, width > 860 ? (width - 40) / 2 : width);
  const wide = [bars, heat];
  const figures = columnsOf(board) ? [curves(board, half), pareto(board, half), ...wide.map((draw) => draw(board, width))].filter(Boolean) : [];
  return el("section", { class: "board", id: idOf(board), "aria-labelledby": `${idOf(board)}-title` },
    el("h3", { id: `${idOf(board)}-title` }, board.title),
    el("p", { class: "caption" }, board.caption), board.page.above ? el("p", {}, board.page.above) : null,
    boardTable(board), take(board.key, DATA.cites ? CITING : FORMS), list(board.page.remarks), list(board.page.notes, "warn"),
    board.sizes ? more("What clients can run of it: deployable models", () => pageOf(board.sizes)) : null,
    figures.length ? el("div", { class: "figures" }, figures) : null,
    Object.entries(board.details).map(([name, page]) => more(DETAILS[name], () => pageOf(page))));
};
