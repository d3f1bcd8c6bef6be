"""What is particular to InclusiveFL: sizes that share layers, momentum distillation, and last layers of their own."""

from dataclasses import replace

import pytest
import torch

from fedbench.errors import UserError
from fedbench.seeding import generator
from fedbench.testing.setups import cohort_of, same, setup_of, tiny_vit
from fedbench.types import Cohort, Plan, Uploads

pytestmark = pytest.mark.usefixtures("counted_once")


@pytest.fixture(scope="module")
def deep():
    return lambda: tiny_vit(depth=12)


def inclusive_case(uploads, M, examples):
    """One number a layer: r starts at 0, so that an upload is its own update."""
    M = torch.tensor(M).bool()
    rows = [{"A": torch.tensor(column).reshape(-1, 1)} for column in uploads]
    N = len(M)
    state = {"r": [{"A": torch.zeros(1)} for _ in uploads], "shared": {}, "memory": {}}
    up = Uploads(rows, {}, torch.ones(N, dtype=torch.bool), torch.zeros(N), torch.ones(N), torch.zeros(N))
    cohort = Cohort(list(range(N)), M.sum(1), torch.tensor(examples), torch.ones(N), lambda n: iter(()))
    return state, up, Plan(M, [[] for _ in range(N)]), cohort


CASE = ([[2.0, 4.0, 6.0], [8.0], [3.0]], [[1, 1, 1], [1, 0, 0], [1, 0, 0]], [1, 2, 1])


def test_without_momentum_inclusivefl_is_the_per_layer_mean(registry):
    aggregate = registry.make("aggregator", {"name": "momentum_distillation", "beta": 0.0})
    plain = registry.make("aggregator", {"name": "weighted_mean"})
    args = inclusive_case(*CASE)
    for one, two in zip(aggregate(*args)["r"], plain(*args)["r"], strict=True):
        torch.testing.assert_close(one["A"], two["A"])


@pytest.mark.parametrize("name", ["ffa_lora", "rolora", "fedsa_lora", "fed_hello"])
def test_momentum_distillation_refuses_what_not_all_holders_train(registry, name):
    """Before anything runs."""
    setup = replace(setup_of(registry, tiny_vit(), [4, 2]), by_client=True)
    with pytest.raises(UserError, match="momentum_distillation .* and here .* take another aggregator"):
        registry.make("method", {"name": name, "aggregator": "momentum_distillation"}, setup=setup)


def test_momentum_distillation_refuses_clients_without_layers(registry):
    setup = setup_of(registry, tiny_vit(), [2, 1])
    method = registry.make("method", {"name": "fedavg", "aggregator": "momentum_distillation"}, setup=setup)
    with pytest.raises(UserError, match="momentum_distillation .* clients hold none; take another aggregator"):
        method.round(method.init(generator(0)), 0, cohort_of([2, 1]), generator(0, 0))


def test_momentum_distillation_mixes_the_larger_models_last_updates_into_a_smaller_models_last_layer(registry):
    """Sizes 1 and 3. Round 1 leaves updates 8 and 3 of the large model's layers 2 and 3; in round 2 the small model's
    update of its last layer, (2 * 4 + 1 * 6) / 3 = 14/3, becomes 0.8 * 14/3 + 0.2 * (8 + 3) / 2, and meets the large
    one's 2 by weight."""
    aggregate = registry.make("aggregator", {"name": "momentum_distillation"})
    state, up, plan, cohort = inclusive_case(*CASE)
    first = aggregate(state, up, plan, cohort)
    assert first["r"][0]["A"].item() == pytest.approx((1 * 2 + 2 * 4 + 1 * 6) / 4)  # nothing to mix yet
    second = aggregate({**state, "memory": first["memory"]}, up, plan, cohort)
    mixed = 0.8 * 14 / 3 + 0.2 * (8 + 3) / 2
    assert second["r"][0]["A"].item() == pytest.approx((1 * 2 + 3 * mixed) / 4)
    assert second["r"][1]["A"].item() == pytest.approx(8.0)  # the largest model has no larger one


