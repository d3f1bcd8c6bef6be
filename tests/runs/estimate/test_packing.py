"""Cells packed on processes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.runs.estimate import side_by_side


@pytest.mark.parametrize(
    ("seconds", "workers", "in_all"),
    [
        ([], 2, 0),
        ([5], 4, 5),
        ([3, 3, 3], 1, 9),
        ([4, 1, 1, 1, 1], 2, 4),
        ([1, 1, 1, 1, 4], 2, 6),  # the long one comes last and starts last
        ([2, 3, 4], 2, 6),
    ],
)
def test_a_cell_starts_on_the_process_that_is_free_first(seconds, workers, in_all):
    assert side_by_side(seconds, workers) == in_all


@given(st.lists(st.integers(0, 100), min_size=1), st.integers(1, 8))
def test_a_packing_is_between_its_bounds(seconds, workers):
    in_all = side_by_side(seconds, workers)
    assert max(max(seconds), sum(seconds) / workers) <= in_all <= sum(seconds) / workers + max(seconds)
