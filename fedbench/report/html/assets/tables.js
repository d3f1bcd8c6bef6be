// Tables of shown cells, as the terminal has them: real tables, whose columns put their rows in order.
const PARTS = ["gap", "cost"];

const cellOf = (tag, cell, attributes) => {
  const [text, spread] = Array.isArray(cell) ? cell : [cell, ""];
  return el(tag, attributes, text, spread ? el("span", { class: "spread" }, ` ${spread}`) : null);
};
const name = (text) => el("bdi", { class: [...text].length <= 24 ? "short" : null }, text);
const ordered = (places, cells, descending) => {
  const known = places.map((at) => [at, worth(cells[at]), textOf(cells[at])]);
  const numbers = known.some(([, value]) => value !== null);
  const sign = descending ? -1 : 1;
  const compare = ([, a, s], [, b, t]) => {
    if (!numbers) return sign * s.localeCompare(t, "en");
    if (a === null || b === null) return (a === null) - (b === null); // what has no number stands last either way
    return sign * (a - b);
  };
  return known.sort(compare).map(([at]) => at);
};

// table: columns, caption, faint; options: rows (positions shown), head (what stands in a row's first cell), body (what
// is changed in any other), sort [title, descending] and sorted(title), titles (which columns are shown).
const drawTable = (table, options = {}) => {
  const [first, ...rest] = table.columns.filter((column, at) => !at || !options.titles || options.titles(column.title));
  let places = options.rows || first.cells.map((_, at) => at);
  const [by, descending] = options.sort || [null, false];
  const sorting = by && [first, ...rest].find((column) => column.title === by);
  if (sorting) places = ordered(places, sorting.cells, descending);
  const parted = (column, at) => (at && PARTS.includes(column.part) && column.part !== rest[at - 1].part ? "part" : "");
  const heading = (column, at) => {
    const order = sorting === column ? (descending ? "descending" : "ascending") : null;
    const title = options.sorted
      ? el("button", { type: "button", title: "Put rows in order", on: { click: () => options.sorted(column) } }, column.title)
      : column.title;
    return el("th", { scope: "col", class: `${column.left ? "left" : ""} ${at < 0 ? "" : parted(column, at)}`, "aria-sort": order }, title);
  };
  const line = (at) => el("tr", { class: table.faint.includes(at) ? "stands-back" : null },
    el("th", { scope: "row" }, options.head ? options.head(at, first.cells[at]) : name(textOf(first.cells[at]))),
    rest.map((column, k) => {
      const made = cellOf("td", column.cells[at], { class: `${column.left ? "left" : ""} ${parted(column, k)}` });
      if (options.body) options.body(made, column, at);
      return made;
    }));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": options.label || table.caption || "Table" },
    el("table", {},
      el("caption", { class: options.quiet ? "away" : null }, options.quiet || table.caption || options.label || ""),
      el("thead", {}, el("tr", {}, heading(first, -1), rest.map(heading))),
      el("tbody", {}, places.map(line))));
};

// A table that keeps its own order, unlike the leaderboards, which share theirs.
const sortedAlone = (table, options = {}) => {
  const place = el("div", {});
  let sort = null;
  const draw = () => {
    const held = place.contains(document.activeElement) ? document.activeElement.textContent : null;
    place.replaceChildren(drawTable(table, { ...options, sort, sorted: (column) => {
      sort = next(sort, column);
      draw();
    } }));
    if (held) [...place.querySelectorAll("th button")].find((button) => button.textContent === held)?.focus();
  };
  draw();
  return place;
};
// First the way that numbers are read, the largest on top; then the other; then as it was.
const next = (sort, column) => {
  const words = column.left || column.part === "name";
  if (!sort || sort[0] !== column.title) return [column.title, !words];
  return sort[1] === !words ? [column.title, words] : null;
};

const pageOf = (page, options = {}) => [
  page.warning ? el("p", { class: "warning" }, page.warning) : null,
  page.tables.map((table) => [
    options.plainly ? drawTable(table, options) : sortedAlone(table, options),
  ]),
  take(page.key),
  list(page.remarks),
  list(page.notes, "warn"),
];
