"""M, the allocation matrix: who holds which layers (FedRA, Sec. 3.5)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedbench.errors import UserError
from fedbench.models.lowrank import FROZEN
from fedbench.models.param_paths import layer_of
from fedbench.types import Plan

# Redrawing M until every column has a one is tried this often before the last draw is repaired.
COVER_DRAWS = 1000
SEEDS = 16  # for which an allocation that takes a generator is asked whether it draws from it


def prefix(capacities: Tensor, num_layers: int) -> Tensor:
    """S_n = {1, ..., L_n}: the first L_n layers (InclusiveFL, DepthFL). capacities (N,) -> M (N, L) bool."""
    return torch.arange(num_layers) < capacities[:, None]


def random(capacities: Tensor, num_layers: int, generator: torch.Generator) -> Tensor:
    """FedRA's draw: row n has L_n ones, every layer with probability L_n / L, rows independent. -> M (N, L) bool."""
    scores = torch.rand(len(capacities), num_layers, generator=generator, dtype=torch.float64)
    rank = scores.argsort(dim=1).argsort(dim=1)  # a uniformly random permutation of each row
    return rank < capacities[:, None]


def cover(capacities: Tensor, num_layers: int, generator: torch.Generator) -> Tensor:
    """FedRA's draw conditioned on full columns, sum_n M_nj > 0 (v1, Eq. 4). -> M (N, L) bool.

    Drawn by rejection. When `COVER_DRAWS` draws leave a column empty, or sum_n L_n < L makes full columns
    impossible, the last draw is repaired: an empty layer goes to a random client that holds a layer others
    hold too, in exchange for that layer; so as many layers are covered as sum_n L_n allows.
    """
    M = random(capacities, num_layers, generator)
    if capacities.sum() >= num_layers:
        for _ in range(COVER_DRAWS):
            if M.any(0).all():
                return M
            M = random(capacities, num_layers, generator)
    return _repair(M, generator)


def _repair(M: Tensor, generator: torch.Generator) -> Tensor:
    M = M.clone()
    empty = (~M.any(0)).nonzero().flatten()
    for j in empty[torch.randperm(len(empty), generator=generator)].tolist():
        spare = (M & (M.sum(0) > 1)).nonzero()  # the (n, i) that can be given up: others hold layer i too
        if len(spare) == 0:
            break
        n, i = spare[torch.randint(len(spare), (1,), generator=generator)].squeeze(0).tolist()
        M[n, i], M[n, j] = False, True
    return M


def check(M: Tensor, capacities: Tensor, exact: bool = True, name: str = "the allocation") -> Tensor:
    """M itself, if it is (N, L) bool and row n sums to L_n (or, with exact=False, to at most L_n).

    Raises UserError otherwise.
    """
    if not isinstance(M, Tensor) or M.dtype != torch.bool or M.dim() != 2 or len(M) != len(capacities):
        got = f"{M.dtype} {tuple(M.shape)}" if isinstance(M, Tensor) else type(M).__name__
        raise UserError(
            f"{name} must return a bool tensor with one row for each of {len(capacities)} clients, got {got}"
        )
    held = M.sum(1)
    wrong = held != capacities if exact else held > capacities
    if wrong.any():
        n = int(wrong.nonzero()[0])
        relation = "" if exact else "at most "
        raise UserError(
            f"{name} gave client {n} of the round {held[n]} layers; its capacity is {relation}{capacities[n]}"
        )
    return M


def check_plan(plan: Plan, capacities: Tensor, exact: bool = True, name: str = "the allocation") -> Plan:
    """The plan itself, if it gives every client its number of layers to train, and nobody trains what he does not hold.

    Raises UserError otherwise.
    """
    check(plan.trains, capacities, exact, name)
    M = plan.M
    parts: list[tuple[str, Tensor | None, Tensor]] = [("layers", plan.trained, M)]
    if plan.terms is not None:
        parts.append(("terms", plan.terms, M[:, :, None]))
    held = M[:, :, None] if plan.terms is None else plan.terms
    parts.append(("terms", plan.trained_terms, held))
    for what, some, of in parts:
        if some is not None and (some & ~of).any():
            n = int((some & ~of).flatten(1).any(1).nonzero()[0])
            raise UserError(f"{name} lets client {n} of the round hold or train {what} of layers it does not hold")
    return plan


