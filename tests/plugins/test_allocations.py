"""The knapsack: by hand, and against all subsets; testing/test_kit.py checks its contract."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbench.seeding import generator
from fedbench.testing.setups import cohort_of, setup_of, tiny_vit
from fedbench_plugins.allocations import knapsack, packed

pytestmark = pytest.mark.usefixtures("counted_once")

numbers = st.lists(st.integers(1, 9), min_size=1, max_size=6)


@given(numbers, st.data(), st.integers(0, 25), st.integers(0, 6))
def test_no_subset_that_fits_is_worth_more(values, data, budget, most):
    costs = data.draw(st.lists(st.integers(1, 9), min_size=len(values), max_size=len(values)))
    chosen = packed([float(v) for v in values], [float(c) for c in costs], budget, most)
    assert len(chosen) <= most and sum(costs[i] for i in chosen) <= budget
    fits = (
        some
        for k in range(min(most, len(values)) + 1)
        for some in itertools.combinations(range(len(values)), k)
        if sum(costs[i] for i in some) <= budget
    )
    assert sum(values[i] for i in chosen) == max(sum(values[i] for i in some) for some in fits)


def drawn(history, hold="trained"):
    return knapsack(
        capacities=torch.tensor([2, 3]),
        num_layers=4,
        generator=torch.Generator().manual_seed(0),
        scores=torch.tensor([0.1, 4.0, 2.0, 3.0]).double(),
        history=torch.tensor(history),
        layer_memory=torch.tensor([10.0, 10.0, 10.0, 30.0]).double(),
        memory_budgets=torch.tensor([30.0, 45.0]).double(),
        hold=hold,
    )


def test_the_most_valuable_layers_that_fit_are_trained():
    """The last layer is worth 3 and takes 30 of 45; the first, never returned, is worth more than all."""
    assert drawn([1, 1, 1, 1]).tolist() == [[False, True, True, False], [False, True, False, True]]
    assert drawn([0, 1, 1, 1]).tolist() == [[True, True, False, False], [True, True, True, False]]


def test_the_others_run_frozen_where_all_are_held():
    plan = drawn([1, 1, 1, 1], hold="all")
    assert plan.M.all() and torch.equal(plan.trained, drawn([1, 1, 1, 1]))


def test_what_is_worth_nothing_fills_the_room_that_is_left():
    assert packed([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], 2.0, 2) == [0, 1]
    assert sorted(packed([0.0, 5.0, 0.0, 0.0], [1.0, 1.0, 2.0, 1.0], 3.0, 3)) == [0, 1, 3]
    assert packed([0.0, 5.0], [1.0, 1.0], 1.0, 1) == [1]


# Updates that go into W, or that are 0 in the first round: A has no gradient while B is 0.
@pytest.mark.parametrize("method", [{"name": "flora"}, {"name": "rolora", "first": "A"}], ids=["flora", "rolora"])
def test_everybody_trains_as_many_layers_as_it_can_in_every_round(registry, method):
    decay = {"optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0}}
    setup = setup_of(registry, tiny_vit(), [4, 2], **decay)
    made = registry.make("method", {**method, "allocation": "knapsack"}, setup=setup)
    state = made.init(generator(0))
    for t in range(3):
        state, report = made.round(state, t, cohort_of([4, 2]), generator(0, t))
        assert report.plan.M.sum(1).tolist() == [4, 2]


def test_a_model_of_one_layer_is_worth_trying(registry):
    setup = setup_of(registry, tiny_vit(depth=1), [1])
    method = registry.make("method", {"name": "fedra", "allocation": {"name": "knapsack"}}, setup=setup)
    _, report = method.round(method.init(generator(0)), 0, cohort_of([1]), generator(0, 0))
    assert report.plan.M.tolist() == [[True]]
