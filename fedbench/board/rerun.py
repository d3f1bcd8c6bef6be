"""Re-runs: drawn cells on the submitted seeds, all settings on hidden ones, and the same on data drawn anew."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from fedbench import __version__, machine
from fedbench.board import plans
from fedbench.board.entries import CHALLENGED, RANKED, RERUN, RERUNS, Board, Entry, Home, found_in
from fedbench.board.entries import rows_of as named_rows
from fedbench.board.seeds import commit_of, hidden_seeds, numbers
from fedbench.disk import hash_of_json, write_atomically
from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.report.leaderboards import Leaderboard, leaderboards
from fedbench.report.statistics.pairs import BETTER, WORSE, Pair, verdicts
from fedbench.results import Result
from fedbench.results.diff import CLOSE, EQUAL, differences
from fedbench.results.metric_direction import higher_is_better
from fedbench.suite.node import Problems

HIDDEN, DRAWN, HELD_OUT, TOGETHER = "hidden", "drawn", "held_out", "built-in"


def record_file(entry: Entry, board: str) -> Path:
    """Where the last re-run of an entry on a board is recorded."""
    return entry.folder / f"rerun-{board}.json"


def read_record(entry: Entry, board: str) -> dict[str, Any] | None:
    """What was run again, where and when; None where nothing was. Raises UserError for what is no record."""
    try:
        return dict(json.loads(record_file(entry, board).read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise UserError(f"{record_file(entry, board)}: not a record of a re-run ({error})") from error


def hash_of_claim(entry: Entry, board: str) -> str:
    """SHA-256 over what an entry claims on a board: code, results, settings; not its state."""
    row = {key: value for key, value in entry.boards[board].items() if key != "state"}
    return hash_of_json([entry.name, entry.plugin, row, entry.challenge])


def board_of(results: Sequence[Result], board: Board, roles: Mapping[str, str]) -> Leaderboard | None:
    """The leaderboard of results of one point, from whichever folders; None where nothing has finished."""
    named = [replace(one, suite=board.board) for one in results if one.entry.candidate is None]
    if not any(one.status == "finished" for one in named):
        return None
    return max(leaderboards(named, board.metric, roles=roles), key=lambda found: len(found.rows))


def measured(folder: Path) -> list[Result]:
    """The results of all groups that were run into a folder."""
    return [one for group in sorted(folder.glob("*")) for one in found_in(group)[0]] if folder.is_dir() else []


@dataclass(frozen=True)
class Rerun:
    """The re-run of an entry on a board.

    Attributes:
        home: all boards and entries.
        entry: the entry, committed.
        board: one that it is on.
        code: by entry, the files of its plugin.
        salt: the board's; None where it is secret, so that there are no hidden seeds.
        isolated: how this process is kept from the network, in words.
        options: of runs: observe, device, jobs.
    """

    home: Home
    entry: Entry
    board: Board
    code: Mapping[str, Sequence[str]]
    salt: str | None
    isolated: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def commit(self) -> str:
        return commit_of(self.entry)

    @cached_property
    def folder(self) -> Path:
        """Where all cells of entries of this commit are kept."""
        return self.home.folder / RERUNS / f"{self.board.board}-{self.board.version}" / self.commit[:12]

    @cached_property
    def registry(self) -> Registry:
        return Registry()

    @cached_property
    def variant(self) -> str:
        """What the board's settings are called in results."""
        return plans.loaded(self.board, plans.text_of(self.board), self.registry).variants[0]

    @cached_property
    def rows(self) -> dict[str, Entry | None]:
        """What runs on the hidden seeds, by method: the entry, those that rank already, and what the board has beside;
        None for a method of the suite without an entry."""
        others = [e for e, row in self.home.on(self.board.board) if row["state"] in RANKED]
        found = {e.method: e for e in others if e.boards[self.board.board]["version"] == self.board.version}
        beside: dict[str, Entry | None] = {name: self.home.latest(name, self.board) for name in self.board.beside}
        if self.entry.challenge:
            challenged = self.home.entries[self.entry.challenge["entry"]]
            found[challenged.method] = challenged
        return {**beside, **found, self.entry.method: self.entry}

    def values(self, entry: Entry | None) -> dict[str, Any]:
        """The settings of a row: those that its tuning found, or that a challenge names."""
        if entry is None:
            return {}
        if entry.challenge:
            return dict(entry.challenge["settings"])
        own = named_rows(found_in(entry.results(self.board.board))[0], entry.method, self.board, self.variant)
        folders = {one.suite_folder for one in own}
        return plans.values_of(plans.contest_of(self.board, entry, self.variant, folders))

    def run(self, count: int | None) -> dict[str, Any]:
        """Run what is not there yet; returns the record. count: so many submitted cells, None for all. Raises UserError."""
        settings = {method: self.values(entry) for method, entry in self.rows.items()}
        record: dict[str, Any] = {
            "entry": self.entry.name,
            "board": self.board.board,
            "version": self.board.version,
            "commit": self.commit,
            "claim": hash_of_claim(self.entry, self.board.board),
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "fedbench": __version__,
            "machine": machine.describe("cpu"),
            "isolated": self.isolated,
            "settings": settings[self.entry.method],
            DRAWN: [] if self.entry.challenge else self._drawn(settings, count),
        }
        if self.salt is None:
            return record
        tuned = plans.loaded(self.board, plans.text_of(self.board), self.registry).tuning
        seeds = hidden_seeds(self.board, self.salt, self.commit, (*tuned.seeds, *tuned.confirm) if tuned else ())
        results = self._on(seeds, list(self.rows), settings, self.folder / HIDDEN)
        record |= {
            "seeds": seeds,
            "rows": list(self.rows),
            "results": str((self.folder / HIDDEN).relative_to(self.home.folder)),
        }
        if self.board.held_out:
            number = numbers(self.salt, self.commit, HELD_OUT, 1)[0]
            both = list(dict.fromkeys((self.board.control, self.entry.method)))
            apart = self._on(seeds, both, settings, self.folder / HELD_OUT, {self.board.held_out: number})
            record[HELD_OUT] = {"draw": number, **self._fall(results, apart)}
        if self.entry.challenge:
            pair = self._pair(results, self.entry.challenge["entry"].partition("/")[0])
            record["challenge"] = {"verdict": pair.verdict, "difference": pair.difference, "q": pair.q} if pair else {}
        return record

    def _drawn(self, settings: Mapping[str, Mapping[str, Any]], count: int | None) -> list[dict[str, Any]]:
        """Submitted cells again, each with how it differs: which ones follows from the commit, and the salt if known."""
        board, entry = self.board, self.entry
        order = numbers(self.salt or "", self.commit, DRAWN, len(board.seeds))
        seeds = [seed for _, seed in sorted(zip(order, board.seeds, strict=True))][:count]
        before = named_rows(found_in(entry.results(board.board))[0], entry.method, board, self.variant)
        after = self._on(seeds, [entry.method], settings, self.folder / DRAWN)
        found = differences(_reported(before, seeds), _reported(after, seeds), board.metric, board.tolerance)
        kept = found[["seed", "change", "before", "after", "largest"]]
        return [{str(k): None if v != v else v for k, v in row.items()} for row in kept.to_dict("records")]

    def _on(
        self, seeds: Sequence[int], methods: Sequence[str], settings: Mapping[str, Mapping[str, Any]], folder: Path,
        data: Mapping[str, Any] | None = None,
    ) -> list[Result]:  # fmt: skip
        """Results of methods on seeds; those of one plugin are run apart from others."""
        groups: dict[str, list[str]] = {}
        for method in methods:
            entry = self.rows[method]
            groups.setdefault(method if entry and self.code.get(entry.name) else TOGETHER, []).append(method)
        for group, labels in groups.items():
            entries = [entry for label in labels if (entry := self.rows[label])]
            plugins = [file for entry in entries for file in self.code.get(entry.name, ())]
            text = plans.text_of(self.board, entries, values={label: settings[label] for label in labels}, data=data)
            plans.run(self.board, text, labels, seeds, folder / group, plugins=plugins, **self.options)
        wanted = {(method, seed) for method in methods for seed in seeds}
        return [one for one in measured(folder) if (one.entry.method, one.entry.seed) in wanted]

    def _fall(self, here: Sequence[Result], apart: Sequence[Result]) -> dict[str, Any]:
        """How far the method falls on data drawn anew, compared with how far the control does, seed by seed."""
        boards = [board_of(side, self.board, {}) for side in (here, apart)]
        scores = [{row.label: row.by_seed for row in board.rows} if board else {} for board in boards]
        sign = 1 if higher_is_better(self.board.metric) else -1
        falls = {
            name: {
                seed: sign * (v - scores[1][name][seed])
                for seed, v in scores[0].get(name, {}).items()
                if seed in scores[1].get(name, {})
            }
            for name in (self.entry.method, self.board.control)
        }
        if self.entry.method == self.board.control:
            return {"fall": _mean(falls[self.entry.method]), "verdict": ""}
        found = verdicts(falls, higher=False, margin=None, pairs=[(self.entry.method, self.board.control)])
        facts = {"fall": _mean(falls[self.entry.method]), "control": self.board.control}
        return {
            **facts,
            "fall_of_control": _mean(falls[self.board.control]),
            "verdict": found[0].verdict if found else "",
        }

    def _pair(self, results: Sequence[Result], other: str) -> Pair | None:
        """What is concluded of the entry and another row on the hidden seeds."""
        board = board_of(results, self.board, self.registry.catalogue.roles)
        scores = {row.label: row.by_seed for row in board.rows} if board else {}
        pair = {name: scores.get(name, {}) for name in (self.entry.method, other)}
        return next(iter(verdicts(pair, higher_is_better(self.board.metric), None)), None)


