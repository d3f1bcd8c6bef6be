"""Damaged copies of the shipped suites and of the table that they name, read against what is installed."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

from made_up import KnownFacts

from fedbench import suite
from fedbench.registry.registry import Registry
from hostile.mutants import SPELLINGS, damaged, misspelt

SHIPPED = Path(__file__).parents[2] / "suites"
KEYS = ("train", "train.rounds", "capacities", "data.partition", "backbone", "methods.fedra.missing_layers", "a.b", "")


class Suites:
    def __init__(self, shared: Path) -> None:
        self.catalogue = Registry().catalogue
        self.files = [file.relative_to(SHIPPED) for file in sorted(SHIPPED.rglob("*.yaml"))]

    def attack(self, inside: Path, chance: Random) -> None:
        name = chance.choice(self.files)
        (inside / name).parent.mkdir(parents=True, exist_ok=True)
        (inside / name).write_bytes(misspelt((SHIPPED / name).read_text(), chance))
        table = Path("papers/paper_tables.csv")
        if name.parts[0] == "papers":
            shutil.copy(SHIPPED / table, inside / table)
            if chance.random() < 0.2:
                (inside / table).write_bytes(damaged((SHIPPED / table).read_bytes(), chance))
        sets = [f"{chance.choice(KEYS)}={chance.choice(SPELLINGS)}"] if chance.random() < 0.2 else []
        data = chance.choice([None] * 8 + ["embedded", "embedded", "digits", "\ud800", "../x"])
        profile = chance.choice([None] * 9 + ["reference", "x"])
        loaded = suite.load(inside / name, self.catalogue, sets=sets, profile=profile, data=data, facts=KnownFacts())
        for cell in loaded.points(scenarios=chance.choice([(), ("*",), ("[",)])):
            assert isinstance(cell.backbone, str) and isinstance(cell.dataset, str)
