"""What a command is started in: closed streams, sizes that are no numbers, a current folder that is gone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from command import MAIN, environment, fedbench

import fedbench as package
from fedbench.commands.terminal import say, tidy_streams
from fedbench.errors import UserError

CLOSED = "import os, sys; os.close({fd}); os.execv(sys.executable, {words!r})"


def started(words, fd):
    """A command whose standard stream of that number was closed, as by `>&-`."""
    code = CLOSED.format(fd=fd, words=[*MAIN, *words])
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment())


@pytest.mark.parametrize(("fd", "words"), [(1, ["methods"]), (2, ["methods"]), (0, ["methods"]), (1, ["--help"])])
def test_a_command_with_a_closed_stream_does_its_work(fd, words):
    done = started(words, fd)
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (fd != 1)


def test_a_closed_output_hides_no_mistake():
    done = started(["compare", "nowhere"], 1)
    assert done.returncode == 2 and "nowhere" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("value", ["²", "x", "9" * 5000, "1e3"])
@pytest.mark.parametrize("name", ["COLUMNS", "LINES"])
def test_a_size_that_is_no_number_is_left_out(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    tidy_streams()
    assert name not in os.environ


@pytest.mark.parametrize("value", ["80", "", "٣"])
def test_a_size_that_is_a_number_stays(monkeypatch, value):
    monkeypatch.setenv("COLUMNS", value)
    tidy_streams()
    assert os.environ["COLUMNS"] == value


def test_a_table_is_laid_out_whatever_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "²")
    assert fedbench("methods", cwd=tmp_path, columns=None).exit_code == 0


@pytest.fixture
def deleted(tmp_path, monkeypatch):
    place = tmp_path / "gone"
    place.mkdir()
    monkeypatch.chdir(place)
    place.rmdir()


@pytest.mark.parametrize(
    "words",
    ["compare", "plugins check fedra", "init x", "reproduce x", "run quickstart --plugin x.py", "doctor", "export x"],
)
def test_a_current_folder_that_was_deleted_is_named_as_the_fault(deleted, words):
    from click.testing import CliRunner

    from fedbench.cli import main

    done = CliRunner().invoke(main, words.split(), catch_exceptions=False)
    assert (done.exit_code, done.stderr) == (2, "Error: the current folder was deleted; change to another\n")


def test_from_python_it_is_an_exception_of_one_line(deleted):
    with pytest.raises(UserError, match="the current folder was deleted"):
        package.run("quickstart")
    with pytest.raises(UserError, match="the current folder was deleted"):
        package.load()


@pytest.mark.parametrize("sign", ["\x1b[2J", "\x9b2J", "\u202e", "\x07"])
def test_no_name_steers_a_terminal(capsys, sign):
    say(f"suite {sign}")
    say(f"suite {sign}", err=True)
    out, err = capsys.readouterr()
    assert sign not in out + err and out == err
