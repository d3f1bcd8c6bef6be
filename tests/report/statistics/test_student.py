"""fedbench/report/statistics/intervals.py, Student's t, against scipy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.report.statistics.intervals import quantile, two_sided


@given(t=st.floats(-50, 50), df=st.integers(1, 60))
def test_the_closed_form_is_students_t(t, df):
    from scipy.special import stdtr

    assert two_sided(t, df) == pytest.approx(2 * stdtr(df, -abs(t)), rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("df", [1, 2, 3, 9, 29, 200])
def test_the_quantile_is_scipys(df):
    from scipy.special import stdtrit

    assert quantile(0.95, df) == pytest.approx(stdtrit(df, 0.975), rel=1e-9)


def test_infinitely_far_is_never():
    assert two_sided(float("inf"), 4) == 0.0
    assert two_sided(0.0, 4) == 1.0
