"""The site: a page for each board and each entry as files that open offline, with CSV, JSON and BibTeX next to them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas
from jinja2 import Environment, StrictUndefined

from fedbench import __version__
from fedbench.board import plans
from fedbench.board.entries import (
    RANKED,
    SUBMITTED,
    WITHDRAWN,
    Board,
    Entry,
    File,
    Home,
    found_in,
    named_rows,
    registered,
)
from fedbench.board.records import board_of, measured, read_record
from fedbench.disk import write_atomically
from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.report.frames import Format, frame, number, page, records
from fedbench.report.html.page_file import policy
from fedbench.report.layout import laid_out, unit_of
from fedbench.report.leaderboards import Leaderboard
from fedbench.report.paper import bibtex
from fedbench.report.style import to_csv, to_json
from fedbench.report.views.leaderboard import leaderboard
from fedbench.results import Result
from fedbench.results.scores import average
from fedbench.words import command_line, visible

ABOVE = {
    "ranked": "Run again by others on hidden seeds. Methods that share a letter are not significantly different.",
    SUBMITTED: "Numbers of their authors on public seeds, in alphabetical order. They have no rank.",
    "older": "Rows of older versions of this board, with which nothing here may be compared.",
    WITHDRAWN: "Taken back by their authors; kept for the history.",
}
RANKS, _, OLDER, _ = ABOVE
TAKEN = (
    "method", "role", "group", "mean", "std", "ci_low", "ci_high", "worst", "worst_clients", "bytes", "memory_min",
    "memory_median", "memory_max", "simulated", "status",
)  # fmt: skip
ADDED = ("state", "authors", "paper", "date", "key")
FORMATS = dict.fromkeys(ADDED, Format(part="cost", left=True)) | dict.fromkeys(("table", "key"), Format(part=""))
OURS = "fedbench index"  # stands on the first page


@dataclass(frozen=True, eq=False)
class Site:
    """What the pages show."""

    home: Home
    registry: Registry

    @cached_property
    def known(self) -> dict[Path, list[Result]]:
        """By folder, the results that entries name, each read once."""
        folders = {e.results(name) for e in self.home.entries.values() for name in e.boards}
        return {folder: found_in(folder)[0] for folder in folders if folder.is_dir()}

    def own(self, entry: Entry, board: Board) -> list[Result]:
        """What an entry has submitted to a board, candidates of its tuning too."""
        there = self.known.get(entry.results(board.board), [])
        return named_rows(there, entry.method, board, plans.variant_of(board))

    def submitted(self, board: Board, entries: Iterable[Entry]) -> Leaderboard | None:
        """The leaderboard of what entries have submitted."""
        results = [one for entry in entries for one in self.own(entry, board)]
        return board_of(results, board, self.registry.catalogue.roles)

    def ranked(self, board: Board, entries: Sequence[Entry]) -> tuple[Leaderboard | None, Mapping[str, Any]]:
        """The leaderboard of the newest re-run of these entries, and its record."""
        found = [record for entry in entries if "seeds" in (record := read_record(entry, board.board) or {})]
        if not found:
            return None, {}
        newest = max(found, key=lambda record: (record["date"], len(record["rows"])))
        wanted = {*board.references, *(entry.method for entry in entries)}
        results = [one for one in measured(self.home.folder / newest["results"]) if one.entry.method in wanted]
        return board_of(results, board, self.registry.catalogue.roles), newest

    def table(self, board: Board) -> pandas.DataFrame:
        """A row for each method of a board, in the tables of ABOVE."""
        parts: dict[str, list[Entry]] = {name: [] for name in ABOVE}
        for entry, row in self.home.on(board.board):
            current = RANKS if row.state in RANKED else SUBMITTED
            state = OLDER if row.version < board.version else current
            parts[WITHDRAWN if row.state == WITHDRAWN else state].append(entry)
        top, record = self.ranked(board, parts[RANKS])
        rows: list[dict[str, Any]] = []
        for name, entries in parts.items():
            found = top if name == RANKS else self.submitted(board, entries)
            rows += self._rows(board, name, found, entries) if found else ()
        how = (
            f"Seeds of commit {record['commit'][:12]}, run {record['isolated']} on {record['date']}." if record else ""
        )
        notes = [how, *self._challenges(board)] if record else []
        names = dict.fromkeys(row["table"] for row in rows)
        pages = [
            page((name,), title=name, caption=unit_of(board.metric), above=ABOVE[name], notes=notes * (name == RANKS))
            for name in names
        ]
        facts: dict[str, Any] = {"metric": board.metric, "version": board.version, "sorted": True, "formats": FORMATS}
        caption = f"{board.title}, version {board.version}"
        return frame(rows, ("table", *TAKEN[:-1], *ADDED), caption=caption, by=("table",), pages=pages, **facts)

    def _rows(self, board: Board, table: str, found: Leaderboard, entries: Sequence[Entry]) -> Iterator[dict[str, Any]]:
        """Rows of one table; all but the ranked ones in the order of their names, and without letters."""
        cells, by_name = found.cells, {entry.method: entry for entry in entries}
        shown = [row for row in records(leaderboard([found])) if row["method"] in cells]  # no second outputs
        for row in shown if table == RANKS else sorted(shown, key=lambda row: str(row["method"])):
            entry, own = by_name.get(row["method"]), cells[row["method"]]
            kept = {name: row[name] for name in TAKEN if row.get(name) is not None}
            if table != RANKS:
                kept |= {"group": None}
            facts = self.facts(row["method"], entry or self.home.standing(row["method"], board.board), own)
            yield {
                "table": table,
                **kept,
                "ranked": row["ranked"] and table == RANKS,
                "state": entry.boards[board.board].state if entry else "reference",
                "authors": facts["authors"],
                "paper": facts["paper"],
                "date": max((one.manifest.get("started", "")[:10] for one in own), default=""),
                "key": key_of(entry, board) if entry else "",
            }

    def _challenges(self, board: Board) -> Iterator[str]:
        """A sentence on each challenge that was run."""
        for entry, _ in self.home.on(board.board):
            if entry.challenge and (found := (read_record(entry, board.board) or {}).get("challenge")):
                of = entry.challenge.entry
                yield f"{entry.name} challenges {of} with other settings, and is {found['verdict']}."

    def facts(self, method: str, entry: Entry | None, own: Sequence[Result]) -> dict[str, str]:
        """Authors, paper and BibTeX of a row; without an entry that has them, what its method is registered with."""
        name = registered(own) or method
        component = self.registry.catalogue.components["method"].get(name)
        paper = (entry.paper if entry else "") or (component.paper if component else "")
        authors = entry.authors if entry else []
        if name != method and not authors:  # a label of the suite, which varies another method
            paper, authors = f"extends {name}: {paper}", ["fedbench"]
        made = bibtex(paper, method) if paper else ""
        return {
            "authors": ", ".join(authors) or paper.partition(",")[0] or "fedbench",
            "paper": paper,
            "bibtex": (entry.bibtex.strip() if entry else "") or made,
        }

    def settings(self, entry: Entry, board: Board) -> tuple[Mapping[str, Any], int]:
        """What an entry's tuning found, or its challenge names, and among how many candidates."""
        if entry.challenge:
            return entry.challenge.settings, 0
        folders = {one.suite_folder for one in self.own(entry, board)}
        contest = plans.contest_of(board, entry, plans.variant_of(board), folders)
        return plans.values_of(contest), len(contest.cells) if contest else 0

    def course(self, found: Leaderboard | None) -> dict[int, float]:
        """By tested round, the mean over the seeds of a lone row."""
        seeds = [one.scores(row.metric) for row in found.rows[:1] for one in row.finished.values()] if found else []
        rounds = sorted(set.intersection(*map(set, seeds))) if seeds else []
        return {t: sum(average(seed[t]) for seed in seeds) / len(seeds) for t in rounds}

    def command(self, entry: Entry, board: Board) -> str:
        """What computes an entry's submitted cells, or runs again what no suite has as it is."""
        if entry.challenge or entry.boards[board.board].space:
            return command_line(["fedbench", "board", "rerun", entry.place])
        plugin = ["--plugin", f"{entry.place}/{entry.plugin.file}"] if isinstance(entry.plugin, File) else []
        added = ["--add", entry.method] if entry.is_foreign else []
        sets = [word for one in board.sets for word in ("--set", one)]
        seeds = [word for seed in board.seeds for word in ("--seed", str(seed))]
        chosen = ["--scenario", board.scenario, "--method", entry.method, *seeds]
        return command_line(["fedbench", "run", board.suite, *plugin, *added, *sets, *chosen])


