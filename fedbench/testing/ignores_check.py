"""Checks of what components say that they ignore.

With other capacities, ranks, widths or another adapter, the same comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

from torch import nn

from fedbench.errors import NotApplicable, UserError
from fedbench.method import Method, Setup
from fedbench.models.backbone import Blocks
from fedbench.registry.registry import Registry
from fedbench.seeding import generator
from fedbench.simulation.state import ClientStore
from fedbench.testing.aggregator_check import setup_for_aggregators, two_rounds
from fedbench.testing.function_check import loss_of
from fedbench.testing.method_check import answers, some_images, three_layers
from fedbench.testing.setups import cohort_of, expect, same, setup_of
from fedbench.types import Objective

Given = Mapping[str, Any]
# Two scenarios for three clients, which differ in every part that may be ignored.
ONE: Given = {"capacities": [3, 2, 1], "ranks": None, "widths": None, "adapter": None}
OTHER: Given = {
    "capacities": [1, 2, 3],
    "ranks": [2, 1, 1],
    "widths": [1.0, 0.5, 0.25],
    "adapter": {"name": "lora", "rank": 3, "alpha": 3},
}
ROUNDS = 2


def check_ignores(
    make: Callable[..., Method],
    ignores: Sequence[str],
    registry: Registry | None = None,
    model: Callable[[], nn.Module] = three_layers,
) -> None:
    """Check that a method comes to the same states, uploads, answers and costs whatever it ignores.

    `make(setup)` makes it, and `ignores` is as it is registered.
    """
    registry = registry or Registry()
    _check("the method", ignores, lambda given: list(_course(make, given, registry, model)))


def check_aggregator_ignores(make: Callable[[Setup], Callable[..., Any]], ignores: Sequence[str]) -> None:
    """Check that the aggregator of `make(setup)` comes to the same state whatever sizes it ignores."""
    registry = Registry()

    def once(given: Given) -> Any:
        setup = setup_for_aggregators(registry, given["capacities"], **_sizes(given))
        assert isinstance(setup.backbone, Blocks)
        cohort = cohort_of(list(given["capacities"]), examples=[5, 3, 2], **_sizes(given))
        return two_rounds(make(setup), setup.backbone, cohort)

    _check("the aggregator", ignores, once)


def check_objective_ignores(make: Callable[[Setup], Objective], ignores: Sequence[str]) -> None:
    """Check that the objective of `make(setup)` gives the same losses whatever sizes it ignores."""
    registry = Registry()

    def once(given: Given) -> Any:
        return [loss_of(make(_setup(registry, given, three_layers)), m, t) for m in (1, 2) for t in (0, 1)]

    _check("the objective", ignores, once)


def _check(who: str, ignores: Sequence[str], comes_to: Callable[[Given], Any]) -> None:
    """Ask once for all parts together, and where that is otherwise, which of them it is."""
    if not ignores:
        return
    before = comes_to(ONE)

    def is_same(parts: Sequence[str]) -> bool:
        try:
            return same(before, comes_to({**ONE, **{part: OTHER[part] for part in parts}}))
        except (NotApplicable, UserError):
            return False

    if is_same(ignores):
        return
    guilty = [part for part in ignores if not is_same([part])]
    names = ", ".join(f"`{part}`" for part in guilty or ignores)
    expect(
        False,
        f"{who} says that it ignores {names}, and comes to something else where they are others: take them out of "
        "`register(..., ignores=[...])`, or cells that are not equal would pass for each other",
    )


def _setup(registry: Registry, given: Given, model: Callable[[], nn.Module]) -> Setup:
    setup = setup_of(registry, model(), list(given["capacities"]), adapter=given["adapter"], **_sizes(given))
    setup.backbone.origin = f"{model.__module__}.{model.__qualname__} {given['adapter']}"  # priced once
    return setup


def _sizes(given: Given) -> dict[str, Any]:
    return {name: given[name] for name in ("ranks", "widths")}


def _course(make: Callable[..., Method], given: Given, registry: Registry, model: Callable[[], nn.Module]) -> Any:
    """All that two rounds of a method come to, and what it answers after them."""
    method = make(replace(_setup(registry, given, model), by_client=True, store=ClientStore()))
    state = method.init(generator(0))
    yield state
    for t in range(ROUNDS):
        cohort = cohort_of(list(given["capacities"]), steps=1, **_sizes(given))
        state, report = method.round(state, t, cohort, generator(0, t))
        up, plan = report.uploads, report.plan
        yield state, up.r, up.shared, up.loss, up.arrived, up.steps
        yield list(report.cohort.ids), plan.M, plan.trains, plan.ranks, [astuple(cost) for cost in report.cost]
        yield [price and astuple(price) for price in method.prices(cohort, t)]
    for client in (None, 0):
        yield answers(method, state, some_images(), client)
