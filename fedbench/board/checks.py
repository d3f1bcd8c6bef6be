"""Checks of an entry: its code, and that its results are those of the board's suite, tuned as the suite says."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from fedbench.board import plans
from fedbench.board.entries import (
    RANKED,
    Board,
    Entry,
    Home,
    Row,
    found_in,
    hash_of_code,
    hash_of_rows,
    named_rows,
    registered,
)
from fedbench.board.records import objections, read_record
from fedbench.board.seeds import commit_of, hidden_seeds, salt_of
from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.results import Result
from fedbench.results.columns import PENDING
from fedbench.results.diff import flatten
from fedbench.results.files import digest_of_table
from fedbench.results.identity import identity_of, mixed_versions, plugin_versions
from fedbench.results.scores import VALIDATION
from fedbench.suite import Suite
from fedbench.suite.yaml import Mark
from fedbench.types import NEXT_TOKEN
from fedbench.words import shortened, shown

CODE, CONTRACT, BOARD, SETTINGS, SEEDS, TUNING, CHOICE, HASH, MACHINE, LABELS, STATE = (
    "code", "contract", "board", "settings", "seeds", "tuning", "choice", "hash", "environment", "test labels", "state",
)  # fmt: skip
LOOSE = 0.005  # how far a score on every label may lie from chance, for answers that rounding decides
FIRST_ROUNDS = 2  # that are run for it
MOST = 3  # names that a message lists

Kit = Callable[[Sequence[str]], Iterable[tuple[str, str, str]]]  # `plugins check`: verdict, what, why


class Fault(NamedTuple):
    """What is wrong with an entry: which rule it breaks, where that stands, and what would be right."""

    rule: str
    mark: Mark
    message: str


@dataclass
class Check:
    """The check of one entry, all faults at once.

    Attributes:
        home: what it is an entry of.
        entry: the entry.
        plugins: the files of its code.
        kit: checks components against their contracts.
        boards: those whose rows are checked; by default all.
        blind: whether its method is tried on test examples with every label, which takes a run.
        known: results by folder, shared by the checks of several entries.
    """

    home: Home
    entry: Entry
    plugins: Sequence[str]
    kit: Kit
    boards: Sequence[str] = ()
    blind: bool = True
    known: dict[Path, tuple[list[Result], list[str]]] = field(default_factory=dict, repr=False)
    found: list[Fault] = field(default_factory=list)

    def faults(self) -> list[Fault]:
        """What is wrong: with the code, then board by board."""
        if self.entry.is_foreign:
            with self._saying(CODE, "plugin"):
                self._code()
        for name, row in self.entry.boards.items():
            if self.boards and name in self.home.boards and name not in self.boards:
                continue
            version = self.home.boards[name].version if name in self.home.boards else 0
            if row.version > version:
                there = f"{name} has version {version}" if version else f"there is no board {name!r}"
                self._say(BOARD, there, "boards", name)
            elif self.home.has_current(self.entry, name):
                with self._saying(SETTINGS, "boards", name):
                    self._row(self.home.boards[name], row)
        return self.found

    @cached_property
    def registry(self) -> Registry:
        """What is installed, and the entry's code."""
        return Registry(self.plugins)

    def _say(self, rule: str, message: str, *path: str) -> None:
        self.found.append(Fault(rule, self.entry.mark(*path), message))

    @contextmanager
    def _saying(self, rule: str, *path: str) -> Iterator[None]:
        """What cannot be read inside is a fault, and the check goes on."""
        try:
            yield
        except UserError as error:
            self._say(rule, str(error), *path)

    def _code(self) -> None:
        """Whether the entry's code is there, is what its hash says, and keeps its contract."""
        entry = self.entry
        if entry.file is not None and not entry.file.is_file():
            self._say(CODE, f"{entry.file} is not there", "plugin", "file")
            return
        if entry.file is not None and (code := hash_of_code(entry.file.parent)) != entry.plugin.sha256:  # type: ignore[union-attr]
            self._say(CODE, f"the code has another hash: {code}", "plugin", "sha256")
        if entry.challenge is None and entry.method not in self.registry.catalogue.components["method"]:
            self._say(CODE, f"its code registers no method {entry.method!r}", "plugin")
            return
        for verdict, what, why in self.kit(self.plugins or [entry.method]):
            if verdict not in ("ok", "skipped"):
                self._say(CONTRACT, f"{what}: {why}", "plugin")

    def _row(self, board: Board, row: Row) -> None:
        """Whether the results on one board may stand there."""
        entry, at = self.entry, ("boards", board.board)
        if (digest := plans.hash_of_suite(board)) != board.sha256:
            text = f"{board.suite} has changed: version {board.version} is of another suite than {digest}"
            self.found.append(Fault(BOARD, board.mark("sha256"), text))
            return
        suite = plans.loaded(board, plans.text_of(board, [] if entry.challenge else [entry]), self.registry)
        if row.state in RANKED:
            with self._saying(STATE, *at, "state"):
                self._record(board, suite, at)
        if entry.challenge:
            self._challenge(board)
            return
        with self._saying(TUNING, *at, "space"):
            plans.require_own_options(board, entry)
        if (folder := entry.results(board.board)) not in self.known:
            self.known[folder] = found_in(folder)
        results, wrong = self.known[folder]
        own = named_rows(results, entry.method, board, suite.variants[0])
        for line in wrong:
            self._say(HASH, f"edited: {line}", *at, "results")
        if wrong:
            return
        if not own:
            there = sorted({f"{one.suite} {one.entry.scenario}" for one in results})
            text = f"no results of {entry.method} in {board.scenario} of {board.suite}"
            self._say(SETTINGS, f"{text}, but of {shortened(there, MOST) or 'nothing'}", *at)
            return
        self._cells(row, own, at)
        self._reported(board, suite, own, self._winner(board, suite, own, at), at)
        if entry.is_foreign and self.blind:
            with self._saying(LABELS, "plugin"):
                self._labels(board)

    def _record(self, board: Board, suite: Suite, at: Sequence[str]) -> None:
        """Whether a rank has been earned: by a re-run of this very entry, on the seeds that follow from its commit."""
        entry, name = self.entry, board.board
        record, salt = read_record(entry, name), salt_of(board)
        whys = objections(record) if record else ["no re-run is recorded: the state of a new entry is submitted"]
        if record and (record["board"], record["claim"]) != (name, entry.claim(name)):
            whys.append("the recorded re-run is of another state of this entry")
        elif record and record["commit"] != (commit := commit_of(entry, name)):
            whys.append(f"it was run again as of commit {record['commit'][:12]}, and is as it is since {commit[:12]}")
        elif record and salt:
            tried = suite.tuning.all_seeds if suite.tuning else ()
            if record.get("seeds") != hidden_seeds(board, salt, record["commit"], tried):
                whys.append(f"its seeds do not follow from commit {record['commit'][:12]}")
        for why in whys:
            self._say(STATE, f"{entry.boards[name].state}, but {why}", *at, "state")

    def _cells(self, row: Row, own: Sequence[Result], at: Sequence[str]) -> None:
        """Whether cells are whole, unedited, of the entry's code, and of one environment."""
        done = [one for one in own if one.manifest]
        if edited := [one.entry.title for one in done if identity_of(one.manifest) != one.entry.cell]:
            self._say(HASH, f"edited: what {shortened(edited, MOST)} says of itself has another id", *at)
        if (digest := hash_of_rows(done)) != row.sha256:
            self._say(HASH, f"these results have the hash {digest}", *at, "sha256")
        now = {}
        if self.entry.is_foreign:
            plugin = self.registry.catalogue.find("method", self.entry.method).plugin
            now = {self.registry.label(plugin): self.registry.version(plugin)}
        if other := [one.entry.title for one in done if plugin_versions(one.manifest) != now]:
            self._say(CODE, f"{shortened(other, MOST)}: computed by other code than the entry's", *at)
        if mixed := mixed_versions(one.manifest for one in done):
            self._say(MACHINE, f"computed with {mixed}, and not in one environment", *at)

    def _winner(self, board: Board, suite: Suite, own: Sequence[Result], at: Sequence[str]) -> int | None:
        """The winner of the tuning, whose candidates must be those of the suite; None where nothing is tuned."""
        if suite.tuning is None:
            return None
        contest = plans.contest_of(board, self.entry, suite.variants[0], {one.suite_folder for one in own})
        if contest is None:
            self._say(TUNING, f"no tuning is in these results; every method tries {board.trials} candidates", *at)
            return None
        for what, theirs in vars(suite.tuning).items():
            if shown(getattr(contest.tuning, what), 10**6) != shown(theirs, 10**6):
                self._say(TUNING, f"the tuning has other {what} than the board's suite", *at)
        tried = {one.entry.candidate for one in own if one.status not in (PENDING, "running")}
        tunable = self.registry.catalogue.find("method", registered(own)).tunable
        missing = [str(k) for k in range(suite.tuning.trials if tunable else 1) if k not in tried]
        if missing:
            text = f"candidate {shortened(missing, MOST)} is missing: every method tries all {suite.tuning.trials}"
            self._say(TUNING, text, *at)
        for one in own:
            if one.entry.candidate is not None and one.status == "finished" and not one.metrics(VALIDATION):
                text = f"{one.entry.title}: not scored on validation data, so that it was chosen on test data"
                self._say(CHOICE, text, *at)
        return contest.winner

    def _reported(
        self, board: Board, suite: Suite, own: Sequence[Result], winner: int | None, at: Sequence[str]
    ) -> None:
        """Whether all cells have the suite's settings, and the winner's alone report, on the board's seeds."""
        key = (board.scenario, suite.variants[0], self.entry.method)

        def points(k: int | None) -> dict[int, Any]:
            chosen = suite if k is None else suite.tuned({key: k})
            return {point.seed: point.config for point in chosen.points(methods=[key[2]], seeds=board.seeds)}

        wanted: dict[tuple[int | None, int], Any] = {(None, seed): config for seed, config in points(winner).items()}
        wanted |= {(point.candidate, point.seed): point.config for point in suite.candidates(methods=[key[2]])}
        there = {one.entry.seed: one for one in own if one.entry.candidate is None}
        if other := [str(seed) for seed in sorted(there.keys() - {*board.seeds})]:
            self._say(SEEDS, f"seed {shortened(other, MOST)} is not one of the board's", *at)
        if lost := [str(s) for s in board.seeds if s not in there or there[s].status != "finished"]:
            self._say(SEEDS, f"seed {shortened(lost, MOST)} has no finished result", *at)
        for one in own:
            k, seed, config = one.entry.candidate, one.entry.seed, one.manifest.get("config")
            if config is None or config == wanted.get((k, seed), config):
                continue
            trials = range(suite.tuning.trials if suite.tuning and k is None else 0)
            if (taken := next((c for c in trials if points(c)[seed] == config), None)) is not None:
                text = f"candidate {taken} reports, and candidate {winner} is the best on validation data"
                self._say(CHOICE, f"{text}: nothing may be chosen on test data", *at)
                return
            text = f"{one.entry.title}: {_apart(config, wanted[k, seed])}, unlike the board's suite"
            self._say(SETTINGS, text, *at)
            return

    def _challenge(self, board: Board) -> None:
        """Whether a challenge names an entry of the board and a setting within its budget."""
        assert (asked := self.entry.challenge) is not None
        other = self.home.entries.get(asked.entry)
        if other is None or not self.home.has_current(other, board.board) or other.challenge:
            self._say(BOARD, f"{asked.entry} is no entry on {board.board}", "challenge", "entry")
            return
        if other.method == self.entry.method:
            self._say(BOARD, f"{other.method} is the method that is challenged; give yours another name", "method")
        space = plans.space_of(board) | other.boards[board.board].space
        for key, value in asked.settings.items():
            ((way, values),) = space.get(key, {"choice": []}).items()
            number = isinstance(value, int | float) and not isinstance(value, bool)
            within = value in values if way == "choice" else number and values[0] <= value <= values[1]
            if not within:
                budget = f"{way} of {shown(values)}" if key in space else "not tuned"
                self._say(TUNING, f"{key} is {budget} on this board", "challenge", "settings", key)

    def _labels(self, board: Board) -> None:
        """Whether the method's training and answers are the same whatever labels the test examples have."""
        suite = json.loads(plans.text_of(board, [self.entry], values={}))
        data, scenario = suite["defaults"]["data"], suite["scenarios"][board.scenario]
        if data.get("task") == NEXT_TOKEN or board.metric != "accuracy":
            return  # what is tested are the texts themselves
        section = {key: data[key] for key in ("partition", "image_size", "max_length", "normalize") if key in data}
        of = {key: 0 if value == "seed" else value for key, value in data.items() if key not in (*section, "proxy")}
        suite["defaults"]["train"]["rounds"], suite["defaults"]["evaluation"] = FIRST_ROUNDS, {"by": "domain"}
        every = {**scenario, "data": {**section, "name": "every_label", "of": of}}
        suite["scenarios"] = {"true": {**scenario, "data": {**section, **of}}, "every": every}
        plugins = [*self.plugins, str(files("fedbench.board").joinpath("every_label.py"))]
        with tempfile.TemporaryDirectory() as folder:
            run = plans.run(board, json.dumps(suite), [self.entry.method], [0], Path(folder), plugins=plugins)
            cells = {one.entry.scenario: one for one in found_in(run)[0]}
            pairs = [
                [digest_of_table(kind, one.table(kind)) for one in cells.values()] for kind in ("rounds", "layers")
            ]
            chance = 1 / int(cells["every"].manifest["fingerprints"]["data"].rpartition("-")[2])
            scores = [v for part in cells["every"].scores(board.metric).values() for v in part.values()]
        for what, depends in (
            ("training", any(one != other for one, other in pairs)),
            ("answers", any(abs(score - chance) > LOOSE for score in scores)),
        ):
            if depends:
                text = f"its {what} depend on the labels of test examples, which a method must not read"
                self._say(LABELS, text, "plugin")


def _apart(config: Mapping[str, Any], right: Mapping[str, Any]) -> str:
    """The settings in which two configurations differ, as `train.rounds is 9 and not 12`."""
    was, should = dict(flatten(dict(config))), dict(flatten(dict(right)))
    keys = [key for key in dict.fromkeys((*was, *should)) if was.get(key) != should.get(key)]
    texts = [f"{key} is {was.get(key, 'missing')} and not {should.get(key, 'there')}" for key in keys]
    return shortened(texts, MOST)
