"""A suite of one cell."""

from __future__ import annotations

import pytest
from factories import eval_rows, layer_row, write_cell
from samples import VALUES


@pytest.fixture
def one_cell(tmp_path):
    suite = tmp_path / "results" / "s"
    return write_cell(suite, "fedra", evaluation=eval_rows(VALUES), layers=[layer_row(1, 0)])
