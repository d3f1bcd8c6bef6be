"""manifest.json: which cell it is of, how that stands, and what its files were when it was finished."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedbench.errors import UserError
from fedbench.results.choice import declare
from fedbench.results.documents import read_sealed, write_json
from fedbench.results.identity import identity, named
from fedbench.results.status import STATUSES
from fedbench.results.untrusted import check, check_all, is_folder_name
from fedbench.types import SIZES

MANIFEST = "manifest.json"
CHECKPOINT = "checkpoint"  # the folder beside it, of what a run goes on from
MEND = "Delete the folder it lies in and run the suite again: only that cell is computed anew."

# The parts of a manifest and of its configuration that are read; what else stands there is passed on as it is.
MANIFEST_TYPES: dict[str, Any] = {
    **dict.fromkeys(("status", "started", "id", "signal", "root", "computed_as"), str),
    **dict.fromkeys(("reason", "traceback", "git"), str | None),
    **dict.fromkeys(("config", "machine", "versions", "fingerprints", "files", "left_out", "turnout"), dict),
    **dict.fromkeys(("metrics", "method"), dict),
    **dict.fromkeys(("round", "exit_code"), int),
    "warnings": list,
    "seconds": int | float,
}
CONFIG_TYPES: dict[str, Any] = {
    **dict.fromkeys(("backbone", "adapter", "data", *SIZES, "devices", "fit", "participation"), dict),
    **dict.fromkeys(("train", "method", "evaluation"), dict),
    **dict.fromkeys(("profile", "precision"), str),
    "seed": int,
}
FILE_TYPES: dict[str, Any] = {"size": int, "sha256": str}
LEFT_OUT_TYPES: dict[str, Any] = {"images": int, "of": int}
TURNOUT_TYPES: dict[str, Any] = {**dict.fromkeys(("clients", "of_clients", "images", "of_images"), int), "sizes": dict}
NAMED = ("backbone", "adapter", "data", "method")
HASHED = ("config", "fingerprints", "versions")  # what the id is a hash of

# All that a manifest without a seal may have. What came later comes with one.
UNSEALED = frozenset(
    {"result_version", "diverged", "torn", *MANIFEST_TYPES}
    - {"turnout", "warnings", "metrics", "method", "computed_as"}
)


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """manifest.json of one cell; the result version is added. Raises: ValueError for an unknown status."""
    if manifest.get("status") not in STATUSES:
        raise ValueError(f"status {manifest.get('status')!r} is not one of {', '.join(STATUSES)}")
    write_json(Path(folder) / MANIFEST, manifest)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """manifest.json of one cell, or None where there is none.

    Raises: UserError where it cannot be used: its seal, its id or the name of its folder does not fit what it says.
    """
    path = Path(folder) / MANIFEST
    if not path.is_file():
        return None
    manifest = read_sealed(path, ("status", "id", *HASHED), UNSEALED, MEND)
    try:
        check_manifest(manifest)
    except TypeError as error:
        raise UserError(f"{path}: not a manifest of fedbench ({error}).\n{MEND}") from error
    if wrong := _mistaken(manifest, path):
        raise UserError(f"{path}: {wrong}.\n{MEND}")
    return manifest


def _mistaken(manifest: Mapping[str, Any], path: Path) -> str | None:
    """Why a manifest cannot be that of the cell it names; None where it is."""
    id = manifest["id"]
    if (own := identity(*(manifest[part] for part in HASHED))) != id:
        return f"its id is {id:.80}, and {own} that of the configuration, fingerprints and versions it tells"
    if (other := named(path.absolute().parent.name)) not in (None, id):
        return f"it is of the cell {id}, and lies in the folder of {other}"
    return None


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """Raises: TypeError, saying what is wrong, for a manifest that fedbench did not write."""
    check_all(manifest, MANIFEST_TYPES)
    if manifest["status"] not in STATUSES:
        raise TypeError(f"status is {manifest['status']!r:.80}")
    config = manifest["config"]
    check_all(config, CONFIG_TYPES, "config.")
    for part in NAMED:
        check_all(config.get(part, {}), {"name": str}, f"config.{part}.")
    check_all(config.get("train", {}), {"rounds": int}, "config.train.")
    for key, noun, kind in (("capacities", "depth", int), ("ranks", "rank", int), ("widths", "width", int | float)):
        for way, given in config.get(key, {}).items():
            check(f"config.{key}.{way}", [] if given is True else given, list)
            for value in () if given is True else given:
                check(f"a {noun} of config.{key}.{way}", value, kind)
    for what, wanted in LEFT_OUT_TYPES.items() if manifest.get("left_out") else ():
        check(f"left_out.{what}", manifest["left_out"].get(what), wanted)
    for what, wanted in TURNOUT_TYPES.items() if manifest.get("turnout") else ():
        check(f"turnout.{what}", manifest["turnout"].get(what), wanted)
    declare(manifest.get("metrics", {}))
    for what, value in manifest.get("method", {}).items():
        check(f"method.{what}", value, str)
        if not value.isprintable():  # it ends up in tables, on a line of its own
            raise TypeError(f"method.{what} is {value!r:.80}")
    for what in ("versions", "fingerprints"):
        for name, value in manifest.get(what, {}).items():
            check(f"{what}.{name}", value, str)
    for name, facts in manifest.get("files", {}).items():
        if not is_folder_name(name):  # a run sets damaged files aside: that must move nothing of another folder
            raise TypeError(f"files has {name!r:.80}")
        check(f"files.{name}", facts, dict)
        for what, wanted in FILE_TYPES.items():
            check(f"files.{name}.{what}", facts.get(what), wanted)
