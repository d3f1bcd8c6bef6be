"""What is measured at evaluation."""

from __future__ import annotations

from fedbench import hookimpl


def accuracy():
    """The share of images whose largest logit is their class, a fraction."""
    return lambda logits, y: (logits.argmax(1) == y).double().mean().item()


def loss():
    """The mean cross-entropy."""
    from torch.nn.functional import cross_entropy

    return lambda logits, y: cross_entropy(logits.double(), y).item()


@hookimpl
def fedbench_register_metrics(register):
    register("accuracy", accuracy)
    register("loss", loss)
