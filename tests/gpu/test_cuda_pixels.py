"""Images on a GPU: those that travel there equal those that stay."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rounds import DEVICE, close, no_waiting

from fedbench.simulation import batches
from fedbench.simulation.batches import Pixels
from fedbench.types import Images

pytestmark = pytest.mark.gpu


def some_pixels(device: str, floats: bool = False) -> Pixels:
    draw = np.random.default_rng(0)
    x = draw.integers(0, 256, (90, 3, 8, 8), np.uint8)
    if floats:
        x = draw.uniform(-0.1, 1.1, x.shape).astype(np.float32)
    images = Images(x, draw.integers(0, 3, 90), np.zeros(90, np.int64))
    return Pixels(images, (0.5, 0.4, 0.3), (0.2, 0.5, 0.7), device)


@pytest.mark.parametrize("floats", [False, True])
def test_images_that_travel_equal_those_that_stay(monkeypatch, floats):
    resident = some_pixels(DEVICE, floats)
    monkeypatch.setattr(batches, "RESIDENT", 0)
    far = some_pixels(DEVICE, floats)
    assert far._resident is None and resident._resident is not None
    asked = [np.array([89, 3, 3]), np.arange(90), np.array([0])]
    for indices in asked:
        x, y = far(indices)
        near, labels = resident(indices)
        assert near.device.type == y.device.type == DEVICE
        assert torch.equal(x, near) and torch.equal(y, labels)
        close(x, some_pixels("cpu", floats)(indices)[0], 1e-6)


def test_indices_travel_once_a_batch(monkeypatch):
    resident, sent = some_pixels(DEVICE), []
    send = Pixels._sent
    monkeypatch.setattr(Pixels, "_sent", lambda self, values: (sent.append(1), send(self, values))[1])
    resident(np.arange(30))
    resident.keep_features(lambda x: x.mean((2, 3)))
    resident.features(np.arange(64))
    sent.clear()
    resident.features(np.arange(30))
    assert len(sent) == 1


def test_resident_images_are_picked_without_waiting():
    resident, indices = some_pixels(DEVICE), np.arange(30)
    resident(indices)
    with no_waiting():
        resident(indices)
