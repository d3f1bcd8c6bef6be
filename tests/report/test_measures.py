"""fedbench/report/measures.py: intervals and tests, by hand and against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.report.measures import sign_flip, t_quantile


@pytest.mark.parametrize("df", [1, 2, 3, 9, 29, 200])
def test_t_quantile_agrees_with_scipy(df):
    from scipy import stats

    assert t_quantile(0.95, df) == pytest.approx(stats.t.ppf(0.975, df), rel=1e-4)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=8))
def test_sign_flip_is_a_probability_and_blind_to_direction(d):
    d = np.array(d)
    p = sign_flip(d)
    assert 2 / 2 ** len(d) <= p <= 1
    assert sign_flip(-d) == p


def test_sign_flip_by_hand_and_by_draws():
    # |sum| >= 4 for +-(1 + 3), and the two patterns of 1 - 3 give 2: 2 of 4.
    assert sign_flip(np.array([1.0, 3.0])) == 0.5
    assert sign_flip(np.zeros(4)) == 1.0
    assert 0 < sign_flip(np.ones(20)) < 0.001
