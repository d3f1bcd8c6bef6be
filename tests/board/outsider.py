"""A tiny board in a repository of its own, and an outside method that goes through all commands there."""

from __future__ import annotations

import hashlib
import re
import shlex
import subprocess
from pathlib import Path

from command import fedbench

from fedbench.board.seeds import salt_of_version
from fedbench.disk import hash_of_json
from fedbench.suite.yaml import Problems, parse

SECRET = b"a secret of tests alone"
SUITE = """\
suite: tiny_board
defaults:
  backbone: micro_vit
  adapter: {name: lora, rank: 2, alpha: 2, dropout: 0.0}
  data: {name: strokes6, image_size: 32, normalize: backbone, classes: 4, train_per_class: 4, test_per_class: 2}
  train: {rounds: 2, max_steps: 1, batch_size: 4, optimizer: {name: sgd, lr: 0.05, momentum: 0.9, weight_decay: 0.0}}
  evaluation: {validation: 0.25}
scenarios:
  skew: {capacities: [4, 3, 3, 2, 2, 1]}
  other: {capacities: [3, 3, 3, 3, 3, 3]}
methods: [fedra, head_only, majority]
tune:
  trials: 2
  space:
    train.optimizer.lr: {log: [0.005, 0.5]}
seeds: [0, 1, 2, 3]
"""
BOARD = """\
board: lite
version: 1
title: A tiny board
suite: SUITE
sha256: HASH
scenario: skew
backbone: micro_vit
metric: accuracy
trials: 2
seeds: [0, 1, 2]
tolerance: 1.0
control: head_only
references: [head_only, majority]
hidden: {seeds: 3, salt_sha256: DIGEST}
held_out: draw
history:
  - {version: 1, date: "2026-11-29", changes: The first version.}
"""
TUTORIAL = (Path(__file__).parents[2] / "board/tutorial.md").read_text("utf-8").replace("anchored", "mine")
(MINE,) = re.findall(r"^```python\n(.*?)^```", TUTORIAL, re.MULTILINE | re.DOTALL)
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```", TUTORIAL, re.M | re.DOTALL) for line in block.splitlines()
]


def suite_hash(text: str) -> str:
    return hash_of_json(parse(text, "suite", Problems()).plain())


def git(folder: Path, *words: str) -> str:
    names = ("-c", "user.name=A Stranger", "-c", "user.email=stranger@example.org")
    return subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def write_home(folder: Path) -> Path:
    """A repository with the tiny board and the plugin."""
    (folder / "board/boards").mkdir(parents=True)
    (suite := folder / "tiny.yaml").write_text(SUITE)
    salt = salt_of_version(SECRET, "lite", 1)
    words = {"SUITE": str(suite), "HASH": suite_hash(SUITE), "DIGEST": hashlib.sha256(salt.encode()).hexdigest()}
    text = BOARD
    for word, value in words.items():
        text = text.replace(word, value)
    (folder / "board/boards/lite.yaml").write_text(text)
    (folder / "board/.gitignore").write_text("state.*\n.*.lock\n")
    (folder / "secret").write_bytes(SECRET + b"\n")
    (folder / "mine.py").write_text(MINE)
    git(folder, "init", "-q")
    return folder


def told(output: str) -> list[str]:
    """The commands that an output says come next."""
    return re.findall(r"^  (\S.*)$", output.partition("Next:")[2], flags=re.MULTILINE)


def follow(folder: Path, first: str) -> list[tuple[str, str]]:
    """Do what commands say comes next, until none is left; each command with its output."""
    waiting, done = [first], []
    while waiting:
        words = shlex.split(line := waiting.pop(0))
        if words[0] == "git":
            done.append((line, git(folder, *words[1:])))
            continue
        more = {"new": ["--jobs", "2"], "rerun": ["--salt", "secret", "--cells", "1", "--jobs", "2"]}.get(words[2], [])
        result = fedbench(*words[1:], *more, cwd=folder)
        done.append((line, result.output))
        if result.exit_code:
            break
        waiting = told(result.output) or waiting
    return done
