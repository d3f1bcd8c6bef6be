"""Other engines that do the round of `work.Work`, and the plain LoRA model that users of Flower and pfl would bring."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from work import ALPHA, CLASSES, RANK, TARGETS, Update, Work

PLACE = re.compile(r"^(encoder\.layer|model\.layers)\.")  # of layers in `transformers`


class LoRALinear(nn.Module):
    """A frozen linear layer W plus a trained low-rank one: x W^T + b + alpha/r x A^T B^T (arXiv 2106.09685)."""

    def __init__(self, base: nn.Linear):
        super().__init__()
        self.base = base
        self.lora_A = nn.Parameter(torch.zeros(RANK, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, RANK))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + F.linear(F.linear(x, self.lora_A), self.lora_B) * (ALPHA / RANK)


def lora_vit(work: Work) -> nn.Module:
    """The frozen ViT with adapters on all layers and a trained head; what it trains has the names of `Update`."""
    vit = work.backbone().requires_grad_(False)
    for block in vit.blocks:
        for target in TARGETS:
            place, _, leaf = target.rpartition(".")
            parent = block.get_submodule(place)
            setattr(parent, leaf, LoRALinear(getattr(parent, leaf)))
    vit.head = nn.Linear(work.dim, CLASSES)
    return vit


def logits(vit: nn.Module, x: Tensor, layers: Sequence[int]) -> Tensor:
    """(B, CLASSES) of images x (B, 3, 32, 32), with only these of the ViT's layers, in this order."""
    x = vit.norm_pre(vit.patch_drop(vit._pos_embed(vit.patch_embed(x))))
    for j in layers:
        x = vit.blocks[j](x)
    return vit.forward_head(vit.norm(x))


def trained(model: nn.Module) -> Update:
    """What a model trains, by the names of `Update`; peft and `transformers` have others."""
    named = {name: value for name, value in model.named_parameters() if value.requires_grad}
    return {PLACE.sub("blocks.", name.replace(".default.weight", "")): value for name, value in named.items()}


def held(values: Update, layers: Collection[int]) -> Update:
    """Of all layers' tensors, those of a client that holds these layers: theirs and the head's."""
    return {name: value for name, value in values.items() if name[:5] == "head." or int(name.split(".")[1]) in layers}


def layers_held(work: Work) -> list[list[int]]:
    """Each client's layers S_n, ascending."""
    return [row.nonzero().flatten().tolist() for row in work.M()]


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Torch computes with this many threads meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
