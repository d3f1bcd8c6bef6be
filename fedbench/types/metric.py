"""Metrics that are read off sums, so that no logits need to be kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedbench.types.dataset import CLASSIFICATION

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class SummedMetric:
    """A metric that is read off sums over examples. It is also a function of logits and labels, as any metric is.

    Attributes:
        sums: `sums(logits, y) -> Tensor` of a batch, of the same shape for every batch. The tensors of several batches
            are added up; float64 or int64, so that nothing is lost.
        value: `value(sums) -> float` of the tensors of all batches together.
        task: The task of the data that it measures. Of `next_token` the rows (n, 6) of
            `fedbench.models.tokens.example_rows` stand in the place of logits.
    """

    sums: Callable[[Tensor, Tensor], Tensor]
    value: Callable[[Tensor], float]
    task: str = CLASSIFICATION

    def __call__(self, logits: Tensor, y: Tensor) -> float:
        """Return the metric of one batch, logits (n, C) and labels (n,)."""
        return self.value(self.sums(logits, y))


def measured(metric: Callable[[Tensor, Tensor], Any], batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Return a metric of examples that come in batches of logits (n, C) and labels (n,), one batch at least.

    Of a `SummedMetric` the sums alone are kept; a plain function is given the logits of all batches at once.
    """
    if isinstance(metric, SummedMetric):
        batches = iter(batches)
        total = metric.sums(*next(batches))
        for logits, y in batches:
            total = total + metric.sums(logits, y)
        return float(metric.value(total))
    import torch

    logits, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    return float(metric(logits, y))
