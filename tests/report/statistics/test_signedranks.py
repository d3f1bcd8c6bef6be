"""fedbench/report/statistics/ranks.py: Wilcoxon's test of many rows is scipy's of each."""

from __future__ import annotations

import random
import sys

import pytest
from scipy.stats import wilcoxon

from fedbench.report.statistics.ranks import exact, signed_ranks


@pytest.mark.parametrize("n", [6, 50, 51])
@pytest.mark.parametrize("decimals", [12, 2, 1])
def test_every_row_has_scipys_p(n, decimals):
    """Of 12 decimals none tie, of one decimal nearly all, and zeros are among them."""
    chance = random.Random(n)
    rows = [[round(chance.gauss(0.1, 0.3), decimals) for _ in range(n)] for _ in range(4)]
    theirs = [float(wilcoxon(d, zero_method="zsplit").pvalue) for d in rows]
    assert signed_ranks(rows) == pytest.approx(theirs, rel=1e-12)


def test_nothing_but_zeros_is_one():
    assert signed_ranks([[0.0] * 6, [0.1, 0.1, 0.1, 0.1, 0.1, 0.1]]) == [1.0, 2 / 2**6]


def test_signs_are_counted_by_hand():
    """Ranks 1, 2.5, 2.5: of the eight sums 0, 1, 2.5, 2.5, 3.5, 3.5, 5, 6 two are as small as 1."""
    assert exact([1.0, -2.0, -2.0]) == 2 * 2 / 8
    # a zero has rank 1, half of it on either side of all signs: what is left is four sums, of which one is the largest
    assert exact([0.0, 3.0, 4.0]) == 2 / 4


def test_a_hundred_methods_take_no_call_of_scipys(monkeypatch):
    """Its import alone takes longer than all else that a table needs, and there are 4,950 pairs."""
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    chance = random.Random(0)
    rows = [[round(chance.gauss(0, 1), 12 if i % 2 else 1) for _ in range(20)] for i in range(200)]
    assert len(signed_ranks(rows)) == 200
