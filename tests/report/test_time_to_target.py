"""fedbench compare reach: what methods needed until they first scored so much, by hand."""

from __future__ import annotations

import csv
import io
import json

import pytest
from boards import texts
from command import fedbench
from factories import eval_rows, round_row, write_cell

from fedbench.errors import UserError
from fedbench.report.leaderboards import leaderboards
from fedbench.report.views.costs import read_target, time_to_target
from fedbench.results import load
from fedbench.results.scores import reaches

MB = 1_000_000


def cell(folder, method, seed, scores, energy=None, duration=None, metric="accuracy"):
    """Two clients of 1 MB and 3 GFLOPs a round each, tested after rounds 2, 4, ..."""
    T = 2 * len(scores)
    rounds = [
        round_row(t, n, [], bytes_down=MB, flops=3 * 10**9, energy=energy) for t in range(1, T + 1) for n in range(2)
    ]
    clock = [
        {"round": t, "clients": 2, "duration": duration, "server_seconds": 0.0, "idle_share": 0.0}
        for t in range(1, T + 1)
        if duration
    ]
    rows = eval_rows({2 * (i + 1): {"a": value} for i, value in enumerate(scores)}, metric)
    write_cell(folder / "s", method, seed, evaluation=rows, rounds=rounds, clock=clock or None)


def table(folder, target, metric="accuracy"):
    """By method, the texts of its line."""
    found = texts(time_to_target(leaderboards(load([folder]), metric), target))
    names = found.pop("method")
    return {name: {title: cells[i] for title, cells in found.items()} for i, name in enumerate(names)}


@pytest.mark.parametrize(
    ("text", "metric", "target"),
    [
        *[(text, "accuracy", 0.8) for text in ("80%", "80 %", "80", "0.8", ".8")],
        ("62.5", "accuracy/last", 0.625),
        ("1", "accuracy", 1.0),
        ("0.5%", "accuracy", 0.005),
        ("1.5", "loss", 1.5),
    ],
)
def test_targets_as_people_write_them(text, metric, target):
    assert read_target(text, metric) == pytest.approx(target)


@pytest.mark.parametrize(
    ("text", "metric"), [("0", "accuracy"), ("101%", "accuracy"), ("", "accuracy"), ("much", "loss"), ("80%", "loss")]
)
def test_what_no_score_can_be_is_refused(text, metric):
    with pytest.raises(UserError, match=f"which is what {metric} can reach"):
        read_target(text, metric)


def test_the_first_test_that_is_so_good_counts_and_what_it_took_is_a_mean_over_who_got_there(tmp_path):
    cell(tmp_path, "fedra", 0, [0.5, 0.8, 0.7])  # after round 4: 4 rounds x 2 clients x 1 MB
    cell(tmp_path, "fedra", 1, [0.5, 0.6, 0.9])  # after round 6
    cell(tmp_path, "fedra", 2, [0.5, 0.6, 0.7])  # never
    cell(tmp_path, "allsmall", 0, [0.1, 0.2, 0.3])
    found = table(tmp_path, "80%")
    costs = {"bytes": "10.0 MB", "FLOPs": "30.0 GFLOPs"}
    assert found["fedra"] == {"reached": "2", "of seeds": "3", "round": "5.0", **costs}
    assert found["allsmall"] == {"reached": "0", "of seeds": "1", "round": "", "bytes": "", "FLOPs": ""}


def test_an_average_is_as_good_as_the_scores_that_it_is_of(tmp_path):
    """The mean of six times 0.8 is 0.7999999999999999 in floating point."""
    domains = dict.fromkeys("abcdef", 0.8)
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({2: domains}), rounds=[round_row(2, 0, [])])
    assert table(tmp_path, "80%")["fedra"]["reached"] == "1"
    assert table(tmp_path, "80.0001%")["fedra"]["reached"] == "0"
    assert not reaches(0.8 - 1e-9, 0.8, "accuracy")
    assert reaches(0.1 + 0.2, 0.3, "loss") and not reaches(0.300001, 0.3, "loss")


def test_with_devices_there_are_simulated_time_and_energy_too(tmp_path):
    cell(tmp_path, "fedra", 0, [0.5, 0.8], energy=250.0, duration=60.0)
    cell(tmp_path, "depthfl", 0, [0.8, 0.8], duration=45.0)
    found = table(tmp_path, "0.8")
    assert found["fedra"] == {
        "reached": "1",
        "of seeds": "1",
        "round": "4",
        "simulated": "4 min 00 s",
        "bytes": "8.00 MB",
        "FLOPs": "24.0 GFLOPs",
        "energy": "2.00 kJ",
    }
    assert (found["depthfl"]["simulated"], found["depthfl"]["energy"]) == ("1 min 30 s", "")


def test_a_loss_is_reached_from_above(tmp_path):
    cell(tmp_path, "fedra", 0, [2.0, 0.9, 0.4], metric="loss")
    assert table(tmp_path, "0.9", "loss")["fedra"]["round"] == "4"


def test_programs_have_every_quantity_and_a_row_for_who_never_got_there(tmp_path):
    cell(tmp_path, "fedra", 0, [0.5, 0.8])
    cell(tmp_path, "allsmall", 0, [0.1, 0.2])
    out = fedbench("compare", "reach", "80%", "s", "--format", "csv", cwd=tmp_path).stdout
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(r["method"], r["rounds"], r["bytes"], r["flops"], r["n_reached"]) for r in rows] == [
        ("fedra", "4.0", "8000000.0", "24000000000.0", "1"),
        ("allsmall", "", "", "", "0"),
    ]
    out = fedbench("compare", "reach", "80%", "s", "--format", "json", cwd=tmp_path).stdout
    assert json.loads(out)["target"] == 0.8


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("80%", "s", "--at", "best"), "No such option"),
        (("80%", "s", "--baseline", "fedra"), "No such option"),
        (("x", "s"), "such as 80%"),
    ],
)
def test_what_means_nothing_to_it_is_refused(tmp_path, words, told):
    cell(tmp_path, "fedra", 0, [0.5, 0.8])
    done = fedbench("compare", "reach", *words, cwd=tmp_path)
    assert done.exit_code == 2 and told in done.output


def test_eighty_columns_are_enough(tmp_path):
    cell(tmp_path, "inclusivefl", 0, [0.5, 0.8], energy=250.0, duration=6000.0)
    cell(tmp_path, "inclusivefl", 1, [0.5, 0.8], energy=250.0, duration=6000.0)
    text = fedbench("compare", "reach", "80%", "s", cwd=tmp_path, columns=80).output
    assert max(map(len, text.splitlines())) <= 80 and "6 h 40 min" in text
