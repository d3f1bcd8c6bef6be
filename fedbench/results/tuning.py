"""Tuning: the searches in a suite's index, the contests between candidates, and who wins by validation scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedbench.disk import hash_of_json
from fedbench.errors import UserError
from fedbench.results.columns import GIVEN_UP, HALVED
from fedbench.results.files import checked_table, has_table
from fedbench.results.index import INDEX, MEND, Entry, Index, change_index
from fedbench.results.manifest import read_manifest
from fedbench.results.metric_direction import VALIDATION, higher_is_better, without_noise
from fedbench.results.schema_checks import check, typed
from fedbench.results.scores import average, by_round, evaluated_rounds
from fedbench.results.store import cell_folders, store_of

CONTESTS = "contests"  # of a search in the index: what it is of
Key = tuple[str, str, str]  # scenario, variant, method


@dataclass(frozen=True)
class Search:
    """The space, what was drawn from it, and how candidates are compared.

    space: ranges by dotted key · candidates: values by dotted key, in the order in which they were drawn · seeds: of
    their cells · halving: after which shares of the rounds the better half goes on.
    """

    space: dict
    candidates: list = field(repr=False)
    seeds: list
    metric: str
    halving: list

    def at_edge(self, k: int, method: str) -> list[str]:
        """The keys at which a candidate has the lowest or the highest value of all that were drawn: the best of that
        method may lie beyond. Values that are no numbers have no edge."""
        found = []
        for key, value in self.candidates[k].items():
            values = [candidate[key] for candidate in self.candidates]
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
        parts = {name: vars(search)[name] for name in Search.__dataclass_fields__}
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
    for name, numbers, kind in (("seeds", search.seeds, int), ("halving", search.halving, int | float)):
        for number in numbers:
            check(name, number, kind)
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
    places = cell_folders(folder)
    for key, tried in _tried(index).items():
        if (search := searches.get(key)) is None:
            continue
        wanted = {
            k: [places(entry.cell) for entry in tried[k] if entry.seed in search.seeds]
            for k in sorted(tried)
            if k < len(search.candidates)
        }
        if any(wanted.values()):
            config = _config(wanted)
            rungs = () if config is None else rungs_of(config, search.halving)
            found[key] = Contest(key, search.metric, rungs, wanted)
    return found


def _config(cells: Mapping[int, list[Path]]) -> dict[str, Any] | None:
    """The configuration of any cell that was started; candidates do not differ in their rounds."""
    manifests = (read_manifest(folder) for folders in cells.values() for folder in folders)
    return next((manifest["config"] for manifest in manifests if manifest), None)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class Contest:
    """The candidates of one method in one scenario at one place of the sweep.

    cells: the folders of each candidate's cells, one for each seed · rungs: the rounds after which the better half goes
    on, and the last round; none where no cell has begun, so that nothing on disk says them. What it says is a function
    of what is on disk when it is first asked.
    """

    key: Key
    metric: str
    rungs: tuple[int, ...]
    cells: Mapping[int, Sequence[Path]]

    @cached_property
    def scores(self) -> dict[int, dict[int, float]]:
        """By candidate, by round: the mean over seeds of the validation score, as far as all seeds have come; nothing
        for one of which a cell has failed."""
        return {k: _of_all(folders, self.metric) for k, folders in self.cells.items()}

    def entrants(self, rung: int) -> list[int]:
        """The candidates that train up to that rung, in their order: all of them, then the better half of those before,
        rounded up, by their scores at the rung below. One without a score goes no further."""
        alive = list(self.cells)
        for t in self.rungs[:rung]:
            alive = sorted(self.ranked(alive, t)[: math.ceil(len(alive) / 2)])
        return alive

    @property
    def winner(self) -> int | None:
        """The best after the last round; of equal ones the first. The first of all where the method is not applicable,
        which no choice of the winner changes; None where none has come so far."""
        if not self.rungs:
            return None
        ranked = self.ranked(self.entrants(len(self.rungs) - 1), self.rungs[-1])
        if ranked:
            return ranked[0]
        return next(iter(self.cells)) if self.not_applicable else None

    def ranked(self, candidates: Sequence[int], t: int) -> list[int]:
        """Those that have a score after round t, the best first; of equal ones the first."""
        sign = 1 if higher_is_better(self.metric) else -1
        known = {k: sign * without_noise(self.scores[k][t]) for k in candidates if t in self.scores[k]}
        return sorted(known, key=lambda k: (-known[k], k))

    @property
    def not_applicable(self) -> bool:
        """Whether no candidate can be tried, because the scenario is none for the method."""
        manifests = [read_manifest(folder) for folders in self.cells.values() for folder in folders]
        return all(manifest is not None and manifest["status"] == "not_applicable" for manifest in manifests)


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
