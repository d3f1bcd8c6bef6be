// The bar above: what is shown, by scenario, method, role, domain, seed and column.
const unique = (values) => [...new Set(values)];
const known = {
  scenario: unique(BOARDS.map(placeOf)),
  method: unique(BOARDS.flatMap((b) => b.rows.map((row) => row.method))),
  role: unique(BOARDS.flatMap((b) => b.rows.map((row) => row.role))),
  domain: unique(BOARDS.flatMap((b) => b.domains)),
};
const seeds = unique([...BOARDS.flatMap((b) => Object.keys(b.seeds)), ...BOARDS.flatMap((b) => Object.values(b.lines).flat().map((l) => String(l.seed)))])
  .sort((a, b) => a - b);
const titles = unique(BOARDS.flatMap((b) => b.page.tables.flatMap((t) => t.columns.filter((c) => c.part !== "name" && !b.domains.includes(c.title)).map((c) => c.title))));

const menu = (name, inside) => {
  const panel = el("div", {});
  const found = el("details", { class: "menu", "data-menu": name }, el("summary", {}, name), panel);
  found.addEventListener("toggle", () => {
    if (found.open) panel.replaceChildren(inside());
    document.getElementById("bar").classList.toggle("open", found.open);
    for (const other of document.querySelectorAll(".menu[open]")) if (found.open && other !== found) other.open = false;
  });
  return found;
};
const ticked = (name, all, chosen, change) => {
  const boxes = el("div", {});
  const draw = (part = "") => boxes.replaceChildren(...all.filter((v) => v.toLowerCase().includes(part.toLowerCase())).slice(0, 300).map((value) =>
    el("label", {}, el("input", { type: "checkbox", value, checked: chosen(value), on: { change: (event) => change(value, event.target.checked) } }), el("bdi", {}, value))));
  draw();
  const search = all.length > 12 ? el("input", { type: "search", "aria-label": `Find a ${name}`, placeholder: "find", on: { input: (event) => draw(event.target.value) } }) : null;
  return { boxes, search, draw };
};
const setMenu = (title, name) => menu(title, () => {
  const { boxes, search, draw } = ticked(name, known[name], (value) => wanted(name, value), (value, on) => {
    const now = new Set(state[name] || known[name]);
    if (on) now.add(value); else now.delete(value);
    choose({ [name]: now.size === known[name].length ? null : now });
  });
  const button = (text, set) => el("button", { type: "button", class: "plain", on: { click: () => { choose({ [name]: set }); draw(); } } }, text);
  return el("fieldset", {}, el("legend", {}, title), button("All", null), button("None", new Set()), search, boxes);
});
const seedMenu = () => menu("Seed", () => el("fieldset", {}, el("legend", {}, "One seed, or the mean of all"),
  ["", ...seeds].map((seed) => el("label", {}, el("input", { type: "radio", name: "seed", value: seed, checked: state.seed === seed,
    on: { change: () => choose({ seed }) } }), seed === "" ? "mean of all" : `seed ${seed}`))));
const columnMenu = () => menu("Columns", () => {
  const { boxes } = ticked("column", titles, columnShown, (title, on) => {
    const now = new Set(titles.filter(columnShown));
    if (on) now.add(title); else now.delete(title);
    choose({ columns: now });
  });
  return el("fieldset", {}, el("legend", {}, "Columns of the leaderboards"), boxes);
});

const bar = () => {
  const holder = document.getElementById("bar");
  const several = (name) => known[name].length > 1;
  const reset = el("button", { type: "button", on: { click: () => choose({ ...START, ...Object.fromEntries(SETS.map((name) => [name, null])) }) } }, "Reset");
  holder.append(...[
    several("scenario") ? setMenu("Scenarios", "scenario") : null, several("method") ? setMenu("Methods", "method") : null,
    several("role") ? setMenu("Roles", "role") : null, several("domain") ? setMenu("Domains", "domain") : null,
    seeds.length > 1 && DATA.detailed ? seedMenu() : null, columnMenu(), reset, el("span", { class: "gap" }),
    el("button", { type: "button", id: "theme", on: { click: turn } }, "Light or dark"),
    el("button", { type: "button", on: { click: () => print() } }, "Print"),
  ].filter(Boolean));
  document.addEventListener("click", (event) => {
    for (const open of holder.querySelectorAll(".menu[open]")) if (!open.contains(event.target) && event.target.isConnected) open.open = false;
  });
  document.addEventListener("keydown", (event) => {
    const open = holder.querySelector(".menu[open]");
    if (event.key === "Escape" && open) { open.open = false; open.querySelector("summary").focus(); }
  });
  watchers.push(() => {
    const set = { Scenarios: state.scenario, Methods: state.method, Roles: state.role, Domains: state.domain, Seed: state.seed !== "", Columns: state.columns };
    for (const one of holder.querySelectorAll(".menu")) one.classList.toggle("on", Boolean(set[one.dataset.menu]));
    reset.hidden = !location.hash.includes("=");
  });
};

const showing = () => {
  const boards = BOARDS.filter(shownBoard), parts = [];
  if (boards.length < BOARDS.length) parts.push(`${boards.length} of ${BOARDS.length} leaderboards`);
  const methods = known.method.filter((name) => wanted("method", name));
  if (methods.length < known.method.length) parts.push(`${methods.length} of ${known.method.length} methods`);
  if (state.seed !== "") parts.push(`seed ${state.seed} alone, of which nothing is concluded`);
  const narrowed = state.method || state.role;
  document.getElementById("showing").textContent = parts.length || narrowed
    ? `Showing ${parts.join(", ") || "a part"}.${narrowed ? " Tie groups, gaps and ranks are those of all methods." : ""}` : "";
};
