"""Damaged copies of the shipped suites, of one with every key, and of the table that suites name; values of `--set`."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

from made_up import KnownFacts

from fedbench import suite
from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.suite.yaml import ON_A_SCREEN
from hostile.mutants import SPELLINGS, damaged, misspelt

SHIPPED = Path(__file__).parents[2] / "suites"
KEYS = (
    *("train", "train.rounds", "capacities", "data.partition", "backbone", "methods.fedra.missing_layers", "a.b", ""),
    *("participation", "faults", "faults.dropout", "faults.stragglers", "faults.stragglers.slowdown"),
    *("faults.corrupted.scale", "evaluation.by", "train.guard", "train.guard.max_norm", "methods.z.aggregator"),
)


FULL = """\
suite: full
profile: reference
defaults:
  backbone: {name: micro_vit, pretrained: false}
  adapter: {name: lora, rank: 4, targets: [a, b]}
  data:
    name: strokes6
    partition: {name: dirichlet, alpha: 0.5, clients_per_domain: 1}
  participation: {per_domain: 1}
  faults:
    dropout: 0.1
    stragglers: {probability: 0.2, slowdown: [2, 5], deadline: 1.5, late: partial}
    corrupted: {probability: 0.1, kind: scaled, scale: 1e6}
  rotate_capacities: true
  evaluation: {every: 2, by: client, metrics: [accuracy]}
scenarios:
  a: {capacities: [1, 2, 3, 4, 5, 6]}
  b: {capacities: {by_domain: [1, 2, 3, 4, 5, 6]}}
  c: {capacities: {uniform: [1, 12]}}
methods:
  - fedra
  - {name: z, extends: fedra, aggregator: {weights: uniform}, allocation: {name: strided, step: 2}}
  - {name: y, extends: z, aggregator: momentum}
sweep:
  backbone: [micro_vit, {name: micro_mixer}]
  methods.z.missing_layers: [keep, cover]
  capacities:
    - [6, 5, 4, 3, 2, 1]
    - {uniform: [1, 2]}
seeds: [0, 1]
overlays:
  o: {backbone: micro_mixer, data: {name: image_folder, root: x}}
expected:
  - {scenario: a, dataset: b, backbone: c, method: z, metric: e, value_percent: 1,
     variant: methods.z.missing_layers=keep}
"""


class Suites:
    def __init__(self, shared: Path) -> None:
        self.catalogue = Registry().catalogue
        self.files = [file.relative_to(SHIPPED) for file in sorted(SHIPPED.rglob("*.yaml"))]

    def attack(self, inside: Path, chance: Random) -> None:
        name = chance.choice(self.files)
        (inside / name).parent.mkdir(parents=True, exist_ok=True)
        sets = [f"{chance.choice(KEYS)}={chance.choice(SPELLINGS)}"] if chance.random() < 0.2 else []
        text = FULL if chance.random() < 0.3 else (SHIPPED / name).read_text()
        (inside / name).write_bytes(text.encode() if sets else misspelt(text, chance))
        table = Path("papers/paper_tables.csv")
        if name.parts[0] == "papers":
            shutil.copy(SHIPPED / table, inside / table)
            if chance.random() < 0.2:
                (inside / table).write_bytes(damaged((SHIPPED / table).read_bytes(), chance))
        data = chance.choice([None] * 8 + ["embedded", "embedded", "digits", "\ud800", "../x"])
        profile = chance.choice([None] * 9 + ["reference", "x"])
        try:
            loaded = suite.load(
                inside / name, self.catalogue, sets=sets, profile=profile, data=data, facts=KnownFacts()
            )
            for cell in loaded.points(scenarios=chance.choice([(), ("*",), ("[",)])):
                assert isinstance(cell.backbone, str) and isinstance(cell.dataset, str)
        except UserError as error:
            assert 0 < len(str(error).splitlines()) <= ON_A_SCREEN + 1
            raise
