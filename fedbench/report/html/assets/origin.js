// Where the numbers are from: cells without a result and why, what was configured, and on what it was computed.
const shownValue = (value) => typeof value === "string" ? value : JSON.stringify(value);
const CELLS = DATA.origin.cells.rows.map((row) => Object.fromEntries(DATA.origin.cells.fields.map((name, k) => [name, row[k]])));
const MOST = 200; // lines of a list

const flat = (value, prefix, into) => {
  if (value && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length) {
    for (const [name, inner] of Object.entries(value)) flat(inner, prefix ? `${prefix}.${name}` : name, into);
  } else into[prefix] = shownValue(value);
  return into;
};
const facts = (pairs) => el("dl", { class: "facts" }, pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));

const without = () => {
  const words = { pending: "not started", not_applicable: "not applicable", timeout: "out of time" };
  const groups = new Map();
  for (const cell of CELLS.filter((c) => c.status !== "finished")) {
    const parts = [cell.suite, cell.scenario, cell.variant, cell.method, words[cell.status] || cell.status, cell.reason];
    const id = JSON.stringify(parts);
    if (!groups.has(id)) groups.set(id, { parts, seeds: [] });
    groups.get(id).seeds.push(cell.seed);
  }
  const rows = [...groups.values()].map(({ parts: [suite, scenario, variant, method, status, reason], seeds: which }) =>
    [method, suite === scenario ? suite : `${suite} · ${scenario}`, variant, which.join(", "), status, reason]);
  const rowsShown = rows.slice(0, MOST);
  const table = plainTable("Cells without a result", ["method", "scenario", "variant", "seed", "how it ended", "why"], rowsShown);
  for (const column of table.columns) column.left = true;
  return el("section", { "aria-labelledby": "without" }, el("h3", { id: "without" }, "Cells without a result"),
    rows.length
      ? [drawTable(table, { quiet: "Cells without a result", body: (td, column) => { if (["why", "variant"].includes(column.title)) td.classList.add("words"); } }),
        rows.length > MOST ? el("p", { class: "note" }, `The first ${MOST} of ${rows.length}.`) : null]
      : DATA.lacks ? null : el("p", { class: "note" }, "None: every cell of these suites has finished."),
    DATA.lacks ? el("p", { class: "note" }, DATA.lacks) : null,
    DATA.wrong.length ? [el("p", { class: "warning" }, "Left out, because it is not as it was written:"), list(DATA.wrong, "warn")] : null);
};

// Of one suite's configurations: what all cells share, and the values of what differs.
const configured = (suite) => {
  const mine = CELLS.filter((cell) => cell.suite === suite && cell.config), parts = Object.keys(DATA.origin.configs);
  const values = new Map();
  parts.forEach((part, k) => {
    const places = unique(mine.map((cell) => cell.config[k]));
    const each = places.map((place) => (place === null ? {} : flat(DATA.origin.configs[part][place], part, {})));
    for (const name of unique(each.flatMap(Object.keys))) values.set(name, unique(each.map((one) => (name in one ? one[name] : "–"))));
  });
  const entries = [...values.entries()];
  return [
    el("h4", {}, "The same in all cells"), facts(entries.filter(([, v]) => v.length === 1).map(([name, [v]]) => [name, v])),
    el("h4", {}, "What differs"), facts(entries.filter(([, v]) => v.length > 1).map(([name, v]) => [name, v.slice(0, 24).join("  |  ") + (v.length > 24 ? `  | and ${v.length - 24} more` : "")])),
  ];
};

const computed = () => {
  const used = new Map();
  for (const cell of CELLS) if (cell.origin !== null) used.set(cell.origin, (used.get(cell.origin) || []).concat(cell.seconds || 0));
  const kinds = (pick) => {
    const found = new Map();
    for (const [place, times] of used) {
      const picked = pick(DATA.origin.origins[place]);
      const [n, sum] = found.get(picked) || [0, 0];
      found.set(picked, [n + times.length, sum + times.reduce((a, b) => a + b, 0)]);
    }
    return [...found].sort(([, [a]], [, [b]]) => b - a);
  };
  const said = (object) => Object.entries(object || {}).map(([name, value]) => `${name} ${shownValue(value)}`).join(", ");
  const table = (title, pick) => {
    const made = plainTable(title, [title, "cells", "hours"], kinds(pick).map(([name, [n, s]]) => [name || "not recorded", n.toLocaleString("en"), (s / 3600).toFixed(2)]));
    return drawTable(made, { quiet: title, head: (at, cell) => el("span", {}, textOf(cell)) });
  };
  const prints = unique(DATA.origin.origins.flatMap((o) => Object.entries(o.fingerprints || {}).map(([name, value]) => `${name}: ${shownValue(value)}`))).sort();
  return [table("versions", (o) => said(o.versions)), table("machine", (o) => said(o.machine)), table("git", (o) => o.git || ""),
    more(`Fingerprints of data and weights (${prints.length})`, () => list(prints))];
};

const cellList = (suite) => {
  const mine = CELLS.filter((cell) => cell.suite === suite), many = mine.length > MOST;
  const table = plainTable("Cells", ["cell", "scenario", "variant", "method", "seed", "status", "seconds"], mine.slice(0, MOST)
    .map((c) => [c.id, c.scenario, c.variant, c.method, String(c.seed), c.status, c.seconds === null ? "" : String(c.seconds)]));
  return [sortedAlone(table, { label: "Cells" }), many ? el("p", { class: "note" }, `The first ${MOST} of ${mine.length}; the page's JSON has all.`) : null];
};

const originSection = () => {
  const suites = unique(DATA.suites.map((suite) => suite.name));
  const versions = unique(DATA.origin.origins.flatMap((o) => Object.entries(o.versions || {}).filter(([name]) => /^[\w.-]+$/.test(name)).map(([name, v]) => `"${name}==${shownValue(v)}"`)));
  return el("section", { class: "suite", id: "origin" }, el("h2", {}, "Where it is from"), without(),
    el("h3", {}, "Computed with"), computed(),
    el("h3", {}, "Configured as"),
    suites.map((suite) => [more(`${suite}: settings`, () => configured(suite)), more(`${suite}: cells and their ids`, () => cellList(suite))]),
    el("h3", {}, "Run it again"),
    el("p", { class: "prose" }, "A cell's id is a hash of its configuration, data, weights and versions: equal ids are the same experiment. fedbench reproduce takes the results folder, says what differs where it runs, runs a sample or all of it, and says of each cell whether it is equal, equal within what seeds do, or different."),
    el("pre", { tabindex: 0 }, [`pip install ${versions.join(" ")}`, ...suites.map((suite) => `fedbench reproduce results/${suite} --cells 3`)].join("\n")));
};