def test_inclusivefl_refuses_an_allocation_that_is_no_prefix(registry):
    """Sizes would stand for layers that their clients do not hold."""
    aggregate = registry.make("aggregator", {"name": "momentum_distillation"})
    with pytest.raises(UserError, match="needs the allocation prefix"):
        aggregate(*inclusive_case([[], [1.0], [1.0, 1.0]], [[0, 1, 1], [0, 0, 1]], [1, 1]))


def test_inclusivefl_shares_by_prefix(registry, deep):
    setup = setup_of(registry, deep(), [3, 1])
    method = registry.make("method", {"name": "inclusivefl"}, setup=setup)
    _, report = method.round(method.init(generator(0)), 0, cohort_of([3, 1], steps=1), generator(0, 0))
    assert report.plan.M.int()[:, :4].tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]


def test_own_last_layers_stay_within_their_size(registry, deep):
    """Two sizes: layer 1 is the small clients' last and so not shared with the large ones."""
    ref = {"name": "inclusivefl", "own_last_layer": True, "aggregator": {"name": "weighted_mean"}}
    setup = setup_of(registry, tiny_vit(depth=2), [2, 1])
    method = registry.make("method", ref, setup=setup)
    start = method.init(generator(0))
    state, report = method.round(start, 0, cohort_of([2, 1], steps=1), generator(0, 0))
    up, name = report.uploads, "attn.proj.lora_B"
    torch.testing.assert_close(state["r"][0][name], up.r[0][name][0])  # the large client's alone
    torch.testing.assert_close(state["memory"]["own"]["1"]["r"][name], up.r[0][name][1])
    torch.testing.assert_close(state["memory"]["own"]["2"]["r"][name], up.r[1][name][0])
    torch.testing.assert_close(state["memory"]["own"]["1"]["shared"]["head.weight"], up.shared["head.weight"][1])
    assert torch.equal(state["shared"]["head.weight"], start["shared"]["head.weight"])
    again, report = method.round(state, 1, cohort_of([2, 1], steps=0), generator(0, 1))
    torch.testing.assert_close(
        report.uploads.r[0][name][1], up.r[0][name][1]
    )  # a small client starts from its size's own
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    method.predictor(again)(x)
    torch.testing.assert_close(setup.backbone.shared()["head.weight"], up.shared["head.weight"][0])


@pytest.mark.parametrize("aggregator", ["momentum_distillation", "exact_mean"])
def test_own_last_layers_go_without_what_mixes_them_with_others(registry, aggregator):
    with pytest.raises(UserError, match=f"own_last_layer goes without {aggregator}"):
        ref = {"name": "inclusivefl", "own_last_layer": True, "aggregator": aggregator}
        registry.make("method", ref, setup=setup_of(registry, tiny_vit(), [2]))


def test_own_last_layers_are_of_sizes_that_train_whole_layers(registry):
    """A prefix of which some layers run frozen is told before anything runs."""

    def half_frozen(capacities, num_layers):
        M = torch.arange(num_layers) < capacities[:, None] + 1
        return Plan(M, [], trained=M & (torch.arange(num_layers) > 0))

    ref = {"name": "inclusivefl", "own_last_layer": True, "aggregator": "weighted_mean", "allocation": half_frozen}
    with pytest.raises(UserError, match="own_last_layer .* here layers run frozen; leave own_last_layer out"):
        registry.make("method", ref, setup=setup_of(registry, tiny_vit(), [3, 2]))


def test_momentum_of_a_size_that_was_lost_is_last_seen_or_none(registry):
    """Sizes 2 and 1. What the large client would have left is not mixed in; with nobody back, memory stays."""
    method = registry.make("method", {"name": "inclusivefl"}, setup=setup_of(registry, tiny_vit(depth=2), [2, 1]))
    both = cohort_of([2, 1], steps=1)
    one, nobody = (replace(both, arrives=torch.tensor(arrives)) for arrives in ([False, True], [False, False]))
    state, _ = method.round(method.init(generator(0)), 0, one, generator(0, 0))
    assert list(state["memory"]["updates"]) == ["1"]
    after, _ = method.round(state, 1, nobody, generator(0, 1))
    assert same(after, state)
