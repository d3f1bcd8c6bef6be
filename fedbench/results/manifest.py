"""Manifests: which cell it is of, how that stands, and what its files were when it was finished."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedbench.errors import UserError
from fedbench.results.columns import STATUSES
from fedbench.results.documents import TornFile, read_sealed, write_json
from fedbench.results.identity import identity_of
from fedbench.results.index import CELLS
from fedbench.results.packed_tables import packed_tables, suite_folder_of
from fedbench.results.schema_checks import check_manifest

MANIFEST = "manifest.json"
CHECKPOINT = "checkpoint"  # the folder next to it, from which a run resumes
MEND = "Run the suite again: only that cell is computed again."

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
    try:
        manifest = read_sealed(path, ("status", "id", *HASHED), MEND)
    except UserError:
        if path.is_file():
            raise
        return packed_tables(suite_folder_of(path.parent)).manifest(path.absolute().parent.name)
    try:
        check_manifest(manifest)
    except TypeError as error:
        raise TornFile(f"{path}: not a manifest of fedbench ({error}).\n{MEND}") from error
    if wrong := _mistaken(manifest, path):
        raise TornFile(f"{path}: {wrong}.\n{MEND}")
    return manifest


def believed_manifest(folder: Path) -> dict[str, Any] | None:
    """As `read_manifest`, and None where it says nothing that can be believed: a run computes that cell again."""
    try:
        return read_manifest(folder)
    except TornFile:
        return None


def _mistaken(manifest: Mapping[str, Any], path: Path) -> str | None:
    """Why a manifest cannot be that of the cell it names; None where it is."""
    id = manifest["id"]
    if (own := identity_of(manifest)) != id:
        return f"its id is {id:.80}, and {own} that of the configuration, fingerprints and versions it tells"
    folder = path.absolute().parent
    if folder.parent.name == CELLS and folder.name != id:
        return f"it is of the cell {id}, and lies in the folder of {folder.name}"
    return None
