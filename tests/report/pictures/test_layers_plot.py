"""Lines over layers and heat-maps over rounds, against means by hand."""

from __future__ import annotations

import numpy as np
import pytest
from factories import eval_rows, layer_row, write_cell

from fedbench.errors import UserError
from fedbench.report.pictures.heatmaps import layers
from fedbench.report.plot_data import boards
from fedbench.results import load

SCORES = eval_rows({2: {"solid": 0.5}})
NAN = float("nan")
NOBODY = dict(holders=0, update_norm=0.0, client_update_norm=NAN, aggregation_error=NAN, product_norm=NAN)


def drawn(folder):
    (board,) = boards(load([folder]))
    figure = layers(board)
    lines = {
        ax.get_title(): {line.get_label(): line.get_ydata() for line in ax.lines} for ax in figure.axes if ax.lines
    }
    return lines, {ax.get_title(): np.asarray(ax.images[0].get_array()) for ax in figure.axes if ax.images}


def test_lines_are_means_over_rounds_and_seeds(tmp_path):
    for seed, norm in ((0, 0.2), (1, 0.4)):
        rows = [
            layer_row(1, 0, 2, update_norm=norm, aggregation_error=0.1, product_norm=1.0),
            layer_row(1, 1, **NOBODY),
            layer_row(2, 0, 4, update_norm=3 * norm, aggregation_error=0.5, product_norm=3.0),
            layer_row(2, 1, 1, update_norm=norm, aggregation_error=0.0, product_norm=2.0),
        ]
        write_cell(tmp_path / "s", "fedra", seed, evaluation=SCORES, layers=rows)
    lines, heats = drawn(tmp_path)
    np.testing.assert_allclose(lines["clients a round"]["fedra"], [3, 0.5])
    np.testing.assert_allclose(lines["update norm"]["fedra"], [0.6, 0.15])
    np.testing.assert_allclose(lines["aggregation error (% of product)"]["fedra"], [15, 0])
    np.testing.assert_allclose(heats["fedra"], [[0.3, 0], [0.9, 0.3]])


def test_a_layer_that_nobody_ever_trained_has_no_error(tmp_path):
    rows = [layer_row(1, 0), layer_row(1, 1, **NOBODY)]
    write_cell(tmp_path / "s", "allsmall", evaluation=SCORES, layers=rows)
    lines, _ = drawn(tmp_path)
    error = lines["aggregation error (% of product)"]["allsmall"]
    assert error[0] == pytest.approx(10) and np.isnan(error[1])


def test_methods_stand_side_by_side_and_those_without_adapters_stay_out(tmp_path):
    for i in range(5):
        rows = [layer_row(t, j) for t in (1, 2) for j in range(3)]
        write_cell(tmp_path / "s", "fedra", label=f"m{i}", evaluation=SCORES, layers=rows)
    write_cell(tmp_path / "s", "head_only", evaluation=SCORES, layers=[])
    lines, heats = drawn(tmp_path)
    assert len(lines) == 3
    assert list(heats) == list(lines["update norm"]) == [f"m{i}" for i in range(5)]


def test_adapters_that_are_not_products_leave_that_panel_empty(tmp_path):
    rows = [layer_row(1, j, aggregation_error=NAN, product_norm=NAN) for j in range(2)]
    write_cell(tmp_path / "s", "fedra", evaluation=SCORES, layers=rows)
    lines, _ = drawn(tmp_path)
    assert np.isnan(lines["aggregation error (% of product)"]["fedra"]).all()


def test_cells_without_layers_are_refused(tmp_path):
    write_cell(tmp_path / "s", "head_only", evaluation=SCORES, layers=[])
    with pytest.raises(UserError, match="no method of these results has adapters"):
        drawn(tmp_path)
    write_cell(tmp_path / "s", "fedra", evaluation=SCORES)
    with pytest.raises(UserError, match="--force"):
        drawn(tmp_path)
