"""nested_seeds.py: grouping by the seed modulo six is found where capacities are rotated, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nested_seeds import LEVEL, differences, false_alarms, groups_in, holm, permuted_p

from fedbench.suite.assignments import arrangement

REFERENCE = Path(__file__).parents[2] / "results/reference"
DEPTHS = [12, 10, 8, 6, 4, 3]
TEN = ("extreme_hetero_tuned", "feature_label_skew_tuned", "feature_skew_tuned", "text_quickstart_tuned")


def scores(order, chance, noise=0.5):
    """Of six methods and ten seeds: what a method makes of each domain at each depth, and noise.

    order: the depths of the six domains by seed.
    """
    effect = {depth: chance.normal(size=(6, 6)) for depth in DEPTHS}  # methods, domains
    found = np.array([sum(effect[depth][:, d] for d, depth in enumerate(order(seed))) for seed in range(10)]).T
    found = found + noise * chance.normal(size=found.shape)
    return {str(i): dict(enumerate(row)) for i, row in enumerate(found)}


def found_in(order, times=60):
    chance = np.random.default_rng(7)
    p = [permuted_p(*differences(scores(order, chance)), permutations=400)[1] for _ in range(times)]
    return np.mean(np.array(p) <= LEVEL)


def test_scores_that_follow_the_assignment_are_grouped_with_rotated_and_not_with_shuffled_capacities():
    assert found_in(lambda seed: DEPTHS[seed % 6 :] + DEPTHS[: seed % 6]) > 0.9
    assert found_in(lambda seed: arrangement(DEPTHS, seed)) < 0.15


def test_f_of_one_pair_is_that_of_scipy():
    from scipy.stats import f_oneway

    d, seeds = differences(
        {"a": dict(enumerate(np.random.default_rng(3).normal(size=13))), "b": dict.fromkeys(range(13), 0.0)}
    )
    statistic, p = permuted_p(d, seeds)
    expected = f_oneway(*(d[0][np.array(seeds) % 6 == residue] for residue in range(6)))
    assert statistic == pytest.approx(expected.statistic) and p == pytest.approx(expected.pvalue, abs=0.1)


def test_holm_multiplies_the_smallest_p_most_and_keeps_their_order():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_the_level_says():
    assert false_alarms(400, permutations=300) <= 0.085  # 0.05 and three standard deviations of 400 families


@pytest.mark.slow
def test_reference_results_are_grouped_where_capacities_are_unequal_and_nowhere_else():
    found = groups_in([REFERENCE / name for name in TEN])
    assert len(found) == 15 and (found["found"] == (found["sizes"] == "unequal")).all(), found.to_string()
