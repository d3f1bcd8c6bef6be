"""Trackers by name: which file follows a run, and whether what it needs is installed."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from fedbench.errors import UserError
from fedbench.registry import installed
from fedbench.words import meant

GROUP = "fedbench.trackers"


def files(names: Sequence[str]) -> list[str]:
    """The plugin files of these trackers, which a run hands on to its workers as it does those of `--plugin`.

    They are entry points of the group `fedbench.trackers`, modules that are loaded in the runs that ask for them and in
    no other. NEEDS in one names a package that must be there. Raises: UserError for one that is not there.
    """
    known = {point.name: point for point in installed.points(GROUP)[0]}
    found = []
    for name in dict.fromkeys(names):
        point = known.get(name)
        if point is None:
            raise UserError(f"--tracker {name}: no such tracker; {meant(name, known, f'there are: {sorted(known)}')}")
        file = installed.origin(point.module)
        if file is None:
            raise UserError(f"--tracker {name} does not load: there is no module {point.module}")
        needed = _needed(file)
        if needed and find_spec(needed) is None:
            ours = point.dist is not None and point.dist.name == "fedbench"
            extras = point.dist.metadata.get_all("Provides-Extra") or [] if ours and point.dist else []
            package = f"'fedbench[{name}]'" if name in extras else needed
            raise UserError(f"--tracker {name} needs {needed}: pip install {package}")
        found.append(file)
    return found


def _needed(file: str) -> str:
    """The text that a module gives the name NEEDS, found without importing it; "" where it gives none."""
    try:
        module = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):  # told of where it is imported
        return ""
    for one in module.body:
        if isinstance(one, ast.Assign) and [getattr(target, "id", "") for target in one.targets] == ["NEEDS"]:
            return str(getattr(one.value, "value", ""))
    return ""
