"""Checks of an entry: its code, and that its results are those of the board's suite, tuned as the suite says."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from fedbench.board import plans
from fedbench.board.entries import BUILT_IN, RANKED, WITHDRAWN, Board, Entry, Home, found_in, hash_of_code, hash_of_rows
from fedbench.board.entries import rows_of as named_rows
from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.results import Result
from fedbench.results.columns import PENDING
from fedbench.results.content import digest_of_table
from fedbench.results.diff import flatten
from fedbench.results.identity import identity_of, mixed_versions, plugin_versions
from fedbench.results.metric_direction import VALIDATION
from fedbench.suite import Suite
from fedbench.suite.node import Mark
from fedbench.types import NEXT_TOKEN
from fedbench.words import counted, shortened, shown

CODE, CONTRACT, BOARD, SETTINGS, SEEDS, TUNING, CHOICE, HASH, MACHINE, LABELS, STATE = (
    "code", "contract", "board", "settings", "seeds", "tuning", "choice", "hash", "environment", "test labels", "state",
)  # fmt: skip
LOOSE = 0.005  # how far a score on every label may lie from chance, for answers that rounding decides
BLIND_ROUNDS = 2
MOST = 3  # names that a message lists
RULES = (CODE, CONTRACT, BOARD, SETTINGS, SEEDS, TUNING, CHOICE, HASH, MACHINE, LABELS, STATE)


class Fault(NamedTuple):
    """What is wrong with an entry: which rule it breaks, where that stands, and what would be right."""

    rule: str
    mark: Mark
    message: str


Kit = Callable[[Sequence[str]], Iterable[tuple[str, str, str]]]  # `plugins check`: verdict, what, why


@dataclass
class Check:
    """The check of one entry, all faults at once.

    Attributes:
        home: what it is an entry of.
        entry: the entry.
        plugins: the files of its code, and of what its package brings nothing.
        kit: checks components against their contracts.
        boards: those whose rows are checked; by default all.
        blind: whether its method is tried on test examples with every label, which takes a run.
    """

    home: Home
    entry: Entry
    plugins: Sequence[str]
    kit: Kit
    boards: Sequence[str] = ()
    blind: bool = True
    known: dict[Path, tuple[list[Result], list[str]]] = field(default_factory=dict, repr=False)

    def faults(self) -> list[Fault]:
        """In the order of the rules."""
        found = list(self._code())
        rows = {name: row for name, row in self.entry.boards.items() if not self.boards or name in self.boards}
        for name, row in rows.items():
            if name not in self.home.boards:
                found.append(Fault(BOARD, self.entry.mark("boards", name), f"there is no board {name!r}"))
            elif row["version"] > self.home.boards[name].version:
                latest = self.home.boards[name].version
                found.append(Fault(BOARD, self.entry.mark("boards", name, "version"), f"{name} has version {latest}"))
            elif row["version"] == self.home.boards[name].version and row["state"] != WITHDRAWN:
                found += self._row(self.home.boards[name], row)
        return found

    @cached_property
    def registry(self) -> Registry:
        return Registry(self.plugins)

    def _code(self) -> Iterator[Fault]:
        """Whether the entry's code is there, is what its hash says, and keeps its contract."""
        entry, at = self.entry, self.entry.mark("plugin")
        if entry.plugin == BUILT_IN:
            return
        if entry.file is not None:
            if not entry.file.is_file():
                yield Fault(CODE, entry.mark("plugin", "file"), f"{entry.file} is not there")
                return
            if (code := hash_of_code(entry)) != entry.plugin["sha256"]:  # type: ignore[index]  # it has a file
                yield Fault(CODE, entry.mark("plugin", "sha256"), f"the code has another hash: {code}")
        if entry.challenge is None and entry.method not in self.registry.catalogue.components["method"]:
            yield Fault(CODE, at, f"its code registers no method {entry.method!r}")
            return
        for verdict, what, why in self.kit(self.plugins or [entry.method]):
            if verdict not in ("ok", "skipped"):
                yield Fault(CONTRACT, at, f"{what}: {why}")

    def _row(self, board: Board, row: Mapping[str, Any]) -> Iterator[Fault]:
        """Whether the results on one board may stand there."""
        entry, at = self.entry, self.entry.mark("boards", board.board)
        if (digest := plans.hash_of_suite(board)) != board.sha256:
            mark, text = board.node.at("sha256").mark, f"version {board.version} is of another suite: {digest}"
            yield Fault(BOARD, mark, f"{board.suite} has changed since, and {text}")
            return
        if entry.challenge:
            yield from self._challenge(board)
            return
        try:
            suite = plans.loaded(board, plans.text_of(board, [entry], space=row.get("space")), self.registry)
            results, wrong = self._results(entry.results(board.board))
        except UserError as error:
            yield Fault(SETTINGS, at, str(error))
            return
        yield from (Fault(HASH, entry.mark("boards", board.board, "results"), f"edited: {line}") for line in wrong)
        own = named_rows(results, entry.method, board, suite.variants[0])
        others = {one.entry.scenario for one in results if one.entry.method == entry.method} - {board.scenario}
        if not own:
            instead = f"; there are results of {', '.join(sorted(others))}: another suite" if others else ""
            yield Fault(SETTINGS, at, f"no results of {entry.method} in {board.scenario} of {board.suite}{instead}")
            return
        yield from self._cells(board, row, own)
        yield from self._tuning(board, row, suite, own)
        if entry.plugin != BUILT_IN and self.blind:
            yield from self._labels(board, row)
        if row["state"] in RANKED and not (entry.folder / f"rerun-{board.board}.json").is_file():
            mark = entry.mark("boards", board.board, "state")
            yield Fault(STATE, mark, f"{row['state']}, but no re-run is recorded in rerun-{board.board}.json")

    def _results(self, folder: Path) -> tuple[list[Result], list[str]]:
        if folder not in self.known:
            self.known[folder] = found_in(folder)
        return self.known[folder]

    def _cells(self, board: Board, row: Mapping[str, Any], own: Sequence[Result]) -> Iterator[Fault]:
        """Whether cells are whole, unedited, of the entry's code, and of one environment."""
        entry, at = self.entry, self.entry.mark("boards", board.board)
        done = [one for one in own if one.manifest and not one.fault]
        if edited := [one.entry.title for one in done if identity_of(one.manifest) != one.entry.cell]:
            yield Fault(HASH, at, f"edited: what {shortened(edited, MOST)} says of itself has another id")
        try:
            if (digest := hash_of_rows(done)) != row.get("sha256"):
                yield Fault(HASH, entry.mark("boards", board.board, "sha256"), f"these results have the hash {digest}")
        except UserError as error:
            yield Fault(HASH, at, f"edited: {error}")
        names = {self.registry.label(self.registry.catalogue.find("method", entry.method).plugin)} if (
            entry.plugin != BUILT_IN and entry.method in self.registry.catalogue.components["method"]
        ) else set[str]()  # fmt: skip
        now = {name: self.registry.version(self._plugin(name)) for name in names}
        if other := [one.entry.title for one in done if plugin_versions(one.manifest) != now]:
            yield Fault(CODE, at, f"{shortened(other, MOST)}: computed by other code than the entry's")
        if mixed := mixed_versions(one.manifest for one in done):
            yield Fault(MACHINE, at, f"computed with {mixed}: one environment computes a row")
        if silent := [one.entry.title for one in done if not one.manifest.get("machine")]:
            yield Fault(MACHINE, at, f"{shortened(silent, MOST)}: does not say on which machine")

    def _plugin(self, label: str) -> str:
        """The plugin that an identity calls so."""
        known = (*self.registry.files, *self.registry.entry_points)
        return next(name for name in known if self.registry.label(name) == label)

    def _tuning(self, board: Board, row: Mapping[str, Any], suite: Suite, own: Sequence[Result]) -> Iterator[Fault]:
        """Whether all that was to be tried was, the best on validation data was taken, and it alone reports."""
        entry, at = self.entry, self.entry.mark("boards", board.board)
        key = (board.scenario, suite.variants[0], entry.method)
        winners: dict[tuple[str, str, str], int] = {}
        if suite.tuning is not None:
            contest = plans.contest_of(board, entry, suite.variants[0], {one.suite_folder for one in own})
            if contest is None:
                yield Fault(TUNING, at, f"no tuning is in these results; the board gives {board.trials} candidates")
                return
            asked, found = suite.tuning, contest.search
            for what, mine, theirs in (
                ("space", found.space, asked.space),
                (
                    "candidates",
                    found.candidates[: found.trials],
                    [one.values for one in asked.candidates[: asked.trials]],
                ),
                ("seeds", found.seeds, list(asked.seeds)),
                ("metric", found.metric, asked.metric),
                ("halving", found.halving, list(asked.halving)),
                ("confirm", found.confirm or [], list(asked.confirm)),
            ):
                if json.loads(json.dumps(mine)) != json.loads(json.dumps(theirs)):
                    yield Fault(TUNING, at, f"the tuning has another {what} than the board's suite")
            tried = set(range(asked.trials))
            seen = {one.entry.candidate for one in own if one.status not in (PENDING, "running")}
            lone = len(contest.cells) == 1 and not self.registry.catalogue.find("method", self._registered(own)).tunable
            if (missing := sorted(tried - seen)) and not lone:
                yield Fault(TUNING, at, f"candidate {shortened([str(k) for k in missing], MOST)} is missing: every "
                            f"method tries all {asked.trials}")  # fmt: skip
            unscored = [one for one in own if one.entry.candidate is not None and one.status == "finished"]
            if blind := [one.entry.title for one in unscored if not one.metrics(VALIDATION)]:
                yield Fault(
                    CHOICE, at, f"{shortened(blind, MOST)}: not scored on validation data, so chosen on test data"
                )
            if contest.winner is not None:
                winners[key] = contest.winner
        yield from self._reported(board, suite, own, winners.get(key))

    def _registered(self, own: Sequence[Result]) -> str:
        """The registered method behind a label."""
        return str(next(one.manifest["config"]["method"]["name"] for one in own if one.manifest))

    def _reported(self, board: Board, suite: Suite, own: Sequence[Result], winner: int | None) -> Iterator[Fault]:
        """Whether the cells that report are those of the winner on the board's seeds, and all candidates the suite's."""
        entry, at = self.entry, self.entry.mark("boards", board.board)
        candidates = {(p.candidate, p.seed): p.config for p in suite.candidates(methods=[entry.method])}
        reporting = [one for one in own if one.entry.candidate is None]
        chosen = suite if winner is None else suite.tuned({(board.scenario, suite.variants[0], entry.method): winner})
        wanted = {p.seed: p.config for p in chosen.points(methods=[entry.method], seeds=board.seeds)}
        there = {one.entry.seed: one for one in reporting}
        if other := sorted(there.keys() - wanted.keys()):
            yield Fault(SEEDS, at, f"seed {shortened([str(s) for s in other], MOST)} is not one of the board's")
        lost = [s for s in wanted if s not in there or there[s].status != "finished"]
        if lost:
            yield Fault(SEEDS, at, f"seed {shortened([str(s) for s in lost], MOST)} has no finished result")
        for one in own:
            k, seed, config = one.entry.candidate, one.entry.seed, one.manifest.get("config")
            right = wanted.get(seed) if k is None else candidates.get((k, seed))
            if config is None or right is None or config == right:
                continue
            if k is None and (same := [c for c, tried in self._tried(suite, seed).items() if tried == config]):
                message = f"candidate {same[0]} reports, and candidate {winner} is the best on validation data"
                yield Fault(CHOICE, at, f"{message}: nothing may be chosen on test data")
            else:
                yield Fault(SETTINGS, at, f"{one.entry.title}: {_apart(config, right)}, unlike the board's suite")
            return

    def _tried(self, suite: Suite, seed: int) -> dict[int, Any]:
        """By candidate, the configuration of a cell that would report it."""
        found = {}
        for k in range(suite.tuning.trials if suite.tuning else 0):
            key = (suite.scenarios[0], suite.variants[0], self.entry.method)
            (point,) = suite.tuned({key: k}).points(methods=[self.entry.method], seeds=[seed])
            found[k] = point.config
        return found

    def _challenge(self, board: Board) -> Iterator[Fault]:
        """Whether a challenge names an entry of the board and a setting within its budget."""
        asked, at = self.entry.challenge or {}, self.entry.mark("challenge")
        other = self.home.entries.get(asked["entry"])
        if other is None or board.board not in other.boards or other.challenge:
            yield Fault(BOARD, self.entry.mark("challenge", "entry"), f"{asked['entry']} is no entry on {board.board}")
            return
        space = plans.suite_of(board).get("tune", {}).get("space", {}) | other.boards[board.board].get("space", {})
        for key, value in asked["settings"].items():
            ((way, values),) = space.get(key, {"choice": []}).items()
            within = (
                value in values
                if way == "choice"
                else isinstance(value, int | float) and values[0] <= value <= values[1]
            )
            if not within:
                budget = f"{way} of {shown(values)}" if key in space else "not tuned there"
                yield Fault(TUNING, self.entry.mark("challenge", "settings", key), f"{key} is {budget} on this board")

    def _labels(self, board: Board, row: Mapping[str, Any]) -> Iterator[Fault]:
        """Whether the method's training and answers are the same whatever labels the test examples have."""
        plain = plans.suite_of(board)
        data = {**plain["defaults"]["data"]}
        if data.get("task") == NEXT_TOKEN or "test_per_file" in data:
            return  # what is tested are the texts themselves
        section = {key: data.pop(key) for key in ("partition", "image_size", "max_length", "normalize") if key in data}
        scenario = plain["scenarios"][board.scenario] or {}
        text = json.loads(plans.text_of(board, [self.entry], values={}))
        text["defaults"]["train"]["rounds"] = BLIND_ROUNDS
        text["defaults"]["evaluation"] = {"by": "domain"}
        every = {**scenario, "data": {**section, "name": "every_label", "of": data}}
        text["scenarios"] = {"true": scenario, "every": every}
        plugins = [*self.plugins, str(files("fedbench.board").joinpath("every_label.py"))]
        with tempfile.TemporaryDirectory() as folder:
            there = plans.run(
                board, json.dumps(text), [self.entry.method], board.seeds[:1], Path(folder), plugins=plugins
            )
            cells = {one.entry.scenario: one for one in found_in(there)[0]}
            at = self.entry.mark("plugin")
            if any(one.status != "finished" for one in cells.values()):
                reason = next(
                    one.manifest.get("reason", one.status) for one in cells.values() if one.status != "finished"
                )
                yield Fault(LABELS, at, f"its first {BLIND_ROUNDS} rounds do not end: {reason}")
                return
            apart = {
                kind
                for kind in ("rounds", "layers")
                if len({digest_of_table(kind, c.table(kind)) for c in cells.values()}) > 1
            }
            scores = cells["every"].scores("accuracy")
            chance = 1 / int(cells["every"].manifest["fingerprints"]["data"].rpartition("-")[2])
            if apart or any(abs(v - chance) > LOOSE for part in scores.values() for v in part.values()):
                how = "its training" if apart else "its answers"
                yield Fault(LABELS, at, f"{how} depend on the labels of test examples, which a method must not read")


def _apart(config: Mapping[str, Any], right: Mapping[str, Any]) -> str:
    """The settings in which two configurations differ, as `train.rounds is 9 and not 12`."""
    was, should = dict(flatten(dict(config))), dict(flatten(dict(right)))
    keys = [key for key in dict.fromkeys((*was, *should)) if was.get(key) != should.get(key)]
    told = [f"{key} is {was.get(key, 'missing')} and not {should.get(key, 'there')}" for key in keys]
    return shortened(told, MOST)
