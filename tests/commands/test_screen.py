"""What reaches a terminal: no name steers it, no line is wider than it, and an output that fails is told."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import fedbench
from factories import eval_rows, write_cell
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedbench.commands.bars import Bars
from fedbench.commands.screen import Screen

FULL = Path("/dev/full")  # every write ends with "no space left"
CONTROLS = ("\x1b[2J", "\x9b31m", "\u202eevil", "bell\x07")


@pytest.mark.parametrize("name", CONTROLS)
def test_a_name_cannot_steer_the_terminal(name):
    out = io.StringIO()
    screen = Screen(file=out, force_terminal=True, color_system="standard", width=80)
    table = Table("name")
    table.add_row(Text(name))
    screen.print(table)
    screen.print(Text(name, style="red"))
    text = out.getvalue()
    assert "\x1b[31m" in text  # rich's own
    assert "\x1b[2J" not in text and not any(c in text for c in "\x9b\u202e\x07")


def test_neither_do_names_in_errors_and_papers(tmp_path):
    missing = fedbench("compare", "none\x1b[2J", cwd=tmp_path)
    assert missing.exit_code == 2 and "none\\x1b[2J" in missing.stderr and "\x1b" not in missing.stderr
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({1: {"a\x1b[2J": 0.5}}))
    for form in ("rich", "markdown", "latex"):
        assert "\x1b" not in fedbench("compare", "s", "--format", form, cwd=tmp_path).stdout


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", [["--help"], ["compare", "s"], ["compare", "s", "--format", "csv"]], ids=" ".join)
def test_an_output_that_is_full_is_told_in_one_line(tmp_path, words):
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({1: {"a": 0.5}}))
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fedbench", *words], stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path
        )
    assert (done.returncode, done.stderr) == (1, "Error: the output cannot be written: No space left on device\n")


def test_a_pipe_that_is_closed_ends_without_a_word(tmp_path):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-m", "fedbench", "--help"], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def progress(width: int, titles: list[str], rounds: int) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    bars = Bars(console, rounds)
    for title in titles:
        bars.add(title, title, 30)
    console.print(bars.progress.get_renderable())
    return out.getvalue().rstrip("\n").splitlines()


@pytest.mark.parametrize("width", [40, 60, 72, 80, 120])
def test_bars_fit_the_terminal_and_tell_cells_apart(width):
    titles = [f"extreme_hetero · fedra_with_cover [backbone=micro_vit] · candidate 3 · seed {s}" for s in (1000, 1001)]
    lines = progress(width, titles, 25200)
    assert len(lines) == 3 and max(map(len, lines)) <= width
    assert all("left -:--:--" in line for line in lines) and "0/25200" in lines[0] and "0/30" in lines[1]
    assert lines[1] != lines[2]
