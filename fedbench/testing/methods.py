"""Checks of whole methods: state, round, predictor and cost, as `fedbench/method.py` describes them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedbench.cell import state as on_disk
from fedbench.cell.clientstore import ClientStore
from fedbench.cell.returned import fault_of_round
from fedbench.engine.cohort import train as together
from fedbench.method import Method, State
from fedbench.models.places import places
from fedbench.registry.registry import Registry
from fedbench.seeding import generator
from fedbench.testing.answers import check_answers, check_predictor, check_sizes
from fedbench.testing.moving import check_moves
from fedbench.testing.prices import check_costs
from fedbench.testing.world import CLASSES, RandomBatches, close, cohort_of, expect, same, setup_of, tiny_vit, twice
from fedbench.types import ClientCost, Cohort, Report, Size

CAPACITIES = (4, 3, 1)
SPARE = 3  # batches that clients have beyond those of their steps
_checks = count()


def check_method(
    make: Callable[..., Method],
    registry: Registry | None = None,
    model: Callable[[], nn.Module] = tiny_vit,
    capacities: tuple[int, ...] = CAPACITIES,
    ranks: tuple[int, ...] | None = None,
    widths: tuple[float, ...] | None = None,
    again: Callable[[], Callable[..., Method]] | None = None,
    **options: Any,
) -> None:
    """`make(setup, **options)` on a tiny backbone: two rounds, an interruption between them, an empty one, lost
    clients, the other engine, evaluation and costs.

    registry: the installed plugins, where they are loaded already · model: the backbone, 4 layers by default · ranks,
    widths: one for each client, as a scenario may give them · again: gives a `make` of a module imported anew.
    """
    registry, r_n, g_n = registry or Registry(), list(ranks) if ranks else None, list(widths) if widths else None

    store, origin = ClientStore(), f"check {next(_checks)}"  # whose models are equal: what they cost is measured once

    def made(by: Callable[..., Method] = make, **given: Any) -> Method:
        setup = setup_of(registry, model(), list(capacities), ranks=r_n, widths=g_n, origin=origin, **given)
        return by(replace(setup, by_client=True, store=store), **options)  # also those without a global model

    def cohort(other_spare: bool = False) -> Cohort:
        return cohort_of(list(capacities), ranks=r_n, widths=g_n, spare=SPARE, other_spare=other_spare)

    method = made()
    expect(isinstance(method, Method), f"make(setup) must return a fedbench.method.Method, not {type(method).__name__}")
    states, reports = _check_two_rounds(method, cohort)
    start, _, state = states
    last = reports[-1]
    trains = bool(last.plan.trains.any()) or any(rows.is_floating_point() for _, rows in places(vars(last.uploads)))
    _check_resume(lambda: made(again() if again else make), states, cohort)
    if not method.alone:
        _check_other_engine(made(engine=together), states, cohort)
    _check_empty_round(method, state, cohort().only([]))
    for given in (start, state):
        _check_round_without_return(method, given, cohort)
    for lost in {0, len(capacities) - 1}:
        _check_lost_client(method, state, cohort, lost)
    _check_steps(method, start, cohort())
    _check_spare_batches(method, states, cohort)
    check_predictor(method, state)
    check_answers(made(again() if again else make), method, states)
    _check_offered(method, trains)
    check_sizes(method, state)
    _check_prices(method, capacities, ranks, widths, trains)
    for t, report in enumerate(reports):
        check_costs(method, states[t], report, t)


def _check_two_rounds(
    method: Method, cohort: Callable[[], Cohort]
) -> tuple[tuple[State, State, State], tuple[Report, Report]]:
    """The states at the start and after each round, and what is told of each."""
    check_state(method.init(generator(0)), "init")
    start = twice(lambda: method.init(generator(0)), "init")
    middle, first = _check_round(method, start, 0, cohort)
    state, second = _check_round(method, middle, 1, cohort)
    rounds = ((start, middle, first), (middle, state, second))
    check_moves([(old, new, told.uploads, told.plan) for old, new, told in rounds], "the method")
    return (start, middle, state), (first, second)


def _check_prices(
    method: Method,
    capacities: tuple[int, ...],
    ranks: tuple[int, ...] | None,
    widths: tuple[float, ...] | None,
    trains: bool,
) -> None:
    """What clients of these sizes pay; trains: whether the method trains anything."""
    nothing = [None] * len(capacities)
    for capacity, rank, width in dict.fromkeys(zip(capacities, ranks or nothing, widths or nothing, strict=True)):
        named = {"capacity": capacity, "rank": rank, "width": width}
        told = " and ".join(f"{name} {value}" for name, value in named.items() if value is not None)
        for t in range(2):
            _check_cost(method.price(capacity, t, rank, width), f"the cost of a client of {told}", trains)


def _check_offered(method: Method, trains: bool) -> None:
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
        _check_cost(method.price(size.capacity, 0, size.rank, size.width), f"the cost of the size {size}", trains)


def _check_cost(cost: ClientCost | None, what: str, trains: bool) -> None:
    """trains: whether the method trains anything; one that only counts may need no arithmetic."""
    if cost is None:
        return
    told = f"not {type(cost).__name__}; None is for one that takes no part"
    expect(isinstance(cost, ClientCost), f"{what} must be a fedbench.types.ClientCost, {told}")
    totals = {name: getattr(cost, name) for name in ("flops_per_image", "bytes_down", "bytes_up", "memory_bytes")}
    numbers = all(isinstance(value, int | float) and 0 <= value < float("inf") for value in totals.values())
    expect(numbers, f"{what} must be of finite numbers, none below 0, not {totals}")
    expect(any(totals.values()), f"{what} must be positive, not {totals}: whoever takes part pays something")
    moves = ("bytes_down", "bytes_up") if not cost.sent else ()
    positive = [totals[name] > 0 for name in ("flops_per_image", "memory_bytes", *moves)]
    expect(all(positive) or not trains, f"{what} must be positive, as it trains, not {totals}")
    if cost.sent:
        named = {"bytes_down": sum(s.down for s in cost.sent), "bytes_up": sum(s.up for s in cost.sent)}
        for name, total in named.items():
            expect(totals[name] == total, f"{what}: {name} is {totals[name]}, but what is `sent` makes {total}")
        expect(any(line[1] + line[2] for line in cost.exchange(1, 1)), f"{what}: nothing is sent at all")


def _check_resume(anew: Callable[[], Method], states: Sequence[State], cohort: Callable[[], Cohort]) -> None:
    """A method made anew goes on from the state on disk after the first round, whatever else it was asked before.

    states: at the start, after one round, after two.
    """
    with tempfile.TemporaryDirectory() as folder:
        on_disk.save(Path(folder), states[1])
        middle = on_disk.load(Path(folder))
    told = "a method made anew must do the same: keep nothing outside `state`, neither in the module nor by round"
    for astray in (False, True):
        method = anew()
        try:
            if astray:
                method.round(states[0], 1, cohort(), generator(1, 1))
            found, _ = method.round(middle, 1, cohort(), generator(0, 1))
        except Exception as error:
            raise AssertionError(f"{told} ({type(error).__name__}: {error})") from error
        expect(same(states[2], found), told)


def _check_other_engine(method: Method, states: Sequence[State], cohort: Callable[[], Cohort]) -> None:
    """The cohort engine, which is the default, comes to the same."""
    method.init(generator(0))
    found, _ = method.round(states[0], 0, cohort(), generator(0, 0))
    told = "the cohort engine, which is the default, comes to another state than the sequential one"
    expect(close(states[1], found), f"{told}: leave training to `setup.engine`, and rows of a batch to themselves")


def _check_round(method: Method, state: State, t: int, cohort: Callable[[], Cohort]) -> tuple[State, Report]:
    now = cohort()
    reports: list[Any] = []

    def taken() -> State:
        answer = method.round(state, t, now, generator(0, t))
        wrong = fault_of_round(answer)
        expect(not wrong, wrong)
        reports.append(answer[1])
        check_state(answer[0], "round")
        return answer[0]

    new: State = twice(taken, "round", state)
    report = reports[0]
    N = len(report.cohort)
    M, up = report.plan.M, report.uploads
    expect(M.dtype == torch.bool and M.dim() == 2 and len(M) == N, f"report.plan.M must be bool ({N}, L)")
    expect(len(report.cost) == N, f"report.cost must have one entry for each of {N} clients")
    for name in ("arrived", "loss", "steps", "seconds"):
        expect(len(getattr(up, name)) == N, f"report.uploads.{name} must have one entry for each of {N} clients")
    returned = report.plan.trains[up.arrived].any(0)
    for j in (~returned).nonzero().flatten().tolist() if "r" in new else ():
        expect(same(new["r"][j], state["r"][j]), f"layer {j} came back from nobody and must keep its value")
    return new, report


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
    """Whatever its images are, the next state is the same. Both cohorts have a plain function for `batches`, so that a
    method takes labels from it in both."""
    everybody = cohort()
    plain = replace(everybody, arrives=torch.arange(len(everybody)) != lost, batches=lambda n: everybody.batches(n))
    other = replace(plain, batches=lambda n: _others(plain.batches(n)) if n == lost else plain.batches(n))
    (one, report), (two, _) = (method.round(state, 2, who, generator(1, 2)) for who in (plain, other))
    told = f"the work of client {lost} is lost (`cohort.arrives`)"
    expect(not (report.uploads.arrived & ~report.cohort.arrives).any(), f"{told}, but report.uploads has it arrived")
    expect(same(one, two), f"{told}, but its images change the state")


def _check_steps(method: Method, state: State, cohort: Cohort) -> None:
    """Nobody takes more batches than it has steps, and passes beside them that its cost tells of. One batch more than
    its steps may be taken in each pass, for whoever looks whether there is another."""
    _, report = method.round(state, 0, cohort, generator(0, 0))
    beside = {client: cost.epochs_beside for client, cost in zip(report.cohort.ids, report.cost, strict=True)}
    assert isinstance(cohort.batches, RandomBatches)
    for client, steps in zip(cohort.ids, cohort.steps.tolist(), strict=True):
        taken = cohort.batches.taken.get(client, [])
        expect(
            sum(batches - (batches > steps) for batches in taken) <= steps * (1 + beside.get(client, 0)),
            f"client {client} takes {sum(taken)} batches in a round in which it has {steps} steps: `cohort.batches(n)` "
            "may yield more than that; stop after `cohort.steps[n]`, as `zip(range(int(cohort.steps[n])), "
            "cohort.batches(n))` does, and tell further passes over its images by `epochs_beside` of its ClientCost, "
            "or it does more work than others and than it pays for",
        )


def _check_spare_batches(method: Method, states: tuple[State, State, State], cohort: Callable[[bool], Cohort]) -> None:
    """What follows the last of its steps makes no difference to what a client does, unless it has steps beside them,
    which may begin there."""
    for t in range(2):
        new, report = method.round(states[t], t, cohort(True), generator(0, t))
        expect(
            any(cost.epochs_beside for cost in report.cost) or same(new, states[t + 1]),
            "the batches after the last step of a client change the state: a round has `cohort.steps[n]` steps, and "
            "`cohort.batches(n)` may yield more; stop after them, as `zip(range(int(cohort.steps[n])), "
            "cohort.batches(n))` does",
        )


def _others(batches: Iterator[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """Other images with other labels."""
    return ((2 * x.flip(-1) + 1, (y + 1) % CLASSES) for x, y in batches)


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
