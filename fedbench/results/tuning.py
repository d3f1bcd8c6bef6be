"""tuning.json: what was tuned in a suite's folder, beside the cells of the candidates, which the index names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedbench.disk import hash_of_json
from fedbench.errors import UserError
from fedbench.results.contest import Contest, Key, rungs_of
from fedbench.results.documents import locked, read_sealed, write_json
from fedbench.results.index import Entry, read_index
from fedbench.results.manifest import read_manifest
from fedbench.results.untrusted import check, typed

TUNING = "tuning.json"
SEARCHES, CONTESTS = "searches", "contests"  # in the file
MEND = "Delete it and run the suite again: finished cells are kept."


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
    """Put searches into tuning.json under a lock, in place of those of the same contests; those of others stay."""
    path = Path(suite_folder) / TUNING
    with locked(path):
        held: dict[str, dict[str, Any]] = {}
        for key, search in sorted({**read_searches(path.parent), **searches}.items()):
            said = {name: vars(search)[name] for name in Search.__dataclass_fields__}
            held.setdefault(hash_of_json(said), {**said, CONTESTS: []})[CONTESTS].append(key)
        write_json(path, {"suite": suite, SEARCHES: list(held.values())})


def read_searches(suite_folder: Path) -> dict[Key, Search]:
    """The search that the candidates of each contest were drawn in; empty where there is no file. One of an older
    fedbench has a single search, of all contests of the index. Raises: UserError where it cannot be used."""
    path = Path(suite_folder) / TUNING
    if not path.is_file():
        return {}
    told = read_sealed(path, ("suite",), ("result_version", "suite", *Search.__dataclass_fields__), MEND)
    del told["suite"], told["result_version"]
    found: dict[Key, Search] = {}
    try:
        if SEARCHES not in told:
            return dict.fromkeys(_tried(path.parent), _search(told))
        check(SEARCHES, told[SEARCHES], list)
        for part in told[SEARCHES]:
            keys = _keys(part)
            if twice := found.keys() & set(keys):
                raise TypeError(f"{' · '.join(filter(None, min(twice)))} is a contest of two searches")
            found |= dict.fromkeys(keys, _search(part))
    except TypeError as error:
        raise UserError(f"{path}: not a tuning of fedbench ({error}).\n{MEND}") from error
    return found


def _keys(part: dict[str, Any]) -> list[Key]:
    """Take out of a search in the file which contests it is of."""
    check("a search", part, dict)
    keys = part.pop(CONTESTS, None)
    check(CONTESTS, keys, list)
    for key in keys:
        check("a contest", key, list)
        if [type(name) for name in key] != [str] * 3:
            raise TypeError(f"a contest is {key!r:.80}")
    return [(scenario, variant, method) for scenario, variant, method in keys]


def _search(told: dict[str, Any]) -> Search:
    """Raises: TypeError where it is none."""
    search = typed(Search, told)
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


def _tried(folder: Path) -> dict[Key, dict[int, list[Entry]]]:
    """What the index names of each contest, by candidate, in its order."""
    index = read_index(folder)
    found: dict[Key, dict[int, list[Entry]]] = {}
    for entry in index.entries if index else ():
        if entry.candidate is not None:
            key = (entry.scenario, entry.variant, entry.method)
            found.setdefault(key, {}).setdefault(entry.candidate, []).append(entry)
    return found


def contests(suite_folder: Path) -> dict[Key, Contest]:
    """The contests that the index of a folder names, in its order."""
    folder, searches, found = Path(suite_folder), read_searches(Path(suite_folder)), {}
    for key, tried in _tried(folder).items() if searches else ():
        if (search := searches.get(key)) is None:
            continue
        wanted = {
            k: [folder / entry.cell for entry in tried[k] if entry.seed in search.seeds]
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
