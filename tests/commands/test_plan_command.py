"""fedbench plan: its cells at any width, how long they take, and what is not imported for it."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
from command import TINY, fedbench, run, write_suite

from fedbench.commands.output import Screen
from fedbench.report.style import show
from fedbench.report.views.lists import plan


@pytest.mark.slow
def test_a_plan_is_shown_without_torch_the_second_time(tmp_path):
    write_suite(tmp_path)
    first = fedbench("plan", "tiny.yaml", "--format", "json", "--plugin", TINY, cwd=tmp_path)
    script = (
        "import sys\n"
        "from fedbench.cli import main\n"
        "main(['plan', 'tiny.yaml', '--format', 'json', '--plugin', sys.argv[1]], standalone_mode=False)\n"
        "assert not {'torch', 'scipy'} & set(sys.modules)\n"
    )
    second = subprocess.run(
        [sys.executable, "-c", script, TINY], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert json.loads(second.stdout) == json.loads(first.stdout)


def test_a_method_of_a_file_and_an_option_are_rows_of_a_suite_that_lists_neither(tmp_path):
    write_suite(tmp_path, "fedra")
    given = ("plan", "tiny.yaml", "--plugin", TINY)
    done = fedbench(
        *given, "--add", "odd", "--set", "methods.fedra.missing_layers=cover", "--format", "json", cwd=tmp_path
    )
    names = [name[1:3] for row in json.loads(done.stdout)["cells"] for name in row["names"]]
    assert names == [["fedra", ""], ["odd", ""], ["fedra (missing_layers=cover)", ""]]
    refused = fedbench(*given, "--add", "od", cwd=tmp_path)
    assert refused.exit_code == 2 and '--add od: no method is called "od"; did you mean "odd"?' in refused.output


@pytest.mark.parametrize("width", [60, 120])
def test_a_plan_breaks_no_name(tmp_path, width):
    write_suite(tmp_path, "{name: a_rather_long_name_for_it, extends: fedra}, {name: twin, extends: fedra}, allsmall")
    done = fedbench("plan", "tiny.yaml", "--plugin", TINY, "--seed", 0, "--seed", 1, cwd=tmp_path, columns=width)
    assert "a_rather_long_name_for_it (+1)" in done.stdout
    assert "4 cells under 6 names" in done.stdout


@pytest.mark.parametrize("width", [44, 60, 100])
def test_a_terminal_has_room_for_every_line(width):
    """The status of a tuning is the longest. What has no room beside other columns stands in a table below them."""
    amounts = {"images": 23_040, "flops": 10**11, "bytes_down": 10**8, "bytes_up": 10**6, "rounds": 12}
    own = {"names": [("all_6", "head_only", "", 0)], "id": "a", "status": "pending", **amounts}
    tuned = {"ids": ["b", "c"], "status": "1,024 of 2,048 tried", "unpriced": 12}
    rows = [own, {**own, "names": [("mixed_10", "head_only", "", None)], **tuned}]
    screen = Screen(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    show(plan("s", rows, []), screen)
    lines = screen.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    for text in ("head_only", "23,040", "100 GFLOPs", "100 MB", "1.00 MB", "1,024 of 2,048 tried, 12 ?"):
        assert any(text in line for line in lines), text


def test_a_plan_takes_times_from_past_runs_and_else_says_that_they_are_not_known(tmp_path):
    write_suite(tmp_path, "fedra, {name: breaks, extends: odd, how: exit}, allsmall")
    words = ("plan", "tiny.yaml", "--plugin", TINY, "--results", "r", "--cost", "--jobs", 2, "--device", "cpu")
    told = fedbench(*words, cwd=tmp_path, columns=80).stdout
    assert max(map(len, told.splitlines())) <= 80
    assert ["method", "examples", "FLOPs", "down", "up", "status"] in [line.split() for line in told.splitlines()]
    said = " ".join(told.split())
    assert "How long it takes on 2 cores is not known: no cell of these kinds has run on this machine." in said
    planned = json.loads(fedbench(*words, "--format", "json", cwd=tmp_path).stdout)
    assert {cell["seconds"] for cell in planned["cells"]} == {None} and planned["time"]["cells_unknown"] == 3

    run("--method", "fedra", cwd=tmp_path)
    seeds = ("--seed", 0, "--seed", 1)
    planned = json.loads(fedbench(*words, *seeds, "--format", "json", cwd=tmp_path).stdout)
    cells = {(cell["names"][0][1], cell["names"][0][3]): cell for cell in planned["cells"]}
    assert cells["fedra", 0]["seconds_from"] == "run" and cells["fedra", 1]["seconds_from"] == "past runs"
    assert cells["fedra", 1]["seconds"] > 0 and cells["allsmall", 0]["seconds"] is None
    assert 0 < planned["time"]["seconds_left"] <= planned["time"]["seconds"]
    assert (planned["time"]["workers"], planned["time"]["cells_unknown"]) == (2, 4)
    told = " ".join(fedbench(*words, *seeds, cwd=tmp_path).stdout.split())
    assert "on 2 cores, from past runs on this machine, without the 4 cells of kinds that have not run." in told


def test_a_plan_without_cost_times_nothing(tmp_path):
    write_suite(tmp_path)
    planned = json.loads(fedbench("plan", "tiny.yaml", "--format", "json", "--plugin", TINY, cwd=tmp_path).stdout)
    assert planned.keys() == {"suite", "cells"} and "seconds" not in planned["cells"][0]


def test_a_plan_survives_a_broken_method(tmp_path):
    (tmp_path / "bad.py").write_text(
        "from fedbench import hookimpl\n\ndef bad(setup):\n    raise KeyError('oops')\n\n"
        "@hookimpl\ndef fedbench_register_methods(register):\n    register('bad', bad)\n"
    )
    write_suite(tmp_path, "fedra, bad")
    done = fedbench("plan", "tiny.yaml", "--plugin", TINY, "--plugin", "bad.py", cwd=tmp_path)
    assert done.exit_code == 1
    assert "bad: KeyError: 'oops'" in done.stdout and "fedra" in done.stdout
    place = "(bad.py:4), in the method 'bad'; to check it: fedbench plugins check bad.py"
    assert place in (said := " ".join(done.stdout.split())) and "up, without the 1 cell marked failed." in said
    assert "marked" not in fedbench("plan", "tiny.yaml", "--plugin", TINY, "--method", "fedra", cwd=tmp_path).output
