"""fedbench/report/statistics/ranks.py against Demsar's worked example (JMLR 7, 2006, Table 6) and by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.report.statistics.ranks import (
    WILCOXON_FROM,
    across,
    critical_difference,
    enough,
    friedman,
    mean,
    ranked,
)

NAMES = ("C4.5", "C4.5+m", "C4.5+cf", "C4.5+m+cf")
# Areas under the curve on 14 data sets. The last two on voting print alike; their printed ranks are 2 and 3.
TABLE = (
    (0.763, 0.768, 0.771, 0.798), (0.599, 0.591, 0.590, 0.569), (0.954, 0.971, 0.968, 0.967),
    (0.628, 0.661, 0.654, 0.657), (0.882, 0.888, 0.886, 0.898), (0.936, 0.931, 0.916, 0.931),
    (0.661, 0.668, 0.609, 0.685), (0.583, 0.583, 0.563, 0.625), (0.775, 0.838, 0.866, 0.875),
    (1.000, 1.000, 1.000, 1.000), (0.940, 0.962, 0.965, 0.962), (0.619, 0.666, 0.614, 0.669),
    (0.972, 0.981, 0.9751, 0.975), (0.957, 0.978, 0.946, 0.970),
)  # fmt: skip
DEMSAR = [dict(zip(NAMES, row, strict=True)) for row in TABLE]


def mean_ranks(blocks):
    found = [ranked(block, True) for block in blocks]
    return [sum(block[name] for block in found) / len(found) for name in blocks[0]]


def test_mean_ranks_of_demsars_example():
    assert mean_ranks(DEMSAR) == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)


def test_friedman_of_demsars_example():
    # The paper has 9.28, without the correction for ties: divided by 1 - (6 + 6 + 60 + 6) / (14 * 4 * 15).
    chi2, p = friedman(DEMSAR)
    assert chi2 == pytest.approx(9.28 / (1 - 78 / 840), abs=0.01)
    assert p == pytest.approx(0.0167, abs=5e-4)


def test_critical_difference_of_demsars_example():
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)
    # q of his Table 5a, for 2 to 10 methods, by way of k (k + 1) / (6 N) = 1.
    for k, q in zip(range(2, 11), (1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164), strict=True):
        assert critical_difference(k, 60) / (k * (k + 1) / 360) ** 0.5 == pytest.approx(q, abs=1e-3)


def test_wilcoxon_of_demsars_example():
    """T = 12 of C4.5 and C4.5+m with two zeros split: z = -2.54, p = 0.011."""
    pairs = across([{name: {0: value} for name, value in block.items()} for block in DEMSAR])
    pair = next(p for p in pairs if (p.method, p.other) == ("C4.5", "C4.5+m"))
    assert pair.p == pytest.approx(0.011, abs=0.001)
    assert pair.n == 14 and pair.ci_low != pair.ci_low


def test_the_oracles_agree():
    oracle = pytest.importorskip("scikit_posthocs")
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(DEMSAR)
    p = oracle.posthoc_nemenyi_friedman(frame)
    ranks, cd = dict(zip(NAMES, mean_ranks(DEMSAR), strict=True)), critical_difference(4, 14)
    for one in NAMES:
        for two in NAMES:
            if one != two:
                assert (p.loc[one, two] < 0.05) == (abs(ranks[one] - ranks[two]) > cd)


def test_autorank_has_the_same_critical_difference():
    oracle = pytest.importorskip("autorank")
    pandas = pytest.importorskip("pandas")
    found = oracle.autorank(pandas.DataFrame(DEMSAR), force_mode="nonparametric", order="descending")
    assert found.cd == pytest.approx(critical_difference(4, 14), rel=1e-3)
    assert dict(found.rankdf["meanrank"]) == pytest.approx(dict(zip(NAMES, mean_ranks(DEMSAR), strict=True)))


@given(st.dictionaries(st.text("abcdef", min_size=1, max_size=2), st.integers(0, 4), min_size=1), st.booleans())
def test_ranks_are_scipys_and_turn_around_for_what_is_better_when_lower(scores, higher):
    from scipy.stats import rankdata

    expected = rankdata([-v if higher else v for v in scores.values()])
    assert list(ranked(scores, higher).values()) == list(expected)


def test_scores_that_differ_by_rounding_tie():
    assert ranked({"a": 0.1 + 0.2, "b": 0.3, "c": 0.2}, True) == {"a": 1.5, "b": 1.5, "c": 3.0}


def test_what_cannot_be_tested():
    assert friedman(DEMSAR[:1]) is None and friedman([{"a": 1.0, "b": 2.0}] * 9) is None
    assert friedman([dict.fromkeys("abc", 0.5)] * 9) is None
    assert critical_difference(4, 1) is None and critical_difference(1, 9) is None
    assert across([]) == []


def test_few_scenarios_are_averaged_seed_by_seed():
    from scipy.stats import ttest_rel

    blocks = [
        {"a": {0: 0.5, 1: 0.6, 2: 0.7, 9: 0.1}, "b": {0: 0.45, 1: 0.5, 2: 0.68}},
        {"a": {0: 0.9, 1: 0.8, 2: 0.7}, "b": {0: 0.8, 1: 0.8, 2: 0.71, 8: 0.0}},
    ]
    (pair,) = across(blocks)
    expected = ttest_rel([0.7, 0.7, 0.7], [0.625, 0.65, 0.695])
    assert (pair.n, pair.p) == (3, pytest.approx(expected.pvalue))
    assert pair.difference == pytest.approx((0.075 + 0.05 + 0.005) / 3) and pair.ci_low < pair.ci_high


def test_methods_that_never_differ_are_not_told_apart():
    (pair,) = across([{"a": {0: 0.5}, "b": {0: 0.5}}] * WILCOXON_FROM)
    assert pair.p == 1.0 and pair.difference == 0


def test_one_seed_is_enough_only_where_scenarios_are_many():
    block = {"a": {0: 0.5}, "b": {0: 0.4}}
    assert not enough([block] * (WILCOXON_FROM - 1)) and enough([block] * WILCOXON_FROM)
    assert enough([{"a": dict.fromkeys(range(3), 0.5)}] * 2) and not enough([])
    assert mean({0: 0.25, 5: 0.75}) == 0.5
