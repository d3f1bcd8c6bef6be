"""What others' aggregators, methods and objectives return, looked at before anybody computes with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedbench.data.checked import of_what
from fedbench.method import State
from fedbench.models.places import places
from fedbench.types import Report


def fault_of_state(given: State, made: Any) -> str:
    """What is wrong with what an aggregator made of a state, in a sentence; "" where nothing is. Its layers and what
    they share have tensors of the same names, shapes and types."""
    if not isinstance(made, Mapping):
        return f"it returned {of_what(made)} where a state is right: a dict with all that it was given"
    if not _laid_out(given):
        return ""  # of another's method, which has a layout of its own
    if lacks := [part for part in ("r", "shared") if part not in made]:
        return f"it returned a state without {lacks[0]!r}: begin with dict(state)"
    if not _laid_out(made) or len(made["r"]) != len(given["r"]):
        return (
            'it returned a state in another layout: state["r"] is a list with a dict of tensors for each of '
            f'{len(given["r"])} layers, state["shared"] a dict of tensors'
        )
    was, new = dict(places(given)), dict(places(made))
    for place in [*was, *new]:
        if place not in new:
            return f"it returned a state without {place}, which it was given"
        if place not in was:
            return f"it returned a state with {place}, which it was not given"
        if not _alike(new[place], was[place]):
            return f"it returned {of_what(new[place])} for {place}, where {of_what(was[place])} is right"
    return ""


def fault_of_round(made: Any) -> str:
    """What is wrong with what a method made of a round, in a sentence; "" where nothing is."""
    if not isinstance(made, tuple) or len(made) != 2:
        return f"a round returns (state, Report), not {of_what(made)}"
    state, report = made
    if not isinstance(state, Mapping) or not isinstance(report, Report):
        return f"a round returns (state, Report), not ({of_what(state)}, {of_what(report)})"
    return ""


def fault_of_loss(exits: Sequence[Tensor], loss: Any) -> str:
    """What is wrong with what an objective made of a client's logits, in a sentence; "" where nothing is."""
    if not isinstance(loss, Tensor) or loss.dim():
        return f"the loss must be a scalar tensor, not {of_what(loss)}; take a mean over the batch"
    if torch.is_grad_enabled() and any(logits.requires_grad for logits in exits) and not loss.requires_grad:
        return "the loss has no gradient: do not detach it"
    return ""


def _alike(one: Any, other: Tensor) -> bool:
    return isinstance(one, Tensor) and (one.shape, one.dtype) == (other.shape, other.dtype)


def _laid_out(made: Mapping[str, Any]) -> bool:
    layers, shared = made.get("r"), made.get("shared")
    return isinstance(layers, list | tuple) and all(isinstance(part, Mapping) for part in (*layers, shared))
