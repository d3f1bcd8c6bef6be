"""fedbench/report/statistics/pairs.py, corrections, against scipy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.report.statistics.pairs import benjamini_hochberg

SOME = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@given(SOME)
def test_equals_scipy(p):
    from scipy.stats import false_discovery_control

    assert benjamini_hochberg(p) == pytest.approx(list(false_discovery_control(p)))


@given(SOME, st.randoms())
def test_monotone_never_below_p_and_blind_to_order(p, random):
    q = benjamini_hochberg(p)
    assert all(a >= b - 1e-15 for a, b in zip(q, p, strict=True)) and max(q) <= 1
    pairs = sorted(zip(p, q, strict=True))
    assert [b for _, b in pairs] == sorted(b for _, b in pairs)
    order = list(range(len(p)))
    random.shuffle(order)
    assert benjamini_hochberg([p[i] for i in order]).tolist() == [q[i] for i in order]


def test_none_and_one():
    assert benjamini_hochberg([]).tolist() == []
    assert benjamini_hochberg([0.03]).tolist() == [0.03]
