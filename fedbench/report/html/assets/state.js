// What the reader chose, kept in the address behind `#`, so that a view can be sent.
const DATA = JSON.parse(document.getElementById("data").textContent);
const SETS = ["scenario", "method", "role", "domain"];
const AWAY = ["role", "gap, 95 % interval", "srv memory", "client sd"]; // until asked for
const START = { seed: "", sort: "", x: "rounds", cost: "", columns: null };

const state = { ...START };
const watchers = [];

const read = () => {
  Object.assign(state, START);
  for (const name of SETS) state[name] = null;
  for (const part of location.hash.slice(1).split("&")) {
    const [name, value] = [part.split("=")[0], part.slice(part.indexOf("=") + 1)];
    if (![...SETS, ...Object.keys(START)].includes(name) || !part.includes("=")) continue;
    try {
      if (SETS.includes(name) || name === "columns") state[name] = new Set(value ? value.split(",").map(decodeURIComponent) : []);
      else state[name] = decodeURIComponent(value);
    } catch { /* an address that was cut within a letter: that part is not asked for */ }
  }
};
const write = () => {
  const parts = [];
  const join = (set) => [...set].map((v) => encodeURIComponent(v)).join(",");
  for (const name of [...SETS, "columns"]) if (state[name]) parts.push(`${name}=${join(state[name])}`);
  for (const name of ["seed", "sort", "x", "cost"]) {
    if (state[name] !== START[name]) parts.push(`${name}=${encodeURIComponent(state[name])}`);
  }
  history.replaceState(null, "", parts.length ? `#${parts.join("&")}` : location.pathname + location.search);
};
const choose = (changes) => {
  Object.assign(state, changes);
  write();
  for (const watch of watchers) watch();
};
const wanted = (name, value) => !state[name] || state[name].has(value);
const columnShown = (title) => (state.columns ? state.columns.has(title) : !AWAY.includes(title));

const BOARDS = DATA.suites.flatMap((suite) => suite.boards);
const placeOf = (board) => (board.suite === board.scenario ? board.suite : `${board.suite} · ${board.scenario}`);
const rowsOf = (board) => board.rows
  .map((row, at) => ({ ...row, at }))
  .filter((row) => wanted("method", row.method) && wanted("role", row.role));
// Without a constant answer that nobody ranks: far from it, all others would share a corner of a picture.
const drawnOf = (board) => rowsOf(board).filter((row) => row.role !== "constant" || row.ranked);
const columnsOf = (board) => (state.seed === "" ? board.page.tables[0].columns : board.seeds[state.seed] || soloColumns(board));
// Where a leaderboard has one seed alone, it is that seed's already.
const soloColumns = (board) => {
  const seeds = new Set(Object.values(board.lines).flat().map((line) => String(line.seed)));
  return seeds.size === 1 && seeds.has(state.seed) ? board.page.tables[0].columns : null;
};
const shownBoard = (board) => wanted("scenario", placeOf(board));

// Theme: the system's, until the reader chooses.
const themed = (theme) => document.documentElement.setAttribute("data-theme", theme);
const system = matchMedia("(prefers-color-scheme: dark)");
const remembered = () => { try { return localStorage.getItem("fedbench-theme"); } catch { return null; } };
const theme = () => remembered() || (system.matches ? "dark" : "light");
const turn = () => {
  const next = document.documentElement.getAttribute("data-theme") === "dark" ? "light" : "dark";
  try { localStorage.setItem("fedbench-theme", next); } catch { /* a page without storage forgets */ }
  themed(next);
};
system.addEventListener("change", () => themed(theme()));
themed(theme());
