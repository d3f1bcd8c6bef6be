// The page: suite by suite, redrawn when the reader chooses or the window changes.
const FIRST = 24; // leaderboards that are drawn at once; more when asked for
const main = document.getElementById("results");
let drawnBoards = FIRST, drawnWidth = 0;

const acrossMethods = (page) => page && pageOf(page, { label: page.title });
const suiteSection = (suite, index, width, budget) => {
  const boards = suite.boards.filter(shownBoard);
  if (!boards.length) return null;
  const half = Math.min(width, width > 860 ? (width - 44) / 2 : width);
  const now = boards.slice(0, Math.max(0, budget.left));
  budget.left -= now.length;
  budget.hidden += boards.length - now.length;
  const contests = suite.contests.map((contest) => tuned(contest, half));
  return el("section", { class: "suite", id: `suite-${index}` },
    DATA.suites.length > 1 ? el("h2", {}, suite.name) : hidden(suite.name), el("p", { class: "shared" }, suite.shared),
    boards.length > 3 ? el("ul", { class: "toc" }, now.map((b) => el("li", {}, link(idOf(b), b.title)))) : null,
    suite.summary ? el("section", { class: "board" }, el("h3", {}, "Over its scenarios"), acrossMethods(suite.summary)) : null,
    suite.diagram ? el("div", { class: "figures" }, diagram(suite.diagram, half), suite.ranks ? el("div", {}, pageOf({ ...suite.ranks, tables: suite.ranks.tables.slice(0, 1) })) : null) : null,
    now.map((board) => boardSection(board, width)),
    suite.tuning.length ? el("section", { class: "board" }, el("h3", {}, "How methods were tuned"),
      suite.tuning.map((page, k) => [el("h4", {}, page.title), pageOf(page), contests[k] ? el("div", { class: "figures" }, contests[k]) : null])) : null,
    suite.papers.length ? el("section", { class: "board" }, el("h3", {}, "Next to what the paper printed"),
      suite.papers.map((page) => [el("h4", {}, page.title), pageOf(page, { plainly: true })])) : null,
    suite.sources.length ? more("Papers that the methods are from", () => list(suite.sources)) : null);
};
// The address keeps the reader's choice, so a jump must not replace it. Boards that were never on the screen have guessed
// heights: all are laid out first, or the target would move while the page scrolls to it.
const jump = (event, id) => {
  event.preventDefault();
  main.classList.add("whole");
  const to = document.getElementById(id);
  to.scrollIntoView();
  if (!to.hasAttribute("tabindex")) to.setAttribute("tabindex", "-1");
  to.focus({ preventScroll: true });
};
const link = (id, text) => el("a", { href: `#${id}`, on: { click: (event) => jump(event, id) } }, text);
document.querySelector(".skip").addEventListener("click", (event) => jump(event, "results"));
const legendSection = () => el("section", { class: "suite", id: "legend" }, el("h2", {}, "What the columns mean"),
  list([...DATA.legends.boards, "Bold: the best mean of the ranked methods. A line below an interval: where it lies between the lowest and the highest end of its table.",
    "Bands: one standard deviation over seeds.", ...(DATA.thinned ? [`Lines keep ${DATA.thinned} points at most: of the rounds between them the page has none.`] : []),
    ...(DATA.detailed ? [] : ["There are too many leaderboards here for costs in detail, pairs, clients and single seeds: a report of fewer, chosen with --scenario or --method, has them."])]));

const draw = () => {
  const width = Math.max(280, main.clientWidth - parseFloat(getComputedStyle(main).paddingLeft) * 2);
  const open = new Set([...main.querySelectorAll("details.more[open]")].map((d) => `${d.closest("section")?.id} ${d.firstChild.textContent}`));
  const held = document.activeElement?.dataset?.choice && [document.activeElement.closest("section")?.id, document.activeElement.dataset.choice];
  const budget = { left: drawnBoards, hidden: 0 };
  drawnWidth = width;
  const sections = DATA.suites.map((suite, k) => suiteSection(suite, k, width, budget)).filter(Boolean);
  const rest = budget.hidden ? el("p", {}, el("button", { type: "button", class: "plain", id: "rest", on: { click: () => { drawnBoards += 4 * FIRST; draw(); } } },
    `Show more: ${budget.hidden.toLocaleString("en")} leaderboards are not drawn yet`)) : null;
  main.replaceChildren(...[DATA.suites.length > 1 ? contents() : null, ...sections, sections.length ? null : el("p", { class: "note" }, "Nothing is chosen."), rest, legendSection(), originSection()].filter(Boolean));
  for (const d of main.querySelectorAll("details.more")) if (open.has(`${d.closest("section")?.id} ${d.firstChild.textContent}`)) d.open = true;
  if (held) document.querySelector(`#${CSS.escape(held[0])} [data-choice="${held[1]}"]`)?.focus();
  showing();
};
const contents = () => el("ul", { class: "toc" }, DATA.suites.map((suite, k) => {
  const n = suite.boards.filter(shownBoard).length;
  return n ? el("li", {}, link(`suite-${k}`, suite.name), ` (${n})`) : null;
}), el("li", {}, link("origin", "Where it is from")));

read();
bar();
watchers.push(draw);
for (const watch of watchers) watch();
addEventListener("hashchange", () => { read(); for (const watch of watchers) watch(); });
let waiting = 0;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => { if (!matchMedia("print").matches && Math.abs(main.clientWidth - parseFloat(getComputedStyle(main).paddingLeft) * 2 - drawnWidth) > 8) draw(); }, 150);
});