def draw(
    allocate: Callable[..., Tensor | Plan],
    L_n: Tensor,
    L: int,
    t: int,
    client_ids: Sequence[int],
    state: dict[str, Any],
    generator: torch.Generator,
    layer_costs: Callable[[], Tensor],
    known: Mapping[str, Callable[[], Any]] | None = None,
) -> Tensor | Plan:
    """Call an allocation with the inputs that it names (see `hookspecs`), and check the M or the Plan that it returns.

    `known` has further inputs by name.
    """
    costs = functools.cache(layer_costs)
    inputs: dict[str, Callable[[], Any]] = {
        "capacities": lambda: L_n.clone(),
        "num_layers": lambda: L,
        "generator": lambda: generator,
        "round": lambda: t,
        "client_ids": lambda: list(client_ids),
        "layer_costs": lambda: costs().clone(),
        "budgets": lambda: L_n * costs().mean(),
        "scores": lambda: state["scores"].clone(),
        "history": lambda: state["history"].clone(),
        **(known or {}),
    }
    wanted = inspect.signature(allocate).parameters.keys() & inputs.keys()
    made = allocate(**{name: inputs[name]() for name in wanted})
    exact, name = getattr(allocate, "exact", True), getattr(allocate, "name", "the allocation")
    return check_plan(made, L_n, exact, name) if isinstance(made, Plan) else check(made, L_n, exact, name)


def is_free(made: Tensor | Plan) -> bool:
    """Whether there was anything to choose: some client that trains a layer, and not all."""
    M = made.trains if isinstance(made, Plan) else made
    return isinstance(M, Tensor) and M.dim() == 2 and bool(((M.sum(1) > 0) & (M.sum(1) < M.shape[1])).any())


def is_deaf(drawn: Callable[[torch.Generator], Tensor | Plan]) -> bool:
    """Whether the same comes out for all SEEDS seeds of a generator."""
    first = _tensors(drawn(torch.Generator().manual_seed(0)))
    for seed in range(1, SEEDS):
        other = _tensors(drawn(torch.Generator().manual_seed(seed)))
        if not all(torch.equal(one, two) for one, two in zip(first, other, strict=True)):
            return False
    return True


def _tensors(made: Tensor | Plan) -> list[Tensor]:
    return [part for part in vars(made).values() if isinstance(part, Tensor)] if isinstance(made, Plan) else [made]


def nothing_known(L: int) -> dict[str, Any]:
    """What the state has for allocations before the first round: no layer was ever updated."""
    return {"scores": torch.zeros(L, dtype=torch.float64), "history": torch.zeros(L, dtype=torch.int64)}


def remember(old: dict[str, Any], new: dict[str, Any], returned: Tensor) -> dict[str, Any]:
    """Return the state with the figures of layers that allocations may read.

    `history` counts the updates that each layer has received. `scores` is the norm of its last update, adapters and
    additions to frozen weights together. `returned` (n, L) bool has the rows of M that arrived.
    """
    count = returned.sum(0)
    moved = torch.stack([norm.double().cpu() for norm in _moved(old, new)])
    scores = torch.where(count > 0, moved, old["scores"])
    return {**new, "history": old["history"] + count, "scores": scores}


def _moved(old: dict[str, Any], new: dict[str, Any]) -> list[Tensor]:
    """The norm of what has changed of every layer: its adapters, and what was added to its frozen weights."""
    squares = [
        sum((((r_j[name] - before[name]).double() ** 2).sum() for name in r_j), torch.zeros(()))
        for r_j, before in zip(new["r"], old["r"], strict=True)
    ]
    additions = old.get(FROZEN, {})
    for place, value in new.get(FROZEN, {}).items():
        j = layer_of(place)
        if j is not None and value is not additions.get(place):
            added = value - additions[place] if place in additions else value
            squares[j] = squares[j] + (added.double() ** 2).sum()
    return [square.sqrt() for square in squares]
