"""A --plugin file for tests: life-cycle hooks that note what they are told, in a file beside it."""

from __future__ import annotations

from pathlib import Path

from fedbench import hookimpl

NOTES = Path(__file__).with_name("notes.txt")


def _note(line: str) -> None:
    with NOTES.open("a") as notes:
        notes.write(line + "\n")


@hookimpl
def fedbench_suite_started(suite, cells):
    _note(f"suite_started {suite} {len(cells)}")


@hookimpl
def fedbench_suite_finished(cells):
    _note("suite_finished " + " ".join(cell["status"] for cell in cells))


@hookimpl
def fedbench_cell_started(manifest):
    _note(f"cell_started {manifest['config']['method']['name']}")


@hookimpl
def fedbench_round_finished(manifest, round, rows):
    _note(f"round_finished {round} {len(rows)}")


@hookimpl
def fedbench_cell_finished(manifest, evaluation):
    _note(f"cell_finished {manifest['status']} {len(evaluation)}")
