"""Trackers by name: which file follows a run, and whether what it needs is installed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from fedbench.errors import UserError
from fedbench.registry import entrypoints
from fedbench.words import meant

GROUP = "fedbench.trackers"


def files(names: Sequence[str]) -> list[str]:
    """The plugin files of these trackers, which a run hands on to its workers as it does those of `--plugin`.

    They are entry points of the group `fedbench.trackers`, modules that are loaded in the runs that ask for them and in
    no other. NEEDS in one names a package that must be there. Raises: UserError for one that is not there.
    """
    known = {point.name: point for point in entrypoints.points(GROUP)[0]}
    found = []
    for name in dict.fromkeys(names):
        point = known.get(name)
        if point is None:
            raise UserError(f"--tracker {name}: no such tracker; {meant(name, known, f'there are: {sorted(known)}')}")
        try:
            module = point.load()
        except Exception as error:  # of a stranger's package
            raise UserError(f"--tracker {name} does not load: {type(error).__name__}: {error}") from error
        needed = getattr(module, "NEEDS", "")
        if needed and find_spec(needed) is None:
            ours = point.dist is not None and point.dist.name == "fedbench"
            package = f"'fedbench[{name}]'" if ours else needed
            raise UserError(f"--tracker {name} needs {needed}: pip install {package}")
        found.append(str(module.__file__))
    return found
