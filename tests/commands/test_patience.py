"""A command that prepares for longer than a second says so: a line that counts, or one plain line in a pipe."""

from __future__ import annotations

import time

from command import TINY, fedbench, write_suite

from fedbench.commands import patience, screen
from fedbench.commands.patience import Patience


def waited(seconds: float = 0.0) -> None:
    with Patience("Planning x.yaml") as told:
        told.tell(340, 2000)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.01)
            told.tell(341, 2000)


def test_what_is_done_at_once_says_nothing(capsys):
    waited()
    assert capsys.readouterr() == ("", "")


def test_in_a_pipe_one_plain_line_is_told(monkeypatch, capsys):
    monkeypatch.setattr(patience, "AFTER", 0.01)
    waited(0.5)
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and err == "Planning x.yaml ...\n"


def test_on_a_terminal_a_line_counts_and_goes(monkeypatch, capsys):
    monkeypatch.setattr(patience, "AFTER", 0.01)
    monkeypatch.setattr(screen.Screen, "is_terminal", True)
    waited(0.5)
    assert "341 of 2,000 cells" in capsys.readouterr().err


def test_plan_and_run_say_how_many_cells_they_have_prepared(tmp_path, monkeypatch, own_cache):
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(Patience, "tell", lambda self, done, of: told.append((done, of)))
    write_suite(tmp_path, "fedra, {name: odd, how: not_applicable}")
    words = ("tiny.yaml", "--plugin", TINY, "--results", "r")
    assert fedbench("plan", *words, cwd=tmp_path).exit_code == 0 and told == [(0, 2), (1, 2)]
    assert fedbench("run", *words, "--method", "odd", cwd=tmp_path).exit_code == 0 and told[2:] == [(0, 1)]
