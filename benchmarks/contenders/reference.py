"""The way FedRA's released code works: peft, a deep copy a client, a DataLoader of eight workers, one client at a time.

Rebuilt from a description, not copied. It is here for its structure; what of it is slow is left as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from work import ALPHA, CLASSES, CLIP, RANK, SGD, TARGETS, Update, Work

from fedbench.machine import cores

from . import layers_held, torch_threads


@contextmanager
def reference(
    work: Work, dropout: float = 0.1, workers: int = 8, threads: int | None = None
) -> Iterator[Callable[[], list[Update]]]:
    """Yields one round in this process, with as many torch threads as cores, which is torch's default.

    The released code's dropout of 0.1 on the adapters' inputs makes its updates random; with `dropout=0` they
    equal the others'. The images are in memory here, where the released code reads files.
    """
    server = work.start()
    model = _peft_model(work, dropout)
    data, held = [TensorDataset(*work.data(n)) for n in range(len(work.depths))], layers_held(work)

    def run() -> list[Update]:
        _load(model, server)
        return [_one_client(model, layers, data[n], work.batch, workers) for n, layers in enumerate(held)]

    with torch_threads(threads or cores()):
        yield run


def _peft_model(work: Work, dropout: float) -> nn.Module:
    from peft import LoraConfig, get_peft_model

    vit = work.backbone()
    vit.head = nn.Linear(work.dim, CLASSES)
    config = LoraConfig(r=RANK, lora_alpha=int(ALPHA), lora_dropout=dropout, target_modules=list(TARGETS))
    model = get_peft_model(vit, config)
    vit.head.requires_grad_(True)
    return model


def _trained(model: nn.Module) -> dict[str, Tensor]:
    """What is trained, by the names of `Update`, layers counted in this model."""
    parameters = model.get_base_model().named_parameters()
    return {name.replace(".default.weight", ""): value for name, value in parameters if value.requires_grad}


@torch.no_grad()
def _load(model: nn.Module, server: Update) -> None:
    for name, value in _trained(model).items():
        value.copy_(server[name])


def _one_client(model: nn.Module, layers: list[int], data: TensorDataset, batch: int, workers: int) -> Update:
    client = copy.deepcopy(model)
    vit = client.get_base_model()
    vit.blocks = nn.Sequential(*(vit.blocks[j] for j in layers))
    client.train()
    trained = [value for value in client.parameters() if value.requires_grad]
    optimizer = torch.optim.SGD(trained, **SGD)
    for x, y in DataLoader(data, batch_size=batch, shuffle=False, num_workers=workers):
        optimizer.zero_grad()
        F.cross_entropy(client(x), y).backward()
        nn.utils.clip_grad_norm_(trained, CLIP)
        optimizer.step()
    return {_in_full_model(name, layers): value.detach() for name, value in _trained(client).items()}


def _in_full_model(name: str, layers: list[int]) -> str:
    """`blocks.0.attn.proj.lora_A` of a client's own blocks, by the layer's index in the full model."""
    first, place, *rest = name.split(".")
    return name if first != "blocks" else ".".join([first, str(layers[int(place)]), *rest])
