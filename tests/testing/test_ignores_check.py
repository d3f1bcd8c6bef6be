"""fedbench/testing/ignores_check.py and registry/catalogue.py: what components ignore, and that they do."""

from __future__ import annotations

from functools import partial

import pytest
from faults import plugin, why

from fedbench.registry.catalogue import PARTS, SET_UP, Component, Unfit, unread
from fedbench.registry.registry import idle_plugins
from fedbench.results.identity import identity
from fedbench.testing import check_ignores
from fedbench.testing.ignores_check import check_aggregator_ignores, check_objective_ignores
from fedbench.types import SIZES


def made(registry, kind, name, setup):
    return registry.make(kind, {"name": name}, setup=setup)


def test_who_says_what(registry):
    """`test_kit.py` holds each to its word."""
    methods, aggregators = (registry.catalogue.components[kind].values() for kind in ("method", "aggregator"))
    said = {method.name: set(method.ignores) for method in methods}
    assert all({"capacities", "adapter"} <= said[name] for name in ("head_only", "fedavg", "majority", "zero_round"))
    assert said["alllarge"] == {"capacities", "ranks", "widths"}
    assert said["fedra"] == said["allsmall"] == {"ranks", "widths"}
    assert all(aggregator.ignores == list(SIZES) for aggregator in aggregators)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("alllarge", "adapter"),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("heterofl", "widths"), ("hetlora", "ranks"))),
    ],
)
def test_a_false_claim_of_a_method_is_found_and_named(registry, name, part):
    claimed = [*registry.catalogue.find("method", name).ignores, part]
    with pytest.raises(AssertionError, match=f"says that it ignores `{part}`, and comes to something else"):
        check_ignores(partial(made, registry, "method", name), claimed, registry)


def test_a_false_claim_of_an_aggregator_and_of_an_objective_is_found(registry):
    def by_capacity(setup):
        mean = made(registry, "aggregator", "weighted_mean", setup)
        return lambda state, up, plan, cohort: {**mean(state, up, plan, cohort), "L": int(cohort.capacities[0])}

    def by_rank(setup):
        loss = made(registry, "objective", "cross_entropy", setup)
        return lambda exits, y, t: loss(exits, y, t) * (1 if setup.scenario.ranks is None else 2)

    with pytest.raises(AssertionError, match="the aggregator says that it ignores `capacities`"):
        check_aggregator_ignores(by_capacity, ["capacities", "widths"])
    with pytest.raises(AssertionError, match="the objective says that it ignores `ranks`"):
        check_objective_ignores(by_rank, ["ranks"])


CONFIG = {
    "backbone": {"name": "micro_vit"},
    "adapter": {"name": "lora", "rank": 2},
    "data": {"name": "strokes6", "partition": {"name": "by_domain"}},
    "capacities": {"by_client": [2, 1]},
    "evaluation": {"metrics": [{"name": "accuracy"}]},
    "method": {"name": "head_only", "aggregator": {"name": "weighted_mean"}, "objective": {"name": "cross_entropy"}},
}


def of(registry, **changes):
    config = {**CONFIG, **changes}
    parts = unread(config, registry.catalogue)
    versions = {"fedbench": "0", "torch": "2"}
    read = {name: version for name, version in versions.items() if name not in idle_plugins(config, parts, registry)}
    return identity(config, {"data": "d"}, read, parts)


def test_what_is_ignored_is_no_part_of_the_identity_and_all_else_is(registry):
    first = of(registry)
    sizes = {"capacities": {"uniform": [1, 2]}, "ranks": {"by_client": [1, 2]}, "widths": {"by_client": [0.5, 1.0]}}
    for part, value in {**sizes, "adapter": {"name": "bitfit"}}.items():
        assert of(registry, **{part: value}) == first
        fedra = {**CONFIG["method"], "name": "fedra", "allocation": {"name": "random"}}
        assert (of(registry, method=fedra, **{part: value}) == of(registry, method=fedra)) == (
            part in ("ranks", "widths")
        )
    for part, value in {"seed": 1, "precision": "bf16", "participation": {"count": 1}}.items():
        assert of(registry, **{part: value}) != first


def test_nothing_is_unread_where_clients_have_devices_or_models_are_tested_at_every_size(registry):
    assert unread(CONFIG, registry.catalogue) == set(PARTS)
    assert not unread({**CONFIG, "devices": {"shares": {}}}, registry.catalogue)
    assert not unread({**CONFIG, "evaluation": {**CONFIG["evaluation"], "sizes": True}}, registry.catalogue)


def test_what_a_method_is_made_with_must_ignore_it_too(registry):
    adapter_alone = {**CONFIG["method"], "objective": {"name": "mutual_kl"}}
    assert unread({**CONFIG, "method": adapter_alone}, registry.catalogue) == {"adapter"}
    drawn = {"name": "fedra", "allocation": {"name": "random"}}
    assert unread({**CONFIG, "method": drawn, "ranks": {}}, registry.catalogue) == {"ranks", "widths"}


MINE = """
from fedbench.families.layerwise import layerwise

def it(setup):
    return layerwise(setup)
"""


def test_a_strangers_false_claim_is_found_by_plugins_check(tmp_path):
    said = why(tmp_path, plugin("method", MINE, "ignores=['capacities', 'ranks']"))
    assert said.startswith("BROKEN: the method says that it ignores `capacities`, and comes to something else")


def described(kind, make, **facts):
    return Component.of(kind, "it", make, "p", "p", **facts)


def test_what_a_component_cannot_see_it_ignores_without_saying_so():
    def by_rank(capacities, num_layers, ranks): ...
    def by_budget(num_layers, budgets): ...
    def blind(): ...
    def seeing(setup): ...

    assert described("allocation", by_rank).ignores == ["widths", "adapter"]
    assert described("allocation", by_budget).ignores == ["ranks", "widths", "adapter"]
    assert described("objective", blind).ignores == list(PARTS)
    assert described("objective", seeing).ignores == described("method", seeing).ignores == []
    assert described("aggregator", blind).ignores == []  # it is given the cohort


@pytest.mark.parametrize("kind, ignores", [("method", ["depths"]), ("method", "ranks"), ("aggregator", ["adapter"]),
                                           ("metric", ["ranks"])])  # fmt: skip
def test_what_cannot_be_ignored_is_refused_at_registration(kind, ignores):
    told = "is for method, aggregator, objective to say" if kind not in SET_UP else "what it may ignore is a list of"
    with pytest.raises(Unfit, match=told):
        described(kind, lambda: None, ignores=ignores)
