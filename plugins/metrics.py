"""Metrics that evaluation reports; each is read off sums that add up over batches."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from fedbench import hookimpl
from fedbench.options import Count
from fedbench.types import SummedMetric


def accuracy():
    """The share of examples whose largest logit is their class, a fraction."""
    return SummedMetric(lambda logits, y: _count(logits.argmax(1) == y), _ratio)


def loss():
    """The mean cross-entropy."""

    def sums(logits: Tensor, y: Tensor) -> Tensor:
        total = F.cross_entropy(logits.double(), y, reduction="sum")
        return torch.stack([total, total.new_tensor(len(y))])

    return SummedMetric(sums, _ratio)


def top5_accuracy():
    """The share of examples whose class is among the five largest logits, a fraction. Of equal logits the first class
    comes first, as in accuracy."""

    def sums(logits: Tensor, y: Tensor) -> Tensor:
        own, classes = logits.gather(1, y[:, None]), torch.arange(logits.shape[1], device=logits.device)
        before = (logits > own) | ((logits == own) & (classes < y[:, None]))
        return _count(before.sum(1) < 5)

    return SummedMetric(sums, _ratio)


def balanced_accuracy():
    """The mean over the classes that occur of the share of their examples that are right, a fraction: each class
    counts the same, however many examples it has."""

    def value(sums: Tensor) -> float:
        right, own, _ = sums.double()
        return (right / own)[own > 0].mean().item()

    return SummedMetric(_by_class, value)


def macro_f1():
    """The mean F1 = 2 TP / (2 TP + FP + FN) over the classes that occur or are answered, a fraction."""

    def value(sums: Tensor) -> float:
        right, own, answered = sums.double()
        return (2 * right / (own + answered))[own + answered > 0].mean().item()

    return SummedMetric(_by_class, value)


def ece(bins: Count = 15):
    """The expected calibration error: sum_b n_b / n |accuracy_b - confidence_b| over equal-width bins of the
    confidence, the largest softmax probability (Guo et al., ICML 2017, Eq. 3). A bin holds its upper edge."""

    def sums(logits: Tensor, y: Tensor) -> Tensor:
        confidence, answer = logits.double().softmax(1).max(1)
        of_bin = F.one_hot((confidence * bins).ceil().long().clamp(1, bins) - 1, bins).double()
        return torch.stack([torch.ones_like(confidence), confidence, (answer == y).double()]) @ of_bin

    def value(sums: Tensor) -> float:
        n, confidence, right = sums
        return ((right - confidence).abs().sum() / n.sum()).item()

    return SummedMetric(sums, value)


def auroc(bins: Count = 1000):
    """The area under the ROC curve of each class against the rest, by its softmax probability: the mean over the
    classes of which there are examples and others, a fraction; 0.5 where there are none.

    Probabilities are rounded to multiples of 1 / bins, and equal ones count one half: exact for probabilities on these
    steps; else pairs of examples that are closer than a step may count one half.
    """

    def sums(logits: Tensor, y: Tensor) -> Tensor:
        steps = (logits.double().softmax(1) * bins).round().long()  # (n, C)
        C = steps.shape[1]
        places = steps + (bins + 1) * (torch.arange(C, device=y.device) + C * F.one_hot(y, C))
        return torch.bincount(places.flatten(), minlength=2 * C * (bins + 1)).view(2, C, bins + 1)

    def value(sums: Tensor) -> float:
        others, own = sums.double()  # (C, bins + 1)
        ahead = (own * (others.cumsum(1) - others / 2)).sum(1)  # of how many others the examples of a class are ahead
        pairs = own.sum(1) * others.sum(1)
        return (ahead / pairs)[pairs > 0].mean().item() if pairs.any() else 0.5

    return SummedMetric(sums, value)


def _count(right: Tensor) -> Tensor:
    """(2,) int64: how many are right, and how many there are."""
    return torch.stack([right.sum(), right.new_tensor(len(right), dtype=torch.int64)])


def _ratio(sums: Tensor) -> float:
    part, whole = sums.double()
    return (part / whole).item()


def _by_class(logits: Tensor, y: Tensor) -> Tensor:
    """(3, C) int64: how many examples of each class are right, how many there are, and how many are answered so."""
    answer, C = logits.argmax(1), logits.shape[1]
    return torch.stack([torch.bincount(one, minlength=C) for one in (y[answer == y], y, answer)])


@hookimpl
def fedbench_register_metrics(register):
    register("accuracy", accuracy)
    register("loss", loss)
    register("top5_accuracy", top5_accuracy, better="higher", unit="%")
    register("balanced_accuracy", balanced_accuracy, better="higher", unit="%")
    register("macro_f1", macro_f1, better="higher", unit="%")
    register("ece", ece, better="lower", unit="%", paper="Guo et al., ICML 2017, arXiv 1706.04599")
    register("auroc", auroc, better="higher", unit="%")
