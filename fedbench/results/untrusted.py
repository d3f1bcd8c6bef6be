"""What the JSON files of a results folder, which may be a stranger's, must look like to be read at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from fedbench.errors import UserError
from fedbench.results.tables import STATUSES

T = TypeVar("T")
Number = int | float
Text = str | None

# The parts of a manifest and of its configuration that are read; what else stands there is passed on as it is.
MANIFEST_TYPES: dict[str, Any] = {
    **dict.fromkeys(("status", "started", "id", "signal"), str),
    **dict.fromkeys(("reason", "traceback", "git"), Text),
    **dict.fromkeys(("config", "machine", "versions", "fingerprints", "files"), dict),
    **dict.fromkeys(("round", "exit_code"), int),
    "seconds": Number,
}
CONFIG_TYPES: dict[str, Any] = {
    **dict.fromkeys(("backbone", "adapter", "data", "capacities", "participation"), dict),
    **dict.fromkeys(("train", "method", "evaluation"), dict),
    **dict.fromkeys(("profile", "precision"), str),
    "seed": int,
}
CHECKPOINT_TYPES: dict[str, Any] = {
    **dict.fromkeys(("format", "number", "round"), int),
    **dict.fromkeys(("id", "device"), str),
    **dict.fromkeys(("off_cpu", "clients"), list),
    "seconds": Number,
    "files": dict,
}
FILE_TYPES: dict[str, Any] = {"size": int, "sha256": str}
NAMED = ("backbone", "adapter", "data", "method")
MOST = 2**63  # of what fedbench counts, nothing comes near


def typed(shape: type[T], values: Any) -> T:
    """A JSON object as a dataclass. Raises: TypeError for a field that is missing, unknown or of another type."""
    made = shape(**values)
    for name, hint in get_type_hints(shape).items():
        wanted = hint | int if float in (hint, *get_args(hint)) else hint
        _check(name, getattr(made, name), wanted)
    return made


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """Raises: TypeError, saying what is wrong, for a manifest that fedbench did not write."""
    _check_all(manifest, MANIFEST_TYPES, "")
    if manifest["status"] not in STATUSES:
        raise TypeError(f"status is {manifest['status']!r:.80}")
    config = manifest["config"]
    _check_all(config, CONFIG_TYPES, "config.")
    for part in NAMED:
        _check_all(config.get(part, {}), {"name": str}, f"config.{part}.")
    _check_all(config.get("train", {}), {"rounds": int}, "config.train.")
    for way, depths in config.get("capacities", {}).items():
        _check(f"config.capacities.{way}", [] if depths is True else depths, list)
        for depth in () if depths is True else depths:
            _check(f"a depth of config.capacities.{way}", depth, int)
    for what in ("versions", "fingerprints"):
        for name, value in manifest.get(what, {}).items():
            _check(f"{what}.{name}", value, str)
    for name, facts in manifest.get("files", {}).items():
        if not is_folder_name(name):  # a run sets damaged files aside: that must move nothing of another folder
            raise TypeError(f"files has {name!r:.80}")
        _check(f"files.{name}", facts, dict)
        for what, wanted in FILE_TYPES.items():
            _check(f"files.{name}.{what}", facts.get(what), wanted)


def check_checkpoint(facts: Mapping[str, Any]) -> None:
    """Raises: TypeError, saying what is wrong, for what fedbench did not write of a checkpoint: whoever can change its
    file can make the hash in it agree."""
    _check_all(facts, CHECKPOINT_TYPES, "")
    if min(facts["number"], facts["round"]) < 0:
        raise TypeError("number or round is below 0")
    for name, value in facts["files"].items():
        if not is_folder_name(name):
            raise TypeError(f"files has {name!r:.80}")
        _check(f"files.{name}", value, str)
    for what in ("off_cpu", "clients"):
        for value in facts.get(what, ()):
            _check(what, value, str)


def _check_all(values: Mapping[str, Any], types: Mapping[str, Any], where: str) -> None:
    for name in types.keys() & values.keys():
        _check(where + name, values[name], types[name])


def _check(name: str, value: Any, wanted: Any) -> None:
    """An integer is no truth value, and a number neither infinite nor NaN."""
    odd = isinstance(value, bool) or (isinstance(value, int | float) and not -MOST < value < MOST)
    if odd or not isinstance(value, wanted):
        raise TypeError(f"{name:.80} is {value!r:.80}")


def is_folder_name(name: str) -> bool:
    """Whether a name stands for something visible in the folder it is looked up in, and nowhere else."""
    return name != "" and not name.startswith(".") and not set(name) & set("/\\\0") and len(os.fsencode(name)) < 256


def refuse_links(suite_folder: Path, option: str = "--results") -> None:
    """Raises: UserError where a suite's folder is a link, or one lies in it: what is written there could land
    anywhere; or a pipe, whose reader could wait for ever."""
    found = (Path(folder, name) for folder, folders, files in os.walk(suite_folder) for name in (*folders, *files))
    for path in (Path(suite_folder), *found):
        if odd := _odd(path):
            raise UserError(
                f"{path}: {odd}. fedbench writes into folders of its own only.\n"
                f"Remove it, or choose another folder with {option} DIR."
            )


def _odd(path: Path) -> str:
    """What a path is but a file or a folder; nothing where it has gone meanwhile."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return ""
    if stat.S_ISLNK(mode):
        return "a link"
    return "" if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else "a pipe or a device"
