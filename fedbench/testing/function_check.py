"""Checks of components that are plain functions: objectives, partitions, metrics and allocations."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.data.checked import fault_of_clients, of_what
from fedbench.errors import UserError
from fedbench.families import allocation as alloc
from fedbench.method import State
from fedbench.simulation.failure_reason import fault_of_loss
from fedbench.testing.setups import expect, refuse, same, shapes_are_enough, twice
from fedbench.types import CLASSIFICATION, MIXED, NEXT_TOKEN, Client, Clients, Objective, Plan, SummedMetric

Partition = Callable[..., list[Client]]
Metric = Callable[[Tensor, Tensor], float]
Allocate = Callable[..., Any]
CAPACITIES = ([1], [6], [6, 3, 1], [2, 2, 2], [1, 1], [5, 4, 3, 2, 1, 6])  # of allocations that are checked
BEFORE = "keep nothing between calls"


def check_objective(objective: Objective, again: Callable[[], Objective] | None = None) -> None:
    """Check an objective: a finite scalar with a gradient for every exit.

    It has one for one to four exits, for any round, and from shapes alone too. `again` makes another one.
    """
    asked = [(m, t) for m in range(1, 5) for t in (0, 1, 10_000)]
    given = {one: loss_of(objective, *one) for one in asked}
    other = again() if again else objective
    for one in reversed(asked):
        is_same = same(given[one], loss_of(other, *one))
        expect(is_same, f"the loss depends on what the objective was asked before: {BEFORE}")
    _check_shapes_alone(objective)


def loss_of(objective: Objective, m: int, t: int) -> Tensor:
    """The loss of m exits in round t."""
    y = torch.tensor([0, 1, 2, 0])
    leaves = [torch.randn(4, 3, generator=torch.Generator().manual_seed(i), dtype=torch.float64) for i in range(m)]
    for leaf in leaves:
        leaf.requires_grad_()
    seeded = "an objective has no chance of its own"
    loss: Any = twice(lambda: objective(leaves, y, t), "the objective", [o.detach() for o in leaves], y, instead=seeded)
    refuse((wrong := fault_of_loss(leaves, loss)) and f"of {m} exits {wrong}")
    expect(bool(loss.isfinite()), f"the loss of {m} exits in round {t} is {loss}")
    loss.backward()
    lacking = [i for i, o in enumerate(leaves) if o.grad is None or not o.grad.any()]
    expect(len(lacking) < m, f"the loss of {m} exits has no gradient: do not detach it")
    expect(
        not lacking,
        f"the loss of {m} exits does not depend on exit {lacking and lacking[0] + 1} of them: `exits` lists the logits "
        "of every classifier of a client, and one that is left out is never trained",
    )
    found: Tensor = loss.detach()
    return found


def _check_shapes_alone(objective: Objective) -> None:
    """What `fedbench plan` does to know prices."""
    exits = [torch.empty(4, 3, device="meta", requires_grad=True) for _ in range(2)]
    how = ": no `.item()`, no `if` on a tensor, new tensors by `torch.zeros_like` and the like"
    with shapes_are_enough("the objective", how):
        objective(exits, torch.empty(4, device="meta", dtype=torch.int64), 0).backward()


def check_partition(partition: Partition, again: Callable[[], Partition] | None = None) -> None:
    """Check a partition: ids 0, 1, ..., each image with at most one client.

    Images are of the client's domain, or it has the domain MIXED. Chance comes from the generator alone. `again` makes
    another one.
    """
    y, domain = np.tile(np.arange(4), 60), np.repeat(np.arange(3), 80)

    def dealt(seed: int, deal: Partition = partition) -> list[tuple[int, int, np.ndarray]]:
        clients = deal(y, domain, 3, np.random.default_rng(seed))
        found = isinstance(clients, list | tuple | Clients) and all(isinstance(client, Client) for client in clients)
        expect(found, fault_of_clients(clients, len(y)))
        return [(client.id, client.domain, client.indices) for client in clients]

    chance = "take `generator`, a numpy.random.Generator"
    for seed in (0, 1):
        clients = twice(functools.partial(dealt, seed), "the partition", y, domain, instead=chance)
        check_clients([Client(*client) for client in clients], y, domain)
        is_same = same(clients, dealt(seed, again() if again else partition))
        expect(is_same, f"the partition deals otherwise after it was asked before: {BEFORE}")


def check_clients(clients: list[Client], y: np.ndarray, domain: np.ndarray) -> None:
    """Clients who share out the images with these labels (n,) and domains (n,)."""
    refuse(fault_of_clients(clients, len(y)))
    for client in clients:
        expect(len(client) > 0, f"client {client.id} has no image")
    for client in clients:
        found = set(domain[client.indices].tolist())
        right = found == {client.domain} or (len(found) > 1 and client.domain == MIXED)
        expect(right, f"client {client.id} of domain {client.domain} holds images of another domain: {sorted(found)}")


def check_metric(metric: Metric, again: Callable[[], Metric] | None = None, percent: bool = False) -> None:
    """Check a metric: a finite number for any logits (n, C), the same each time, which leaves them unchanged.

    Of a `SummedMetric` the sums of batches add up. `again` makes another one; `percent` says whether tables show it
    times 100.
    """
    sizes = (1, 7, 4)
    given = {n: _measured(metric, n) for n in sizes}
    other = again() if again else metric
    for n, value in given.items():
        shown = f"the metric of {n} images is {value:g}, and is shown times 100"
        expect(not percent or value <= 1, f"{shown}: return a fraction, or register it with another `unit`")
    for n in reversed(sizes):
        is_same = same(given[n], _measured(other, n))
        expect(is_same, f"the metric depends on what it was asked before: {BEFORE}; domains come one after the other")
    if isinstance(metric, SummedMetric):
        _check_sums(metric)


def _check_sums(metric: SummedMetric) -> None:
    """The sums of batches, one of them without examples, add up to those of all their examples."""
    logits, y = _examples(7, metric)
    parts = [metric.sums(logits[part], y[part]) for part in (slice(0, 4), slice(4, 7), slice(7, 7))]
    whole = metric.sums(logits, y)
    kinds = {(one.shape, one.dtype) if isinstance(one, Tensor) else type(one) for one in (whole, *parts)}
    expect(
        isinstance(whole, Tensor) and len(kinds) == 1,
        "`sums` must return a tensor of the same shape and type for every batch, also for one without examples",
    )
    adds_up = torch.allclose(parts[0] + parts[1] + parts[2], whole, rtol=1e-9, atol=1e-9)
    expect(adds_up, "the `sums` of two batches do not add up to those of both together: take sums, not means")


def _examples(n: int, metric: Metric) -> tuple[Tensor, Tensor]:
    """Logits (n, 3) and classes; of a metric of next tokens the rows (n, 6) that stand in their place."""
    draw = torch.Generator().manual_seed(n)
    if getattr(metric, "task", CLASSIFICATION) == NEXT_TOKEN:
        tokens = torch.randint(1, 9, (n,), generator=draw)
        nll, right, chosen, number = torch.rand(4, n, generator=draw).double()
        rows = [3 * nll * tokens, tokens, (right * tokens).floor(), chosen < 0.5, right > 0.9, number < 0.5]
        return torch.stack([row.double() for row in rows], 1), torch.zeros(n, dtype=torch.int64)
    return torch.randn(n, 3, generator=draw), torch.arange(n) % 3


def _measured(metric: Metric, n: int) -> float:
    logits, y = _examples(n, metric)
    seeded = "fedbench.seeding.generator(0, use=...) gives one"
    value: Any = twice(functools.partial(metric, logits, y), "the metric", logits, y, instead=seeded)
    one = isinstance(value, Real) or (isinstance(value, Tensor | np.ndarray) and value.ndim == 0)
    expect(one, f"the metric of {n} images must be one number, not {of_what(value)}; take a mean over the images")
    expect(np.isfinite(float(value)), f"the metric of {n} images is {float(value)}")
    return float(value)


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
