"""Cells of many registered clients, of whom a few are at work in a round."""

from __future__ import annotations

import re
from pathlib import Path

SUITE = """
suite: crowd
defaults:
  backbone: BACKBONE
  adapter: {name: lora, rank: 8, alpha: 8, dropout: 0.0}
  data: {name: windows, examples: EXAMPLES, normalize: backbone, partition: {name: iid, clients: CLIENTS}}
  train: {rounds: ROUNDS, max_steps: 1, batch_size: 4}
scenarios:
  crowd: {participation: {count: SAMPLED}, SIZES}
methods: [fedra]
"""
WINDOWS = Path(__file__).with_name("windows_plugin.py")
SMALL = "{name: vit_tiny_patch16_224, pretrained: false, img_size: 32, embed_dim: 48, depth: 2}"
DEPTHS = "capacities: {uniform: [1, 2]}"
DEVICES = "devices: {shares: {workstation: 1, phone_low: 3}, jitter: 0.2, wait_for: 8}, fit: {seconds: 5}"


def write(folder: Path, clients: int, sampled: int, rounds: int, backbone: str, sizes: str = DEPTHS) -> Path:
    """A suite of one cell, 1.08 images a client."""
    given = {"EXAMPLES": clients * 108 // 100, "CLIENTS": clients, "SAMPLED": sampled, "ROUNDS": rounds, "SIZES": sizes}
    given["BACKBONE"] = backbone
    path = folder / f"crowd-{clients}-{rounds}.yaml"
    path.write_text(re.sub("|".join(given), lambda found: str(given[found[0]]), SUITE))
    return path


def on_disk(folder: Path) -> int:
    """Bytes of all files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
