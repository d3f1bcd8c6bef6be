"""Checks of aggregators: how uploads become the next state."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedbench.errors import UserError, summary_of
from fedbench.method import Setup, State
from fedbench.models.backbone import HEAD, Blocks
from fedbench.models.lowrank import pairs
from fedbench.models.param_paths import by_layer, matches, places, trained_by
from fedbench.registry.registry import Registry
from fedbench.simulation import state as on_disk
from fedbench.simulation.failure_reason import fault_of_state
from fedbench.testing.setups import CLASSES, check_state, close, cohort_of, expect, same, setup_of, tiny_vit, twice
from fedbench.types import Cohort, Exit, Plan, Uploads

CAPACITIES = [2, 2, 1]
EXAMPLES = [5, 3, 2]
ORDER = (2, 0, 1)  # another one of the three clients
LOST = 2
ROUNDS = 10  # that it is asked for, as long as its state goes on changing
BOOKS = ("scores", "history")  # a record of the rounds, and no part of the model
OF_PART = {"r": 'the adapters of the layers, state["r"],', "shared": 'what stands outside the layers, state["shared"],'}

ALIGNED = (
    "of a tensor `held = trained_by(plan, place)` has sent rows, in that order, and `came = uploads.arrived[held]` are "
    "those to take: `rows[came]` go with `weights[held][came]`"
)
Aggregate = Callable[..., State]
Step = tuple[State, State, Uploads, Plan]  # a round: the state before and after it, what came back, and by which plan


def check_aggregator(
    aggregate: Aggregate, model: Blocks | None = None, again: Callable[[], Aggregate] | None = None
) -> None:
    """Check an aggregator.

    It keeps shapes, changes nothing it is given, and ignores rows that did not arrive. A layer or classifier that
    nobody returned keeps its value. What it remembers is in the state, and can be kept on disk. The order of clients
    does not matter; what they send has an effect; float32 stays float32, as in a run.

    Args:
        aggregate: The aggregator.
        model: With its low-rank adapters and a head, that of `setup_for_aggregators()`.
        again: Makes it again.
    """
    model = model or _model()
    plan, steps = _plan(aggregate, model, CAPACITIES), list[Step]()
    for seed in (0, 1):
        start = _start(model, seed)
        for arrived in ([False, False, True], [False, False, False]):
            _check_round(aggregate, start, _uploads(model, plan, seed, arrived), plan)
        first, second = (
            _uploads(model, plan, seed + more, [True, some, True]) for more, some in ((0, True), (10, False))
        )
        middle = _check_round(aggregate, start, first, plan)
        last = _check_round(aggregate, middle, second, plan)
        steps += [(start, middle, first, plan), (middle, last, second, plan)]
        onward = again() if again else aggregate
        resumed = onward(_reloaded(middle), second, plan, _cohort())
        expect(
            same(last, resumed),
            'the aggregator goes on otherwise after an interruption: what it remembers must be in state["memory"], '
            "and nowhere else",
        )
    _check_later_rounds(aggregate, last, second, plan)
    check_moves(steps, "the aggregator")
    _check_weights(aggregate, model, middle, plan)
    _check_single(aggregate, start, first, plan)


def _check_later_rounds(aggregate: Aggregate, state: State, up: Uploads, plan: Plan) -> None:
    """What it remembers can be kept in every round, until equal uploads change nothing any more."""
    for t in range(3, ROUNDS + 1):
        new = aggregate(state, up, plan, _cohort())
        check_state(new, f"in round {t} the aggregator")
        _check_memory(new, state, up)
        if same(new, state):
            return
        state = new


def _plan(aggregate: Aggregate, model: Blocks, capacities: Sequence[int]) -> Plan:
    """Clients that hold the first layers, as far as they can; all layers where the aggregator asks for that."""
    M = torch.arange(model.num_layers) < torch.tensor(capacities)[:, None]
    plan, check = Plan(M, [[Exit(L_n, HEAD)] for L_n in capacities]), getattr(aggregate, "check", None)
    if check is not None:
        try:
            check(plan)
        except UserError:
            return Plan(torch.ones_like(M), [[Exit(model.num_layers, HEAD)] for _ in capacities])
    return plan


def two_rounds(aggregate: Aggregate, model: Blocks, cohort: Cohort) -> State:
    """What two rounds of these three clients come to, who train as many layers as ever, whatever their sizes."""
    plan = Plan(torch.ones(len(cohort), model.num_layers, dtype=torch.bool), [[Exit(model.num_layers, HEAD)]] * 3)
    state = _start(model, 0)
    for seed in (0, 10):
        state = aggregate(state, _uploads(model, plan, seed, [True] * 3), plan, cohort)
    return state


def setup_for_aggregators(registry: Registry, capacities: Sequence[int] = (4, 3, 1), **sizes: Any) -> Setup:
    """Return a set-up whose backbone has its low-rank adapters and its head, as methods leave it to aggregators.

    `sizes` has `ranks` and `widths` of its three clients, where they have some.
    """
    setup = setup_of(registry, tiny_vit(), list(capacities), **sizes)
    assert isinstance(setup.backbone, Blocks)
    setup.adapter(setup.backbone)
    setup.backbone.add_classifier(HEAD, CLASSES)
    return setup


@functools.cache
def _model() -> Blocks:
    model = setup_for_aggregators(Registry()).backbone
    assert isinstance(model, Blocks)
    return model


def _cohort() -> Cohort:
    return cohort_of(CAPACITIES, EXAMPLES)


def _start(model: Blocks, seed: int) -> State:
    model.draw(torch.Generator().manual_seed(seed))
    values = {place: p.detach().clone().contiguous() for place, p in model.trained().items()}
    L = model.num_layers
    zeros = torch.zeros(L, dtype=torch.float64)
    books: State = {"scores": zeros, "history": torch.zeros(L, dtype=torch.int64), "memory": {}}
    return {**by_layer(values, L), **books}


def _uploads(model: Blocks, plan: Plan, seed: int, arrived: list[bool]) -> Uploads:
    """Random rows for each client that trains a tensor."""
    chance = torch.Generator().manual_seed(100 + seed)
    rows = {
        place: torch.randn(int(trained_by(plan, place).sum()), *p.shape, generator=chance, dtype=torch.float64)
        for place, p in model.trained().items()
    }
    loss, steps, seconds = (torch.ones(len(arrived), dtype=torch.float64) for _ in range(3))
    of = by_layer(rows, model.num_layers)
    return Uploads(of["r"], of["shared"], torch.tensor(arrived), loss, steps, seconds)


def _check_round(aggregate: Aggregate, state: State, up: Uploads, plan: Plan) -> State:
    cohort = _cohort()
    new: State = twice(
        functools.partial(aggregate, state, up, plan, cohort), "the aggregator", state, vars(up), plan.M,
        instead="fedbench.seeding.generator gives one for each round", memory='keep it in state["memory"]',
    )  # fmt: skip
    whole = isinstance(new, dict) and set(new) >= {"r", "shared"}
    expect(whole, "the aggregator must return the whole state, with `r` and `shared`: {**state, ...}")
    lost = [_spoilt(rows, ~up.arrived[plan.M[:, j]]) for j, rows in enumerate(up.r)]
    shared = {name: _spoilt({name: rows}, ~up.arrived)[name] for name, rows in up.shared.items()}
    other = aggregate(state, replace(up, r=lost, shared=shared), plan, cohort)
    expect(same(new, other), "rows that did not arrive (`uploads.arrived`) change the state")
    check_state(new, "the aggregator")
    _check_memory(new, state, up)
    fault = fault_of_state(state, new)
    expect(not fault, fault)
    for j, r_j in enumerate(new["r"]):
        kept = not (plan.M[:, j] & up.arrived).any()
        expect(not kept or same(r_j, state["r"][j]), f"layer {j} came back from nobody and must keep its value")
    if not up.arrived.any():
        expect(same(new["shared"], state["shared"]), "with no upload, what is shared must stay as it is")
    for place, value in places(new):
        expect(value.isfinite().all(), f"{place} is not finite, though all that came back was")
    return new


def _check_single(aggregate: Aggregate, state: State, up: Uploads, plan: Plan) -> None:
    """In float32, as a run has them, the next state is there too, and is of float32."""
    with_these = "with a state and uploads in float32, as in a run,"
    small = {**state, "r": [_floats(r_j) for r_j in state["r"]], "shared": _floats(state["shared"])}
    try:
        new = aggregate(
            small, replace(up, r=[_floats(rows) for rows in up.r], shared=_floats(up.shared)), plan, _cohort()
        )
    except Exception as error:
        raise AssertionError(f"{with_these} the aggregator raises {summary_of(error)}") from error
    for place, value in places(new):
        expect(
            value.dtype == torch.float32,
            f"{with_these} {place} becomes {value.dtype}: weights in float64 make it so; end with `.to(old.dtype)`",
        )


def _floats(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.float() for name, value in tensors.items()}


def _check_memory(new: State, old: State, up: Uploads) -> None:
    expect("memory" in new, 'the aggregator must return state["memory"] too: {**state, ...}')
    given = {t.untyped_storage().data_ptr() for _, t in (*places(old), *places({"r": up.r, "shared": up.shared}))}
    for path, value in _leaves(new["memory"], 'state["memory"]'):
        number = value if isinstance(value, Tensor) else torch.tensor(value if isinstance(value, float) else 0.0)
        sound = not number.is_floating_point() or not number.isnan().any()
        expect(sound, f"{path} is NaN: lost rows may hold anything; leave them out by `uploads.arrived`")
        if isinstance(value, Tensor) and value.numel():
            own = value.untyped_storage().data_ptr() not in given
            expect(own, f"{path} shares its memory with what the aggregator was given; keep a `.clone()`")


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(part, f"{path}[{key!r}]")
    else:
        yield path, value


def _reloaded(state: State) -> State:
    """The state as a checkpoint gives it back."""
    with tempfile.TemporaryDirectory() as folder:
        on_disk.save(Path(folder), state)
        return on_disk.load(Path(folder))


def _spoilt(rows: dict[str, Tensor], lost: Tensor) -> dict[str, Tensor]:
    """The same with no number in the rows that are lost (n,)."""
    spoil = {name: value.clone() for name, value in rows.items()}
    for value in spoil.values():
        value[lost] = float("nan")
    return spoil


def check_moves(steps: Sequence[Step], who: str) -> None:
    """Check that no tensor of `r` and `shared` that arrived clients have changed stays as it is in all of these rounds.

    An aggregator that keeps something elsewhere in the state, as a buffer does, may wait for longer. `who` names it.
    """
    for part, name in OF_PART.items():
        sent = [step for step in steps if _is_changed(part, step)]
        thrown_away = sent and all(_stays(part, before, after) for before, after, *_ in sent)
        expect(
            not thrown_away,
            f"{who} leaves {name} unchanged in every round, though clients sent other values: their work is thrown "
            "away and paid for; return what is made of `uploads` there, or have nobody train and send it "
            "(`Plan.frozen`; `fixed` or `adapt=False` of `layerwise`)",
        )


def _is_changed(part: str, step: Step) -> bool:
    """Whether a client that arrived has sent something else of the part than the state had."""
    before, after, uploads, plan = step
    if part not in before or part not in after:
        return False
    old = dict(places({"r": [], "shared": {}, part: before[part]}))
    for place, rows in places({"r": [], "shared": {}, part: getattr(uploads, part)}):
        if place in old and not matches(place, plan.kept) and rows.shape[1:] == old[place].shape:
            came = rows[uploads.arrived[trained_by(plan, place)]]
            if (came != old[place]).any():
                return True
    return False


def _stays(part: str, before: State, after: State) -> bool:
    """Whether a part is the same after the round, and all else is too that the work may have gone into."""
    was, now = ({key: value for key, value in of.items() if key not in (*OF_PART, *BOOKS)} for of in (before, after))
    return same(before[part], after[part]) and same(was, now)


def _check_weights(aggregate: Aggregate, model: Blocks, state: State, plan: Plan) -> None:
    """The next state depends neither on the order of clients nor on the weight of a lost one."""
    one, other = (_later(aggregate, model, state, plan, order, lost=LOST) for order in (range(3), ORDER))
    differs = _differing(model, one, other)
    expect(
        not differs,
        f'the next state depends on the order in which clients stand (`{differs}`): {ALIGNED}. What state["memory"] '
        "holds of a client goes by its number, `cohort.ids[n]`, not by its place n",
    )
    whole, without = (dict(places(_later(aggregate, model, state, plan, range(3), lost, 0.0))) for lost in (None, LOST))
    for place, value in places(state):
        expect(
            not close(value, whole[place]) or close(value, without[place]),
            f"clients send back `{place}` as they were given it; it stays what it is where all of them return, and "
            f"becomes another where client {LOST} is lost: does its weight still count in the sum that is divided by? "
            f"{ALIGNED}",
        )


def _later(
    aggregate: Aggregate,
    model: Blocks,
    state: State,
    plan: Plan,
    order: Sequence[int],
    lost: int | None,
    far: float = 0.1,
) -> State:
    """The next state where clients stand in that order, and each sends the state with random numbers added.

    Where rows have nothing in common, a solver inside an aggregator may amplify rounding errors.

    Args:
        aggregate: The aggregator.
        model: With its adapters.
        state: That clients begin with.
        plan: Of the clients in their usual order.
        order: Their ids, as they stand.
        lost: The client whose work does not come back.
        far: How large the numbers are; with 0 all send what they were given.
    """
    chance, order = torch.Generator().manual_seed(200), list(order)
    plan = Plan(plan.M[order], [plan.exits[n] for n in order])
    given = dict(places(state))
    sent = {
        place: given[place] + far * torch.randn(3, *p.shape, generator=chance) for place, p in model.trained().items()
    }
    rows = by_layer({place: value[order][trained_by(plan, place)] for place, value in sent.items()}, model.num_layers)
    arrived = torch.tensor([n != lost for n in order])
    ones = torch.ones(3, dtype=torch.float64)
    cohort = cohort_of([CAPACITIES[n] for n in order], [EXAMPLES[n] for n in order], ids=order)
    return aggregate(state, Uploads(rows["r"], rows["shared"], arrived, ones, ones, ones), plan, cohort)


def _differing(model: Blocks, one: State, other: State) -> str:
    """Return the place of the first tensor in which two states differ, or "".

    Low-rank factors may differ where their product is the same.
    """
    here, there = dict(places(one)), dict(places(other))
    lone = [place for place, value in here.items() if not close(value, there[place])]
    for pair in pairs(model):
        if pair.A in lone or pair.B in lone:
            B_A, also = (now[pair.B].flatten(1) @ now[pair.A].flatten(1) for now in (here, there))
            if close(B_A, also):
                lone = [place for place in lone if place not in (pair.A, pair.B)]
    return lone[0] if lone else ""
