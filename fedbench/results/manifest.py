"""Manifests: which cell it is of, how that stands, and what its files were when it was finished."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedbench.errors import UserError
from fedbench.results.documents import read_sealed, write_json
from fedbench.results.identity import id_in, identity_of, named
from fedbench.results.index import CELLS
from fedbench.results.metric_direction import declare
from fedbench.results.schema_checks import check, check_all, is_folder_name
from fedbench.results.status import STATUSES
from fedbench.results.store import Store, store_of, suite_folder_of
from fedbench.types import SIZES

MANIFEST = "manifest.json"
CHECKPOINT = "checkpoint"  # the folder beside it, of what a run goes on from
MEND = "Delete the folder it lies in and run the suite again: only that cell is computed anew."

# The parts of a manifest and of its configuration that are read; what else stands there is passed on as it is.
MANIFEST_TYPES: dict[str, Any] = {
    **dict.fromkeys(("status", "started", "id", "signal", "root", "computed_as", "digest"), str),
    **dict.fromkeys(("reason", "traceback", "git"), str | None),
    **dict.fromkeys(("config", "machine", "versions", "fingerprints", "files", "left_out", "turnout"), dict),
    **dict.fromkeys(("metrics", "method"), dict),
    **dict.fromkeys(("round", "exit_code"), int),
    **dict.fromkeys(("ignored", "tables"), list),
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


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """manifest.json of one cell; the result version is added. Raises: ValueError for an unknown status."""
    if manifest.get("status") not in STATUSES:
        raise ValueError(f"status {manifest.get('status')!r} is not one of {', '.join(STATUSES)}")
    write_json(Path(folder) / MANIFEST, manifest)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """What is known of a cell by its folder: its manifest.json, else what is packed of it, or None.

    Raises: UserError where it cannot be used: its seal, its id or the name of its folder does not fit what it says.
    """
    path = Path(folder) / MANIFEST
    if not path.is_file():
        return packed_manifest(store_of(suite_folder_of(path.parent)), id_in(path.absolute().parent.name))
    manifest = read_sealed(path, ("status", "id", *HASHED), MEND)
    try:
        check_manifest(manifest)
    except TypeError as error:
        raise UserError(f"{path}: not a manifest of fedbench ({error}).\n{MEND}") from error
    if wrong := _mistaken(manifest, path):
        raise UserError(f"{path}: {wrong}.\n{MEND}")
    return manifest


def packed_manifest(store: Store, id: str) -> dict[str, Any] | None:
    """The manifest of a packed cell, or None where there is none. Raises: UserError where it is none of fedbench."""
    manifest = store.manifest(id)
    if manifest is not None:
        try:
            check_manifest(manifest)
        except (TypeError, KeyError) as error:
            raise UserError(f"{store.folder}: the cell {id} has no manifest of fedbench ({error}).\n{MEND}") from error
    return manifest


def _mistaken(manifest: Mapping[str, Any], path: Path) -> str | None:
    """Why a manifest cannot be that of the cell it names; None where it is."""
    id = manifest["id"]
    if (own := identity_of(manifest)) != id:
        return f"its id is {id:.80}, and {own} that of the configuration, fingerprints and versions it tells"
    folder = path.absolute().parent
    other = folder.name if folder.parent.name == CELLS else named(folder.name)
    if other not in (None, id):
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
    for part in manifest.get("ignored", []):
        check("a part of ignored", part, str)
    for what in ("versions", "fingerprints"):
        for name, value in manifest.get(what, {}).items():
            check(f"{what}.{name}", value, str)
    for name, facts in manifest.get("files", {}).items():
        if not is_folder_name(name):  # a run sets damaged files aside: that must move nothing of another folder
            raise TypeError(f"files has {name!r:.80}")
        check(f"files.{name}", facts, dict)
        for what, wanted in FILE_TYPES.items():
            check(f"files.{name}.{what}", facts.get(what), wanted)
