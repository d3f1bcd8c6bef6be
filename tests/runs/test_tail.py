"""In which order the last cells of a run are begun."""

from types import SimpleNamespace

import pytest

from fedbench.runs.tail import longest_last_ones_first

CELLS = [SimpleNamespace(id=name) for name in "abcdefg"]
FLOPS = {"a": 1, "b": 9, "c": 10, "d": 13, "e": 3, "f": 2, "g": 4}
TOTALS = {id: {"flops": flops, "images": 10, "tested": 5} for id, flops in FLOPS.items()}


@pytest.mark.parametrize(
    ("workers", "order"), [(1, "abcdefg"), (2, "abcdgef"), (3, "adcbgef"), (4, "dcbgefa"), (9, "dcbgefa")]
)
def test_the_last_two_for_each_worker_begin_with_the_longest(workers, order):
    assert "".join(cell.id for cell in longest_last_ones_first(CELLS, TOTALS, workers)) == order


def test_testing_counts_and_what_is_not_known_comes_last():
    totals = {**TOTALS, "f": {"flops": 2, "images": 10, "tested": 500}, "d": {}}
    assert "".join(cell.id for cell in longest_last_ones_first(CELLS, totals, 2)) == "abcfged"
    assert longest_last_ones_first([], {}, 2) == []
