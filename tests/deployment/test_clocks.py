"""The simulated clock against real trainings: CPU seconds of each method's clients."""

import os

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
  train: {rounds: 6, max_steps: 2, batch_size: 32}
  evaluation: {at: [6]}
  engine: sequential
  capacities: [12, 10, 8, 6, 4, 3]
scenarios:
  depths: {}
  ranks: {capacities: all, ranks: [8, 8, 4, 4, 2, 2]}
methods: [fedra, head_only, inclusivefl, depthfl, alllarge, fed_hello, fedit]
"""
OF_RANKS = ("fedit",)


@pytest.mark.slow
def test_cpu_seconds_follow_the_flops_of_methods_within_twenty_percent(registry, tmp_path):
    """Relative to FedRA. head_only, which has no backward pass through layers, needs fewer seconds for its FLOPs than a
    device with one speed can say. Of rounds with equal work the fastest counts, which other programs disturbed least.
    """
    if os.getloadavg()[0] > (os.cpu_count() or 1):
        pytest.skip("other programs have the processors, which CPU seconds feel too")
    torch.set_num_threads(1)
    (tmp_path / "clocks.yaml").write_text(SUITE)
    speeds = {}
    for cell in load(tmp_path / "clocks.yaml", registry).points():
        if (cell.scenario == "ranks") != (cell.method in OF_RANKS):
            continue
        _, tables = deployed(cell.config, registry, Here(tmp_path / cell.method, plugins=()))
        seconds = {}
        for wire, row in zip(tables["wire"], tables["rounds"], strict=True):
            if row["round"] > 1:
                seconds.setdefault(row["flops"], []).append(wire["cpu_seconds"])
        speeds[cell.method] = flops_per_second([(flops, min(own)) for flops, own in seconds.items()])
    beyond = {method: speeds["fedra"] / speed - 1 for method, speed in speeds.items()}
    shown = ", ".join(f"{method} {share:+.0%}" for method, share in beyond.items())
    print(f"CPU seconds relative to FedRA's {speeds['fedra'] / 1e9:.1f} GFLOP/s: {shown}")
    assert -0.4 < beyond.pop("head_only") < 0
    assert all(abs(share) < 0.2 for share in beyond.values()), shown
