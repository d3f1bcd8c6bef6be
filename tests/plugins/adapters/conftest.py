"""A tiny model with an adapter, in float64 and drawn."""

import pytest
import torch

from fedbench.models.backbone import Blocks
from fedbench.testing.setups import CLASSES


@pytest.fixture
def adapted(registry):
    def make(model, **options):
        blocks = Blocks(model).double()
        registry.make("adapter", options)(blocks)
        blocks.add_classifier("head", CLASSES)
        blocks.double().draw(torch.Generator().manual_seed(0))
        return blocks.eval()

    return make
