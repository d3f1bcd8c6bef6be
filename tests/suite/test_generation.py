"""The suites of next tokens load, and say what they compare."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up import KnownFacts

from fedbench.registry.registry import Registry
from fedbench.suite import load
from fedbench_plugins.datasets.wordnet import SIX

SUITES = Path(__file__).parents[2] / "suites"


class Prepared(KnownFacts):
    """As if `smollm2_135m` and `wordnet` were prepared."""

    def num_layers(self, backbone):
        return 30

    def domains(self, data):
        return SIX


@pytest.fixture(scope="module")
def catalogue():
    return Registry().catalogue


def test_the_quickstart_needs_no_download_and_has_its_controls(catalogue, facts):
    suite = load(SUITES / "generation_quickstart.yaml", catalogue, facts=facts)
    points = suite.points()
    assert {(point.backbone, point.dataset) for point in points} == {("micro_llama", "phrases6")}
    assert {"fedra", "inclusivefl", "depthfl", "alllarge", "allsmall", "exclusive", "zero_round"} <= set(suite.methods)
    assert all(point.config["data"]["task"] == "next_token" for point in points)


def test_definitions_are_six_files_on_six_clients_and_tuned_in_the_same_setting(catalogue):
    plain, tuned = (
        load(SUITES / name, catalogue, facts=Prepared()) for name in ("definitions.yaml", "tuned/definitions.yaml")
    )
    points = plain.points()
    assert {(point.backbone, point.dataset) for point in points} == {("smollm2_135m", "wordnet")}
    assert all(point.config["data"]["draw"] == point.seed for point in points)
    given = {point.scenario: next(iter(point.config["capacities"].values())) for point in points}
    assert sorted(given["skew"]) == [6, 8, 12, 18, 24, 30] and given["all_15"] == [15] * 6
    assert tuned.scenarios == ("skew",) and tuned.seeds == plain.seeds == (0, 1, 2)
    for one, other in zip(tuned.points(), plain.points(scenarios=["skew"]), strict=True):
        assert (one.method, one.seed, one.config) == (other.method, other.seed, other.config)
    assert tuned.tuning.confirm == [1001, 1002] and tuned.tuning.halving == [0.5]
    rates = {values["train.optimizer.lr"] for values in tuned.tuning.candidates[: tuned.tuning.trials]}
    assert len(rates) == 4 and 1e-4 < min(rates) < 1e-3 < max(rates) < 1e-2
