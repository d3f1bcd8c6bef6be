"""Ways for tests to use the command line as a user does: a suite in a folder, and fedbench in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from click.testing import CliRunner, Result

from fedbench.cli import main
from fedbench.results import read_index, read_manifest, write_manifest
from fedbench.results.files import described
from fedbench.results.index import commit
from fedbench.results.packed_tables import PackedTables, folder_of
from fedbench.results.tables import bytes_of, to_table

TINY = Path(__file__).with_name("tiny_plugin.py")
NOTING = Path(__file__).with_name("noting_plugin.py")
MAIN = [sys.executable, "-c", "from fedbench.cli import main; main()"]

SUITE = """\
suite: tiny
defaults:
  backbone: tiny
  adapter: {name: lora, rank: 2, alpha: 2, dropout: 0.0}
  data: dots
  capacities: [2, 1]
  train: {rounds: 2, max_steps: 1, batch_size: 2, optimizer: {name: sgd, lr: 0.05, momentum: 0.0, weight_decay: 0.0}}
scenarios:
  small: {}
methods: [METHODS]
"""


def write_suite(folder: Path, methods: str = "fedra", changes: dict[str, str] | None = None) -> Path:
    """The suite above with these methods, `changes` being replacements of its text."""
    text = SUITE.replace("METHODS", methods)
    for old, new in (changes or {}).items():
        assert old in text, old
        text = text.replace(old, new)
    file = folder / "tiny.yaml"
    file.write_text(text)
    return file


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100", "NO_COLOR": "1"}


def process(*words: object, cwd: Path, timeout: float = 120) -> subprocess.CompletedProcess:
    """Run one command to its end in a process of its own; slow, because nothing is imported yet."""
    return subprocess.run(
        [*MAIN, *map(str, words)], cwd=cwd, env=environment(), capture_output=True, text=True, timeout=timeout
    )


def fedbench(*words: object, cwd: Path, columns: int | None = 100) -> Result:
    """Run one command in this process, whose server of workers serves all tests. A traceback fails the test."""
    given = list(map(str, words))
    width = {"COLUMNS": str(columns) if columns else None}
    with chdir(cwd), patch.object(sys, "argv", ["fedbench", *given]):
        return CliRunner().invoke(main, given, env=width, catch_exceptions=False)


def run(*words: object, cwd: Path) -> Result:
    """`fedbench run tiny.yaml` with the tiny plugin."""
    return fedbench("run", "tiny.yaml", "--plugin", TINY, "--results", "r", *words, cwd=cwd)


def manifests(folder: Path) -> dict[str, dict]:
    """The manifest of every name in the index of a results folder's suite."""
    index = read_index(folder / "tiny")
    assert index is not None
    places = {f"{entry.method}/{entry.seed}": folder_of(folder / "tiny", entry.cell) for entry in index.entries}
    return {name: read_manifest(place) or {} for name, place in places.items()}


def written(folder: Path) -> list[dict]:
    """The manifest of every cell of a results folder's suite that was begun."""
    index = read_index(folder / "tiny")
    ids = dict.fromkeys(entry.cell for entry in index.entries) if index else ()
    return [manifest for id in ids if (manifest := read_manifest(folder_of(folder / "tiny", id)))]


def cell_of(folder: Path, method: str, seed: int = 0) -> Path:
    """The folder of a cell of a results folder's suite."""
    return folder_of(folder / "tiny", manifests(folder)[f"{method}/{seed}"]["id"])


def loosen(suite_folder: Path) -> None:
    """Put every packed cell of a suite into a folder, as it was before its run ended."""
    index = read_index(suite_folder)
    assert index is not None
    store = PackedTables(suite_folder, index.tables)
    for id in store.ids:
        place, manifest = folder_of(suite_folder, id), store.manifest(id) or {}
        for kind in manifest.pop("tables"):
            table = store.rows(kind, id)
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{kind}.parquet").write_bytes(bytes_of(to_table(kind, []) if table is None else table))
        del manifest["digest"]
        write_manifest(place, manifest | ({"files": files} if (files := described(place)) else {}))
    commit(suite_folder, replace(index, tables={}))
    for table in index.tables.values():
        (suite_folder / table.file).unlink()
