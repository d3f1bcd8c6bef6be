"""Images on a GPU are those of the CPU, and are sent there without waiting."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rounds import DEVICE, close, no_waiting

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
def test_images_and_labels_are_those_of_the_cpu(floats):
    there, here = (some_pixels(device, floats) for device in (DEVICE, "cpu"))
    for indices in (np.array([89, 3, 3]), np.arange(90), np.array([0])):
        (x, y), (own, labels) = there(indices), here(indices)
        assert x.device.type == y.device.type == DEVICE and torch.equal(y.cpu(), labels)
        close(x, own, 1e-6)


def test_indices_travel_once_a_batch(monkeypatch):
    pixels, sent = some_pixels(DEVICE), []
    send = Pixels._sent
    monkeypatch.setattr(Pixels, "_sent", lambda self, values: (sent.append(1), send(self, values))[1])
    pixels(np.arange(30))
    pixels.keep_features(lambda x: x.mean((2, 3)))
    pixels.features(np.arange(64))
    sent.clear()
    pixels.features(np.arange(30))
    assert len(sent) == 1


def test_images_are_sent_without_waiting():
    pixels, indices = some_pixels(DEVICE), np.arange(30)
    pixels(indices)
    with no_waiting():
        pixels(indices)
