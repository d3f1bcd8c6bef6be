"""fedbench/testing/method_check.py against methods of layers and states that break their contract."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedbench.families.layerwise import layerwise
from fedbench.testing import check_method, check_state

pytestmark = pytest.mark.usefixtures("counted_once")


def altered(**parts):
    """FedRA with some of its functions replaced; each gets the sound method first."""

    def make(setup):
        method = layerwise(setup)
        return replace(method, **{name: part(method) for name, part in parts.items()})

    return make


def restless(method):
    def round(state, t, cohort, generator):
        new, report = method.round(state, t, cohort, generator)
        return {**new, "round": t}, report

    return round


def remembers_the_lost(method):
    """Averages rightly, but keeps the losses of all clients, also of those that never returned."""

    def round(state, t, cohort, generator):
        new, report = method.round(state, t, cohort, generator)
        return ({**new, "losses": report.uploads.loss} if report.uploads.arrived.any() else state), report

    return round


def throws_adapters_away(method):
    def round(state, t, cohort, generator):
        new, report = method.round(state, t, cohort, generator)
        return {**new, "r": state["r"]}, report

    return round


def sends_more_than_it_says(method):
    return lambda capacity, t: replace(method.cost(capacity, t), bytes_up=1)


def from_the_batch(method):
    def at(state, size, client=None):
        predict = method.at(state, size)
        return lambda x: predict(x) - predict(x).mean(0)

    return at


def aliased(method):
    def init(generator):
        state = method.init(generator)
        return {**state, "best": state["shared"]["head.weight"]}

    return init


def slow(broken, told):
    """A fault that is found where another of these is."""
    return pytest.param(broken, told, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (altered(round=restless), "nobody takes part"),
        (altered(round=remembers_the_lost), "clients 0 and 2 is lost .* their images change the state"),
        (altered(round=throws_adapters_away), "the method leaves the adapters of the layers, state..r.., unchanged"),
        (altered(init=aliased), "shares its memory"),
        slow(altered(at=lambda method: lambda state, size, client=None: lambda x: x.flatten(1)), "at. for .* finite"),
        (altered(at=from_the_batch), "`at` for .* answers otherwise for an image where other images are in its batch"),
        (altered(running=lambda method: lambda size: 10 - size.capacity), "less than a smaller size's 9"),
        slow(altered(sizes=lambda method: []), "`sizes` must not be empty"),
        (altered(sizes=lambda method: method.sizes[::-1]), "the smallest first, not 3 layers, 2 layers"),
        slow(altered(sizes=lambda method: [1, 2]), "of fedbench.types.Size, not int"),
        (altered(cost=sends_more_than_it_says), "bytes_up is .*, but what is `sent` makes"),
    ],
)
def test_broken_methods(registry, broken, told):
    with pytest.raises(AssertionError, match=told):
        check_method(broken, registry)


@pytest.mark.parametrize(
    "state",
    [[], {"a": {1: 2}}, {"a": torch.ones(1, requires_grad=True)}, {"a": (1, 2)}, {"a": torch.ones(2, 3).T}],
)
def test_broken_states(state):
    with pytest.raises(AssertionError):
        check_state(state)
