"""Slips of a plugin's author, told wherever a suite would otherwise ask for an option that nobody can give."""

from __future__ import annotations

import pytest

from fedbench.registry.catalogue import Component
from fedbench.registry.slips import needed, slip


def of(kind, make):
    return Component.of(kind, "it", make, "mine.py", "mine.py")


@pytest.mark.parametrize(
    ("kind", "make", "told"),
    [
        ("aggregator", lambda state, uploads, plan, cohort: state, "calls the aggregator itself: register a function"),
        ("metric", lambda logits, y: 0.0, "calls the metric itself"),
        ("allocation", lambda capacites, num_layers: None, "looks like 'capacities'"),
        ("allocation", lambda capacities, num_layers, t: None, "looks like 'round'"),
        ("method", lambda setpu: None, "looks like 'setup'"),
    ],
)
def test_what_was_probably_meant_is_told(kind, make, told):
    assert told in slip(of(kind, make))


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("aggregator", lambda trim=0.1: None),
        ("aggregator", lambda state: None),  # one name alone may be an option's
        ("metric", lambda k: None),
        ("allocation", lambda capacities, num_layers, most: None),
    ],
)
def test_an_option_is_an_option(kind, make):
    assert slip(of(kind, make)) == ""


def test_an_option_that_somebody_sets_is_no_slip():
    misspelt = of("allocation", lambda capacities, num_layers, capacty: None)
    assert slip(misspelt) and slip(misspelt, given=["capacty"]) == ""
    assert needed(misspelt, []) == ["capacty"] and needed(misspelt, ["capacty"]) == []
