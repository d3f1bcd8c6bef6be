"""Models to export, and exports that are loaded again."""

from __future__ import annotations

import torch
from torch import nn

from fedbench.models.backbone import Blocks
from fedbench.models.globalmodel import GlobalModel
from fedbench.types import Exit


def loaded(lines: str) -> nn.Module:
    """The model that the printed lines make."""
    names: dict = {}
    exec(lines, names)
    return names["model"]


def global_model(model: nn.Module, layers, registry=None) -> GlobalModel:
    """Some layers of a model with LoRA drawn at random, B too."""
    blocks = Blocks(model)
    if registry:
        registry.make("adapter", {"name": "lora", "rank": 2, "alpha": 4})(blocks)
        for name, parameter in blocks.named_parameters():
            if "lora" in name:
                nn.init.normal_(parameter.data, generator=torch.Generator().manual_seed(len(name)))
    blocks.add_classifier("head", 5)
    return GlobalModel(blocks.eval(), layers, [Exit(len(layers), "head")])
