"""Checks of what methods answer for images: predictors, and what clients of each size can run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from fedbench.method import Method, Predict, State
from fedbench.seeding import generator
from fedbench.testing.world import CLASSES, close, expect, same, twice, untouched


def answers(method: Method, state: State, x: Tensor, client: int | None = None) -> dict[str, Tensor]:
    """What a state answers for images (n, 3, H, H), by the name of the model; "" where there is one."""
    with torch.no_grad():
        return _asked(method.predictor(state, client=client), x)


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
        given = twice(partial(answers, method, state, x, client), "the predictor", state, x)
        for name, logits in given.items():
            fits = logits.shape == (5, CLASSES) and logits.isfinite().all()
            expect(fits, f"the predictor must give finite logits (5, {CLASSES}){f' for {name!r}' if name else ''}")
        _check_images_alone(partial(answers, method, state, client=client), x, given, "the predictor")
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
            predict = method.at(state, size)
            given = _asked(predict, x)
            for logits in given.values():
                fits = logits.shape == (5, CLASSES) and logits.isfinite().all()
                expect(fits, f"`at` must give finite logits (5, {CLASSES}) for {size}")
            _check_images_alone(partial(_asked, predict), x, given, f"`at` for {size}")


def _check_images_alone(
    answer: Callable[[Tensor], dict[str, Tensor]], x: Tensor, given: Mapping[str, Tensor], what: str
) -> None:
    """What is said of an image is the same without the others of its batch, and wherever it stands there."""
    alone = [answer(image[None]) for image in x]
    back = answer(x.flip(0))
    for name, logits in given.items():
        own = close(logits, torch.cat([one[name] for one in alone])) and close(logits, back[name].flip(0))
        expect(
            own,
            f"{what} answers otherwise for an image where other images are in its batch: those are test images, which "
            "a model knows nothing of; take no mean over the batch, and leave normalisation to what was trained",
        )


def _asked(predict: Predict, x: Tensor) -> dict[str, Tensor]:
    given = predict(x)
    return dict(given) if isinstance(given, Mapping) else {"": given}
