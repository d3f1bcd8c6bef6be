"""Heat-maps of who trained what, against shares counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
from factories import eval_rows, prefix_rounds, round_row, write_cell

from fedbench.errors import UserError
from fedbench.report.pictures.heatmaps import allocation
from fedbench.report.plot_data import MOST_CLIENTS, boards
from fedbench.results import load

SCORES = eval_rows({2: {"solid": 0.5}})


def drawn(folder):
    (board,) = boards(load([folder]))
    figure = allocation(board)
    heats = {ax.get_title().split("\n")[0]: ax for ax in figure.axes if ax.images}
    bars = [ax for ax in figure.axes if ax.patches]
    return heats, dict(zip(heats, bars, strict=True))


def shown(ax) -> np.ndarray:
    return np.asarray(ax.images[0].get_array())


def test_colour_is_the_share_of_rounds_and_bars_are_clients_a_round(tmp_path):
    rounds = [
        round_row(1, 0, [0, 1, 2], capacity=3),
        round_row(1, 1, [0], capacity=1),
        round_row(2, 0, [0, 1, 2], capacity=3),
        round_row(2, 1, [2], capacity=1),
    ]
    write_cell(tmp_path / "s", "fedra", evaluation=SCORES, rounds=rounds, train__rounds=2)
    heats, bars = drawn(tmp_path)
    np.testing.assert_allclose(shown(heats["fedra"]), [[100, 100, 100], [50, 0, 50]])
    assert [bar.get_height() for bar in bars["fedra"].patches] == [1.5, 1, 1.5]
    assert [label.get_text() for label in heats["fedra"].get_yticklabels()] == ["0 · solid · 3", "1 · outline · 1"]
    assert heats["fedra"].get_title() == "fedra\nΓ* 1, cover 1.3"


def test_work_that_was_lost_does_not_count_and_a_changing_capacity_is_a_span(tmp_path):
    rounds = [round_row(1, 0, [0, 1]), round_row(2, 0, [0, 1, 2, 3], arrived=False)]
    write_cell(tmp_path / "s", "fedra", evaluation=SCORES, rounds=rounds)
    heats, _ = drawn(tmp_path)
    np.testing.assert_allclose(shown(heats["fedra"]), [[50, 50, 0, 0]])
    assert heats["fedra"].get_yticklabels()[0].get_text() == "0 · solid · 2 to 4"


def test_a_client_that_one_method_leaves_out_has_an_empty_row_there(tmp_path):
    write_cell(tmp_path / "s", "allsmall", evaluation=SCORES, rounds=prefix_rounds((2, 2, 2), 2))
    only_first = [round_row(t, 0, range(4)) for t in (1, 2)]
    write_cell(tmp_path / "s", "exclusive", evaluation=SCORES, rounds=only_first)
    heats, _ = drawn(tmp_path)
    np.testing.assert_allclose(shown(heats["exclusive"]), [[100] * 4, [0] * 4, [0] * 4])
    np.testing.assert_allclose(shown(heats["allsmall"]), [[100, 100, 0, 0]] * 3)


def test_a_client_that_is_not_asked_in_a_round_misses_nothing_in_it(tmp_path):
    rounds = [round_row(1, 0, [0]), round_row(2, 0, [0]), round_row(2, 1, [0])]
    write_cell(tmp_path / "s", "fedra", evaluation=SCORES, rounds=rounds, train__rounds=2)
    heats, bars = drawn(tmp_path)
    np.testing.assert_allclose(shown(heats["fedra"]), [[100], [100]])
    assert [bar.get_height() for bar in bars["fedra"].patches] == [1.5]


def test_a_round_without_anybody_counts_with_nobody(tmp_path):
    write_cell(tmp_path / "s", "exclusive", evaluation=SCORES, rounds=[round_row(1, 0, [0])], train__rounds=4)
    heats, bars = drawn(tmp_path)
    assert [bar.get_height() for bar in bars["exclusive"].patches] == [0.25]
    assert heats["exclusive"].get_title() == "exclusive\nΓ* 1, cover 0.2"


def test_many_clients_are_drawn_by_domain(tmp_path):
    many = prefix_rounds([2] * (MOST_CLIENTS + 6), 1)
    write_cell(tmp_path / "s", "fedra", evaluation=SCORES, rounds=many)
    heats, _ = drawn(tmp_path)
    labels = [label.get_text() for label in heats["fedra"].get_yticklabels()]
    assert labels == ["solid (5)", "outline (5)", "texture (5)", "dim (5)", "clutter (5)", "sketch (5)"]
    np.testing.assert_allclose(shown(heats["fedra"]), [[100, 100]] * 6)


def test_of_several_seeds_the_first_that_all_have_is_drawn(tmp_path):
    for method, seeds in (("fedra", (0, 1, 2)), ("allsmall", (2, 1))):
        for seed in seeds:
            rounds = [round_row(1, 0, range(seed + 1))]
            write_cell(tmp_path / "s", method, seed, evaluation=SCORES, rounds=rounds)
    heats, _ = drawn(tmp_path)
    assert shown(heats["fedra"]).shape == shown(heats["allsmall"]).shape == (1, 2)


def test_methods_without_a_common_seed_show_their_own_first(tmp_path):
    for method, seed in (("fedra", 0), ("allsmall", 1)):
        write_cell(tmp_path / "s", method, seed, evaluation=SCORES, rounds=[round_row(1, 0, range(seed + 1))])
    heats, _ = drawn(tmp_path)
    assert shown(heats["fedra"]).tolist() == [[100, 0]] and shown(heats["allsmall"]).tolist() == [[100, 100]]


def test_every_method_that_trains_layers_has_a_map_and_others_none(tmp_path):
    for i in range(5):
        write_cell(tmp_path / "s", "fedra", label=f"m{i}", evaluation=SCORES, rounds=prefix_rounds((2, 1), 1))
    write_cell(tmp_path / "s", "head_only", evaluation=SCORES, rounds=[round_row(1, 0, [], capacity=2)])
    heats, _ = drawn(tmp_path)
    assert list(heats) == [f"m{i}" for i in range(5)]


def test_nothing_trained_is_nothing_to_draw(tmp_path):
    write_cell(tmp_path / "s", "head_only", evaluation=SCORES, rounds=[round_row(1, 0, [])])
    with pytest.raises(UserError, match="mixed: no method of these results trains a layer"):
        drawn(tmp_path)
