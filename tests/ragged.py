"""For tests of engines: cohorts in which nothing is even, and equality to 1e-12."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from fedbench.testing.setups import CLASSES
from fedbench.types import Cohort


def ragged(
    capacities: Sequence[int],
    steps: Sequence[int],
    sizes: Sequence[int],
    ids: Sequence[int] | None = None,
    arrives: Sequence[bool] | None = None,
    ranks: Sequence[int] | None = None,
) -> Cohort:
    """A cohort whose clients differ in number of steps, in the size of every batch, and in whether they return."""
    numbers = ids or list(range(len(capacities)))

    def batches(n: int) -> Iterator[tuple[Tensor, Tensor]]:
        draw = torch.Generator().manual_seed(numbers[n])
        for step in range(steps[n]):
            size = sizes[(n + step) % len(sizes)]
            yield (
                torch.randn(size, 3, 8, 8, generator=draw, dtype=torch.float64),
                torch.randint(CLASSES, (size,), generator=draw),
            )

    return Cohort(
        numbers,
        torch.tensor(capacities),
        torch.tensor([4 + n for n in range(len(capacities))]),
        torch.tensor(steps),
        batches,
        torch.ones(len(capacities), dtype=torch.bool) if arrives is None else torch.tensor(arrives),
        None if ranks is None else torch.tensor(ranks),
    )


def same(one: Any, two: Any, path: str = "") -> None:
    """Raises AssertionError unless both have the same structure, and tensors equal to 1e-12."""
    if isinstance(one, dict):
        assert one.keys() == two.keys(), path
        for key in one:
            same(one[key], two[key], f"{path}/{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(two), path
        for i, (a, b) in enumerate(zip(one, two, strict=True)):
            same(a, b, f"{path}/{i}")
    elif isinstance(one, Tensor):
        torch.testing.assert_close(
            one, two, rtol=1e-12, atol=1e-12, equal_nan=True, msg=lambda text: f"{path}: {text}"
        )  # the loss over no step is none
    else:
        assert one == two, path
