"""Cells whose clients have devices: sizes come of the method's own prices, and of nothing else."""

from __future__ import annotations

import pytest
import torch
from priced import totals_of

from fedbench.errors import NotApplicable
from fedbench.registry.facts import CachedFacts
from fedbench.results.columns import SIMULATED
from fedbench.runner.runner import load
from fedbench.simulation.checkpoint import Progress
from fedbench.simulation.simulation import Simulation

SUITE = """
suite: fitted
devices:
  own: {memory: 1.0e9, flops: 1.0e9, flops_bf16: 1.0e9, down: 1.0e6, up: 1.0e6}
  roomy: {extends: laptop}
  tight: {extends: laptop, memory: 600.0e3}
  tighter: {extends: laptop, memory: 400.0e3}
  tiny: {extends: laptop, memory: 1.0e3}
defaults:
  backbone: {name: vit_tiny_patch16_224, pretrained: false, img_size: 32, embed_dim: 48, depth: 4}
  adapter: {name: lora, rank: 6, alpha: 6}
  data: {name: strokes6, classes: 3, train_per_class: 3, test_per_class: 1}
  train: {rounds: 2, max_steps: 1, batch_size: 2}
scenarios:
  mixed: {devices: [roomy, tight, tighter, tight, tiny, roomy]}
  alike: {devices: roomy}
  nobody: {devices: tiny}
  depths: {capacities: DEPTHS}
  told: {devices: [roomy, tight, tighter, tight, tighter, roomy]}
methods: [fedra, allsmall, alllarge, fedit, {name: heterofl, rates: [1, 0.25]}, fedavg, fedv]
"""
DEPTHS = [4, 2, 1, 2, 1, 4]


@pytest.fixture(scope="module")
def configs(registry, tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "fitted.yaml"
    path.write_text(SUITE.replace("DEPTHS", str(DEPTHS)))
    return {(cell.scenario, cell.method): cell.config for cell in load(path, registry).points()}


def simulation(config, registry) -> Simulation:
    """From shapes alone."""
    with torch.device("meta"):
        return Simulation(config, registry, "meta")


def sizes(config, registry) -> list[str | None]:
    return [size and str(size) for size in simulation(config, registry).federation.fitted]


def test_every_method_takes_its_own_largest_sizes(configs, registry):
    def of(method):
        return sizes(configs["mixed", method], registry)

    assert of("fedra") == ["4 layers", "2 layers", "1 layer", "2 layers", None, "4 layers"]
    assert of("alllarge") == ["4 layers"] * 6  # a ceiling holds all, whatever fits
    assert of("fedit")[0] == "rank 6" and of("fedit")[4] is None
    assert of("heterofl")[:2] == ["width 1", "width 0.25"]
    assert of("fedavg") == ["4 layers", None, None, None, None, "4 layers"]


def test_equal_devices_have_equal_sizes_and_nobody_is_not_applicable(configs, registry):
    assert set(sizes(configs["alike", "fedit"], registry)) == {"rank 6"}
    with pytest.raises(NotApplicable, match="no client's device can hold any size"):
        simulation(configs["nobody", "fedra"], registry)


def test_a_method_in_which_nobody_takes_part_needs_no_device(registry, tmp_path):
    path = tmp_path / "probe.yaml"
    path.write_text(SUITE.replace("DEPTHS", str(DEPTHS)).replace("methods: [", "methods: [zero_round, "))
    points = load(path, registry, sets=["data.proxy={images: 6}"]).points(methods=["zero_round"])
    for point in [point for point in points if point.scenario in ("nobody", "depths")]:
        planned = totals_of(CachedFacts(registry), f"probe-{point.scenario}", point.config)
        assert (planned["client_rounds"], planned.get("simulated_seconds") or 0) == (0, 0)
        evaluation, rounds = Simulation(point.config, registry).run()
        assert evaluation and not rounds


def test_a_method_finds_the_sizes_that_fit_in_its_scenario(configs, registry):
    made = simulation(configs["mixed", "allsmall"], registry)
    assert made.method.price(4, 0) == made.method.price(1, 0)  # everybody trains the one layer of the weakest
    assert made.federation.scenario.capacities.min() == 1 and not made.federation.scenario.fitting
    assert simulation(configs["mixed", "fedit"], registry).federation.scenario.ranks.max() == 6


def test_what_a_plan_says_is_what_a_run_pays(configs, registry):
    for method in ("fedra", "fedv"):
        config = configs["mixed", method]
        planned = totals_of(CachedFacts(registry), f"{method}-fitted-{id(config)}", config)
        made, progress = Simulation(config, registry), Progress()
        _, rows = made.run(progress=progress)
        durations = [row["duration"] for row in progress.tables["clock"]]
        assert planned["simulated_seconds"] == pytest.approx(sum(durations)) and sum(durations) > 0
        assert planned["client_rounds"] == len(rows) and {row["client"] for row in rows} <= {0, 1, 2, 3, 5}
        assert planned["flops"] == sum(row["flops"] for row in rows)
        for row in rows:
            assert row["memory_bytes"] <= made.federation.devices[row["client"]].memory
            assert row["capacity"] == made.federation.fitted[row["client"]].capacity


def test_devices_that_fit_the_same_depths_give_the_same_numbers_to_the_bit(configs, registry):
    ran = [Simulation(configs[scenario, "fedra"], registry).run() for scenario in ("depths", "told")]
    (eval_of_depths, rounds), (eval_of_devices, others) = ran
    assert eval_of_depths == eval_of_devices
    simulated = {"seconds": 0, **dict.fromkeys(SIMULATED)}  # which depths have none of
    assert [row | simulated for row in rounds] == [row | simulated for row in others]
