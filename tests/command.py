"""Ways for tests to use the command line as a user does: a suite in a folder, and fedbench in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from unittest.mock import patch

from click.testing import CliRunner, Result

from fedbench.cli import main

TINY = Path(__file__).with_name("tiny_plugin.py")
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


def fedbench(*words: object, cwd: Path, columns: int = 100) -> Result:
    """Run one command in this process, whose server of workers serves all tests. A traceback fails the test."""
    given = list(map(str, words))
    with chdir(cwd), patch.object(sys, "argv", ["fedbench", *given]):
        return CliRunner().invoke(main, given, env={"COLUMNS": str(columns)}, catch_exceptions=False)


def run(*words: object, cwd: Path) -> Result:
    """`fedbench run tiny.yaml` with the tiny plugin."""
    return fedbench("run", "tiny.yaml", "--plugin", TINY, "--results", "r", *words, cwd=cwd)


def manifests(folder: Path) -> dict[str, dict]:
    """The manifest of every name in the index of a results folder's suite."""
    index = json.loads((folder / "tiny" / "index.json").read_text())
    return {
        f"{entry['method']}/{entry['seed']}": json.loads(
            (folder / "tiny" / entry["cell"] / "manifest.json").read_text()
        )
        for entry in index["entries"]
    }
