"""Third-party plugins read in a child process: what they register, and their hooks. See `Registry`."""

from __future__ import annotations

import io
import sys
import sysconfig
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from fedbench.disk import hash_of_file
from fedbench.errors import UserError, told
from fedbench.registry.assets import Assets
from fedbench.registry.registry import Registry

OWN = {"fedbench", "fedbench_plugins"}
INSTALLED = {"site-packages", "dist-packages"}
Tell = Callable[[dict[str, Any]], None]


def registrations(asked: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """What a plugin registers, see `Registry.registrations_here`, with the hashes of the `files` that it imports from
    no installed package; or under `broken` why it does not load.

    Args:
        asked: `plugin`, its name, and `files`, those of the registry.
    """
    before = set(sys.modules)
    try:
        found = Registry(asked["files"], in_place=True).registrations_here(asked["plugin"])
    except UserError as error:
        return {"broken": str(error)}
    return {**found, "files": _own_files(set(sys.modules) - before)}


def hook(asked: Mapping[str, Any], tell: Tell) -> dict[str, str]:
    """Call a life-cycle hook of a plugin; `why` it broke, or "", and what it has `printed`.

    Args:
        asked: `plugin` and `files` as above, the name of the `hook` and its arguments, the `facts`.
    """
    why, printed = "", io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            Registry(asked["files"], in_place=True).call_hook(asked["plugin"], asked["hook"], asked["facts"])
        except BaseException as error:  # whatever a third-party module raises
            why = str(error) if isinstance(error, UserError) else told(error)
    return {"why": why, "printed": printed.getvalue()}


def fact(asked: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """A `fact` about a backbone or data, or the kind of UserError that is `raised`, and its `message`.

    Args:
        asked: `files` as above, the `base` of `Assets`, `what` of its methods is called and what it is `given`.
    """
    assets = Assets(Registry(asked["files"], in_place=True), asked["base"])
    try:
        return {"fact": getattr(assets, asked["what"])(*asked["given"])}
    except UserError as error:
        return {"raised": type(error).__name__, "message": str(error)}


def _own_files(modules: set[str]) -> dict[str, str]:
    """The hashes of the files of modules that no package manager has installed, by their paths."""
    standard = Path(sysconfig.get_path("stdlib")).resolve()
    found = {}
    for name in modules:
        file = getattr(sys.modules.get(name), "__file__", None)
        if not file or name.partition(".")[0] in OWN:
            continue
        path = Path(file).resolve()
        if path.is_file() and not path.is_relative_to(standard) and not set(path.parts) & INSTALLED:
            found[str(path)] = hash_of_file(path)
    return found
