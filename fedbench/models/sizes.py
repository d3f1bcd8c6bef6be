"""How large a backbone is, what one image costs it, and how many images a second it answers on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from fedbench.models.backbone import Source, TimmModel
from fedbench.models.uncompiled import FlopCounterMode, flop_registry, sdpa_flop_count

SECONDS = 2.0  # about as long as the timed passes of one backbone take together
FEWEST, MOST = 3, 50  # timed passes


@dataclass(frozen=True)
class BackboneSize:
    """A backbone with a linear classifier of `num_classes` on its pooled features.

    parameters: all of them, classifier included · macs: multiply-adds of one image's forward pass, half of what torch
    counts as FLOPs · images_per_second: the median over repeated forward passes of `batch_size` images, in float32 on
    `device` with `threads` threads.
    """

    name: str
    image_size: int
    num_classes: int
    parameters: int
    macs: int
    images_per_second: float
    batch_size: int
    device: str
    threads: int


def measure(name: str, source: Source, num_classes: int, batch_size: int, device: str) -> BackboneSize:
    """Count and time a backbone; its weights do not matter."""
    model = _Whole(source.model, num_classes).to(device).eval().requires_grad_(False)
    x = torch.zeros(batch_size, 3, source.image_size, source.image_size, device=device)
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=_missing()) as counter:
        model(x[:1])
    return BackboneSize(
        name=name,
        image_size=source.image_size,
        num_classes=num_classes,
        parameters=sum(p.numel() for p in model.parameters()),
        macs=counter.get_total_flops() // 2,
        images_per_second=batch_size / _seconds(lambda: model(x), device),
        batch_size=batch_size,
        device=device,
        threads=torch.get_num_threads(),
    )


def _missing() -> dict[Any, Any]:
    """The formula that torch's counter lacks before 2.15: attention on a CPU."""
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return {} if attention in flop_registry else {attention: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v)}


class _Whole(nn.Module):
    def __init__(self, body: nn.Module, num_classes: int) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(cast(TimmModel, body).num_features, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x))
        return logits


@torch.no_grad()
def _seconds(work: Callable[[], Tensor], device: str) -> float:
    """The median of repeated passes, after one to warm up."""

    def once() -> float:
        began = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    once()
    first = once()
    return statistics.median([first, *(once() for _ in range(max(FEWEST, min(MOST, int(SECONDS / first))) - 1))])
