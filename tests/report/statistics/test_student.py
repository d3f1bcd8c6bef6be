"""fedbench/report/statistics/pairs.py, Student's t, against scipy."""

from __future__ import annotations

import pytest
from scipy.stats import sem, t, ttest_rel

from fedbench.report.statistics.pairs import paired, student

VALUES = [0.31, 0.35, 0.28, 0.4, 0.33, 0.36]


@pytest.mark.parametrize("n", [3, 4, 6])
def test_an_interval_is_scipys(n):
    found, mean = student(VALUES[:n]), sum(VALUES[:n]) / n
    ends = t.interval(0.95, n - 1, loc=mean, scale=sem(VALUES[:n]))
    assert (found.low, found.high) == pytest.approx(ends, rel=1e-12)


@pytest.mark.parametrize("gap", [0.0, 0.02, 0.5, -3.0])
def test_a_paired_test_is_scipys(gap):
    theirs = [value * (1 + i / 10) - gap for i, value in enumerate(VALUES)]
    (found,) = paired({"a": dict(enumerate(VALUES)), "b": dict(enumerate(theirs))})
    assert found.p == pytest.approx(ttest_rel(VALUES, theirs).pvalue, rel=1e-12)
