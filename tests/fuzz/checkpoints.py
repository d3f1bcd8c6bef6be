"""Checkpoints of strangers: damaged, or forged so that their own hash agrees."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

import torch

from fedbench.errors import UserError
from fedbench.simulation.checkpoint import CHECKPOINT, FACTS, Checkpoints, Progress, _own
from fuzz.mutants import changed, damaged, rewritten

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
        if file.name == FACTS and chance.random() < 0.7:
            file.write_text(_forged(json.loads(raw), chance))
        else:
            file.write_bytes(rewritten(raw, chance) if file.suffix == ".json" else damaged(raw, chance))
        progress, refused = Checkpoints(inside, ID, "cpu").latest()
        assert progress.round >= 0 and progress.seconds + 0 == progress.seconds
        assert all(path.name in (CHECKPOINT, "clients") or path.name.startswith(".torn-") for path in inside.iterdir())
        if refused:
            raise UserError("\n".join(refused))


def _forged(facts: dict, chance: Random) -> str:
    """Other values, and the hash that belongs to them."""
    version = facts.pop("result_version")
    del facts["sha256"]
    value = changed(facts, chance)
    sealed = {**value, "sha256": _own(value)} if isinstance(value, dict) else value
    return json.dumps({"result_version": version, **sealed} if isinstance(sealed, dict) else sealed)
