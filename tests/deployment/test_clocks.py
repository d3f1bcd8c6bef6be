"""The simulated clock against real trainings: CPU seconds of each method's clients."""

import pytest
import torch
from deployment.in_process import Here, deployed

from fedbench.deployment.measuring import flops_per_second
from fedbench.runner.runner import load

SUITE = """
suite: clocks
defaults:
  backbone: micro_vit
  adapter: {name: lora, rank: 8, alpha: 8, dropout: 0.0}
  data: {name: strokes6, test_per_class: 1}
  train: {rounds: 5, max_steps: 2, batch_size: 32}
  evaluation: {at: [5]}
  engine: sequential
  capacities: [12, 10, 8, 6, 4, 3]
scenarios:
  depths: {}
  ranks: {capacities: all, ranks: [8, 8, 4, 4, 2, 2]}
methods: [fedra, head_only, inclusivefl, depthfl, alllarge, fed_hello, fedit, flora, flexlora]
"""
OF_DEVICES, OF_RANKS = ("fedra", "head_only"), ("fedit", "flora", "flexlora")


@pytest.mark.slow
def test_cpu_seconds_are_those_of_a_measured_device_within_twenty_percent_by_method(registry, tmp_path):
    """Of each client the fastest round counts, which other programs disturbed least; the device is as fast as FedRA and
    head_only together, as `fedbench devices --measure` has it."""
    torch.set_num_threads(1)
    (tmp_path / "clocks.yaml").write_text(SUITE)
    fastest = {}
    for cell in load(tmp_path / "clocks.yaml", registry).points():
        if (cell.scenario == "ranks") != (cell.method in OF_RANKS):
            continue
        _, tables = deployed(cell.config, registry, Here(tmp_path / cell.method, plugins=()))
        by_client = {}
        for wire, row in zip(tables["wire"], tables["rounds"], strict=True):
            by_client.setdefault(wire["client"], []).append((row["flops"], wire["cpu_seconds"]))
        fastest[cell.method] = [min(own[1:], key=lambda one: one[1] / one[0]) for own in by_client.values()]
    speed = flops_per_second([one for method in OF_DEVICES for one in fastest[method]])
    beyond = {method: speed / flops_per_second(own) - 1 for method, own in fastest.items()}
    print(f"at {speed / 1e9:.1f} GFLOP/s: " + ", ".join(f"{name} {share:+.0%}" for name, share in beyond.items()))
    assert all(abs(share) < 0.2 for share in beyond.values()), beyond
