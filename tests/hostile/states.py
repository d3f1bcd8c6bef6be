"""States of strangers: a safetensors file and its JSON, which agree or do not."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from random import Random

import torch

from fedbench.simulation.state import STRUCTURE, TENSORS, load, save
from hostile.mutants import VALUES, changed, damaged, rewritten


class States:
    def __init__(self, shared: Path) -> None:
        tensors = {"w": torch.ones(2, 3), "b": torch.zeros(4, dtype=torch.int64), "f": torch.ones((), dtype=torch.bool)}
        save(shared, {"method": {"t": tensors, "n": [1, 0.5, float("nan"), "x"]}, "world": {"classes": ["a", "b"]}})
        self.structure, self.tensors = ((shared / name).read_bytes() for name in (STRUCTURE, TENSORS))

    def attack(self, inside: Path, chance: Random) -> None:
        structure, tensors = self.structure, self.tensors
        how = chance.randrange(4)
        if how != 0:
            tensors = _headed(tensors, chance) if how == 1 else damaged(tensors, chance) if how == 2 else tensors
        if how in (0, 3):
            structure = rewritten(structure, chance)
        if chance.random() < 0.9:
            structure = _sealed(structure, tensors)
        (inside / STRUCTURE).write_bytes(structure)
        (inside / TENSORS).write_bytes(tensors)
        load(inside)


def _sealed(structure: bytes, tensors: bytes) -> bytes:
    """The JSON with the hash of these tensors, where it can be read at all: damage that no hash gives away."""
    try:
        value = json.loads(structure)
        value["sha256"] = hashlib.sha256(tensors).hexdigest()
        return json.dumps(value).encode()
    except (ValueError, TypeError, RecursionError):
        return structure


def _headed(raw: bytes, chance: Random) -> bytes:
    """Another header: offsets that overlap or lead out, shapes that are negative or huge, types that do not exist."""
    (length,) = struct.unpack("<Q", raw[:8])
    header, rest = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    how = chance.randrange(4)
    if how == 0:
        header = changed(header, chance)
    elif how == 1:
        one = chance.choice(list(header.values()))
        one["shape"] = chance.choice([[-1, 2], [2**63], [2**31, 2**31, 2**31], [0], [], [1.5], "x", [[1]]])
    elif how == 2:
        one = chance.choice(list(header.values()))
        one["data_offsets"] = chance.choice(
            [[0, 2**63], [-8, 8], [8, 0], [0, 0], [2**64, 2**64], [0], None, [0, 10**30]]
        )
    else:
        one = chance.choice(list(header.values()))
        one["dtype"] = chance.choice(["F32", "F64", "BOOL", "F8_E4M3", "F4", "I128", "", 3, *VALUES[:3]])
    text = json.dumps(header).encode()
    size = chance.choice([len(text)] * 6 + [0, 1, len(text) - 1, len(text) + 1, 2**40, 2**64 - 1])
    return struct.pack("<Q", size) + text + rest