def key_of(entry: Entry, board: Board) -> str:
    """How a row is cited."""
    return f"fedbench-{board.board}-{entry.boards[board.board].version}-{entry.method}-{entry.version}"


def style() -> str:
    """The style of reports, dark where the reader's system is."""
    text = files("fedbench.report.html").joinpath("assets", "page.css").read_text(encoding="utf-8")
    dark = re.search(r':root\[data-theme="dark"\] (\{.*?\n\})', text, re.DOTALL)
    assert dark is not None
    own = files("fedbench.board").joinpath("site.css").read_text(encoding="utf-8")
    return f"{text}\n@media (prefers-color-scheme: dark) {{ :root {dark[1]} }}\n{own}"


def build(home: Home, out: Path, registry: Registry) -> int:
    """Write the site; returns how many pages it has. Raises UserError, also for a folder with another site."""
    if (there := out / "index.html").is_file() and OURS not in there.read_text("utf-8", errors="replace"):
        raise UserError(f"{there}: another site's page; nothing was written. Choose another folder with -o DIR")
    site, css, made = Site(home, registry), style(), dict[str, str]()
    escaping, plain = (Environment(autoescape=a, undefined=StrictUndefined, trim_blocks=True) for a in (True, False))
    for environment in (escaping, plain):
        environment.globals |= {"site": site, "style": css, "policy": policy(css, ""), "fedbench": __version__}
        environment.globals |= {"number": number, "unit_of": unit_of, "read_record": read_record, "key_of": key_of}
    html, bib = (
        environment.from_string(files("fedbench.board").joinpath(name).read_text(encoding="utf-8"))
        for environment, name in ((escaping, "site.html"), (plain, "bibtex.template"))
    )
    tables = {name: site.table(board) for name, board in home.boards.items()}
    for name, board in home.boards.items():
        entries = {entry.method: entry for entry, _ in home.on(name)}
        pages = laid_out(tables[name]).pages
        facts = {"title": board.title, "board": board, "pages": pages, "entries": entries}
        made[f"{name}.html"] = html.render(page="board", root="", **facts)
        made[f"{name}.csv"], made[f"{name}.json"] = to_csv(tables[name]), to_json(tables[name])
        made[f"{name}.bib"] = "\n".join(bib.render(entry=entry, board=board) for entry, _ in home.on(name))
    for entry in home.entries.values():
        boards = [home.boards[name] for name in entry.boards if name in home.boards]
        facts = {"title": f"{entry.method} {entry.version}", "entry": entry, "boards": boards, "bib": bib}
        made[f"entries/{entry.method}-{entry.version}.html"] = html.render(page="entry", root="../", **facts)
    counts = {name: table["table"].value_counts().to_dict() if len(table) else {} for name, table in tables.items()}
    made["index.html"] = html.render(page="index", root="", title="The board", counts=counts)
    for name, text in made.items():
        write_atomically(out / name, visible(text).encode(), lasting=False)
    return sum(name.endswith(".html") for name in made)
