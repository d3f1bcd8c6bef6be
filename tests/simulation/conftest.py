"""A small suite of every method, as cells: what tests of trials and of ledgers run."""

import pytest

from fedbench.runner.runner import load

SUITE = """
suite: small
defaults:
  backbone: {name: vit_tiny_patch16_224, pretrained: false, img_size: 32, embed_dim: 24, depth: 3}
  adapter: {name: lora, rank: 2, alpha: 2, dropout: 0.1}
  data: {name: strokes6, classes: 3, train_per_class: 3, test_per_class: 1}
  train: {rounds: 2, max_steps: 2, batch_size: 4}
scenarios:
  skew: {capacities: [3, 2, 2, 1, 1, 1]}
  dynamic: {capacities: {uniform: [1, 3]}, participation: {count: 2}}
  faulty:
    capacities: {uniform: [2, 3]}
    train: {max_steps: 3, batch_size: 2}
    faults: {dropout: 0.3, stragglers: {probability: 0.5, slowdown: [1, 6], deadline: 1.2, late: partial}}
  spoilt:
    capacities: {uniform: [1, 3]}
    participation: {count: 4}
    train: {max_steps: 1, batch_size: 2}
    faults: {dropout: 0.4, corrupted: {probability: 0.4, kind: nan}}
  own:
    capacities: {uniform: [1, 3]}
    data: {partition: {name: iid, clients: 5}}
    evaluation: {by: client}
methods: [METHODS]
"""


@pytest.fixture(scope="session")
def cells(registry, tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "small.yaml"
    path.write_text(SUITE.replace("METHODS", ", ".join(registry.catalogue.components["method"])))
    return {(cell.scenario, cell.method): cell.config for cell in load(path, registry).points()}
