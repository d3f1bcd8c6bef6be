"""fedbench/report/statistics/pairs.py: verdicts of every two methods."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.report.statistics.pairs import turned, verdicts

NOISE = (0.0, 0.004, -0.004, 0.002, -0.002)


def told(margin=0.01, higher=True, **by_method):
    scores = {name: dict(enumerate(np.array(values).tolist())) for name, values in by_method.items()}
    return by_names(verdicts(scores, higher, margin))


def by_names(found):
    return {(pair.method, pair.other): pair for pair in found}


def around(mean, spread=1.0):
    return [mean + spread * e for e in NOISE]


def test_better_equal_worse_and_not_told():
    flat = [0.5] * 5
    found = told(high=around(0.7), flat=flat, close=around(0.5), wide=around(0.5, 20))
    assert found["high", "flat"].verdict == "better" and not found["high", "flat"].within
    assert found["flat", "close"].verdict == "equal" and found["flat", "close"].within
    assert found["flat", "wide"].verdict == "inconclusive"
    scores = {"high": dict(enumerate(around(0.7))), "flat": dict(enumerate(flat))}
    (pair,) = verdicts(scores, True, 0.01)
    other = turned(pair)
    assert (other.verdict, other.method, other.difference) == ("worse", "flat", -pair.difference)
    assert other.ci_low == -pair.ci_high


def test_significant_and_within_the_margin_is_better_all_the_same():
    pair = told(one=around(0.506, 0.5), two=[0.5] * 5)["one", "two"]
    assert pair.verdict == "better" and pair.within
    assert not told(one=around(0.506, 0.5), two=[0.5] * 5, margin=0.005)["one", "two"].within


def test_lower_is_better_for_a_loss_and_nothing_is_equal_without_a_margin():
    found = told(one=around(0.7), two=[0.5] * 5, three=[0.5] * 5, higher=False, margin=None)
    assert found["one", "two"].verdict == "worse"
    assert found["two", "three"].verdict == "inconclusive"


def test_too_few_seeds_are_not_told_and_take_no_part_in_the_correction():
    found = told(one=[0.9, 0.9], two=[0.1, 0.1], three=[0.2, 0.3])
    assert {pair.verdict for pair in found.values()} == {"inconclusive"}
    assert all(np.isnan(pair.q) for pair in found.values())
    assert verdicts({"one": {0: 1.0}, "two": {1: 1.0}}, True, None) == []


def test_the_correction_is_over_the_pairs_of_a_leaderboard():
    two = {"a": dict(enumerate(around(0.52))), "b": dict.fromkeys(range(5), 0.51)}
    more = {str(i): dict(enumerate(around(0.5, 1 + i))) for i in range(8)}
    (alone,) = verdicts(two, True, None)
    beside = by_names(verdicts({**two, **more}, True, None))["a", "b"]
    assert alone.q == alone.p == beside.p < 0.05 and beside.q > alone.p


@given(st.permutations(range(6)), st.integers(0, 1000))
def test_the_order_of_methods_does_not_matter(order, seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(np.linspace(0, 0.1, 6)[:, None], 0.02, (6, 5))
    scores = {f"m{i}": dict(enumerate(values[i].tolist())) for i in range(6)}
    shuffled = {f"m{i}": scores[f"m{i}"] for i in order}
    other = verdicts(shuffled, True, 0.01)
    both = by_names(other) | by_names(map(turned, other))
    for pair in verdicts(scores, True, 0.01):
        same = both[pair.method, pair.other]
        assert (same.verdict, same.within) == (pair.verdict, pair.within)
        assert (same.difference, same.p, same.q) == pytest.approx((pair.difference, pair.p, pair.q))
