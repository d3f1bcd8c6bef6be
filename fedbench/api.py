"""fedbench from Python: load results, and run a suite."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from glob import glob
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from fedbench.disk import at_home
from fedbench.errors import UserError
from fedbench.report.results import Results


def load(*paths: str | Path | Iterable[str | Path]) -> Results:
    """Load results.

    Args:
        paths: results folders, suites' folders or cells' folders, globs such as `results/*_tuned`, or lists of these;
            `results` where none is given. Several are one pool of cells. `~` is the home folder, here and in `run`.

    Raises:
        UserError: where a path holds no results, and for a glob that matches nothing.
    """
    given = [path for some in paths for path in ([some] if isinstance(some, str | os.PathLike) else some)]
    found: list[str | Path] = []
    for path in map(at_home, given if paths else ("results",)):
        matched = sorted(glob(str(path))) if any(sign in str(path) for sign in "*?[") else [path]
        if not matched:
            raise UserError(f"{path}: no folder matches")
        found += matched
    return Results(found)


def run(
    suite: str | Path | Mapping[str, Any],
    *,
    rounds: int | None = None,
    sets: Sequence[str] = (),
    quiet: bool = False,
    **choices: Any,
) -> Results:
    """Run every cell of a suite that is not finished yet, and load the results.

    Progress is shown on stderr, for stdout is the script's: bars on a terminal, a line for each cell in a notebook or a
    file.

    Args:
        suite: a YAML file, the name of a suite that ships with fedbench, or a suite as a mapping, whose paths are
            relative to the current folder.
        rounds: how many, in place of the suite's.
        sets: `dotted.key=value` overrides.
        quiet: show nothing.
        choices: as of the command line, such as scenarios, methods, seeds, variants, plugins, results, jobs, device,
            executor, force or timeout.

    Returns:
        The results of the suite's folder; `outcome` says what was computed, what was kept and what failed.

    Raises:
        UserError: for input that cannot work, before anything is written.
    """
    from ruamel.yaml import YAML

    from fedbench.commands.output import Screen
    from fedbench.commands.watch import Watch
    from fedbench.runner import runner

    given = {"sets": (*sets, *([] if rounds is None else [f"train.rounds={rounds}"])), **choices}
    if isinstance(suite, Mapping):
        # A suite's paths are relative to its file, and so are those of a mapping to the current folder.
        with NamedTemporaryFile("w", prefix=".suite-", suffix=".yaml", dir=".", encoding="utf-8") as file:
            YAML(typ="safe").dump(dict(suite), file)
            file.flush()
            return run(file.name, quiet=quiet, **given)
    given |= {"plugins": tuple(map(at_home, given.get("plugins", ())))}
    given |= {"results": at_home(given["results"])} if "results" in given else {}
    with Watch(Screen(stderr=True), quiet) as watch:
        outcome = runner.run(at_home(suite), observe=watch, **given)
    return Results([outcome.folder], outcome)
