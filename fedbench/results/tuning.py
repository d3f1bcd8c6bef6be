"""Tuning: what a suite's index keeps of it, the contests between candidates, and who wins by validation scores."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedbench.disk import hash_of_json
from fedbench.errors import UserError
from fedbench.results.columns import ENDED, GIVEN_UP, HALVED, KEPT, PENDING
from fedbench.results.documents import check, typed
from fedbench.results.files import checked_table, has_table, read_manifest
from fedbench.results.index import INDEX, MEND, Entry, Index, change_index
from fedbench.results.packed_tables import folder_of, packed_tables
from fedbench.results.scores import (
    CONSTANT,
    VALIDATION,
    average,
    by_round,
    collapse,
    constant_rounds,
    evaluated_rounds,
    fall,
    higher_is_better,
    mean,
    without_noise,
)
from fedbench.types.tuning import Tuning

CONTESTS = "contests"  # of a search in the index: what it is of
PAIR = 2  # candidates that are confirmed at a time
Key = tuple[str, str, str]  # scenario, variant, method


def merge_tunings(suite_folder: Path, suite: str, tunings: Mapping[Key, Tuning]) -> None:
    """Put tunings into the index, in place of those of the same contests; those of others stay."""
    change_index(suite_folder, suite, lambda index: with_tunings(index, Path(suite_folder), tunings))


def with_tunings(index: Index, folder: Path, tunings: Mapping[Key, Tuning]) -> Index:
    """An index of this folder with these tunings in place of those of the same contests."""
    held: dict[str, dict[str, Any]] = {}
    for key, tuning in sorted({**tunings_of(index, folder), **tunings}.items()):
        parts = {name: value for name, value in vars(tuning).items() if value is not None}
        held.setdefault(hash_of_json(parts), {**parts, CONTESTS: []})[CONTESTS].append(list(key))
    return replace(index, searches=list(held.values()))


def read_tunings(suite_folder: Path) -> dict[Key, Tuning]:
    """The tuning that the candidates of each contest were drawn in. Raises: UserError where it cannot be used."""
    index = packed_tables(suite_folder).index
    return tunings_of(index, Path(suite_folder)) if index else {}


def tunings_of(index: Index, folder: Path) -> dict[Key, Tuning]:
    """The tunings of an index that was read from this folder. Raises: UserError where one is none of fedbench."""
    found: dict[Key, Tuning] = {}
    try:
        for part in index.searches:
            check("a search", part, dict)
            part = dict(part)
            keys = _keys(part)
            if twice := found.keys() & set(keys):
                raise TypeError(f"{' · '.join(filter(None, min(twice)))} is a contest of two searches")
            found |= dict.fromkeys(keys, _tuning(part))
    except (TypeError, ValueError) as error:
        raise UserError(f"{folder / INDEX}: a search is not one of fedbench ({error}).\n{MEND}") from error
    return found


def _keys(part: dict[str, Any]) -> list[Key]:
    """Take out of a search in the file which contests it is of."""
    keys = part.pop(CONTESTS, None)
    check(CONTESTS, keys, list)
    for key in keys:
        check("a contest", key, list)
        if [type(name) for name in key] != [str] * 3:
            raise TypeError(f"a contest is {key!r:.80}")
    return [(scenario, variant, method) for scenario, variant, method in keys]


def _tuning(given: dict[str, Any]) -> Tuning:
    """Raises: TypeError where it is none."""
    tuning = typed(Tuning, given)
    for k, candidate in enumerate(tuning.candidates):
        check(f"candidates[{k}]", candidate, dict)
        if candidate.keys() != tuning.space.keys():
            raise TypeError(f"candidates[{k}] has other keys than the space")
    for key, given in tuning.space.items():
        check(f"space.{key}", given, dict)
    for name, numbers, kind in (("seeds", tuning.all_seeds, int), ("halving", tuning.halving, int | float)):
        for number in numbers:
            check(name, number, kind)
    for k in tuning.beyond or ():
        check("beyond", k, int)
        if not 0 <= k < tuning.trials:
            raise TypeError(f"beyond is {tuning.beyond!r:.80}")
    return tuning


def _tried(index: Index) -> dict[Key, dict[int, list[Entry]]]:
    """What the index names of each contest, by candidate, in its order."""
    found: dict[Key, dict[int, list[Entry]]] = {}
    for entry in index.entries:
        if entry.candidate is not None:
            key = (entry.scenario, entry.variant, entry.method)
            found.setdefault(key, {}).setdefault(entry.candidate, []).append(entry)
    return found


def contests(suite_folder: Path) -> dict[Key, Contest]:
    """The contests that the index of a folder names, in its order."""
    folder, found = Path(suite_folder), dict[Key, Contest]()
    if (index := packed_tables(folder).index) is None or not (tunings := tunings_of(index, folder)):
        return found
    for key, tried in _tried(index).items():
        if (tuning := tunings.get(key)) is None:
            continue
        wanted = {
            k: {entry.seed: folder_of(folder, entry.cell) for entry in tried[k] if entry.seed in tuning.all_seeds}
            for k in sorted(tried)
            if k < len(tuning.candidates)
        }
        if any(wanted.values()):
            config = _config(wanted)
            rungs = () if config is None else rungs_of(config, tuning.halving)
            found[key] = Contest(key, tuning, rungs, wanted)
    return found


def _config(cells: Mapping[int, Mapping[int, Path]]) -> dict[str, Any] | None:
    """The configuration of any cell that was started; candidates do not differ in their rounds."""
    manifests = (read_manifest(folder) for folders in cells.values() for folder in folders.values())
    return next((manifest["config"] for manifest in manifests if manifest), None)


@dataclass(frozen=True)
class CandidateRun:
    """A candidate's run on one seed, after all rounds.

    Attributes:
        score: the last validation score, None where it has none.
        fall: how far that lies below its best.
        veto: why the candidate cannot win, "" where it can.
    """

    score: float | None
    fall: float = 0.0
    veto: str = ""


@dataclass(frozen=True)
class Confirmation:
    """How far the confirmation of the best candidates has come.

    Attributes:
        asked: by candidate, the seeds on which it is to run all rounds, or has.
        winner: None where there is none, or none yet.
        over: whether all that is asked has ended.
    """

    asked: Mapping[int, Sequence[int]]
    winner: int | None
    over: bool


@dataclass(frozen=True)
class Contest:
    """The candidates of one method in one scenario and variant.

    What it says is a function of what is on disk when it is first asked; see `again`.

    Attributes:
        key: scenario, variant and method.
        tuning: what the candidates are of.
        rungs: the rounds after which the better half goes on, and the last round; none where no cell has begun, so that
            nothing on disk says them.
        cells: by candidate, by seed, the folder of its cell. A run that tunes has those here, too, that are computed
            only where the rule of confirmation asks for them.
        suite: what a view calls the suite.
    """

    key: Key
    tuning: Tuning
    rungs: tuple[int, ...]
    cells: Mapping[int, Mapping[int, Path]]
    suite: str = ""

    def again(self) -> Contest:
        """As it stands on disk now."""
        return replace(self)

    @property
    def method(self) -> str:
        return self.key[2]

    @property
    def every(self) -> list[Path]:
        """The cells of all drawn candidates on the seeds of all; equal ones as often as there are equal candidates."""
        return [self.cells[k][seed] for k in self.drawn for seed in self.tuning.seeds]

    def entering(self, rung: int) -> list[Path]:
        """The cells that are to reach a rung."""
        return [self.cells[k][seed] for k in self.entrants(rung) for seed in self.tuning.seeds]

    @property
    def share(self) -> float:
        """Which part of all rounds of these is computed, where none fails."""
        alive, before, rounds = self.tuning.trials, 0, 0
        for t in self.rungs:
            rounds += alive * (t - before)
            alive, before = math.ceil(alive / 2), t
        return rounds / (self.tuning.trials * self.rungs[-1])

    @property
    def confirming(self) -> list[Path]:
        """The cells of the best candidates by now, or of the first ones, on the further seeds."""
        best = list(dict.fromkeys((*self.order, *self.cells)))[:PAIR]
        return [self.cells[k][seed] for k in best for seed in self.tuning.confirm or ()]

    @property
    def asked(self) -> list[Path]:
        """The cells that the rule of confirmation asks for by now, or has asked for."""
        if not self.is_confirmed:
            return []
        return [self.cells[k][seed] for k, seeds in self.confirmation.asked.items() for seed in seeds]

    @cached_property
    def scores(self) -> dict[int, dict[int, float]]:
        """By candidate, by round: the mean over the seeds of all candidates of the validation score, as far as all of
        these have come; nothing for one of which a cell has failed."""
        seeds, metric = self.tuning.seeds, self.tuning.metric
        return {k: _of_all([own[seed] for seed in seeds if seed in own], metric) for k, own in self.cells.items()}

    @property
    def drawn(self) -> list[int]:
        """The candidates without those that lie beyond an edge."""
        return [k for k in self.cells if k < self.tuning.trials]

    def entrants(self, rung: int) -> list[int]:
        """The candidates that train up to that rung, in their order: all of them, then the better half of those before,
        rounded up, by their scores at the rung below. One without a score goes no further."""
        alive = self.drawn
        for t in self.rungs[:rung]:
            alive = sorted(self.ranked(alive, t)[: math.ceil(len(alive) / 2)])
        return alive

    @property
    def winner(self) -> int | None:
        """The best after the last round, of equal ones the first; where candidates are confirmed, the one that
        `confirmation` has. The first of all where the method is not applicable, which no choice of the winner changes;
        None where none has come so far."""
        if not self.rungs:
            return None
        if self.is_confirmed:
            return self.confirmation.winner
        ranked = self.ranked(self.entrants(len(self.rungs) - 1), self.rungs[-1])
        if ranked:
            return ranked[0]
        return next(iter(self.cells)) if self.not_applicable else None

    @property
    def is_confirmed(self) -> bool:
        """Whether further seeds decide: there is more than one candidate, and the scenario is one for the method."""
        return bool(self.tuning.confirm) and len(self.drawn) > 1 and not self.not_applicable

    def ranked(self, candidates: Sequence[int], t: int) -> list[int]:
        """Those that have a score after round t, the best first; of equal ones the first."""
        return self._sorted({k: self.scores[k][t] for k in candidates if t in self.scores[k]})

    def _sorted(self, scores: Mapping[int, float]) -> list[int]:
        sign = 1 if higher_is_better(self.tuning.metric) else -1
        return sorted(scores, key=lambda k: (-sign * without_noise(scores[k]), k))

    @property
    def order(self) -> list[int]:
        """In which order the drawn candidates are confirmed: those that came to the last round, the best first, then
        those that were left at the rung before, by their scores there, and so on."""
        found: dict[int, None] = {}
        for rung in reversed(range(len(self.rungs))):
            found |= dict.fromkeys(k for k in self.ranked(self.entrants(rung), self.rungs[rung]) if k not in found)
        return list(found)

    @cached_property
    def ended(self) -> dict[int, dict[int, CandidateRun]]:
        """By candidate, by seed, the runs that have ended after all rounds."""
        metric, found = self.tuning.metric, dict[int, dict[int, CandidateRun]]()
        for k, own in self.cells.items():
            ends = {seed: _end(folder, metric) for seed, folder in own.items()}
            found[k] = {seed: end for seed, end in ends.items() if end is not None}
        return found

    def vetoes(self, k: int) -> dict[int, str]:
        """By seed, why a candidate cannot win."""
        return {seed: end.veto for seed, end in self.ended[k].items() if end.veto}

    def mean(self, k: int) -> float | None:
        """The mean of a candidate's last scores over all seeds, those that confirm too; None where one is missing."""
        ends = [self.ended[k].get(seed) for seed in self.tuning.all_seeds]
        scores = [end.score for end in ends if end is not None and end.score is not None]
        return mean(scores) if len(scores) == len(ends) else None

    @property
    def last_scores(self) -> dict[int, float]:
        """The last score of each drawn candidate; nothing of those that have none."""
        return {k: self.scores[k][max(self.scores[k])] for k in self.drawn if self.scores[k]}

    @property
    def best_score(self) -> float | None:
        """The winner's: the mean over all seeds, or where it has not run on all of them its last one."""
        if (k := self.winner) is None:
            return None
        mean, by_round = self.mean(k), self.scores[k]
        return mean if mean is not None else by_round[max(by_round)] if by_round else None

    @cached_property
    def confirmation(self) -> Confirmation:
        """The rule of confirmation, as far as it has come.

        The two best candidates run on the further seeds, too, and the best mean of all seeds wins; one that a seed
        vetoes does not. Where both are vetoed the next two follow. A winner at an edge has those that lie beyond it
        tried, and the best two of these and of all that are stable so far are compared in the same way.
        """
        asked, stable, order, T = dict[int, Sequence[int]](), list[int](), self.order, self.rungs[-1]
        while order and not stable:
            pair, order = order[:PAIR], order[PAIR:]
            if not self._settled(pair, asked):
                return Confirmation(asked, None, over=False)
            stable = [k for k in pair if not self.vetoes(k)]
        if not stable:
            return Confirmation(asked, None, over=True)
        if more := self.tuning.extensions(self.method).get(self._best(stable)):
            asked |= dict.fromkeys(more, self.tuning.seeds)
            if not self._have_ended(more, asked):
                return Confirmation(asked, None, over=False)
            pair = self.ranked([*stable, *more], T)[:PAIR]
            if not self._settled(pair, asked):
                return Confirmation(asked, None, over=False)
            stable += [k for k in pair if k not in stable and not self.vetoes(k)]
        return Confirmation(asked, self._best(stable), over=True)

    def _best(self, stable: Sequence[int]) -> int:
        return self._sorted({k: value for k in stable if (value := self.mean(k)) is not None})[0]

    def _settled(self, pair: Sequence[int], asked: dict[int, Sequence[int]]) -> bool:
        """Whether candidates have run on all seeds, which are noted; where the first ones veto one, on those alone."""
        for k in pair:
            ends = [self._end_of(k, seed) for seed in self.tuning.seeds]
            goes_on = all(end is not None and not end.veto for end in ends)
            asked[k] = [*self.tuning.seeds, *((self.tuning.confirm or ()) if goes_on else ())]
        return self._have_ended(pair, asked)

    def _have_ended(self, candidates: Sequence[int], asked: Mapping[int, Sequence[int]]) -> bool:
        return all(self._end_of(k, seed) is not None for k in candidates for seed in asked[k])

    def _end_of(self, k: int, seed: int) -> CandidateRun | None:
        return self.ended.get(k, {}).get(seed)

    @property
    def unstable(self) -> bool:
        """Whether every candidate with a score was vetoed, so that nothing of the method reports."""
        if not (self.is_confirmed and self.rungs and self.order) or not self.confirmation.over:
            return False
        return self.winner is None and all(status in ENDED for status in self._statuses())

    @property
    def not_applicable(self) -> bool:
        """Whether no candidate can be tried, because the scenario is none for the method."""
        return all(status == "not_applicable" for status in self._statuses())

    def _statuses(self) -> list[str]:
        """What became of the cells that every candidate has."""
        folders = [self.cells[k][seed] for k in self.drawn for seed in self.tuning.seeds if seed in self.cells[k]]
        manifests = [read_manifest(folder) for folder in folders]
        return [PENDING if manifest is None else manifest["status"] for manifest in manifests]


