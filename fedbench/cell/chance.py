"""The generators that a whole process shares, which nothing that can be repeated may draw from."""

from __future__ import annotations

import random

import numpy as np
import torch


def drawn() -> dict[str, object]:
    """Where the global generators of torch, NumPy and Python stand, by name; equal as long as nobody draws."""
    numpy = np.random.get_state(legacy=False)
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "NumPy": (numpy["state"]["key"].tobytes(), numpy["state"]["pos"], numpy["has_gauss"]),
        "Python": random.getstate(),
    }
