"""What compare does with many cells grows with their number, and not with its square."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import pytest

from fedbench.report.grouping import Place
from fedbench.report.leaderboards import Leaderboard, Row, concluded
from fedbench.report.render import render
from fedbench.report.run_scores import RunScores, score
from fedbench.report.scenarios import lettered, standings, summary
from fedbench.results import Result
from fedbench.results.diff import differences, settings, shared
from fedbench.results.index import Entry


def boards(scenarios):
    """Two methods with a seed each."""
    return concluded([_board(f"scenario {i}", i / scenarios) for i in range(scenarios)])


def _board(name, value):
    rows = []
    for method in ("fedra", "depthfl"):
        run = RunScores(0, 1, {}, {}, value, value)
        rows.append(Row(method, "", "accuracy", "finished", [run], {}, score({0: value}, {}), None, None, None, []))
    place = Place("s", name, "", "micro_vit", "strokes6", "paper")
    return Leaderboard(place, "accuracy", "test", "final", None, None, [], rows, [f"a note on {name}"])


def results(side, count):
    """Cells that failed, whose tables nobody reads."""
    return [
        Result(
            "s",
            Entry(f"s{i}", "fedra", "", 0, f"s{i}-0123456789ab", "micro_vit", "strokes6", "paper"),
            Path(side) / f"s{i}",
            {"status": "failed", "config": {"train": {"rounds": 3}}, "versions": {"torch": side}},
        )
        for i in range(count)
    ]


def summed_up(count):
    found = boards(count)
    return lambda: [render(lettered(summary(standings(found))), form) for form in ("markdown", "csv")]


def set_against(count):
    sides = results("before", count), results("after", count)

    def compared():
        pairs = [(one.manifest, other.manifest) for one, other in zip(*sides, strict=True)]
        return shared(*sides), settings(pairs), differences(*sides)

    return compared


@pytest.mark.parametrize(("prepare", "few"), [(summed_up, 25), (set_against, 200)])
def test_eight_times_as_many_take_no_forty_times_as_long(prepare, few):
    """Eight times as long is fair, and a square would be 64 times."""
    prepare(few)()  # imports
    spent = []
    for count in (few, 8 * few):
        work, best = prepare(count), float("inf")
        for _ in range(2):
            began = process_time()
            work()
            best = min(best, process_time() - began)
        spent.append(best)
    assert spent[1] < 24 * spent[0]
