"""What reaches a terminal: no name steers it, no line is wider than it, and an output that fails is told."""

from __future__ import annotations

import io
import os
import re
import select
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pandas
import pytest
from command import fedbench
from factories import eval_rows, write_cell
from rich.console import Console
from rich.table import Table as Listing
from rich.text import Text

from fedbench.commands.output import NARROWEST, PIPED, Screen, put
from fedbench.commands.watch import Bars
from fedbench.report.frames import frame

FULL = Path("/dev/full")  # every write ends with "no space left"
CONTROLS = ("\x1b[2J", "\x9b31m", "\u202eevil", "bell\x07")


@pytest.mark.parametrize("name", CONTROLS)
def test_a_name_cannot_steer_the_terminal(name):
    out = io.StringIO()
    screen = Screen(file=out, force_terminal=True, color_system="standard", width=80)
    table = Listing("name")
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
@pytest.mark.parametrize(
    "words",
    [["--help"], ["suites", "list"], pytest.param(["compare", "s", "--format", "csv"], marks=pytest.mark.slow)],
    ids=" ".join,
)
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


@contextmanager
def terminal(monkeypatch):
    """Standard input and output as a terminal of 80 columns and 20 lines; answers what was printed on it."""
    answering, there = os.openpty()
    os.set_blocking(answering, False)
    with os.fdopen(there, "r+b", buffering=0) as opened, monkeypatch.context() as patch:
        screen = io.TextIOWrapper(opened, encoding="utf-8", write_through=True)
        for name, value in {"COLUMNS": "80", "LINES": "20", "TERM": "xterm"}.items():
            patch.setenv(name, value)
        patch.setattr(sys, "stdin", screen)
        patch.setattr(sys, "stdout", screen)
        yield lambda: os.read(answering, 1 << 16).decode() if select.select([answering], [], [], 0)[0] else ""
    os.close(answering)


def of_lines(count: int) -> pandas.DataFrame:
    rows = [{"table": "title", "method": f"m{i}", "n": "1"} for i in range(count)]
    return frame(rows, ("table", "method", "n"), caption="lines", by=("table",))


def test_what_is_longer_than_the_screen_is_printed_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("PAGER", f"sed -n 'w {tmp_path / 'paged'}'")
    with terminal(monkeypatch) as printed:
        put(of_lines(30), "rich")
        assert "m29" in (text := printed()) and "\x1b[" in text
        put(of_lines(30), "markdown")
        assert "| m29 |" in printed()
    assert not (tmp_path / "paged").exists()


@pytest.mark.parametrize("columns", ["0", "1", "-5", "many", "", "99999999999"])
def test_a_width_that_makes_no_sense_is_replaced_by_one_that_does(monkeypatch, columns):
    with monkeypatch.context() as patched:  # pytest itself would believe it, too
        patched.setenv("COLUMNS", columns)
        screen = Screen(file=io.StringIO(), force_terminal=True)
        assert NARROWEST <= screen.width <= PIPED
        screen.print(Text("fedra " * 30))
    lines = screen.file.getvalue().splitlines()
    assert " ".join(lines).split() == ["fedra"] * 30 and max(map(len, lines)) <= screen.width


@pytest.mark.parametrize("columns", [1, 20, 39, 99_999_999])
@pytest.mark.parametrize("words", [["plugins", "show", "fedra"], ["suites", "list"], ["compare", "s"]], ids=" ".join)
def test_no_width_cuts_a_name_or_fills_the_memory(tmp_path, words, columns):
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({1: {"a": 0.5}}))
    done = fedbench(*words, cwd=tmp_path, columns=columns)
    assert done.exit_code == 0 and len(done.stdout) < 1_000_000
    assert "fedra" in done.stdout or words[0] == "suites"
    assert words[0] == "compare" or "\u2026" not in done.stdout


def progress(width: int, titles: list[str], rounds: int) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    bars = Bars(console, rounds)
    for title in titles:
        bars.add(title, title, 30)
        bars.advance(title, 12, "82.3%")
        bars.advance(title, 12)
    console.print(bars.progress.get_renderable())
    return out.getvalue().rstrip("\n").splitlines()


@pytest.mark.parametrize("width", [40, 60, 72, 80, 120])
def test_bars_fit_the_terminal_and_tell_cells_apart(width):
    titles = [f"extreme_hetero · fedra_with_cover [backbone=micro_vit] · candidate 3 · seed {s}" for s in (1000, 1001)]
    lines = progress(width, titles, 25200)
    assert len(lines) == 3 and max(map(len, lines)) <= width
    assert (
        all(re.search(r" [-\d]+:[-\d]{2}:[-\d]{2}$", line) for line in lines)
        and "/25200" in lines[0]
        and "12/30" in lines[1]
    )
    assert lines[1] != lines[2] and "82.3%" in lines[1] or width == 40
    assert width < 80 or "left " in lines[0]