def _reported(results: Sequence[Result], seeds: Sequence[int]) -> list[Result]:
    """What reports on these seeds, under one name of the suite on both sides."""
    return [replace(r, suite="") for r in results if r.entry.candidate is None and r.entry.seed in seeds]


def _mean(values: Mapping[int, float]) -> float | None:
    return sum(values.values()) / len(values) if values else None


def objections(record: Mapping[str, Any]) -> list[str]:
    """Why a re-run does not let the entry rank, a sentence each."""
    found = [
        f"seed {row['seed']} is {row['change']}: {row['before']} submitted, {row['after']} run again"
        for row in record[DRAWN]
        if row["change"] not in (EQUAL, CLOSE)
    ]
    if "seeds" not in record:
        found.append("the salt of this board is secret, so nothing ran on hidden seeds: maintainers have --salt FILE")
    if record.get(HELD_OUT, {}).get("verdict") == WORSE:
        held = record[HELD_OUT]
        found.append(
            f"on data drawn anew it falls by {100 * held['fall']:.1f} points and {held['control']} by "
            f"{100 * held['fall_of_control']:.1f}, which is significantly different: does it know the test examples?"
        )
    return found


def concluded(rerun: Rerun, record: Mapping[str, Any]) -> list[str]:
    """Write the record, and the states that follow from it; returns the objections."""
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    write_atomically(record_file(rerun.entry, rerun.board.board), text.encode())
    found = objections(record)
    if not found and rerun.entry.boards[rerun.board.board]["state"] not in RANKED:
        set_state(rerun.entry, rerun.board.board, RERUN)
    if rerun.entry.challenge and record.get("challenge", {}).get("verdict") in (BETTER, WORSE):
        challenged = rerun.home.entries[rerun.entry.challenge["entry"]]
        if challenged.boards[rerun.board.board]["state"] in RANKED:
            set_state(challenged, rerun.board.board, CHALLENGED)
    return found


def set_state(entry: Entry, board: str, state: str) -> None:
    """Put a state into the entry's file, of which nothing else changes."""
    from fedbench.board.entries import ENTRY, read_entry

    file = entry.folder / ENTRY
    node = read_entry(file, Problems()).node.at("boards", board, "state")  # type: ignore[union-attr]  # it was read
    lines = file.read_text("utf-8").splitlines(keepends=True)
    row, column = (node.mark.line or 1) - 1, (node.mark.column or 1) - 1
    lines[row] = lines[row][:column] + lines[row][column:].replace(str(node.value), state, 1)
    write_atomically(file, "".join(lines).encode())
