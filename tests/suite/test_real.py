"""`real` and its tuned form: a real backbone on real drawings."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up import KnownFacts

from fedbench.registry.registry import Registry
from fedbench.suite import load
from fedbench_plugins.datasets.emoji6 import SETS

SUITES = Path(__file__).parents[2] / "suites"


class Prepared(KnownFacts):
    """As if `dinov2_s` and `emoji6` were prepared."""

    def domains(self, data):
        return tuple(SETS)


@pytest.fixture(scope="module")
def suites():
    catalogue = Registry().catalogue
    return [load(SUITES / name, catalogue, facts=Prepared()) for name in ("real.yaml", "tuned/real.yaml")]


def test_real_is_six_styles_on_six_clients_with_emoji_of_each_seed(suites):
    real, tuned = suites
    for suite, name in ((real, "real"), (tuned, "tuned/real")):
        assert Path(suite.path).read_text().startswith(f"# fedbench run suites/{name}.yaml\n")
    points = real.points(methods=["fedra"])
    assert {(point.backbone, point.dataset) for point in points} == {("dinov2_s", "emoji6")}
    assert all(point.config["data"]["draw"] == point.seed for point in points)
    assert all(point.config["frozen_weights"] == "cached" for point in points)
    given = {point.scenario: point.config["capacities"].items() for point in points if point.seed == 0}
    assert {name: {way: sorted(sizes, reverse=True) for way, sizes in one} for name, one in given.items()} == {
        "skew": {"by_domain": [12, 10, 8, 6, 4, 3]},
        "all_6": {"by_client": [6] * 6},
        "unseen": {"cycle": [12, 8, 6, 3]},
    }
    [unseen] = {tuple(point.config["data"].get("unseen", ())) for point in points if point.scenario == "unseen"}
    assert len(unseen) == 2 and set(unseen) < set(SETS)
    assert len({str(point.config["capacities"]) for point in points if point.scenario == "skew"}) == 6


def test_skew_alone_is_tuned_in_the_same_setting(suites):
    real, tuned = suites
    assert tuned.scenarios == ("skew",) and tuned.seeds == real.seeds == (0, 1, 2, 3, 4, 5)
    for one, other in zip(tuned.points(), real.points(scenarios=["skew"]), strict=True):
        assert (one.scenario, one.method, one.seed, one.config) == (
            other.scenario,
            other.method,
            other.seed,
            other.config,
        )
    assert tuned.tuning.confirm == [1001, 1002]
    rates = [values["train.optimizer.lr"] for values in tuned.tuning.candidates[: tuned.tuning.trials]]
    assert len(set(rates)) == 8 and 1e-4 < min(rates) < 1e-3 < max(rates) < 1e-1
    assert tuned.tuning.halving == [0.2, 0.4]  # both after a test
    assert tuned.points()[0].config["evaluation"]["validation"] == 0.1
