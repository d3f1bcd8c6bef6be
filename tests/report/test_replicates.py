"""What is tested where seeds share who has which size: draws, on every leaderboard and in every view."""

from __future__ import annotations

import math

import pytest
from boards import ROLES, board, row
from factories import CAPACITIES, ORDERS, eval_rows, rotated, write_cell

from fedbench.report.grouping import draws_of
from fedbench.report.leaderboards import leaderboards
from fedbench.report.standings import standings
from fedbench.report.views.leaderboard import MEANINGS, leaderboard, subtitle
from fedbench.report.views.pairs import pairs
from fedbench.report.views.summary import summary
from fedbench.results import load

SEEDS = range(10)
EFFECT = (0.00, 0.05, 0.10, 0.15, 0.20, 0.30)  # of the six rotations on fedra alone


def write(folder, capacities, scenario="mixed", seeds=SEEDS, **options):
    """Two methods, the difference between which hangs on the seed modulo six."""
    for seed in seeds:
        for method, value in (("fedra", 0.5 + EFFECT[seed % 6]), ("depthfl", 0.48 + seed / 1000)):
            given = {"by_client": list(capacities(seed))}
            rows = eval_rows({12: {"a": value, "b": value}})
            write_cell(folder / "s", method, seed, scenario=scenario, capacities=given, evaluation=rows, **options)


def test_seeds_that_repeat_a_rotation_are_one_draw_of_the_test(tmp_path):
    write(tmp_path, rotated)
    found = board(tmp_path)
    assert found.draws == {seed: seed % 6 for seed in SEEDS} and found.replicate == "draw"
    (pair,) = found.pairs
    assert (pair.n, pair.n_seeds) == (6, 10)
    means = [
        0.02 + EFFECT[draw] - sum(s / 1000 for s in SEEDS if s % 6 == draw) / (1 + (draw < 4)) for draw in range(6)
    ]
    assert pair.values == pytest.approx(means) and pair.difference == pytest.approx(sum(means) / 6)
    average = row(found, "fedra").average
    assert (average.n, average.mean) == (6, pytest.approx(0.5 + sum(EFFECT) / 6))


def test_the_board_says_how_many_draws_of_how_many_seeds(tmp_path):
    write(tmp_path / "ten", rotated)
    write(tmp_path / "twelve", rotated, seeds=range(12))
    assert "mean of 6 draws of 1 to 2 seeds, ± their standard deviation" in subtitle(board(tmp_path / "ten"))
    assert "mean of 6 draws x 2 seeds" in subtitle(board(tmp_path / "twelve"))
    for made in (leaderboard([board(tmp_path / "ten")]), pairs([board(tmp_path / "ten")])):
        assert set(made["n_seeds"]) == {10} and set(made["n_draws"]) == {6}
        assert MEANINGS["n_draws"] in made.attrs["legend"]


@pytest.mark.parametrize(
    "capacities",
    [lambda seed: [6] * 6, lambda seed: ORDERS[seed], lambda seed: CAPACITIES],
    ids=["equal", "shuffled", "never moved"],
)
def test_with_equal_shuffled_or_fixed_sizes_a_seed_is_a_replicate(tmp_path, capacities):
    write(tmp_path, capacities)
    found = board(tmp_path)
    assert (
        found.replicate == "seed" and [pair.n for pair in found.pairs] == [10] and "mean of 10 seeds" in subtitle(found)
    )
    assert leaderboard([found])["n_draws"].isna().all()


def test_two_draws_of_many_seeds_conclude_nothing(tmp_path):
    write(tmp_path, lambda seed: (12, 3) if seed % 2 else (3, 12))
    found = leaderboard([board(tmp_path)])
    assert "2 draws: too few to say which method is best; that takes at least three draws." in str(found.attrs["pages"])
    assert all(math.isnan(pair.p) for pair in board(tmp_path).pairs) and not any(found["group"])


def test_a_method_that_reads_no_sizes_is_tested_over_the_draws_of_the_others(tmp_path):
    write(tmp_path, rotated)
    for seed in SEEDS:
        rows = eval_rows({12: {"a": 0.4 + seed / 100, "b": 0.4}})
        write_cell(tmp_path / "s", "head_only", seed, capacities={"by_client": list(rotated(seed))}, evaluation=rows)
    assert {pair.n for pair in board(tmp_path).pairs} == {6}


def test_over_scenarios_draws_of_one_are_draws_of_all(tmp_path):
    write(tmp_path, rotated)
    write(tmp_path, lambda seed: [6] * 6, scenario="equal")
    boards = leaderboards(load([tmp_path]), roles=ROLES)
    (standing,) = standings(boards)
    assert [pair.n for pair in standing.pairs] == [6] and [found.pairs[0].n for found in boards] == [6, 10]
    assert "mean of 10 seeds or 6 draws of 1 to 2 seeds" in str(summary([standing]).attrs["pages"])


def test_seeds_under_which_methods_have_different_sizes_are_one_draw_only_if_all_agree():
    def cell(*values):
        return {"capacities": {"by_client": list(values)}}

    assert draws_of([(0, cell(1, 2)), (1, cell(2, 1)), (2, cell(1, 2))]) == {0: 0, 1: 1, 2: 0}
    assert draws_of([(0, cell(1, 2)), (0, cell(2, 1)), (1, cell(1, 2))]) == {0: 0, 1: 1}
    assert draws_of([(5, {"devices": {"shares": {"phone": 1}}}), (6, {})]) == {5: 5, 6: 6}
