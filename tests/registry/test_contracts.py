"""Checks of registered components: misspelt inputs and functions that were registered in place of their makers."""

from __future__ import annotations

import pytest

from fedbench.registry.catalogue import Component
from fedbench.registry.contracts import fault_of_parameters, unset_options


def of(kind, make):
    return Component.of(kind, "it", make, "mine.py", "mine.py")


@pytest.mark.parametrize(
    ("kind", "make", "told"),
    [
        ("aggregator", lambda state, uploads, plan, cohort: state, "calls the aggregator itself: register a function"),
        ("metric", lambda logits, y: 0.0, "calls the metric itself"),
        ("allocation", lambda capacites, num_layers: None, "did you mean 'capacities'"),
        ("allocation", lambda capacities, num_layers, t: None, "did you mean 'round'"),
        ("allocation", lambda capacities, L: None, "did you mean 'num_layers'"),
        ("allocation", lambda L_n, num_layers, rng=None: None, "did you mean 'capacities'"),
        ("allocation", lambda capacities, num_layers, rng=None: None, "did you mean 'generator'"),
        ("method", lambda setpu: None, "did you mean 'setup'"),
    ],
)
def test_what_was_probably_meant_is_told(kind, make, told):
    assert told in fault_of_parameters(of(kind, make))


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("aggregator", lambda trim=0.1: None),
        ("aggregator", lambda state: None),  # one name alone may be an option's
        ("metric", lambda k: None),
        ("metric", lambda L: None),
        ("allocation", lambda capacities, num_layers, most: None),
    ],
)
def test_an_option_is_an_option(kind, make):
    assert fault_of_parameters(of(kind, make)) == ""


def test_an_option_that_somebody_sets_is_an_option():
    misspelt = of("allocation", lambda capacities, num_layers, capacty: None)
    assert fault_of_parameters(misspelt) and fault_of_parameters(misspelt, given=["capacty"]) == ""
    assert unset_options(misspelt, []) == ["capacty"] and unset_options(misspelt, ["capacty"]) == []