def unstable(suite_folder: Path) -> list[Key]:
    """The contests that every candidate has lost, of those of which no cell reports."""
    if (index := packed_tables(suite_folder).index) is None:
        return []
    reporting = {(entry.scenario, entry.variant, entry.method) for entry in index.entries if entry.candidate is None}
    confirmed = {key for key, tuning in tunings_of(index, Path(suite_folder)).items() if tuning.confirm}
    if not confirmed - reporting:
        return []
    return [key for key, one in contests(suite_folder).items() if key not in reporting and one.unstable]


def without_reports(suite_folder: Path, suite: str, keys: Collection[Key]) -> None:
    """Take out of the index what reports of these contests, by an earlier winner."""

    def change(index: Index) -> Index:
        kept = [e for e in index.entries if e.candidate is not None or (e.scenario, e.variant, e.method) not in keys]
        return replace(index, entries=kept)

    change_index(suite_folder, suite, change)


def rungs_of(config: Mapping[str, Any], halving: Sequence[float]) -> tuple[int, ...]:
    """The rounds after which candidates of this configuration are halved, and its last round. For each share of the
    rounds it is the first tested round that is not before it."""
    T, evaluation = config["train"]["rounds"], config["evaluation"]
    tested = sorted(evaluated_rounds(T, evaluation["every"], evaluation.get("at")))
    after = {next(t for t in tested if t >= share * T - 1e-9) for share in halving}
    return (*sorted(after - {T}), T)


