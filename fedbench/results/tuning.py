"""Tuning: the searches in a suite's index, the contests between candidates, and who wins by validation scores."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedbench.disk import hash_of_json
from fedbench.errors import UserError
from fedbench.results.collapse import CONSTANT, collapse, constant_rounds, fall
from fedbench.results.columns import ENDED, GIVEN_UP, HALVED, KEPT, PENDING
from fedbench.results.files import checked_table, has_table
from fedbench.results.index import INDEX, MEND, Entry, Index, change_index
from fedbench.results.manifest import read_manifest
from fedbench.results.metric_direction import VALIDATION, higher_is_better, without_noise
from fedbench.results.schema_checks import check, typed
from fedbench.results.scores import average, by_round, evaluated_rounds, mean
from fedbench.results.store import folder_of, store_of

CONTESTS = "contests"  # of a search in the index: what it is of
PAIR = 2  # candidates that are confirmed at a time
Key = tuple[str, str, str]  # scenario, variant, method


@dataclass(frozen=True)
class Search:
    """The space, what was drawn from it, and how candidates are compared.

    Attributes:
        space: ranges by dotted key.
        candidates: values by dotted key, in the order in which they were drawn; behind them those that lie beyond the
            edge of what was drawn, which are tried where a winner lies there.
        seeds: of their cells.
        metric: what is compared.
        halving: after which shares of the rounds the better half goes on.
        confirm: further seeds for the best two; None where the best on `seeds` wins.
        beyond: of each of the last candidates, beyond which of the drawn ones it lies.
    """

    space: dict
    candidates: list = field(repr=False)
    seeds: list
    metric: str
    halving: list
    confirm: list | None = None
    beyond: list | None = None

    @property
    def trials(self) -> int:
        """How many candidates were drawn."""
        return len(self.candidates) - len(self.beyond or ())

    def extensions(self, method: str) -> dict[int, list[int]]:
        """By candidate at an edge that concerns a method, the candidates that lie beyond it."""
        found: dict[int, list[int]] = {}
        for beyond, k in enumerate(self.beyond or (), self.trials):
            if self.at_edge(k, method):
                found.setdefault(k, []).append(beyond)
        return found

    def at_edge(self, k: int, method: str, among: Collection[int] | None = None) -> list[str]:
        """The keys at which a candidate has the lowest or the highest value: the best of that method may lie beyond.
        Values that are no numbers have no edge. among: the candidates that were tried; else all that were drawn."""
        found = []
        for key, value in self.candidates[k].items():
            values = [self.candidates[other][key] for other in (range(self.trials) if among is None else among)]
            if self.concerns(key, method) and all(map(is_number, values)) and min(values) < max(values):
                found += [key] if value in (min(values), max(values)) else []
        return found

    def concerns(self, key: str, method: str) -> bool:
        """Whether a key of the space says anything of a method: `methods.NAME.option` does so of NAME alone, and
        `train.optimizer.lr` not of a method that has `methods.NAME.optimizer.lr` in its place."""
        own = f"methods.{method}."
        if key.startswith("methods."):
            return key.startswith(own)
        return not {own + key, own + key.removeprefix("train.")} & self.space.keys()


def merge_searches(suite_folder: Path, suite: str, searches: Mapping[Key, Search]) -> None:
    """Put searches into the index, in place of those of the same contests; those of others stay."""
    change_index(suite_folder, suite, lambda index: with_searches(index, Path(suite_folder), searches))


def with_searches(index: Index, folder: Path, searches: Mapping[Key, Search]) -> Index:
    """An index of this folder with these searches in place of those of the same contests."""
    held: dict[str, dict[str, Any]] = {}
    for key, search in sorted({**searches_of(index, folder), **searches}.items()):
        parts = {name: value for name, value in vars(search).items() if value is not None}
        held.setdefault(hash_of_json(parts), {**parts, CONTESTS: []})[CONTESTS].append(list(key))
    return replace(index, searches=list(held.values()))


def read_searches(suite_folder: Path) -> dict[Key, Search]:
    """The search that the candidates of each contest were drawn in. Raises: UserError where it cannot be used."""
    index = store_of(suite_folder).index
    return searches_of(index, Path(suite_folder)) if index else {}


def searches_of(index: Index, folder: Path) -> dict[Key, Search]:
    """The searches of an index that was read from this folder. Raises: UserError where one is none of fedbench."""
    found: dict[Key, Search] = {}
    try:
        for part in index.searches:
            check("a search", part, dict)
            part = dict(part)
            keys = _keys(part)
            if twice := found.keys() & set(keys):
                raise TypeError(f"{' · '.join(filter(None, min(twice)))} is a contest of two searches")
            found |= dict.fromkeys(keys, _search(part))
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


def _search(given: dict[str, Any]) -> Search:
    """Raises: TypeError where it is none."""
    search = typed(Search, given)
    for k, candidate in enumerate(search.candidates):
        check(f"candidates[{k}]", candidate, dict)
        if candidate.keys() != search.space.keys():
            raise TypeError(f"candidates[{k}] has other keys than the space")
    for key, given in search.space.items():
        check(f"space.{key}", given, dict)
    seeds = [*search.seeds, *(search.confirm or ())]
    for name, numbers, kind in (("seeds", seeds, int), ("halving", search.halving, int | float)):
        for number in numbers:
            check(name, number, kind)
    for k in search.beyond or ():
        check("beyond", k, int)
        if not 0 <= k < search.trials:
            raise TypeError(f"beyond is {search.beyond!r:.80}")
    return search


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
    if (index := store_of(folder).index) is None or not (searches := searches_of(index, folder)):
        return found
    for key, tried in _tried(index).items():
        if (search := searches.get(key)) is None:
            continue
        seeds = {*search.seeds, *(search.confirm or ())}
        wanted = {
            k: {entry.seed: folder_of(folder, entry.cell) for entry in tried[k] if entry.seed in seeds}
            for k in sorted(tried)
            if k < len(search.candidates)
        }
        if any(wanted.values()):
            config = _config(wanted)
            rungs = () if config is None else rungs_of(config, search.halving)
            found[key] = Contest(key, search, rungs, wanted)
    return found


def _config(cells: Mapping[int, Mapping[int, Path]]) -> dict[str, Any] | None:
    """The configuration of any cell that was started; candidates do not differ in their rounds."""
    manifests = (read_manifest(folder) for folders in cells.values() for folder in folders.values())
    return next((manifest["config"] for manifest in manifests if manifest), None)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class Ended:
    """A candidate's run on one seed, after all rounds.

    score: the last validation score, None where it has none · fall: how far that lies below its best · veto: why the
    candidate cannot win, "" where it can.
    """

    score: float | None
    fall: float = 0.0
    veto: str = ""


@dataclass(frozen=True)
class Course:
    """How far the confirmation of the best candidates has come.

    asked: by candidate, the seeds on which it is to run all rounds, or has · winner: None where there is none, or none
    yet · over: whether all that is asked has ended.
    """

    asked: Mapping[int, Sequence[int]]
    winner: int | None
    over: bool


@dataclass(frozen=True)
class Contest:
    """The candidates of one method in one scenario at one place of the sweep.

    rungs: the rounds after which the better half goes on, and the last round; none where no cell has begun, so that
    nothing on disk says them · cells: by candidate, by seed, the folder of its cell. What it says is a function of what
    is on disk when it is first asked.
    """

    key: Key
    search: Search
    rungs: tuple[int, ...]
    cells: Mapping[int, Mapping[int, Path]]

    @cached_property
    def scores(self) -> dict[int, dict[int, float]]:
        """By candidate, by round: the mean over the seeds of all candidates of the validation score, as far as all of
        these have come; nothing for one of which a cell has failed."""
        seeds, metric = self.search.seeds, self.search.metric
        return {k: _of_all([own[seed] for seed in seeds if seed in own], metric) for k, own in self.cells.items()}

    @property
    def drawn(self) -> list[int]:
        """The candidates without those that lie beyond an edge."""
        return [k for k in self.cells if k < self.search.trials]

    def entrants(self, rung: int) -> list[int]:
        """The candidates that train up to that rung, in their order: all of them, then the better half of those before,
        rounded up, by their scores at the rung below. One without a score goes no further."""
        alive = self.drawn
        for t in self.rungs[:rung]:
            alive = sorted(self.ranked(alive, t)[: math.ceil(len(alive) / 2)])
        return alive

    @property
    def winner(self) -> int | None:
        """The best after the last round, of equal ones the first; where candidates are confirmed, the one that `course`
        has. The first of all where the method is not applicable, which no choice of the winner changes; None where none
        has come so far."""
        if not self.rungs:
            return None
        if self.is_confirmed:
            return self.course.winner
        ranked = self.ranked(self.entrants(len(self.rungs) - 1), self.rungs[-1])
        if ranked:
            return ranked[0]
        return next(iter(self.cells)) if self.not_applicable else None

    @property
    def is_confirmed(self) -> bool:
        """Whether further seeds decide: there is more than one candidate, and the scenario is one for the method."""
        return bool(self.search.confirm) and len(self.drawn) > 1 and not self.not_applicable

    def ranked(self, candidates: Sequence[int], t: int) -> list[int]:
        """Those that have a score after round t, the best first; of equal ones the first."""
        return self._sorted({k: self.scores[k][t] for k in candidates if t in self.scores[k]})

    def _sorted(self, scores: Mapping[int, float]) -> list[int]:
        sign = 1 if higher_is_better(self.search.metric) else -1
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
    def ended(self) -> dict[int, dict[int, Ended]]:
        """By candidate, by seed, the runs that have ended after all rounds."""
        metric, found = self.search.metric, dict[int, dict[int, Ended]]()
        for k, own in self.cells.items():
            ends = {seed: _end(folder, metric) for seed, folder in own.items()}
            found[k] = {seed: end for seed, end in ends.items() if end is not None}
        return found

    def vetoes(self, k: int) -> dict[int, str]:
        """By seed, why a candidate cannot win."""
        return {seed: end.veto for seed, end in self.ended[k].items() if end.veto}

    def mean(self, k: int) -> float | None:
        """The mean of a candidate's last scores over all seeds, those that confirm too; None where one is missing."""
        ends = [self.ended[k].get(seed) for seed in (*self.search.seeds, *(self.search.confirm or ()))]
        scores = [end.score for end in ends if end is not None and end.score is not None]
        return mean(scores) if len(scores) == len(ends) else None

    @cached_property
    def course(self) -> Course:
        """The rule of confirmation, as far as it has come.

        The two best candidates run on the further seeds, too, and the best mean of all seeds wins; one that a seed
        vetoes does not. Where both are vetoed the next two follow. A winner at an edge has those that lie beyond it
        tried, and the best two of these and of all that are stable so far are compared in the same way.
        """
        asked, stable, order, T = dict[int, Sequence[int]](), list[int](), self.order, self.rungs[-1]
        while order and not stable:
            pair, order = order[:PAIR], order[PAIR:]
            if not self._settled(pair, asked):
                return Course(asked, None, over=False)
            stable = [k for k in pair if not self.vetoes(k)]
        if not stable:
            return Course(asked, None, over=True)
        if more := self.search.extensions(self.key[2]).get(self._best(stable)):
            asked |= dict.fromkeys(more, self.search.seeds)
            if not self._have_ended(more, asked):
                return Course(asked, None, over=False)
            pair = self.ranked([*stable, *more], T)[:PAIR]
            if not self._settled(pair, asked):
                return Course(asked, None, over=False)
            stable += [k for k in pair if k not in stable and not self.vetoes(k)]
        return Course(asked, self._best(stable), over=True)

    def _best(self, stable: Sequence[int]) -> int:
        return self._sorted({k: value for k in stable if (value := self.mean(k)) is not None})[0]

    def _settled(self, pair: Sequence[int], asked: dict[int, Sequence[int]]) -> bool:
        """Whether candidates have run on all seeds, which are noted; where the first ones veto one, on those alone."""
        for k in pair:
            ends = [self._end_of(k, seed) for seed in self.search.seeds]
            goes_on = all(end is not None and not end.veto for end in ends)
            asked[k] = [*self.search.seeds, *((self.search.confirm or ()) if goes_on else ())]
        return self._have_ended(pair, asked)

    def _have_ended(self, candidates: Sequence[int], asked: Mapping[int, Sequence[int]]) -> bool:
        return all(self._end_of(k, seed) is not None for k in candidates for seed in asked[k])

    def _end_of(self, k: int, seed: int) -> Ended | None:
        return self.ended.get(k, {}).get(seed)

    @property
    def unstable(self) -> bool:
        """Whether every candidate with a score was vetoed, so that nothing of the method reports."""
        if not (self.is_confirmed and self.rungs and self.order) or not self.course.over:
            return False
        return self.winner is None and all(status in ENDED for status in self._statuses())

    @property
    def not_applicable(self) -> bool:
        """Whether no candidate can be tried, because the scenario is none for the method."""
        return all(status == "not_applicable" for status in self._statuses())

    def _statuses(self) -> list[str]:
        """What became of the cells that every candidate has."""
        folders = [self.cells[k][seed] for k in self.drawn for seed in self.search.seeds if seed in self.cells[k]]
        manifests = [read_manifest(folder) for folder in folders]
        return [PENDING if manifest is None else manifest["status"] for manifest in manifests]


