"""Every kind of picture can be read, whatever there is to draw: nothing is cut, and no two words overlap."""

from __future__ import annotations

from dataclasses import replace

import pandas
import pytest
from legible import wrong
from matplotlib.figure import Figure

from fedbench.report.leaderboards import leaderboards
from fedbench.report.pareto import pareto as fronts
from fedbench.report.pictures.heatmaps import allocation, layers
from fedbench.report.pictures.panels import curves, pareto
from fedbench.report.pictures.rank_diagram import diagram
from fedbench.report.plot_data import boards
from fedbench.report.scenarios import standings
from fedbench.results import Found, examine
from fedbench.results.result import COMPARED

LONG = "a_method_whose_name_is_longer_than_anybody_would_like_{}"
SCENARIO = "a scenario that is told in many words · backbone=micro_vit(weights_seed={}) · train.optimizer.lr=0.0123"


def read(suite, variant, *also):
    """One seed of one leaderboard."""
    there = examine([f"results/reference/{suite}"]).results
    there = [r for r in there if r.entry.seed == 0 and r.entry.variant.startswith(variant)]
    return Found(there, []).read((*COMPARED, *also)).results


@pytest.fixture(scope="module")
def results():
    return read("feature_skew", "backbone=micro_vit;")


@pytest.fixture(scope="module")
def everything():
    return read("fashion", "")


@pytest.fixture(scope="module")
def skew():
    return boards(read("feature_skew", ""))


@pytest.fixture(scope="module")
def tuned():
    (board,) = boards(read("feature_skew_tuned", "backbone=micro_vit", "layers"))
    return board


def many(board, panels, methods, long):
    """So many leaderboards of so many methods, all of them the reference's under other names."""
    parts = list(board.methods.values())
    named = {LONG.format(i) if long else f"method {i}": parts[i % len(parts)] for i in range(methods)}
    board = replace(board, methods=named, shared=f"{SCENARIO} and {SCENARIO}" if long else board.shared)
    return [replace(board, title=SCENARIO.format(i) if long else f"all_{i}") for i in range(panels)]


@pytest.mark.slow
def test_curves_of_the_reference_results_can_be_read(skew):
    assert wrong(curves(skew)) == []
    assert wrong(curves(skew[:1], x="bytes", by_domain=True)) == []


@pytest.mark.parametrize(
    ("panels", "methods", "long"),
    [(3, 12, True)] + [pytest.param(*many, marks=pytest.mark.slow) for many in ((12, 20, False), (12, 2, True))],
)
def test_curves_of_many_can_be_read(skew, panels, methods, long):
    assert wrong(curves(many(skew[0], panels, methods, long))) == []


@pytest.mark.parametrize(("panels", "methods"), [(1, 20), pytest.param(12, 3, marks=pytest.mark.slow)])
def test_fronts_of_many_can_be_read(skew, results, panels, methods):
    points = pandas.DataFrame(fronts(leaderboards(results), "bytes").cells)
    (board,) = many(skew[0], 1, methods, True)
    named = points.iloc[[i % len(points) for i in range(len(board.methods))]].assign(method=list(board.methods))
    assert wrong(pareto({SCENARIO.format(i): named for i in range(panels)}, "bytes")) == []


@pytest.mark.parametrize("methods", [1, pytest.param(12, marks=pytest.mark.slow)])
def test_allocations_and_layers_can_be_read(skew, methods, tuned):
    assert wrong(allocation(many(skew[0], 1, methods, True)[0])) == []
    assert wrong(layers(many(tuned, 1, methods, True)[0])) == []


def test_ranks_can_be_read(everything, monkeypatch):
    monkeypatch.setattr("fedbench.report.scenarios.RANKS_FROM", 2)
    (standing,) = standings(leaderboards(everything))
    names = {old: LONG.format(i) for i, old in enumerate(standing.methods)}
    other = replace(
        standing,
        methods=list(names.values()),
        mean_ranks={names[old]: rank for old, rank in standing.mean_ranks.items()},
        groups={names[old]: "abcdefgh" for old in standing.methods},
    )
    assert wrong(diagram(other)) == []


def test_words_that_cannot_be_read_are_found():
    figure = Figure(figsize=(2, 2))
    figure.text(0.1, 0.5, "one")
    figure.text(0.12, 0.5, "two")
    figure.text(0.9, 0.9, "far too long for the room that is left")
    assert [line.partition(":")[0] for line in wrong(figure)] == ["cut", "overlap"]
