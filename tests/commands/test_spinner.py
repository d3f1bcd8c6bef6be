"""What a command shows while it prepares: a line that counts on a terminal, and nothing in a pipe."""

from __future__ import annotations

from command import TINY, fedbench, write_suite

from fedbench.commands.output import Screen, Spinner


def spin() -> None:
    with Spinner("Planning x.yaml") as spinner:
        spinner.tell(341, 2000)


def test_in_a_pipe_nothing_is_said(capsys):
    spin()
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal_a_line_counts_and_goes(monkeypatch, capsys):
    monkeypatch.setattr(Screen, "is_terminal", True)
    spin()
    assert "341 of 2,000 cells" in capsys.readouterr().err


def test_plan_and_run_say_how_many_cells_they_have_prepared(tmp_path, monkeypatch, own_cache):
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(Spinner, "tell", lambda self, done, of: told.append((done, of)))
    write_suite(tmp_path, "fedra, {name: odd, how: not_applicable}")
    words = ("tiny.yaml", "--plugin", TINY, "--results", "r")
    assert fedbench("plan", *words, cwd=tmp_path).exit_code == 0 and told[-1] == (2, 2)
    assert fedbench("run", *words, "--method", "odd", cwd=tmp_path).exit_code == 0 and told[-1] == (0, 1)