def unstable(suite_folder: Path) -> list[Key]:
    """The contests that every candidate has lost, of those of which no cell reports."""
    if (index := store_of(suite_folder).index) is None:
        return []
    reporting = {(entry.scenario, entry.variant, entry.method) for entry in index.entries if entry.candidate is None}
    confirmed = {key for key, search in searches_of(index, Path(suite_folder)).items() if search.confirm}
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


def _end(folder: Path, metric: str) -> Ended | None:
    """Of a cell that has ended after all rounds, or was given up; else None. Raises: UserError as `validated`."""
    manifest = read_manifest(folder)
    if manifest is None or manifest["status"] not in (*KEPT, *GIVEN_UP):
        return None
    if manifest["status"] != "finished":
        return Ended(None, veto="diverged" if manifest.get("diverged") else manifest["status"].replace("_", " "))
    scores, constant = validated(folder, metric), set[int]()
    last: int = manifest["config"]["train"]["rounds"]
    if last not in scores:
        return Ended(None, veto="has no score")
    if has_table("answers", folder, manifest):
        answers = checked_table("answers", folder, manifest)
        constant = constant_rounds(answers.to_pandas(use_threads=False), VALIDATION, metric)
    how = collapse(scores, constant, metric) or ""
    return Ended(scores[last], fall(scores, metric), "predicts one class" if how == CONSTANT else how)


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
