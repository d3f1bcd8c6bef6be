"""Checks of allocations: who holds which layers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fedbench.errors import UserError
from fedbench.families import allocation as alloc
from fedbench.method import State
from fedbench.testing.world import expect, same, twice
from fedbench.types import Plan

CAPACITIES = ([1], [6], [6, 3, 1], [2, 2, 2], [1, 1], [5, 4, 3, 2, 1, 6])
Allocate = Callable[..., Any]


class _Registered(functools.partial[Any]):
    """An allocation with what it is registered with."""

    exact: bool


def check_allocation(
    allocate: Allocate,
    num_layers: int = 6,
    exact: bool | None = None,
    draws: int = 5,
    again: Callable[[], Allocate] | None = None,
) -> None:
    """M is (N, L) bool with row sums L_n (exact=False: at most), chance by its generator alone, inputs unchanged, and
    the same whatever was asked before. again: makes it anew."""
    first = _registered(allocate, exact)
    cases = [tuple(min(c, num_layers) for c in capacities) for capacities in CAPACITIES]
    asked = [(capacities, t) for capacities in [*cases, ()] for t in range(draws)]
    given = {one: _drawn(first, *one, num_layers) for one in asked}
    other = _registered(again() if again else allocate, exact)
    for one in reversed(asked):
        expect(
            same(given[one], _drawn(other, *one, num_layers)),
            f"the allocation of round {one[1]} depends on what it was asked before: keep nothing between calls; "
            "what it may know is `round`, `scores` and `history`",
        )


def _registered(allocate: Allocate, exact: bool | None) -> Allocate:
    if exact is None:
        return allocate
    made = _Registered(allocate)
    made.exact = exact
    return made


def _drawn(allocate: Allocate, capacities: tuple[int, ...], t: int, L: int) -> Tensor:
    """M (N, L) of round t."""
    L_n = torch.tensor(capacities, dtype=torch.int64)
    scores = torch.rand(L, dtype=torch.float64, generator=torch.Generator().manual_seed(t))
    state: State = {"scores": scores, "history": torch.arange(L)}
    costs = torch.full((L,), 1e6, dtype=torch.float64)
    known: dict[str, Callable[[], Any]] = {
        "ranks": lambda: None,
        "layer_memory": costs.clone,
        "memory_budgets": lambda: L_n * 1e6,
    }

    def draw() -> dict[str, Any]:
        chance = torch.Generator().manual_seed(t)
        made = alloc.draw(allocate, L_n, L, t, range(len(L_n)), state, chance, lambda: costs, known)
        return vars(made) if isinstance(made, Plan) else {"M": made}

    try:
        M: Tensor = twice(draw, "the allocation", L_n, state, costs)["M"]
    except UserError as error:
        raise AssertionError(f"{error} (capacities {list(capacities)}, {L} layers)") from None
    expect(M.shape[1] == L, f"the allocation must give {L} columns, not {M.shape[1]}")
    return M
