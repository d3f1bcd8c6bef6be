"""Checkpoints that were damaged: set aside, or harmless."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import torch

from fedbench.errors import UserError
from fedbench.simulation.checkpoint import CHECKPOINT, FACTS, Checkpoints, Progress
from fuzz.mutants import damaged, rewritten

ID = "0123456789ab"


class Unfinished:
    def __init__(self, shared: Path) -> None:
        self.good = shared / "cell"
        checkpoints = Checkpoints(self.good, ID, "cpu")
        checkpoints.latest()
        for t in (1, 2):
            key = checkpoints.store.put({"w": torch.full((2,), float(t))})
            checkpoints.write(Progress(t, {"x": torch.ones(3), "clients": {"0": key}}, seconds=float(t)))

    def attack(self, inside: Path, chance: Random) -> None:
        shutil.copytree(self.good, inside, dirs_exist_ok=True)
        files = sorted(path for path in inside.rglob("*") if path.is_file())
        file = chance.choice(files)
        if chance.random() < 0.7:
            file = chance.choice([path for path in files if path.name == FACTS])
        raw = file.read_bytes()
        file.write_bytes(rewritten(raw, chance) if file.suffix == ".json" else damaged(raw, chance))
        progress, refused = Checkpoints(inside, ID, "cpu").latest()
        assert progress.round >= 0 and progress.seconds + 0 == progress.seconds
        assert all(path.name in (CHECKPOINT, "clients") or path.name.startswith(".torn-") for path in inside.iterdir())
        if refused:
            raise UserError("\n".join(refused))
