"""Checks of whole methods: state, round, predictor and cost, as `fedbench/method.py` describes them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedbench.engine.cohort import train as together
from fedbench.method import Method, Predict, State
from fedbench.models.backbone import body_of
from fedbench.models.param_paths import places
from fedbench.registry.registry import Registry
from fedbench.seeding import generator
from fedbench.simulation import state as on_disk
from fedbench.simulation.failure_reason import fault_of_round
from fedbench.simulation.state import ClientStore
from fedbench.testing.aggregator_check import check_moves
from fedbench.testing.setups import (
    CLASSES,
    RandomBatches,
    check_state,
    close,
    cohort_of,
    expect,
    refuse,
    same,
    setup_of,
    shaken,
    tiny_vit,
    twice,
    untouched,
)
from fedbench.types import ClientCost, Cohort, Report, Size

REMEMBER = 'keep it in the state that is returned, as `layerwise` keeps state["memory"]'
SPARE = 3  # batches that clients have beyond those of their steps
FLOPS_APART = 2  # times as many in a report as in a plan, or the other way round
_checks = count()


def three_layers() -> nn.Module:
    """The backbone on which methods are tried."""
    return tiny_vit(depth=3)


def check_method(
    make: Callable[..., Method],
    registry: Registry | None = None,
    model: Callable[[], nn.Module] = three_layers,
    capacities: tuple[int, ...] | None = None,
    ranks: tuple[int, ...] | None = None,
    widths: tuple[float, ...] | None = None,
    again: Callable[[], Callable[..., Method]] | None = None,
    **options: Any,
) -> None:
    """Check `make(setup, **options)` on a tiny backbone.

    There are two rounds, an interruption between them, an empty one, lost clients, the other engine, evaluation and
    costs.

    Args:
        make: Makes the method of a setup.
        registry: The installed plugins, where they are loaded already.
        model: The backbone, a ViT of 3 layers by default.
        capacities: Of the clients; by default all L layers, all but one, and one.
        ranks: One for each client, as a scenario may give them.
        widths: One for each client, as a scenario may give them.
        again: Gives a `make` of a module that is imported again.
        **options: Of the method.
    """
    registry, r_n, g_n = registry or Registry(), list(ranks) if ranks else None, list(widths) if widths else None
    L = body_of(model()).num_layers
    capacities, store = capacities or (L, max(L - 1, 1), 1), ClientStore()
    # What models of one origin cost is measured once.
    origin = "three layers of the kit" if model is three_layers else f"check {next(_checks)}"

    def made(by: Callable[..., Method] = make, **given: Any) -> Method:
        setup = setup_of(registry, model(), list(capacities), ranks=r_n, widths=g_n, origin=origin, **given)
        return by(replace(setup, by_client=True, store=store), **options)  # also those without a global model

    def cohort(other_spare: bool = False) -> Cohort:
        return cohort_of(list(capacities), ranks=r_n, widths=g_n, spare=SPARE, other_spare=other_spare)

    method = made()
    expect(isinstance(method, Method), f"make(setup) must return a fedbench.method.Method, not {type(method).__name__}")
    states, reports = _check_two_rounds(method, cohort)
    _check_resume(lambda: made(again() if again else make), states, cohort)
    if not method.alone:
        _check_other_engine(made(engine=together), states, cohort)
    _check_lost_clients(method, states, cohort)
    check_predictor(method, states[-1])
    check_answers(made(again() if again else make), method, states)
    _check_costs(method, reports, dict.fromkeys(zip_longest(capacities, ranks or (), widths or ())))
    check_sizes(method, states[-1])


def _check_two_rounds(
    method: Method, cohort: Callable[[], Cohort]
) -> tuple[tuple[State, State, State], tuple[Report, Report]]:
    """The states at the start and after each round, and the report of each."""
    check_state(method.init(generator(0)), "init")
    start = twice(lambda: method.init(generator(0)), "init", memory=REMEMBER)
    middle, first = _check_round(method, start, 0, cohort)
    state, second = _check_round(method, middle, 1, cohort)
    rounds = ((start, middle, first), (middle, state, second))
    check_moves([(old, new, one.uploads, one.plan) for old, new, one in rounds], "the method")
    return (start, middle, state), (first, second)


def _check_costs(method: Method, reports: Sequence[Report], clients: Iterable[Any]) -> None:
    """What plans, reports and uploads say of costs agrees; clients: the (capacity, rank, width) that there are."""
    last = reports[-1]
    trains = bool(last.plan.trains.any()) or any(rows.is_floating_point() for _, rows in places(vars(last.uploads)))
    _check_offered(method, trains)
    for capacity, rank, width in clients:
        named = {"capacity": capacity, "rank": rank, "width": width}
        message = " and ".join(f"{name} {value}" for name, value in named.items() if value is not None)
        for t in range(2):
            _check_cost(method.price(capacity, t, rank, width), f"the cost of a client of {message}", trains)
    for t, report in enumerate(reports):
        check_planned(method, report, t)


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
    message = f"not {type(cost).__name__}; None is for one that takes no part"
    expect(isinstance(cost, ClientCost), f"{what} must be a fedbench.types.ClientCost, {message}")
    totals = {name: getattr(cost, name) for name in ("flops_per_image", "bytes_down", "bytes_up", "memory_bytes")}
    numbers = all(isinstance(value, int | float) and 0 <= value < float("inf") for value in totals.values())
    expect(numbers, f"{what} must be of finite numbers, none below 0, not {totals}")
    expect(any(totals.values()), f"{what} must be positive, not {totals}: a client that takes part pays something")
    moves = ("bytes_down", "bytes_up") if not cost.sent else ()
    positive = [totals[name] > 0 for name in ("flops_per_image", "memory_bytes", *moves)]
    expect(all(positive) or not trains, f"{what} must be positive, as it trains, not {totals}")
    if cost.sent:
        named = {"bytes_down": sum(s.down for s in cost.sent), "bytes_up": sum(s.up for s in cost.sent)}
        for name, total in named.items():
            expect(totals[name] == total, f"{what}: {name} is {totals[name]}, but what is `sent` makes {total}")
        expect(any(line[1] + line[2] for line in cost.exchange(1, 1)), f"{what}: nothing is sent at all")


def _check_resume(made_again: Callable[[], Method], states: Sequence[State], cohort: Callable[[], Cohort]) -> None:
    """A method that is made again resumes from the state on disk after the first round, whatever it was asked before.

    states: at the start, after one round, after two.
    """
    with tempfile.TemporaryDirectory() as folder:
        on_disk.save(Path(folder), states[1])
        middle = on_disk.load(Path(folder))
    message = (
        "a method that is made again must do the same: keep nothing outside `state`, neither in the module nor by round"
    )
    for astray in (False, True):
        method = made_again()
        try:
            if astray:
                method.round(states[0], 1, cohort(), generator(1, 1))
            found, _ = method.round(middle, 1, cohort(), generator(0, 1))
        except Exception as error:
            raise AssertionError(f"{message} ({type(error).__name__}: {error})") from error
        expect(same(states[2], found), message)


def _check_other_engine(method: Method, states: Sequence[State], cohort: Callable[[], Cohort]) -> None:
    """The cohort engine, which is the default, comes to the same."""
    method.init(generator(0))
    found, _ = method.round(states[0], 0, cohort(), generator(0, 0))
    message = "the cohort engine, which is the default, comes to another state than the sequential one"
    expect(close(states[1], found), f"{message}: leave training to `setup.engine`, and rows of a batch to themselves")


def _check_round(method: Method, state: State, t: int, cohort: Callable[..., Cohort]) -> tuple[State, Report]:
    """A round comes to the same a second time, whatever the batches are that follow the steps of its clients."""
    now = cohort()

    def taken(of: Cohort) -> tuple[State, Report]:
        answer = method.round(state, t, of, generator(0, t))
        refuse(fault_of_round(answer))
        check_state(answer[0], "round")
        return answer

    with shaken(1), untouched(state, what="round"):
        new, report = taken(now)
    with shaken(2):
        other, _ = taken(cohort(other_spare=True))
    if not same(new, other):  # by chance or memory, or because of those batches
        twice(lambda: taken(cohort())[0], "round", state, memory=REMEMBER)
        expect(
            any(cost.personal_epochs for cost in report.cost),
            "the batches after the last step of a client change the state: a round has `cohort.steps[n]` steps, and "
            "`cohort.batches(n)` may yield more; stop after them, as `zip(range(int(cohort.steps[n])), "
            "cohort.batches(n))` does",
        )
    N = len(report.cohort)
    M, up = report.plan.M, report.uploads
    expect(M.dtype == torch.bool and M.dim() == 2 and len(M) == N, f"report.plan.M must be bool ({N}, L)")
    expect(len(report.cost) == N, f"report.cost must have one entry for each of {N} clients")
    for name in ("arrived", "loss", "steps", "seconds"):
        expect(len(getattr(up, name)) == N, f"report.uploads.{name} must have one entry for each of {N} clients")
    returned = report.plan.trains[up.arrived].any(0)
    by_clients = "r" in new and not any(cost.server for cost in report.cost)  # else the server trains layers, too
    for j in (~returned).nonzero().flatten().tolist() if by_clients else ():
        expect(same(new["r"][j], state["r"][j]), f"layer {j} came back from nobody and must keep its value")
    _check_steps(report, now)
    return new, report


def _check_lost_clients(method: Method, states: Sequence[State], cohort: Callable[[], Cohort]) -> None:
    """Where nobody takes part or returns, the state stays; where some are lost, it does not depend on their images.

    Both cohorts of the latter have a plain function for `batches`, so that a method takes labels from it in both.
    """
    everybody, state = cohort(), states[-1]
    after, report = method.round(state, 2, everybody.only([]), generator(0, 2))
    expect(same(after, state), "a round in which nobody takes part must leave the state as it is")
    expect(len(report.cost) == 0, "a round in which nobody takes part must cost nothing")
    for given in (states[0], state):
        nobody = replace(cohort(), arrives=torch.zeros_like(everybody.arrives))
        after, _ = method.round(given, 2, nobody, generator(0, 2))
        expect(same(after, given), "a round from which nobody returns (`cohort.arrives`) must leave the state as it is")
    everybody, lost = cohort(), {0, len(everybody) - 1}
    arrives = torch.tensor([n not in lost for n in range(len(everybody))])
    plain = replace(everybody, arrives=arrives, batches=lambda n: everybody.batches(n))
    other = replace(plain, batches=lambda n: _others(plain.batches(n)) if n in lost else plain.batches(n))
    (one, report), (two, _) = (method.round(state, 2, who, generator(1, 2)) for who in (plain, other))
    message = f"the work of clients {' and '.join(map(str, sorted(lost)))} is lost (`cohort.arrives`)"
    expect(not (report.uploads.arrived & ~report.cohort.arrives).any(), f"{message}, but report.uploads has it arrived")
    expect(same(one, two), f"{message}, but their images change the state")


def _check_steps(report: Report, cohort: Cohort) -> None:
    """Nobody takes more batches than it has steps, and further passes that its cost gives.

    One batch more than its steps may be taken in each pass, to see whether there is another.
    """
    further = {client: cost.personal_epochs for client, cost in zip(report.cohort.ids, report.cost, strict=True)}
    assert isinstance(cohort.batches, RandomBatches)
    for client, steps in zip(cohort.ids, cohort.steps.tolist(), strict=True):
        taken = cohort.batches.taken.get(client, [])
        expect(
            sum(batches - (batches > steps) for batches in taken) <= steps * (1 + further.get(client, 0)),
            f"client {client} takes {sum(taken)} batches in a round in which it has {steps} steps: `cohort.batches(n)` "
            "may yield more than that; stop after `cohort.steps[n]`, as `zip(range(int(cohort.steps[n])), "
            "cohort.batches(n))` does, and tell further passes over its images by `personal_epochs` of its ClientCost, "
            "or it does more work than others and than it pays for",
        )


def _others(batches: Iterator[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """Other images with other labels."""
    return ((2 * x.flip(-1) + 1, (y + 1) % CLASSES) for x, y in batches)


def answers(method: Method, state: State, x: Tensor, client: int | None = None) -> dict[str, Tensor]:
    """What a state answers for images (n, 3, H, H), by the name of the model; "" where there is one."""
    with torch.no_grad():
        return _asked(method.predictor(state, client=client), x)


def some_images() -> Tensor:
    """Return five random images in float64."""
    return torch.randn(5, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def check_answers(fresh: Method, used: Method, states: Sequence[State]) -> None:
    """A method that is made again answers for a state as one does that has seen rounds since."""
    x = some_images()
    fresh.init(generator(0))
    for state in (states[0], states[-1]):
        one, two = (answers(method, state, x) for method in (fresh, used))
        message = (
            "the predictor answers from something else than the state it is given: a state of an earlier round, or "
        )
        expect(same(one, two), f"{message}one that was read from disk, must answer as it did then")


def check_predictor(method: Method, state: State) -> None:
    """Check that a predictor gives finite logits, the same each time, for every image by itself."""
    x = some_images()
    for client in (None, 0):
        given = twice(partial(answers, method, state, x, client), "the predictor", state, x)
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
            _check_images_alone(partial(_asked, predict), x, given, f"`at` for {size}")


def _check_images_alone(
    answer: Callable[[Tensor], dict[str, Tensor]], x: Tensor, given: Mapping[str, Tensor], what: str
) -> None:
    """Logits are finite, and those of an image the same without the others of its batch, wherever it stands there."""
    for name, logits in given.items():
        fits = logits.shape == (5, CLASSES) and logits.isfinite().all()
        expect(fits, f"{what} must give finite logits (5, {CLASSES}){f' for {name!r}' if name else ''}")
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


def check_planned(method: Method, report: Report, t: int) -> None:
    """Check that `cost`, from which plans are made, agrees with the round's report.

    Both say who takes part, and about how many FLOPs an image takes, which may depend on what the state chooses.
    """
    for n, cost in enumerate(method.prices(report.cohort, t)):
        who = f"client {report.cohort.ids[n]} takes part in round {t}"
        expect(cost is not None, f"{who}, and by `cost` it does not: None is for clients that the round leaves out")
        assert cost is not None
        before, after = cost.flops_per_image, report.cost[n].flops_per_image
        expect(
            max(before, after) <= FLOPS_APART * min(before, after),
            f"{who} at {after} FLOPs an image, and by `cost` at {before}: put the same ClientCost into the report",
        )
