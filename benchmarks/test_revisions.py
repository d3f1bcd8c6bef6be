"""Whole suites against another checkout: who runs what, in turns, and what is written down of it."""

import json
import sys
from pathlib import Path

import pytest
import revisions
from click.testing import CliRunner


@pytest.fixture
def runs(monkeypatch):
    """Every command that would have been measured: here it takes 6 s, there 12, and ten times that the first time."""
    seen = []

    def spent(folder, *words, program, plugin):
        assert not (folder / "r").exists() and plugin.name == "tiny_plugin.py"
        (folder / "r").mkdir()
        seen.append((folder.name, Path(program[0]), *map(str, words)))
        seconds = 6.0 if folder.name == "here" else 12.0
        first = sum(one[0] == folder.name for one in seen) == 1
        return {"seconds": seconds * (10 if first else 1), "processor": 2 * seconds, "mib": 100.0, "others": 0.02}

    monkeypatch.setattr(revisions, "spent", spent)
    return seen


def test_both_run_their_own_suite_in_turns_after_a_run_that_does_not_count(tmp_path, runs):
    figures = tmp_path / "pairs.json"
    words = [str(tmp_path), "quickstart", "--pairs", "2", "--figures", str(figures)]
    done = CliRunner().invoke(revisions.main, words, catch_exceptions=False)
    theirs = tmp_path / ".venv" / "bin" / "python"
    here = ("here", Path(sys.executable), "run", str(revisions.HERE / "suites" / "quickstart.yaml"))
    there = ("there", theirs, "run", str(tmp_path / "suites" / "quickstart.yaml"))
    shorter = ("--set", "train.rounds=1")
    assert runs == [(*here, *shorter), (*there, *shorter), here, there, here, there]
    assert [line.split()[:5] for line in done.output.splitlines()[1:3]] == [
        ["quickstart", "seconds", "6.0", "12.0", "0.50"],
        ["quickstart", "processor", "12.0", "24.0", "0.50"],
    ]
    found = json.loads(figures.read_text())
    assert [run["seconds"] for run in found["measured"]["quickstart"]["there"]] == [12.0, 12.0]
    assert "others had at most 2%" in done.output and found["versions"]["torch"] and found["machine"]["cores"]


def test_twenty_trivial_cells_are_the_same_suite_for_both(tmp_path, runs):
    CliRunner().invoke(revisions.main, [str(tmp_path), "trivial", "--pairs", "1"], catch_exceptions=False)
    assert [Path(words[3]).name for words in runs] == ["trivial.yaml"] * 4
    assert all(len(words) == 4 for words in runs)
