"""Verdicts on single cells and seed noise: numbers by hand."""

from __future__ import annotations

import math

import pandas
import pytest

from fedbench.report.changes import WITHIN, Noise, verdicts
from fedbench.report.statistics.intervals import quantile
from fedbench.results.diff import DIFFERENT, EQUAL, CellSummary, ScoreDigest


class Scored(CellSummary):
    """A cell without files, of which the scores are given."""

    scores = None


def cell(method: str, seed: int, accuracy: float, scenario: str = "mixed", **said) -> Scored:
    whole = {"digest": f"{accuracy:.14f}"[:16], "scores": {"accuracy": accuracy}, "bytes": 10, "flops": 20, **said}
    one = Scored("s", scenario, "", method, seed, f"{method}{seed}", "finished", {})
    object.__setattr__(one, "scores", ScoreDigest(**whole))
    return one


def judged_all(there, here, noise_of, equivalent: float = 0.0):
    rows = [
        {"old": old, "new": new, "differs_in": "eval", "same_id": True} for old, new in zip(there, here, strict=True)
    ]
    return list(verdicts(pandas.DataFrame(rows), noise_of, equivalent).itertuples())


SOURCE = [cell("a", 0, 0.70), cell("a", 1, 0.72), cell("b", 0, 0.50), cell("b", 1, 0.50), cell("b", 2, 0.53)]
# a: variance 0.0002 with 1 degree of freedom; b: 0.0003 with 2; pooled (0.0002 + 0.0006) / 3
DEVIATION = math.sqrt(0.0008 / 3)


def test_noise_is_pooled_over_the_methods_of_a_scenario_and_grows_with_what_is_judged():
    for judged in (1, 5):
        bound = quantile(1 - 0.05 / judged, 3) * math.sqrt(2) * DEVIATION
        assert Noise(SOURCE, judged).bound(SOURCE[0], "accuracy") == pytest.approx(bound)
    assert quantile(0.95, 3) == pytest.approx(3.182, abs=1e-3)
    alone = cell("c", 0, 0.9, scenario="other")
    assert Noise(SOURCE, 1).bound(alone, "accuracy") == pytest.approx(3.1824 * math.sqrt(2) * DEVIATION, rel=1e-4)
    assert Noise(SOURCE, 1).bound(alone, "loss") is None and Noise([alone], 1).bound(alone, "accuracy") is None


def judged(there: Scored, here: Scored, noise_of=SOURCE, equivalent: float = 0.0):
    (found,) = judged_all([there], [here], noise_of, equivalent)
    return found


def test_each_verdict():
    first, bound = SOURCE[0], 3.1824 * math.sqrt(2) * DEVIATION
    assert judged(first, first).verdict == EQUAL
    near, far = (cell("a", 0, 0.70 + share * bound) for share in (0.99, 1.01))
    assert judged(first, near).verdict == WITHIN
    assert judged(first, near).difference == pytest.approx(0.99 * bound)
    assert judged(first, far).verdict == DIFFERENT and judged(first, far).noise == pytest.approx(bound, rel=1e-4)
    assert judged(first, far, equivalent=100 * bound * 1.02).verdict == WITHIN
    assert judged(cell("a", 0, 0.80), cell("a", 0, 0.81), [], equivalent=1).verdict == WITHIN  # 0.81 - 0.8 > 0.01


def test_what_no_seed_changes_is_different_however_small():
    first = SOURCE[0]
    assert judged(first, cell("a", 0, 0.70, digest="f" * 16, bytes=11)).reason == "other bytes"
    other = cell("a", 0, 0.70, digest="f" * 16, scores={"accuracy": 0.7, "loss": 1.0})
    assert judged(first, other).verdict == DIFFERENT and judged(first, other).reason == "other metrics"


def test_scores_that_differ_before_the_last_round_alone_are_within_noise():
    assert judged(SOURCE[0], cell("a", 0, 0.70, digest="f" * 16)).verdict == WITHIN


def test_where_no_noise_is_known_any_difference_is_one():
    found = judged(SOURCE[0], cell("a", 0, 0.7001), noise_of=SOURCE[:1])
    assert found.verdict == DIFFERENT and found.noise is None and "no noise is known" in found.reason


def test_what_is_different_comes_first_and_the_farthest_metric_is_shown():
    two = [cell("a", seed, 0.7, scores={"accuracy": 0.7 + seed / 10, "loss": 1.0 + seed / 100}) for seed in (0, 1)]
    here = [two[0], cell("a", 1, 0.8, scores={"accuracy": 0.81, "loss": 2.0})]
    first, second = judged_all(two, here, two)
    assert (first.verdict, first.metric, second.verdict) == (DIFFERENT, "loss", EQUAL)
