"""Checks of allocations: who holds which layers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fedbench.errors import UserError
from fedbench.families import allocation as alloc
from fedbench.method import State
from fedbench.testing.setups import expect, same, twice
from fedbench.types import Plan

CAPACITIES = ([1], [6], [6, 3, 1], [2, 2, 2], [1, 1], [5, 4, 3, 2, 1, 6])
Allocate = Callable[..., Any]


def check_allocation(
    allocate: Allocate,
    num_layers: int = 6,
    exact: bool | None = None,
    draws: int = 5,
    again: Callable[[], Allocate] | None = None,
) -> None:
    """Check an allocation.

    M is (N, L) bool with row sums L_n (`exact=False`: at most). Chance comes from its generator alone, and does where
    it takes one. Its inputs stay unchanged, and it returns the same whatever was asked before. `again` makes another
    one.
    """
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
    if "generator" in inspect.signature(allocate).parameters:
        _check_draws(first, cases, num_layers)


def _registered(allocate: Allocate, exact: bool | None) -> Allocate:
    made = functools.partial(allocate)
    vars(made).update({} if exact is None else {"exact": exact})
    return made


def _check_draws(allocate: Allocate, cases: Sequence[tuple[int, ...]], L: int) -> None:
    """Somewhere another seed makes another M: it may be but among layers that are equal, as all are at the start."""
    free = False
    for capacities in cases:
        for state in (_state(L, None), _state(L, 0)):
            drawn = functools.partial(_draw, allocate, torch.tensor(capacities), 0, state, _costs(L))
            if alloc.is_free(drawn(torch.Generator().manual_seed(0))):
                if not alloc.is_deaf(drawn):
                    return
                free = True
    expect(
        not free,
        f"the allocation gives the same M for {alloc.SEEDS} seeds, though it takes a generator: draw from that, or "
        "leave it out of the parameters; if an option makes it draw, set that by --set",
    )


def _state(L: int, t: int | None) -> State:
    """What is known of the layers in round t; None: where no round has been."""
    if t is None:
        return alloc.nothing_known(L)
    scores = torch.rand(L, dtype=torch.float64, generator=torch.Generator().manual_seed(t))
    return {"scores": scores, "history": torch.arange(L)}


def _costs(L: int) -> Tensor:
    """(L,): all layers cost the same."""
    return torch.full((L,), 1e6, dtype=torch.float64)


def _draw(
    allocate: Allocate, L_n: Tensor, t: int, state: State, costs: Tensor, chance: torch.Generator
) -> Tensor | Plan:
    """What it gives these clients in round t, of layers that cost as much, costs (L,)."""
    known: dict[str, Callable[[], Any]] = {
        "ranks": lambda: None,
        "layer_memory": costs.clone,
        "memory_budgets": lambda: L_n * 1e6,
    }
    return alloc.draw(allocate, L_n, len(costs), t, range(len(L_n)), state, chance, lambda: costs, known)


def _drawn(allocate: Allocate, capacities: tuple[int, ...], t: int, L: int) -> Tensor:
    """M (N, L) of round t."""
    L_n, state, costs = torch.tensor(capacities, dtype=torch.int64), _state(L, t), _costs(L)

    def draw() -> dict[str, Any]:
        made = _draw(allocate, L_n, t, state, costs, torch.Generator().manual_seed(t))
        return vars(made) if isinstance(made, Plan) else {"M": made}

    try:
        M: Tensor = twice(draw, "the allocation", L_n, state, costs)["M"]
    except UserError as error:
        raise AssertionError(f"{error} (capacities {list(capacities)}, {L} layers)") from None
    expect(M.shape[1] == L, f"the allocation must give {L} columns, not {M.shape[1]}")
    return M