def _of_all(folders: Sequence[Path], metric: str) -> dict[int, float]:
    seeds = [validated(folder, metric) for folder in folders]
    common = set.intersection(*map(set, seeds)) if seeds else set()
    return {t: sum(one[t] for one in seeds) / len(seeds) for t in sorted(common)}


def _end(folder: Path, metric: str) -> CandidateRun | None:
    """Of a cell that has ended after all rounds, or was given up; else None. Raises: UserError as `validated`."""
    manifest = read_manifest(folder)
    if manifest is None or manifest["status"] not in (*KEPT, *GIVEN_UP):
        return None
    if manifest["status"] != "finished":
        return CandidateRun(None, veto="diverged" if manifest.get("diverged") else manifest["status"].replace("_", " "))
    scores, constant = validated(folder, metric), set[int]()
    last: int = manifest["config"]["train"]["rounds"]
    if last not in scores:
        return CandidateRun(None, veto="has no score")
    if has_table("answers", folder, manifest):
        answers = checked_table("answers", folder, manifest)
        constant = constant_rounds(answers.to_pandas(use_threads=False), VALIDATION, metric)
    how = collapse(scores, constant, metric) or ""
    return CandidateRun(scores[last], fall(scores, metric), "predicts one class" if how == CONSTANT else how)


def validated(folder: Path, metric: str) -> dict[int, float]:
    """The validation score of one cell by round; without those that are no number. Nothing where it has failed, or
    not come to a test. Raises: UserError where its table is not as it was written."""
    manifest = read_manifest(folder)
    if manifest is None or manifest["status"] in GIVEN_UP or not has_table("eval", folder, manifest):
        return {}
    found = {t: average(v) for t, v in by_round(checked_table("eval", folder, manifest), metric, VALIDATION).items()}
    if not found and manifest["status"] in ("finished", HALVED):
        raise UserError(f"{folder}: its candidate was scored on no validation examples of {metric!r}.")
    return {t: value for t, value in found.items() if math.isfinite(value)}
