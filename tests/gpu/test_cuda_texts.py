"""Tiny cells of texts on a GPU, with padding and a mask: as on the CPU, and by both engines alike."""

from __future__ import annotations

import pytest
from rounds import DEVICE, sampled
from test_cuda_cells import near, told

from fedbench.runner.runner import load

pytestmark = pytest.mark.gpu

TEXTS = """
suite: small
defaults:
  backbone: {name: micro_bert, pretrained: false}
  adapter: {name: lora, rank: 2, alpha: 2, dropout: 0}
  data: {name: phrases6, classes: 3, train_per_class: 8, test_per_class: 1}
  ranks: [2, 2, 2, 1, 1, 1]
  train: {rounds: 2, batch_size: 8}
  evaluation: {every: 1, validation: 0.2}
scenarios:
  skew: {capacities: [12, 4, 3, 2, 1, 1]}
methods: [METHODS]
"""
METHODS = [
    *("fedra", "inclusivefl", "depthfl", "hetlora", "flexlora", "flora", "ffa_lora", "alllarge"),
    *("pooled", "allsmall", "head_only", "exclusive", "local_only"),
]


@pytest.fixture(scope="module")
def cells(plugins, tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "texts.yaml"
    path.write_text(TEXTS.replace("METHODS", ", ".join(METHODS)))
    return {cell.method: cell.config for cell in load(path, plugins).points()}


@pytest.mark.parametrize("method", sampled(METHODS, {"fedra"}))
def test_texts_are_learned_as_on_the_cpu_by_both_engines(cells, plugins, method):
    losses = {
        (device, engine): told({**cells[method], "engine": engine}, plugins, device)
        for device, engine in ((DEVICE, "cohort"), (DEVICE, "sequential"), ("cpu", "cohort"))
    }
    (cohort, facts), (sequential, others), (on_cpu, facts_on_cpu) = losses.values()
    near(cohort, on_cpu)
    near(sequential, on_cpu)
    assert facts == others == facts_on_cpu
