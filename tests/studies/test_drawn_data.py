"""drawn_data.py: the width of an interval with drawn data over that with the same data for all seeds."""

from __future__ import annotations

import pytest
from drawn_data import ratios
from factories import eval_rows, write_cell


def test_differences_that_scatter_twice_as_much_have_intervals_twice_as_wide(tmp_path):
    for folder, scale in (("fixed", 1), ("drawn", 2)):
        for seed, value in enumerate((0.01, 0.03, 0.08)):
            for method, score in (("fedra", 0.5 + scale * value), ("head_only", 0.4)):
                rows = eval_rows({12: {"a": score, "b": score}})
                draw = seed if folder == "drawn" else 0
                write_cell(tmp_path / folder / "s", method, seed, data__draw=draw, evaluation=rows)
    found = ratios(tmp_path / "fixed", tmp_path / "drawn")
    assert found == {("fedra", "head_only"): pytest.approx(2)}
