"""The site: a page for each board and each entry as files that open offline, with CSV, JSON and BibTeX next to them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas
from jinja2 import Environment, StrictUndefined

from fedbench import __version__
from fedbench.board import plans
from fedbench.board.entries import BUILT_IN, RANKED, WITHDRAWN, Board, Entry, Home, described, found_in
from fedbench.board.entries import rows_of as named_rows
from fedbench.board.rerun import board_of, measured, read_record
from fedbench.disk import write_atomically
from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.report.frames import Format, frame, number, page, records
from fedbench.report.html.page_file import policy
from fedbench.report.layout import Column, laid_out, unit_of
from fedbench.report.leaderboards import Leaderboard, Row
from fedbench.report.style import to_csv, to_json
from fedbench.report.views.leaderboard import leaderboard
from fedbench.results import Result
from fedbench.results.metric_direction import measure
from fedbench.results.scores import average
from fedbench.words import command_line, visible

RANKS, SUBMITTED, OLDER, GONE = TABLES = "ranked", "submitted", "older", "withdrawn"
ABOVE = {
    RANKS: "Run again by somebody else on hidden seeds: methods that share a letter are not significantly different.",
    SUBMITTED: "Numbers of their authors on public seeds, in alphabetical order. They have no rank.",
    OLDER: "Rows of older versions of this board, with which nothing here may be compared.",
    GONE: "Taken back by their authors; kept for the history.",
}
TAKEN = (
    "method", "role", "group", "mean", "std", "ci_low", "ci_high", "worst", "worst_clients", "bytes", "memory_min",
    "memory_median", "memory_max", "simulated", "status",
)  # fmt: skip
ADDED = ("state", "authors", "paper", "date", "key")
LEFT = {name: Format(part="cost", left=True) for name in (*ADDED, "table")} | dict.fromkeys(
    ("table", "key"), Format(part="")
)
OURS = "fedbench index"  # stands on the first page
HEIGHT, WIDTH, EDGE = 180, 560, 34  # of a curve, in its own units


@dataclass(frozen=True)
class Site:
    """All that the pages show."""

    home: Home
    registry: Registry

    @cached_property
    def known(self) -> dict[Path, list[Result]]:
        """By folder, the results that entries name, each read once."""
        folders = {e.results(name) for e in self.home.entries.values() for name in e.boards if not e.challenge}
        return {folder: found_in(folder)[0] if folder.is_dir() else [] for folder in folders}

    def own(self, entry: Entry, board: Board) -> list[Result]:
        """What an entry has submitted to a board, candidates of its tuning too."""
        if entry.challenge:
            return []
        return named_rows(self.known[entry.results(board.board)], entry.method, board, self.variants[board.board])

    @cached_property
    def variants(self) -> dict[str, str]:
        """By board, what its settings are called in results."""
        return {name: "; ".join(board.sets) for name, board in self.home.boards.items()}

    def submitted(self, board: Board, entries: Iterable[Entry]) -> Leaderboard | None:
        """The leaderboard of what entries have submitted."""
        results = [one for entry in entries for one in self.own(entry, board)]
        return board_of(results, board, self.registry.catalogue.roles)

    def ranked(self, board: Board) -> tuple[Leaderboard | None, Mapping[str, Any]]:
        """The leaderboard of the newest re-run on this version of a board, and its record."""
        rows = [(e, row) for e, row in self.home.on(board.board) if row["version"] == board.version]
        found = [
            (r["date"], i, r)
            for i, (e, row) in enumerate(rows)
            if row["state"] in RANKED and (r := read_record(e, board.board))
        ]
        if not found or "results" not in (record := max(found)[2]):
            return None, {}
        wanted = {e.method for e, row in rows if row["state"] in RANKED} | {*board.beside}
        results = [r for r in measured(self.home.folder / record["results"]) if r.entry.method in wanted]
        return board_of(results, board, self.registry.catalogue.roles), record

    def table(self, board: Board) -> pandas.DataFrame:
        """A row for each method of a board, in TABLES."""
        parts: dict[str, list[Entry]] = {SUBMITTED: [], OLDER: [], GONE: []}
        for entry, row in self.home.on(board.board):
            if row["state"] == WITHDRAWN:
                parts[GONE].append(entry)
            elif row["version"] < board.version:
                parts[OLDER].append(entry)
            elif row["state"] not in RANKED:
                parts[SUBMITTED].append(entry)
        top, record = self.ranked(board)
        tables = {RANKS: top} | {name: self.submitted(board, entries) for name, entries in parts.items()}
        rows: list[dict[str, Any]] = []
        for name, found in tables.items():
            entries = (
                [e for e, row in self.home.on(board.board) if row["state"] in RANKED] if name == RANKS else parts[name]
            )
            rows += self._rows(board, name, found, entries)
        notes = (
            [f"The seeds follow from commit {record['commit'][:12]}, run {record['isolated']} on {record['date']}."]
            if record
            else []
        )
        pages = [page((name,), title=name, caption=unit_of(board.metric), above=ABOVE[name],
                      notes=notes if name == RANKS else [], remarks=[*self._notes(board)] if name == RANKS else [])
                 for name in TABLES if any(row["table"] == name for row in rows)]  # fmt: skip
        columns = ("table", *TAKEN[:-1], *ADDED)
        return frame(rows, columns, caption=f"{board.title}, version {board.version}", by=("table",), pages=pages,
                     formats=LEFT, metric=board.metric, version=board.version, sorted=True)  # fmt: skip

    def _rows(
        self, board: Board, table: str, found: Leaderboard | None, entries: Sequence[Entry]
    ) -> Iterator[dict[str, Any]]:
        """Rows of one table; all but the ranked ones in the order of their names, and without letters."""
        shown = records(leaderboard([found])) if found else []
        cells = {row.label: row.results for row in found.rows} if found else {}
        by_name = {entry.method: entry for entry in entries}
        if table != RANKS:
            shown = sorted((row for row in shown if row["method"] in by_name), key=lambda row: str(row["method"]))
        for row in shown:
            if "/" in (method := str(row["method"])) and method not in by_name:
                continue  # a second output
            entry, own = by_name.get(method), cells[method]
            kept = {name: row[name] for name in TAKEN if row.get(name) is not None}
            kept |= {"ranked": row["ranked"] and table == RANKS, "group": row["group"] if table == RANKS else None}
            facts = self.facts(entry, own) if entry else {"authors": "fedbench", "paper": ""}
            state = entry.boards[board.board]["state"] if entry else "beside"
            date = max((one.manifest.get("started", "")[:10] for one in own), default="")
            key = self.key(entry, board) if entry else ""
            yield {
                "table": table,
                **kept,
                "state": state,
                "authors": facts["authors"],
                "paper": facts["paper"],
                "date": date,
                "key": key,
            }

    def _notes(self, board: Board) -> Iterator[str]:
        """A sentence on each challenge that was run."""
        for entry, _ in self.home.on(board.board):
            record = read_record(entry, board.board) if entry.challenge else None
            if entry.challenge and record and record.get("challenge"):
                verdict = record["challenge"]["verdict"]
                yield f"{entry.name} challenges {entry.challenge['entry']} with other settings, and is {verdict}."

    def facts(self, entry: Entry, own: Sequence[Result]) -> dict[str, str]:
        """Authors, paper and BibTeX."""
        configs = (one.manifest["config"] for one in own if one.manifest)
        registered = next((config["method"]["name"] for config in configs), entry.method)
        return described(entry, registered, self.registry)

    def key(self, entry: Entry, board: Board) -> str:
        """How a row is cited."""
        return f"fedbench-{board.board}-{entry.boards[board.board]['version']}-{entry.method}-{entry.version}"

    def bibtex(self, entry: Entry, board: Board, own: Sequence[Result]) -> str:
        """The row, and what its method is from."""
        row, facts = entry.boards[board.board], self.facts(entry, own)
        text = "".join(f"\\{c}" if c in "&%#_" else c for c in f"{entry.name} on the board {board.board}")
        made = (
            f"@misc{{{self.key(entry, board)},\n  title = {{{text}, version {row['version']}}},\n"
            f"  author = {{{facts['authors']}}},\n  note = {{fedbench {__version__}, {row['state']}}}\n}}"
        )
        return "\n".join(filter(None, (made, facts["bibtex"]))) + "\n"

    def entry_page(self, entry: Entry) -> dict[str, Any]:
        """What the page of an entry shows."""
        boards = [self._on(entry, self.home.boards[name]) for name in entry.boards if name in self.home.boards]
        own = next((self.own(entry, self.home.boards[one["name"]]) for one in boards), [])
        return {"entry": entry, "facts": self.facts(entry, own), "boards": boards}

    def _on(self, entry: Entry, board: Board) -> dict[str, Any]:
        """An entry on one board: settings, curve, cells, how to cite it, how to run it."""
        own = self.own(entry, board)
        contest = (
            plans.contest_of(board, entry, self.variants[board.board], {one.suite_folder for one in own})
            if own
            else None
        )
        found = self.submitted(board, [entry])
        row = next((one for one in found.rows if one.label == entry.method), None) if found else None
        values = dict(entry.challenge["settings"]) if entry.challenge else plans.values_of(contest)
        cells = [
            {"seed": r.entry.seed, "status": r.status, "id": r.entry.cell, "date": r.manifest.get("started", "")[:10], "seconds": r.manifest.get("seconds"),
             "score": number(row.by_seed[r.entry.seed], board.metric) if row and r.entry.seed in row.by_seed else ""}
            for r in own if r.entry.candidate is None
        ]  # fmt: skip
        seeds = [word for seed in board.seeds for word in ("--seed", str(seed))]
        sets = [word for one in board.sets for word in ("--set", one)]
        plugin = (
            ["--plugin", str(entry.file.relative_to(entry.home.parent)), "--add", entry.method] if entry.file else []
        )
        own_space = entry.boards[board.board].get("space") or entry.challenge
        run = [
            "fedbench",
            "run",
            board.suite,
            *plugin,
            *sets,
            "--scenario",
            board.scenario,
            "--method",
            entry.method,
            *seeds,
        ]
        again = ["fedbench", "board", "rerun", str(entry.folder.relative_to(entry.home.parent))]
        return {
            "name": board.board, "board": board, "row": entry.boards[board.board], "values": values, "cells": cells,
            "tried": len(contest.cells) if contest else 0, "curve": curve(row, board.metric), "unit": measure(board.metric).unit,
            "bibtex": self.bibtex(entry, board, own), "run": command_line(again if own_space else run),
            "record": read_record(entry, board.board),
        }  # fmt: skip


def curve(row: Row | None, metric: str) -> dict[str, Any] | None:
    """The mean over seeds by tested round, as points of a picture with what stands at its axes."""
    if row is None or not row.finished:
        return None
    seeds = [{t: average(v) for t, v in one.scores(metric).items()} for one in row.finished.values()]
    rounds = sorted(set.intersection(*map(set, seeds)))
    means = {t: sum(seed[t] for seed in seeds) / len(seeds) for t in rounds}
    low, high, last = min(means.values()), max(means.values()), max(rounds, default=0)
    if len(rounds) < 2 or low == high:
        return None
    x = {t: EDGE + (WIDTH - 2 * EDGE) * (t - rounds[0]) / (last - rounds[0]) for t in rounds}
    y = {t: HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * (v - low) / (high - low) for t, v in means.items()}
    points = [(round(x[t], 1), round(y[t], 1)) for t in rounds]
    words = f"{unit_of(metric)} from {number(means[rounds[0]], metric)} after round {rounds[0]} to {number(means[last], metric)} after round {last}"
    return {
        "points": points,
        "low": number(low, metric),
        "high": number(high, metric),
        "first": rounds[0],
        "last": last,
        "words": words,
    }


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
    site, css = Site(home, registry), style()
    templates = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = templates.from_string(files("fedbench.board").joinpath("site.html").read_text(encoding="utf-8"))
    shared = {"style": css, "policy": policy(css, ""), "version": __version__, "built_in": BUILT_IN}
    made: dict[str, str] = {}
    tables = {name: site.table(board) for name, board in home.boards.items()}
    for name, board in home.boards.items():
        pages = laid_out(tables[name]).pages
        rows = (
            tables[name].assign(entry=[_page_of(home, board, m) for m in tables[name]["method"]])
            if len(tables[name])
            else tables[name]
        )
        links = {table: rows[rows["table"] == table]["entry"].tolist() if len(rows) else [] for table in TABLES}
        entries = [(entry, site.own(entry, board)) for entry, _ in home.on(name)]
        made[f"{name}.html"] = template.render(
            **shared, page="board", root="", title=board.title, board=board, pages=pages, links=links
        )
        made[f"{name}.csv"], made[f"{name}.json"] = to_csv(tables[name]), to_json(tables[name])
        made[f"{name}.bib"] = "\n".join(site.bibtex(entry, board, own) for entry, own in entries)
    for entry in home.entries.values():
        made[f"entries/{entry.method}-{entry.version}.html"] = template.render(
            **shared, page="entry", root="../", title=f"{entry.method} {entry.version}", **site.entry_page(entry)
        )
    counts = {name: table["table"].value_counts().to_dict() if len(table) else {} for name, table in tables.items()}
    made["index.html"] = template.render(
        **shared, page="index", root="", title="The board", boards=home.boards, counts=counts
    )
    for name, text in made.items():
        write_atomically(out / name, visible(text).encode(), lasting=False)
    return sum(name.endswith(".html") for name in made)


def _page_of(home: Home, board: Board, method: str) -> str:
    """Where the entry of a method is; "" where it has none."""
    named = [entry for entry, _ in home.on(board.board) if entry.method == method]
    return f"entries/{named[-1].method}-{named[-1].version}.html" if named else ""
