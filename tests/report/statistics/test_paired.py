"""fedbench/report/statistics/pairs.py: differences and their two tests, by hand and against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.report.statistics.pairs import by_draw, joined, paired, sign_flip


def difference(ours, theirs, draws=None):
    """The row of one pair, None where there is none."""
    return next(iter(paired({"ours": ours, "theirs": theirs}, draws)), None)


def test_only_shared_seeds_are_paired_and_p_is_that_of_the_paired_t_test():
    from scipy.stats import ttest_rel

    ours = {0: 0.5, 1: 0.7, 2: 0.6, 3: 0.65, 7: 0.1}
    theirs = {3: 0.6, 2: 0.61, 1: 0.6, 0: 0.42, 9: 0.9}
    found = difference(ours, theirs)
    a, b = [ours[s] for s in range(4)], [theirs[s] for s in range(4)]
    expected = ttest_rel(a, b)
    assert found.n == 4 and found.difference == pytest.approx(np.mean(a) - np.mean(b))
    assert found.p == pytest.approx(expected.pvalue)
    around = expected.confidence_interval(0.95)
    assert (found.ci_low, found.ci_high) == pytest.approx((around.low, around.high))
    assert sign_flip(found.values) == 0.25  # four of sixteen sign patterns are as extreme


def test_no_shared_seed_and_too_few():
    assert difference({0: 0.5}, {1: 0.5}) is None
    found = difference({0: 0.5, 1: 0.6}, {0: 0.4, 1: 0.4})
    assert found.n == 2 and np.isnan([found.ci_low, found.ci_high, found.p]).all()


@pytest.mark.parametrize("images", [300, 1_000, 8_192, 10_000, 60_000, 1_000_000])
@pytest.mark.parametrize("clients", [1, 100])
def test_equal_differences_leave_the_sign_flips_alone_to_judge(images, clients):
    """One image more in each of three seeds: t would call it certain, by the last bits of scores or of their means."""
    chance = np.random.default_rng(images)
    for _ in range(100):
        right = chance.integers(0, images // clients - 1, (3, clients))
        ours = {s: float(np.mean(right[s] / (images // clients))) for s in range(3)}
        right[:, 0] += 1
        found = difference({s: float(np.mean(right[s] / (images // clients))) for s in range(3)}, ours)
        assert found.p == sign_flip(found.values) == 0.25, (ours, found)
        assert np.isnan([found.ci_low, found.ci_high]).all(), "two or three equal numbers bound nothing"
        assert found.difference == pytest.approx(1 / (images // clients) / clients)


def test_a_difference_that_varies_by_one_image_is_tested_by_t():
    from scipy.stats import ttest_rel

    ours, theirs = [0.9123, 0.8457, 0.8812], [0.9122, 0.8457, 0.8811]
    found = difference(dict(enumerate(ours)), dict(enumerate(theirs)))
    assert found.p == pytest.approx(ttest_rel(ours, theirs).pvalue) and found.ci_low < 0 < found.ci_high


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_rounding_is_no_difference(scale):
    found = difference(dict.fromkeys(range(10), scale * (0.1 + 0.2)), dict.fromkeys(range(10), scale * 0.3))
    assert (found.difference, found.p, found.ci_low, found.ci_high) == (0.0, 1.0, 0.0, 0.0)


def test_rounding_is_none_of_two_seeds_either():
    assert difference(dict.fromkeys(range(2), 0.1 + 0.2), dict.fromkeys(range(2), 0.3)).values == [0.0, 0.0]


def test_rounding_of_scores_of_both_signs_is_no_spread():
    """Whose differences are larger than the scores, and with them what they are rounded to."""
    found = difference({0: 1.0, 1: 1.0, 2: 1.0 + 1.5e-12}, dict.fromkeys(range(3), -1.0))
    assert (found.difference, found.p) == (pytest.approx(2), 0.25) and np.isnan(found.ci_low)


def test_what_is_not_finite_is_not_tested():
    found = difference({0: 0.1, 1: float("inf"), 2: 0.3}, dict.fromkeys(range(3), 0.1))
    assert (found.n, found.values) == (3, [0.0, float("inf"), pytest.approx(0.2)])
    assert np.isnan([found.p, found.ci_low]).all()


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=8))
def test_sign_flip_is_a_probability_and_blind_to_direction(d):
    d = np.array(d)
    p = sign_flip(d)
    assert 2 / 2 ** len(d) <= p <= 1
    assert sign_flip(-d) == p


def test_sign_flip_by_hand_and_by_draws():
    # |sum| >= 4 for +-(1 + 3), and the two patterns of 1 - 3 give 2: 2 of 4.
    assert sign_flip([1.0, 3.0]) == 0.5
    assert sign_flip([0.0] * 4) == 1.0
    assert 0 < sign_flip([1.0] * 20) < 0.001


ROTATED = {seed: seed % 3 for seed in range(5)}  # seeds 0 and 3, 1 and 4 are one draw each


def test_seeds_of_one_draw_are_one_replicate():
    ours, theirs = {0: 0.5, 1: 0.7, 2: 0.6, 3: 0.7, 4: 0.9}, {0: 0.4, 1: 0.5, 2: 0.6, 3: 0.4, 4: 0.3}
    found = difference(ours, theirs, ROTATED)
    alone = difference({0: 0.2, 1: 0.4, 2: 0.0}, dict.fromkeys(range(3), 0.0))
    assert (found.n, found.n_seeds) == (3, 5)
    assert [found.difference, found.ci_low, found.ci_high, found.p] == pytest.approx(
        [alone.difference, alone.ci_low, alone.ci_high, alone.p]
    )


def test_only_seeds_that_both_have_enter_a_draw():
    found = difference({0: 0.5, 3: 0.9}, {0: 0.4}, ROTATED)
    assert (found.n, found.n_seeds, found.difference) == (1, 1, pytest.approx(0.1))


def test_scores_of_a_draw_are_averaged_and_a_seed_alone_is_kept_to_the_bit():
    assert by_draw({4: 0.3, 1: 0.1, 2: 0.1 + 0.2}, ROTATED) == {1: 0.2, 2: 0.1 + 0.2}
    assert by_draw({7: 0.1}, {}) == {7: 0.1}


def test_draws_of_several_scenarios_are_joined_where_they_share_seeds():
    pairs = {0: 0, 1: 0, 2: 2, 3: 2, 4: 4}
    assert joined([{seed: seed for seed in range(5)}, pairs]) == pairs
    assert joined([pairs, {0: 0, 1: 1, 2: 1, 3: 3, 4: 4}]) == {0: 0, 1: 0, 2: 0, 3: 0, 4: 4}
    assert joined([]) == {}
