"""fedbench/report/cost.py: what a run costs, worked out by hand."""

from __future__ import annotations

import pytest
from boards import board, shown
from factories import eval_rows, prefix_rounds, round_row, write_cell

from fedbench.report.cost import layer_coverage


def test_gamma_and_coverage_by_hand():
    # Round 1: layer 0 twice, layer 1 once. Round 2: layer 0 once, layer 1 by nobody whose work arrived.
    rounds, layers = [1, 1, 2, 2], [[0, 1], [0], [0], [1]]
    assert layer_coverage(rounds, layers, [True, True, True, False], 2) == (1, (2 + 1 + 1 + 0) / 4)
    assert layer_coverage([1, 1], [[0], [0]], [True, True], 1) == (2, 2.0)
    assert layer_coverage([1, 1], [[0], [0]], [True, True], 4) == (2, 0.5)  # three rounds without anybody
    assert layer_coverage([1], [[]], [True], 1) == (None, None)


def test_cost_by_hand(tmp_path):
    rounds = [round_row(1, 0, [0, 1]), round_row(1, 1, [0]), round_row(2, 0, [0, 1]), round_row(2, 1, [0])]
    write_cell(tmp_path / "s", "fedra", 1, evaluation=eval_rows({2: {"a": 1.0}}), rounds=rounds, train__rounds=2)
    cost = board(tmp_path).rows[0].cost
    assert (cost.bytes_down, cost.bytes_up, cost.gflops) == (1.5e6, 0.75e6, 3.0)
    assert (cost.total_bytes, cost.total_gflops, cost.client_rounds) == (9e6, 12.0, 4)
    assert (cost.total_bytes_up, cost.server_gflops, cost.exchange) == (3e6, None, {})
    assert (cost.gamma, cost.coverage, cost.memory_bytes, cost.seconds) == (1, 1.5, 20e6, 21.0)


@pytest.mark.parametrize("train", [{}, {"rounds": 0}, {"rounds": -3}])
def test_a_strangers_configuration_that_knows_no_rounds_is_no_fault(tmp_path, train):
    rounds = [round_row(1, 0, [0]), round_row(2, 0, [0])]
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({2: {"a": 1.0}}), rounds=rounds, train=train)
    assert board(tmp_path).rows[0].cost.coverage == 1.0


def test_run_in_which_nobody_took_part_has_no_cost(tmp_path):
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({2: {"a": 1.0}}), rounds=[])
    assert board(tmp_path).rows[0].cost is None
    assert "down + up" not in shown([board(tmp_path)])


def test_prefix_rounds_cover_the_top_layer_once():
    rows = prefix_rounds(rounds=1)
    assert layer_coverage([r["round"] for r in rows], [r["layers"] for r in rows], [True] * 6, 3)[0] == 1
