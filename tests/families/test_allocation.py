"""M: row sums, the probability of each layer, full columns, and what the check refuses."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbench.errors import UserError
from fedbench.families.allocation import check, cover, draw, is_deaf, is_free, prefix, random
from fedbench.types import Plan


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def test_prefix_holds_the_first_layers():
    assert prefix(torch.tensor([1, 3]), 3).int().tolist() == [[1, 0, 0], [1, 1, 1]]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(0, 2**31))
def test_every_allocation_has_the_row_sums_of_its_capacities(capacities, seed):
    L_n = torch.tensor(capacities)
    for M in (prefix(L_n, 6), random(L_n, 6, gen(seed)), cover(L_n, 6, gen(seed))):
        assert M.dtype == torch.bool and M.sum(1).tolist() == capacities


def test_chance_shows_in_any_part_of_a_plan():
    L_n, M = torch.tensor([2, 1]), torch.tensor([[True, True, False], [True, False, False]])
    assert not is_deaf(lambda generator: random(L_n, 3, generator)) and is_deaf(lambda generator: prefix(L_n, 3))
    assert is_deaf(lambda generator: Plan(M, []))
    assert not is_deaf(lambda generator: Plan(M, [], trained=M & random(L_n, 3, generator)))
    assert is_free(M) and is_free(Plan(torch.ones_like(M), [], trained=M))
    assert not is_free(torch.ones(2, 3, dtype=torch.bool)) and not is_free(torch.zeros(2, 3, dtype=torch.bool))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(0, 2**31))
def test_cover_fills_as_many_columns_as_the_capacities_allow(capacities, seed):
    M = cover(torch.tensor(capacities), 6, gen(seed))
    assert int(M.any(0).sum()) == min(6, sum(capacities))


def test_cover_repairs_what_rejection_cannot_find():
    # three clients of four layers out of twelve: one draw in about 3,500 covers all, so that most seeds
    # need the repair
    for seed in range(5):
        M = cover(torch.tensor([4, 4, 4]), 12, gen(seed))
        assert M.any(0).all() and M.sum(1).tolist() == [4, 4, 4]


def test_random_gives_every_layer_probability_L_n_over_L():
    """4,000 draws of 5 of 12 layers: a layer's count is binomial. The bound of 4.5 standard deviations over 12
    layers gives a false alarm in 12 * 6.8e-6, below one run in 12,000 (and the seed is fixed)."""
    draws, L_n, L = 4000, 5, 12
    M = random(torch.full((draws,), L_n), L, gen(7))
    p = L_n / L
    bound = 4.5 * math.sqrt(draws * p * (1 - p))
    assert ((M.sum(0) - draws * p).abs() < bound).all()


def test_random_draws_rows_independently():
    """Two clients with 1 of 2 layers each agree in half of 4,000 draws, within 4.5 standard deviations (false
    alarm 6.8e-6)."""
    agree = sum(int(M[0, 0] == M[1, 0]) for M in (random(torch.tensor([1, 1]), 2, gen(s)) for s in range(4000)))
    assert abs(agree - 2000) < 4.5 * math.sqrt(1000)


def test_cover_is_the_random_draw_conditioned_on_full_columns():
    """Two clients with 2 of 3 layers each cover all in 6 of 9 equally likely draws; given that, which layer they
    share is each with probability 1/3 (2,000 draws, 4.5 sigma)."""
    shared = sum(cover(torch.tensor([2, 2]), 3, gen(s)).all(0).int() for s in range(2000))
    assert int(shared.sum()) == 2000  # full columns leave exactly one layer to both
    assert ((shared - 2000 / 3).abs() < 4.5 * math.sqrt(2000 * 2 / 9)).all()


@pytest.mark.parametrize(
    ("M", "message"),
    [
        (torch.ones(2, 3, dtype=torch.bool), "gave client 0 of the round 3 layers; its capacity is 1"),
        (torch.ones(2, 3), "must return a bool tensor"),
        (torch.ones(1, 3, dtype=torch.bool), "one row for each of 2 clients"),
        ([[True]], "got list"),
    ],
)
def test_check_says_what_is_wrong(M, message):
    with pytest.raises(UserError, match=message):
        check(M, torch.tensor([1, 2]), name="mine")


def test_check_lets_an_inexact_allocation_stay_below_but_not_above():
    L_n = torch.tensor([2])
    assert check(torch.tensor([[True, False, False]]), L_n, exact=False).sum() == 1
    with pytest.raises(UserError, match="at most 2"):
        check(torch.ones(1, 3, dtype=torch.bool), L_n, exact=False)


def test_an_allocation_gets_whatever_it_names():
    seen = {}

    def nosy(capacities, num_layers, round, client_ids, layer_costs, budgets, scores, history, shift=1):
        seen.update(locals())
        return prefix(capacities, num_layers)

    state = {"scores": torch.tensor([0.5, 0.0]), "history": torch.tensor([3, 0])}
    costs = torch.tensor([10.0, 30.0])
    draw(nosy, torch.tensor([1, 2]), 2, 5, [7, 9], state, gen(), lambda: costs)
    assert seen["round"] == 5 and seen["client_ids"] == [7, 9] and seen["shift"] == 1
    assert seen["budgets"].tolist() == [20.0, 40.0] and seen["history"].tolist() == [3, 0]


def test_an_allocation_cannot_change_what_it_was_given():
    def greedy(capacities, num_layers, scores):
        M = prefix(capacities, num_layers)
        capacities += 1
        scores += 1
        return M

    L_n, state = torch.tensor([1, 2]), {"scores": torch.zeros(3), "history": torch.zeros(3)}
    draw(greedy, L_n, 3, 0, [0, 1], state, gen(), lambda: torch.ones(3))
    assert L_n.tolist() == [1, 2] and state["scores"].tolist() == [0, 0, 0]
