"""Re-runs: drawn cells on the submitted seeds, all settings on hidden ones, and the same on new draws of the data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from fedbench import __version__, machine
from fedbench.board import plans
from fedbench.board.entries import RANKED, RERUNS, Board, Entry, Home, found_in, named_rows
from fedbench.board.records import DRAWN, HELD_OUT, HIDDEN, board_of, measured
from fedbench.board.seeds import commit_of, hidden_seeds, numbers
from fedbench.registry.registry import Registry
from fedbench.report.statistics.pairs import FEWEST, WORSE, Pair, deviation, t_quantile, verdicts
from fedbench.results import Result
from fedbench.results.diff import differences
from fedbench.results.scores import higher_is_better
from fedbench.suite.references import SEED

TOGETHER = "built-in"  # the group of the rows without code of their own
Scores = Mapping[str, Mapping[int, float]]


@dataclass(frozen=True)
class Rerun:
    """The re-run of an entry on a board.

    Attributes:
        home: all boards and entries.
        entry: the entry, committed.
        board: one that it is on.
        salt: the board's; None where it is secret, so that there are no hidden seeds.
        isolated: how this process is kept from the network, in words.
        options: of runs: observe, device, jobs.
    """

    home: Home
    entry: Entry
    board: Board
    salt: str | None
    isolated: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def commit(self) -> str:
        """Of the entry. Raises UserError where it is in none."""
        return commit_of(self.entry, self.board.board)

    @cached_property
    def folder(self) -> Path:
        """Where all cells of entries of this commit are kept."""
        return self.home.folder / RERUNS / f"{self.board.board}-{self.board.version}" / self.commit[:12]

    @cached_property
    def rows(self) -> dict[str, Entry | None]:
        """What runs on the hidden seeds, by method: the entry, those that rank already, and the reference methods;
        None for a method of the suite without an entry."""
        name = self.board.board
        found = {method: self.home.standing(method, name) for method in self.board.references}
        for entry, row in self.home.on(name):
            if row.state in RANKED and self.home.has_current(entry, name):
                found[entry.method] = entry
        if self.entry.challenge:
            found[self._challenged] = self.home.entries[self.entry.challenge.entry]
        return {**found, self.entry.method: self.entry}

    @cached_property
    def settings(self) -> dict[str, dict[str, Any]]:
        """By row, the values that its tuning found, or that a challenge names."""
        variant, found = plans.variant_of(self.board), dict[str, dict[str, Any]]()
        for method, entry in self.rows.items():
            if entry and entry.challenge:
                found[method] = dict(entry.challenge.settings)
            elif entry:
                own = named_rows(found_in(entry.results(self.board.board))[0], method, self.board, variant)
                contest = plans.contest_of(self.board, entry, variant, {one.suite_folder for one in own})
                found[method] = plans.values_of(contest)
        return found

    @property
    def _challenged(self) -> str:
        return self.entry.challenge.entry.partition("/")[0] if self.entry.challenge else ""

    def run(self, count: int | None) -> dict[str, Any]:
        """Run what is not there yet; returns the record. count: so many submitted cells, None for all. Raises
        UserError."""
        board, method = self.board, self.entry.method
        record: dict[str, Any] = {
            "entry": self.entry.name, "board": board.board, "version": board.version, "commit": self.commit,
            "claim": self.entry.claim(board.board), "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "fedbench": __version__, "machine": machine.describe("cpu"), "isolated": self.isolated,
            "settings": self.settings[method], DRAWN: [] if self.entry.challenge else self._drawn(count),
        }  # fmt: skip
        if self.salt is None:
            return record
        tuned = plans.loaded(board, plans.text_of(board), Registry()).tuning
        tried = tuned.all_seeds if tuned else []
        seeds = hidden_seeds(board, self.salt, self.commit, tried)
        here = self._scores(self._on(seeds, list(self.rows), HIDDEN))
        place = (self.folder / HIDDEN).relative_to(self.home.folder)
        record |= {"seeds": seeds, "tried": tried, "rows": list(self.rows), "results": str(place)}
        if board.held_out:
            both = list(dict.fromkeys((board.control, method)))
            there = self._scores(self._on(seeds, both, HELD_OUT, {board.held_out: SEED}))
            record[HELD_OUT] = self._fall(here, there)
        if self.entry.challenge and (pair := _pair(here, method, self._challenged, higher_is_better(board.metric))):
            record["challenge"] = {"verdict": pair.verdict, "difference": pair.difference, "q": pair.q}
        return record

    def _drawn(self, count: int | None) -> list[dict[str, Any]]:
        """Submitted cells again, each with how it differs. The commit, and the salt if it is known, say which."""
        board, method = self.board, self.entry.method
        order = numbers(self.salt or "", self.commit, DRAWN, len(board.seeds))
        seeds = [seed for _, seed in sorted(zip(order, board.seeds, strict=True))][:count]
        there = found_in(self.entry.results(board.board))[0]
        sides = [
            [replace(r, suite="") for r in side if r.entry.candidate is None and r.entry.seed in seeds]
            for side in (named_rows(there, method, board, plans.variant_of(board)), self._on(seeds, [method], DRAWN))
        ]
        found = differences(sides[0], sides[1], board.metric, board.tolerance)
        rows = found[["seed", "change", "before", "after", "largest"]].to_dict("records")
        return [{str(key): None if value != value else value for key, value in row.items()} for row in rows]

    def _on(
        self, seeds: Sequence[int], methods: Sequence[str], part: str, data: Mapping[str, Any] | None = None
    ) -> list[Result]:
        """Results of methods on seeds; those of one plugin are run apart from others."""
        groups: dict[str, list[str]] = {}
        for method in methods:
            owner = self._owner(method)
            groups.setdefault(owner.method if owner and owner.is_foreign else TOGETHER, []).append(method)
        for group, labels in groups.items():
            entries = [entry for label in labels if (entry := self.rows.get(label))]
            plugins = {file for label in labels if (owner := self._owner(label)) for file in owner.files}
            values = {label: self.settings.get(label, {}) for label in labels}
            text = plans.text_of(self.board, entries, values=values, data=data)
            plans.run(
                self.board, text, labels, seeds, self.folder / part / group, plugins=list(plugins), **self.options
            )
        wanted = {(method, seed) for method in methods for seed in seeds}
        return [one for one in measured(self.folder / part) if (one.entry.method, one.entry.seed) in wanted]

    def _owner(self, method: str) -> Entry | None:
        """Whose code a row runs: of a challenge that of the entry which it challenges."""
        entry = self.rows.get(method)
        return self.home.entries[entry.challenge.entry] if entry and entry.challenge else entry

    def _scores(self, results: Sequence[Result]) -> Scores:
        """By row, its score by seed."""
        board = board_of(results, self.board, {})
        return {row.label: row.by_seed for row in board.rows} if board else {}

    def _fall(self, here: Scores, there: Scores) -> dict[str, Any]:
        """How far the method and the control fall from the public draw of the data to new ones, one for each seed."""
        sign, method, control = 1 if higher_is_better(self.board.metric) else -1, self.entry.method, self.board.control
        falls = {
            name: {seed: sign * (score - there[name][seed]) for seed, score in here[name].items()}
            for name in (method, control)
            if {*here.get(name, {})} == {*there.get(name, {})} != set()
        }
        means = {name: sum(fall.values()) / len(fall) for name, fall in falls.items()}
        found = {"fall": means.get(method), "control": control, "fall_of_control": means.get(control), "verdict": ""}
        if len(falls) < 2 or means[method] <= 0:
            return found
        further = [fall - falls[control][seed] for seed, fall in falls[method].items()]
        return {**found, "verdict": WORSE if is_beyond_draws(further) else ""}


def is_beyond_draws(differences: Sequence[float]) -> bool:
    """Whether a method falls further than the control, from one public draw to n new ones, than draws alone explain.

    The public draw is one of all draws: it is easier for some methods by chance, and every seed shares it. So the mean
    of the n differences is held against the spread of one further draw, t_(n-1) s sqrt(1 + 1/n), as in a prediction
    interval, and not against that of a mean.
    """
    n = len(differences)
    mean = math.fsum(differences) / max(n, 1)
    return n >= FEWEST and mean > t_quantile(n) * deviation(differences) * (1 + 1 / n) ** 0.5


def _pair(scores: Scores, one: str, other: str, higher: bool) -> Pair | None:
    """What is concluded of two rows; None where they share no seed."""
    both = {name: scores.get(name, {}) for name in (one, other)}
    return next(iter(verdicts(both, higher, None)), None)
