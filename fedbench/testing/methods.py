"""Checks of whole methods: state, round, predictor and cost, as `fedbench/method.py` describes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fedbench.method import Method, State
from fedbench.registry.registry import Registry
from fedbench.seeding import generator
from fedbench.testing.world import CLASSES, cohort_of, expect, same, setup_of, tiny_vit, twice, untouched
from fedbench.types import ClientCost, Cohort, Report, Size

CAPACITIES = (4, 3, 1)


def check_method(
    make: Callable[..., Method],
    registry: Registry | None = None,
    model: Callable[[], nn.Module] = tiny_vit,
    capacities: tuple[int, ...] = CAPACITIES,
    ranks: tuple[int, ...] | None = None,
    widths: tuple[float, ...] | None = None,
    **options: Any,
) -> None:
    """`make(setup, **options)` on a tiny backbone: two rounds, an empty one, lost clients, evaluation and costs.

    registry: the installed plugins, where they are loaded already · model: the backbone, 4 layers by default · ranks,
    widths: one for each client, as a scenario may give them.
    """
    registry, r_n, g_n = registry or Registry(), list(ranks) if ranks else None, list(widths) if widths else None

    def made() -> Method:
        setup = setup_of(registry, model(), list(capacities), ranks=r_n, widths=g_n)
        return make(replace(setup, by_client=True), **options)  # so that those without a global model are tried too

    def cohort() -> Cohort:
        return cohort_of(list(capacities), ranks=r_n, widths=g_n)

    method = made()
    expect(isinstance(method, Method), f"make(setup) must return a fedbench.method.Method, not {type(method).__name__}")
    start = state = twice(lambda: method.init(generator(0)), "init")
    check_state(state, "init")
    for t in range(2):
        state = _check_round(method, state, t, cohort)
    expect(
        same(state, _two_rounds(made(), cohort)),
        "a method made anew must do the same: keep nothing outside `state`",
    )
    _check_empty_round(method, state, cohort().only([]))
    for given in (start, state):
        _check_round_without_return(method, given, cohort)
    for lost in {0, len(capacities) - 1}:
        _check_lost_client(method, state, cohort, lost)
    _check_predictor(method, state)
    _check_offered(method)
    _check_sizes(method, state)
    nothing = [None] * len(capacities)
    for capacity, rank, width in dict.fromkeys(zip(capacities, ranks or nothing, widths or nothing, strict=True)):
        named = {"capacity": capacity, "rank": rank, "width": width}
        told = " and ".join(f"{name} {value}" for name, value in named.items() if value is not None)
        for t in range(2):
            _check_cost(method.price(capacity, t, rank, width), f"the cost of a client of {told}")


def _check_offered(method: Method) -> None:
    """What it offers clients that have devices: different sizes, the smallest first, each with a price."""
    if method.sizes is None:
        return
    sizes = list(method.sizes)
    expect(bool(sizes), "`sizes` must not be empty: None says that there is one size")
    for size in sizes:
        expect(isinstance(size, Size), f"`sizes` must be of fedbench.types.Size, not {type(size).__name__}")
    order = [(size.capacity, size.rank or 0, size.width or 0.0) for size in sizes]
    rises = all(before < after for before, after in zip(order, order[1:], strict=False))
    expect(rises, f"`sizes` must be different, the smallest first, not {', '.join(map(str, sizes))}")
    for size in sizes:
        _check_cost(method.price(size.capacity, 0, size.rank, size.width), f"the cost of the size {size}")


def _check_cost(cost: ClientCost | None, what: str) -> None:
    if cost is None:
        return
    totals = {name: getattr(cost, name) for name in ("flops_per_image", "bytes_down", "bytes_up", "memory_bytes")}
    moves = ("bytes_down", "bytes_up") if not cost.sent else ()
    positive = [totals[name] > 0 for name in ("flops_per_image", "memory_bytes", *moves)]
    expect(all(positive), f"{what} must be positive, not {totals}")
    if cost.sent:
        named = {"bytes_down": sum(s.down for s in cost.sent), "bytes_up": sum(s.up for s in cost.sent)}
        for name, total in named.items():
            expect(totals[name] == total, f"{what}: {name} is {totals[name]}, but what is `sent` makes {total}")
        expect(any(line[1] + line[2] for line in cost.exchange(1, 1)), f"{what}: nothing is sent at all")


def _two_rounds(method: Method, cohort: Callable[[], Cohort]) -> State:
    state = method.init(generator(0))
    for t in range(2):
        state, _ = method.round(state, t, cohort(), generator(0, t))
    return state


def _check_round(method: Method, state: State, t: int, cohort: Callable[[], Cohort]) -> State:
    now = cohort()
    new: State = twice(lambda: method.round(state, t, now, generator(0, t))[0], "round", state)
    _, report = method.round(state, t, now, generator(0, t))
    check_state(new, "round")
    expect(isinstance(report, Report), f"round must return (state, Report), not {type(report).__name__}")
    N = len(report.cohort)
    M, up = report.plan.M, report.uploads
    expect(M.dtype == torch.bool and M.dim() == 2 and len(M) == N, f"report.plan.M must be bool ({N}, L)")
    expect(len(report.cost) == N, f"report.cost must have one entry for each of {N} clients")
    for name in ("arrived", "loss", "steps", "seconds"):
        expect(len(getattr(up, name)) == N, f"report.uploads.{name} must have one entry for each of {N} clients")
    returned = report.plan.trains[up.arrived].any(0)
    for j in (~returned).nonzero().flatten().tolist() if "r" in new else ():
        expect(same(new["r"][j], state["r"][j]), f"layer {j} came back from nobody and must keep its value")
    return new


def _check_empty_round(method: Method, state: State, nobody: Cohort) -> None:
    after, report = method.round(state, 2, nobody, generator(0, 2))
    expect(same(after, state), "a round in which nobody takes part must leave the state as it is")
    expect(len(report.cost) == 0, "a round in which nobody takes part must cost nothing")


def _check_round_without_return(method: Method, state: State, cohort: Callable[[], Cohort]) -> None:
    everybody = cohort()
    nobody = replace(everybody, arrives=torch.zeros_like(everybody.arrives))
    after, _ = method.round(state, 2, nobody, generator(0, 2))
    expect(same(after, state), "a round from which nobody returns (`cohort.arrives`) must leave the state as it is")


def _check_lost_client(method: Method, state: State, cohort: Callable[[], Cohort], lost: int) -> None:
    """Whatever its images are, the next state is the same."""
    everybody = cohort()
    plain = replace(everybody, arrives=torch.arange(len(everybody)) != lost)
    other = replace(plain, batches=lambda n: _others(plain.batches(n)) if n == lost else plain.batches(n))
    (one, report), (two, _) = (method.round(state, 2, who, generator(0, 2)) for who in (plain, other))
    told = f"the work of client {lost} is lost (`cohort.arrives`)"
    expect(not (report.uploads.arrived & ~report.cohort.arrives).any(), f"{told}, but report.uploads has it arrived")
    expect(same(one, two), f"{told}, but its images change the state")


def _others(batches: Iterator[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """Other images with other labels."""
    return ((2 * x.flip(-1) + 1, (y + 1) % CLASSES) for x, y in batches)


def _check_predictor(method: Method, state: State) -> None:
    x = torch.randn(5, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))

    def answers(client: int | None) -> dict[str, Tensor]:
        with torch.no_grad():
            given = method.predictor(state, client=client)(x)
        return dict(given) if isinstance(given, Mapping) else {"": given}

    for client in (None, 0):
        for name, logits in twice(partial(answers, client), "the predictor", state, x).items():
            fits = logits.shape == (5, CLASSES) and logits.isfinite().all()
            expect(fits, f"the predictor must give finite logits (5, {CLASSES}){f' for {name!r}' if name else ''}")
    expect(isinstance(method.personal, bool), f"`personal` must be true or false, not {method.personal!r}")


def _check_sizes(method: Method, state: State) -> None:
    """What clients can run, at every size that the method offers and has a model for."""
    if method.at is None:
        return
    x = torch.randn(5, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    least = 0
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


def check_state(state: Any, who: str = "the method") -> None:
    """Nested dicts (with texts as keys) and lists of contiguous tensors and JSON scalars; no tensor's memory occurs
    twice."""
    seen: dict[int, str] = {}

    def walk(value: Any, place: str) -> None:
        if isinstance(value, dict):
            for key, part in value.items():
                expect(isinstance(key, str), f"{who}: the keys of {place} must be texts, not {key!r}")
                walk(part, f"{place}[{key!r}]")
        elif isinstance(value, list):
            for i, part in enumerate(value):
                walk(part, f"{place}[{i}]")
        elif isinstance(value, Tensor):
            expect(not value.requires_grad, f"{who}: {place} must be detached")
            expect(value.is_contiguous(), f"{who}: {place} is not contiguous, as it is when read from disk")
            memory = value.untyped_storage().data_ptr()
            twin = seen.setdefault(memory, place) if value.numel() else place
            expect(twin == place, f"{who}: {place} shares its memory with {twin}; clone one of them")
        else:
            plain = value is None or isinstance(value, bool | int | float | str)
            expect(plain, f"{who}: {place} is a {type(value).__name__}, which is neither tensor nor JSON")
            json.dumps(value)

    expect(isinstance(state, dict), f"{who} must give a dict as state, not {type(state).__name__}")
    walk(state, "state")
