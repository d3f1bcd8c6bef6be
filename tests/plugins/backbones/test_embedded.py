"""The embedded world keeps its promise in a few rounds: the orderings that the README states with full runs."""

import pytest

from fedbench.runner.runner import load
from fedbench.simulation.simulation import Simulation

# A sixth of the quickstart's work; the full figures, three seeds and thirty rounds, are in results/reference.
FEW = ("train.rounds=8", "train.max_steps=5", "train.batch_size=16", "evaluation.every=8", "data.test_per_class=5")


@pytest.fixture(scope="module")
def average(registry):
    """Mean accuracy over the six domains of one cell of a shipped suite, after a few rounds."""

    def run(suite: str, scenario: str, method: str) -> float:
        (cell,) = load(suite, registry, sets=FEW).points(scenarios=[scenario], methods=[method], seeds=[0])
        evaluation, _ = Simulation(cell.config, registry).run()
        values = [row["value"] for row in evaluation if row["metric"] == "accuracy"]
        return sum(values) / len(values)

    return run


@pytest.mark.slow
def test_more_depth_is_better_and_fedra_is_far_above_the_smallest(average):
    alllarge, fedra, allsmall = (
        average("suites/quickstart.yaml", "skew", m) for m in ("alllarge", "fedra", "allsmall")
    )
    assert alllarge > fedra > allsmall + 0.15


@pytest.mark.slow
def test_random_layers_beat_a_prefix_where_nobody_holds_more_than_half(average):
    fedra, inclusivefl = (average("suites/extreme_hetero.yaml", "all_6", m) for m in ("fedra", "inclusivefl"))
    assert fedra > inclusivefl + 0.05
