"""fedbench from Python: load results, and run a suite."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from glob import glob
from inspect import signature
from pathlib import Path
from typing import Any

from fedbench.commands.terminal import require_current_folder, require_system, tidy_streams
from fedbench.disk import at_home
from fedbench.errors import UserError
from fedbench.report.results import Views
from fedbench.words import suggestion

MAPPING = "the mapping"  # what messages call a suite that is no file
LISTS = ("scenarios", "methods", "seeds", "variants", "add", "plugins")  # choices of which there may be several
DEEPEST = 40  # levels, as in a file


def load(*paths: str | Path | Iterable[str | Path]) -> Views:
    """Load results.

    Args:
        paths: results folders, suites' folders or cells' folders, globs such as `results/*_tuned`, or lists of these;
            `results` where none is given. Several are one pool of cells. `~` is the home folder, here and in `run`.

    Raises:
        UserError: where a path holds no results, and for a glob that matches nothing.
    """
    require_system()
    require_current_folder()
    given = [path for some in paths for path in ([some] if isinstance(some, str | os.PathLike) else some)]
    found: list[str | Path] = []
    for path in map(at_home, given if paths else ("results",)):
        matched = sorted(glob(str(path))) if any(sign in str(path) for sign in "*?[") else [path]
        if not matched:
            raise UserError(f"{path}: no folder matches")
        found += matched
    return Views(found)


def run(
    suite: str | Path | Mapping[str, Any],
    *,
    rounds: int | None = None,
    sets: Sequence[str] = (),
    quiet: bool = False,
    **choices: Any,
) -> Views:
    """Run every cell of a suite that is not finished yet, and load the results.

    Progress is shown on stderr, for stdout is the script's: bars on a terminal, a line for each cell in a notebook or a
    file.

    Args:
        suite: a YAML file, the name of a suite that ships with fedbench, or a suite as a mapping, whose paths are
            relative to the current folder. Messages count the lines of a mapping as YAML has them.
        rounds: how many, in place of the suite's.
        sets: `dotted.key=value` overrides.
        quiet: show nothing.
        choices: as of the command line, such as scenarios, methods, seeds, variants, plugins, results, jobs, device,
            executor, force or timeout. A list of one may be given as that one.

    Returns:
        The results of the suite's folder; `outcome` says what was computed, what was kept and what failed.

    Raises:
        UserError: for input that cannot work, before anything is written.
    """
    from fedbench.commands.output import Screen
    from fedbench.commands.watch import Watch
    from fedbench.runner import runner

    require_system()
    _check_choices(choices)
    require_current_folder()
    tidy_streams()
    here = MAPPING if isinstance(suite, Mapping) else at_home(suite)
    text = _as_yaml(suite) if isinstance(suite, Mapping) else None
    given = {**choices, **{name: _several(choices[name]) for name in LISTS if name in choices}}
    given["sets"] = (*_several(sets), *([] if rounds is None else [f"train.rounds={rounds}"]))
    given |= {"plugins": tuple(map(at_home, given.get("plugins", ())))}
    given |= {"results": at_home(given["results"])} if "results" in given else {}
    with Watch(Screen(stderr=True), quiet) as watch:
        outcome = runner.run(here, observe=watch, text=text, **given)
    return Views([outcome.folder], outcome)


def _check_choices(choices: Mapping[str, Any]) -> None:
    """Raises UserError for a choice that there is not."""
    from fedbench.runner import runner
    from fedbench.runner.cells import Options

    ours = {"path", "observe", "preparing", "text", "options"}
    known = {*signature(runner.run).parameters, *(field.name for field in fields(Options)), "rounds", "quiet"} - ours
    for name in choices:
        if name not in known:
            raise UserError(f"run({name}=...): there is no such choice{suggestion(name, known, 'there are')}")


def _several(given: Any) -> tuple[Any, ...]:
    """The items of a choice, of which one alone may be given as it is: `methods="fedra"`, `seeds=3`."""
    one = isinstance(given, str | os.PathLike) or not isinstance(given, Iterable)
    return (given,) if one else tuple(given)


def _as_yaml(suite: Mapping[str, Any]) -> str:
    """A suite's text. Raises UserError for what YAML has no form for, with its key."""
    from ruamel.yaml import YAML

    text = io.StringIO()
    YAML(typ="safe").dump(_plain(suite, ()), text)
    return text.getvalue()


def _plain(value: Any, keys: tuple[str, ...]) -> Any:
    """A value with the types of JSON alone. Raises UserError."""
    if len(keys) > DEEPEST:
        raise UserError(f"{MAPPING}: {'.'.join(keys[:4])}...: more than {DEEPEST} levels")
    value = value.tolist() if hasattr(value, "tolist") else value  # of numpy, torch and pandas
    if value is None or isinstance(value, bool):
        return value
    for kind in (str, int, float):  # and what is derived from these, such as the members of an enumeration
        if isinstance(value, kind):
            return kind.__str__(value) if kind is str else kind(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {_plain(key, keys): _plain(inner, (*keys, str(key))) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain(inner, (*keys, str(i))) for i, inner in enumerate(value)]
    where = ".".join(keys) or "the suite"
    raise UserError(f"{MAPPING}: {where}: expected a number, a text, a list or a mapping, got {type(value).__name__}")
