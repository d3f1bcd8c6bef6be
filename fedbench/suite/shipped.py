"""The suites that come with fedbench, by name: `quickstart`, `tuned/feature_skew`, `papers/fedra/table1`."""

from __future__ import annotations

import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedbench.disk import as_written
from fedbench.errors import UnknownName, UserError
from fedbench.words import nearest

ENDING = ".yaml"
LIST = Path(str(files("fedbench_suites"))) / "suites.json"  # what `suites list` says of them


def folder() -> Path:
    """The folder of shipped suites: next to the packages, in a clone and in a wheel."""
    return Path(str(files("fedbench_suites")))


def names() -> dict[str, Path]:
    """Every shipped suite's file by its name; those of the folder itself first."""
    top = folder()
    found = {file.relative_to(top).with_suffix("").as_posix(): file for file in top.rglob(f"*{ENDING}")}
    return dict(sorted(found.items(), key=lambda item: (item[0].count("/"), item[0])))


def named(name: str) -> Path:
    """The shipped suite of that name. Raises UnknownName with the nearest."""
    known = names()
    if name not in known:
        near = _meant(name, known)
        more = "" if near else "; `fedbench suites list` has them all"
        raise UnknownName(f"no suite of that name ships with fedbench: {name}{more}", near)
    return known[name]


def found(given: str) -> str:
    """The file that a user means: a file of that name where there is one, else the shipped suite. Raises UnknownName
    for a name that is neither, UserError for a file that is not there and whose name is that of a shipped suite."""
    if os.path.lexists(given):
        return given
    if os.path.lexists(written := as_written(Path(given))):
        return str(written)
    known = names()
    if given in known:
        return str(known[given])
    stem = given.removeprefix("./").removeprefix("suites/").removesuffix(ENDING)
    if stem in known:
        raise UserError(f"{given}: there is no such file; the shipped suite is called {stem}")
    if given.endswith((ENDING, ".yml")):
        base, ending = os.path.splitext(given)
        if os.path.lexists(other := base + (".yml" if ending == ENDING else ENDING)):
            raise UserError(f"{given}: there is no such file; did you mean {other}?")
        return given  # reading it says what is wrong
    near = _meant(given, known)
    more = "" if near else "; `fedbench suites list` has those that ship with fedbench"
    raise UnknownName(f"{given}: no file and no shipped suite has this name{more}", near)


def timeout_in(suite: str, text: str | None = None) -> float | None:
    """The `timeout` that a suite sets, read before the plugins that its components are from; None where it sets none.

    Raises UserError where the file cannot be read as YAML.
    """
    from fedbench.suite.yaml import Problems, read

    timeout = read(found(suite) if text is None else suite, Problems(), text).get("timeout")
    value = None if timeout is None or not timeout.is_valid else timeout.plain()
    return float(value) if isinstance(value, int | float) and value > 0 else None


def listed() -> dict[str, dict[str, Any]]:
    """What each suite is about, its data, cells and time, as `docs/sitemaking/shipped.py` has written it."""
    return dict(json.loads(LIST.read_bytes()))


def _meant(given: str, known: dict[str, Path]) -> list[str]:
    """What may have been meant: a name of which this is the last part, or nearly a name, or nearly such a part."""
    last = {name: name.rpartition("/")[2] for name in known}
    same = [name for name, part in last.items() if part == given]
    near_parts = nearest(given, last.values())
    return same or nearest(given, known) or [name for name, part in last.items() if part in near_parts][:1]
