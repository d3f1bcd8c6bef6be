"""What the board runs: a board's suite with an entry's method, with the values that its tuning found, or other data."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench.board.entries import Board, Entry
from fedbench.disk import hash_of_json
from fedbench.errors import UserError
from fedbench.registry.catalogue import OWN_SETTINGS
from fedbench.registry.registry import Registry
from fedbench.results.packed_tables import folder_of, packed_tables
from fedbench.results.tuning import Contest, contests
from fedbench.runner import runner
from fedbench.suite import Suite, load
from fedbench.suite.shipped import found
from fedbench.suite.yaml import Problems, read
from fedbench.words import counted, shortened

PREFIX = "methods."


def suite_of(board: Board) -> dict[str, Any]:
    """The board's suite as it ships. Raises UserError."""
    return dict(read(found(board.suite), Problems()).plain())


def hash_of_suite(board: Board) -> str:
    """SHA-256 of what the suite says, comments and line breaks aside."""
    return hash_of_json(suite_of(board))


def space_of(board: Board) -> dict[str, Any]:
    """The ranges of the board's tuning; none where nothing is tuned."""
    return dict(suite_of(board).get("tune", {}).get("space", {}))


def require_own_options(board: Board, entry: Entry) -> None:
    """Raises UserError where an entry's `space` names more than options of its method that the board does not tune."""
    own, known = f"{PREFIX}{entry.method}.", space_of(board)
    wrong = [
        key
        for key in entry.boards[board.board].space
        if key in known or not key.startswith(own) or key.removeprefix(own).partition(".")[0] in OWN_SETTINGS
    ]
    if wrong:
        raise UserError(
            f"space has {shortened(wrong, 3)}: it may only name options of the method that the board does not tune, "
            f"such as {own}OPTION"
        )


def text_of(
    board: Board,
    entries: Sequence[Entry] = (),
    *,
    values: Mapping[str, Mapping[str, Any]] | None = None,
    data: Mapping[str, Any] | None = None,
) -> str:
    """A suite as text: the board's one scenario and its seeds, with the methods of these entries.

    Args:
        entries: those whose methods the suite may lack, and whose ranges are added to its tuning; a challenge is a row
            that extends the method it challenges.
        values: by method, its settings by dotted key, in place of a tuning.
        data: options of the data set in place of the suite's.
    """
    plain = suite_of(board)
    listed = [method if isinstance(method, str) else method["name"] for method in plain["methods"]]
    for entry in entries:
        if entry.method not in listed:
            base = {"extends": entry.challenge.entry.partition("/")[0]} if entry.challenge else {}
            plain["methods"].append({"name": entry.method, **base})
    scenario = dict(plain["scenarios"][board.scenario] or {})
    if values is not None:
        plain.pop("tune", None)
        scenario["methods"] = {label: _nested(own) for label, own in values.items() if own}
    elif "tune" in plain:
        for entry in entries:
            plain["tune"]["space"] |= entry.boards[board.board].space
    if data:
        plain["defaults"]["data"] |= data
    kept = {key: part for key, part in plain.items() if key not in ("expected", "overlays", "sweep")}
    return json.dumps({**kept, "scenarios": {board.scenario: scenario}, "seeds": board.seeds})


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by dotted key as a method's own settings: `methods.NAME.option` is an option."""
    made: dict[str, Any] = {}
    for dotted, value in values.items():
        *above, last = dotted.split(".")[2:] if dotted.startswith(PREFIX) else dotted.split(".")
        inner = made
        for key in above:
            inner = inner.setdefault(key, {})
        inner[last] = value
    return made


def loaded(board: Board, text: str, registry: Registry) -> Suite:
    """The suite of a text, without looking at its data, which need not be here. Raises UserError."""
    return load(found(board.suite), registry.catalogue, sets=board.sets, text=text)


def variant_of(board: Board) -> str:
    """What the board's settings are called in results."""
    return "; ".join(board.sets)


def contest_of(board: Board, entry: Entry, variant: str, folders: Iterable[Path]) -> Contest | None:
    """The tuning of an entry on a board, among those of suites' folders; None where there is none."""
    key = (board.scenario, variant, entry.method)
    return next((known[key] for folder in folders if key in (known := contests(folder))), None)


def values_of(contest: Contest | None) -> dict[str, Any]:
    """What the winner of a tuning sets for its method."""
    if contest is None or contest.winner is None:
        return {}
    chosen, method = contest.tuning.candidates[contest.winner], contest.key[2]
    return {key: value for key, value in chosen.items() if contest.tuning.concerns(key, method)}


def run(board: Board, text: str, methods: Sequence[str], seeds: Sequence[int], folder: Path, **options: Any) -> Path:
    """Compute a suite's cells of these methods and seeds that are not there yet; returns the folder of their tables,
    without the models.

    Raises UserError, also where a cell of them has failed.
    """
    given = {"sets": board.sets, "methods": methods, "seeds": seeds, "results": str(folder), **options}
    done = runner.run(found(board.suite), text=text, **given)
    if done.failed:
        name, manifest = next(iter(done.failed.items()))
        raise UserError(f"{counted(len(done.failed), 'cell')} failed, {name} of them: {manifest['reason']}")
    if lost := (*done.undecided, *done.unstable):
        raise UserError(f"no candidate can win: {', '.join(lost)}")
    for id in packed_tables(done.folder).ids:  # what is committed are tables
        shutil.rmtree(folder_of(done.folder, id), ignore_errors=True)
    return done.folder
