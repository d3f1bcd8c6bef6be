"""Checks of what methods answer for images: predictors, and what clients of each size can run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from fedbench.method import Method, State
from fedbench.seeding import generator
from fedbench.testing.world import CLASSES, expect, same, twice, untouched


def answers(method: Method, state: State, x: Tensor, client: int | None = None) -> dict[str, Tensor]:
    """What a state answers for images (n, 3, H, H), by the name of the model; "" where there is one."""
    with torch.no_grad():
        given = method.predictor(state, client=client)(x)
    return dict(given) if isinstance(given, Mapping) else {"": given}


def some_images() -> Tensor:
    return torch.randn(5, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def check_answers(fresh: Method, used: Method, states: Sequence[State]) -> None:
    """A method made anew answers for a state what one does that has seen rounds since."""
    x = some_images()
    fresh.init(generator(0))
    for state in (states[0], states[-1]):
        one, two = (answers(method, state, x) for method in (fresh, used))
        told = "the predictor answers from something else than the state it is given: a state of an earlier round, or "
        expect(same(one, two), f"{told}one that was read from disk, must answer as it did then")


def check_predictor(method: Method, state: State) -> None:
    x = some_images()
    for client in (None, 0):
        for name, logits in twice(partial(answers, method, state, x, client), "the predictor", state, x).items():
            fits = logits.shape == (5, CLASSES) and logits.isfinite().all()
            expect(fits, f"the predictor must give finite logits (5, {CLASSES}){f' for {name!r}' if name else ''}")
    expect(isinstance(method.personal, bool), f"`personal` must be true or false, not {method.personal!r}")


def check_sizes(method: Method, state: State) -> None:
    """What clients can run, at every size that the method offers and has a model for."""
    if method.at is None:
        return
    x, least = some_images(), 0
    for size in method.sizes or ():
        running = method.running(size) if method.running else 1
        if running is None:
            continue
        expect(running >= least, f"`running`: {size} takes {running} bytes, less than a smaller size's {least}")
        least = running
        with untouched(state, what=f"`at` for {size}"), torch.no_grad():
            given = method.at(state, size)(x)
        for logits in given.values() if isinstance(given, Mapping) else [given]:
            fits = logits.shape == (5, CLASSES) and logits.isfinite().all()
            expect(fits, f"`at` must give finite logits (5, {CLASSES}) for {size}")
