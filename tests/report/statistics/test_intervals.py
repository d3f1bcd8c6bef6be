"""fedbench/report/statistics/pairs.py: by hand, and against scipy's bootstrap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.report.statistics.pairs import BCA_FROM, Interval, bca, deviation, interval


def test_few_seeds_have_students_interval():
    # Mean 0.4, s = 0.1, t(2) = 4.30265.
    found = interval([0.3, 0.4, 0.5])
    assert found.kind == "t"
    assert (found.low, found.high) == pytest.approx((0.4 - 4.302653 * 0.1 / 3**0.5, 0.4 + 4.302653 * 0.1 / 3**0.5))


def test_two_seeds_have_none_and_nor_has_what_diverged():
    assert interval([0.3, 0.4]) is None
    assert interval([0.3, float("nan"), 0.4]) is None


@pytest.mark.parametrize("skewed", [False, True])
def test_bca_is_scipys(skewed):
    from scipy.stats import bootstrap

    rng = np.random.default_rng(3)
    x = rng.lognormal(size=30) if skewed else rng.normal(size=30)
    theirs = bootstrap((x,), np.mean, method="BCa", n_resamples=20_000, random_state=1)
    theirs = theirs.confidence_interval
    found = interval(list(x))
    width = theirs.high - theirs.low
    assert found.kind == "bca"
    assert found.low == pytest.approx(theirs.low, abs=0.03 * width)  # what 9,999 draws may differ by
    assert found.high == pytest.approx(theirs.high, abs=0.03 * width)


@given(st.lists(st.floats(-1, 1), min_size=BCA_FROM, max_size=BCA_FROM + 3))
def test_the_order_of_seeds_does_not_matter_and_the_mean_is_inside(values):
    found = bca(values)
    assert bca(values[::-1]) == found
    assert found.low - 1e-9 <= np.mean(values) <= found.high + 1e-9


def test_equal_values_have_no_width():
    assert interval([0.1] * 25) == Interval(pytest.approx(0.1), pytest.approx(0.1), "bca")
    assert deviation([0.1] * 3) == 0.0
