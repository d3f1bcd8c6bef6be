"""tuning.json: what was tuned in a suite's folder, beside the cells of the candidates, which the index names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedbench.errors import UserError
from fedbench.results.contest import Contest, Key, rungs_of
from fedbench.results.documents import read_sealed, write_json
from fedbench.results.index import Entry, read_index
from fedbench.results.manifest import read_manifest
from fedbench.results.untrusted import check, typed

TUNING = "tuning.json"
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
            if concerns(key, method) and all(map(is_number, values)) and min(values) < max(values):
                found += [key] if value in (min(values), max(values)) else []
        return found


def concerns(key: str, method: str) -> bool:
    """Whether a key of a space says anything of a method: `methods.NAME.option` does so of NAME alone."""
    return not key.startswith("methods.") or key.startswith(f"methods.{method}.")


def write_search(suite_folder: Path, suite: str, search: Search) -> None:
    """In place of the one before."""
    write_json(Path(suite_folder) / TUNING, {"suite": suite, **vars(search)})


def read_search(suite_folder: Path) -> Search | None:
    """What `write_search` wrote; None where there is no file. Raises: UserError where it cannot be used."""
    path = Path(suite_folder) / TUNING
    if not path.is_file():
        return None
    unmarked = ("result_version", "suite", *Search.__dataclass_fields__)
    told = read_sealed(path, ("suite", "space", "candidates"), unmarked, MEND)
    del told["suite"], told["result_version"]
    try:
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
    except TypeError as error:
        raise UserError(f"{path}: not a tuning of fedbench ({error}).\n{MEND}") from error
    return search


def contests(suite_folder: Path) -> dict[Key, Contest]:
    """The contests whose cells lie in a folder, in the order of its index."""
    folder, search, index = Path(suite_folder), read_search(suite_folder), read_index(Path(suite_folder))
    cells: dict[Key, dict[int, list[Entry]]] = {}
    for entry in index.entries if index else ():
        if entry.candidate is not None:
            key = (entry.scenario, entry.variant, entry.method)
            cells.setdefault(key, {}).setdefault(entry.candidate, []).append(entry)
    found = {}
    for key, tried in cells.items() if search else ():
        assert search is not None
        wanted = {
            k: [folder / entry.cell for entry in tried[k] if entry.seed in search.seeds]
            for k in sorted(tried)
            if k < len(search.candidates)
        }
        if (config := _config(wanted)) is not None:
            found[key] = Contest(key, search.metric, rungs_of(config, search.halving), wanted)
    return found


def _config(cells: Mapping[int, list[Path]]) -> dict[str, Any] | None:
    """The configuration of any cell that was started; candidates do not differ in their rounds."""
    manifests = (read_manifest(folder) for folders in cells.values() for folder in folders)
    return next((manifest["config"] for manifest in manifests if manifest), None)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
