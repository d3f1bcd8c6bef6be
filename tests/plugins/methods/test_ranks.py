"""Methods of unequal ranks: their definitions by hand on 2x3 matrices, and what makes one of them another."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from ragged import same as close

from fedbench.engine import cohort as fast
from fedbench.engine import sequential
from fedbench.errors import NotApplicable, UserError
from fedbench.families.adapter_ranks import ArrivedAdapter, best_of_rank, drawn_terms, factored, zero_padded
from fedbench.models.lowrank import AdapterPair
from fedbench.seeding import generator
from fedbench.testing import check_method
from fedbench.testing.setups import cohort_of, same, setup_of, tiny_vit
from fedbench.types import Scenario
from fedbench_plugins.methods.hetlora import HetLoRA, sparsity_weights, tails
from fedbench_plugins.methods.legend import growing
from fedbench_plugins.methods.unequal_ranks import levels_of, redistributed, slice_weights

pytestmark = pytest.mark.usefixtures("counted_once")

NAMES = ["fedit", "hetlora", "flexlora", "raflora", "fed_plora", "fslora"]
PAIR = AdapterPair("r/0/fc", "r/0/fc.lora_A", "r/0/fc.lora_B", 2, 3.0)

# Two clients, W is 2x3. The first has both terms, the second the first alone.
A = torch.tensor([[[1.0, 0, 2], [0, 1, 0]], [[2.0, 2, 0], [0, 0, 0]]]).double()
B = torch.tensor([[[1.0, 0], [0, 2]], [[0.0, 0], [4, 0]]]).double()


def came_of(scales=(3.0, 3.0), weights=(0.25, 0.75)):
    terms = torch.tensor([[True, True], [True, False]])
    w, s = (torch.tensor(values).double() for values in (weights, scales))
    return ArrivedAdapter(PAIR, A, B, terms, w, s, torch.arange(2))


STATE = {"r": [{"fc.lora_A": torch.full((2, 3), 7.0), "fc.lora_B": torch.full((2, 2), 7.0)}], "shared": {}}


def test_padded_zeros_are_averaged_in():
    mean_A, mean_B = zero_padded(STATE)(came_of())
    assert mean_A.tolist() == [[1.75, 1.5, 0.5], [0, 0.25, 0]]  # 0.25 [1, 0, 2] + 0.75 [2, 2, 0]; 0.25 [0, 1, 0] + 0
    assert mean_B.tolist() == [[0.25, 0], [3, 0.5]]


def test_a_term_that_nobody_trained_keeps_its_value():
    """The second client alone came back, whose second term is not its own."""
    one = came_of()
    second = replace(one, A=A[1:], B=B[1:], terms=one.terms[1:], weights=torch.ones(1).double(), rows=torch.ones(1))
    mean_A, mean_B = zero_padded(STATE)(second)
    assert mean_A.tolist() == [[2, 2, 0], [7, 7, 7]] and mean_B.tolist() == [[0, 7], [4, 7]]


@pytest.mark.parametrize("name", ["hetlora", "flexlora"])
def test_terms_live_on_through_rounds_without_anybody_who_has_them(registry, name):
    setup = setup_of(registry, tiny_vit(), [4, 4], {"name": "lora", "rank": 4}, [4, 1])
    method = registry.make("method", {"name": name}, setup=setup)
    state = method.init(generator(0))
    for t, ids in enumerate(([0, 1], [1], [1], [0, 1])):
        cohort = cohort_of([4] * len(ids), ids=ids, ranks=[[4, 1][i] for i in ids])
        state, _ = method.round(state, t, cohort, generator(0, t))
    assert all((state["r"][0]["attn.proj.lora_A"] != 0).any(1)) and all((state["r"][0]["attn.proj.lora_B"] != 0).any(0))


def test_flexlora_averages_whole_products_each_at_its_own_scale():
    """s_1 = alpha / 2 = 3 and s_2 = alpha / 1 = 6; the state's scale is alpha / R = 3."""
    A_new, B_new = redistributed(came_of(scales=(3.0, 6.0)))
    dW = 0.25 * 3 * torch.tensor([[1.0, 0, 2], [0, 2, 0]]) + 0.75 * 6 * torch.tensor([[0.0, 0, 0], [8, 8, 0]])
    torch.testing.assert_close(3 * B_new @ A_new, dW.double())
    torch.testing.assert_close(A_new @ A_new.mT, torch.eye(2).double())
    largest = A_new.gather(1, A_new.abs().argmax(1, keepdim=True))
    assert (largest > 0).all()


def test_what_lies_beyond_a_rank_is_dropped_and_a_small_matrix_is_filled_with_zeros():
    U, sigma, Vt = factored(B, A, 1)
    whole = B[0] @ A[0] + B[1] @ A[1]
    left, s, right = torch.linalg.svd(whole)
    torch.testing.assert_close(sigma, s[:1])
    torch.testing.assert_close(U * sigma @ Vt, s[0] * torch.outer(left[:, 0], right[0]))
    U, sigma, Vt = factored(B, A, 5)
    assert U.shape == (2, 5) and Vt.shape == (5, 3) and (sigma[2:] == 0).all()
    torch.testing.assert_close(U * sigma @ Vt, whole)


def test_a_decomposition_has_one_sign_whatever_its_factors_signs():
    one, two = best_of_rank(B[0], A[0], 2), best_of_rank(-B[0], -A[0], 2)
    for x, y in zip(one, two, strict=True):
        torch.testing.assert_close(x, y)


def test_raflora_weighs_each_slice_over_those_who_reach_it():
    """Ranks 1, 3, 3 of R = 4: terms 1, then 2 and 3, then 4, which nobody has."""
    found = slice_weights(torch.tensor([1, 3, 3]), torch.tensor([0.5, 0.3, 0.2]).double(), [1, 3, 4])
    expected = torch.tensor([[0.5, 0, 0, 0], [0.3, 0.6, 0.6, 0], [0.2, 0.4, 0.4, 0]]).double()
    torch.testing.assert_close(found, expected)
    for ranks, levels in ((np.array([[1, 1], [3, 4]]), [1, 3, 4, 6]), (None, [6])):
        scenario = Scenario([], np.ones((2, 2), dtype=np.int64), num_layers=4, rounds=1, ranks=ranks)
        assert levels_of(SimpleNamespace(scenario=scenario), 6) == levels


def test_hetlora_weighs_clients_by_the_norm_of_their_products():
    """||B_1 A_1||_F = sqrt(1 + 4 + 4) = 3, ||B_2 A_2||_F = sqrt(64 + 64)."""
    (q,) = sparsity_weights([came_of()], 2)
    torch.testing.assert_close(q, torch.tensor([3.0, 128**0.5]).double() / (3 + 128**0.5))
    nothing = came_of()
    (q,) = sparsity_weights(
        [ArrivedAdapter(PAIR, A, 0 * B, nothing.terms, nothing.weights, nothing.scales, nothing.rows)], 2
    )
    assert q.tolist() == [0.5, 0.5]
    third = replace(nothing, B=torch.zeros(3, 2, 2).double(), A=torch.zeros(3, 2, 3).double(), rows=torch.arange(3))
    (q,) = sparsity_weights([third], 3)
    assert q.tolist() == [1 / 3] * 3  # in float64


def test_hetlora_prunes_whose_tail_shrank(registry):
    """Tail of the first client: ||B[:, 1:]|| ||A[1:, :]|| = 2 * 1; the second client has none."""
    assert tails([came_of(), came_of()], torch.tensor([1, 1])).tolist() == [4.0, 0.0]
    setup = setup_of(registry, tiny_vit(), [4, 4, 4], {"name": "lora", "rank": 8}, [8, 4, 2])
    setup.adapter(setup.backbone)
    ranks = torch.tensor([8, 4, 3, 2])
    assert HetLoRA(setup, 0.5, None, "sparsity").pruned(ranks).tolist() == [4, 2, 2, 2]  # r_min: the smallest, 2
    assert HetLoRA(setup, 0.99, 1, "sparsity").pruned(ranks).tolist() == [7, 3, 2, 1]
    assert HetLoRA(setup, 0.5, 6, "sparsity").pruned(ranks).tolist() == [6, 4, 3, 2]  # nothing grows
    made, cohort = HetLoRA(setup, 0.5, None, "sparsity"), cohort_of([4, 4], ids=[7, 9], ranks=[8, 4])
    assert made.ranks({"memory": {"given_up": {"7": 4, "8": 1}}}, cohort).tolist() == [4, 4]


def test_a_pruned_rank_stays(registry):
    """With so strong a term every tail shrinks from the second round on; the first begins with B = 0."""
    options = {"name": "hetlora", "gamma": 0.5, "lam": 20.0}
    setup = setup_of(registry, tiny_vit(), [4, 4], {"name": "lora", "rank": 4}, [4, 2], clip=None)
    method = registry.make("method", options, setup=setup)
    state, held = method.init(generator(0)), []
    for t in range(4):
        state, report = method.round(state, t, cohort_of([4, 4], ranks=[4, 2]), generator(0, t))
        held.append(report.plan.ranks[:, 0].tolist())
    assert held[0] == [4, 2] and held[-1] == [2, 2] and state["memory"] == {"given_up": {"0": 2}}
    assert report.cost[0] == report.cost[1]


def test_a_client_prunes_by_what_it_trained_whatever_arrives(registry):
    """Spoilt into fifty times what it was, a tail that shrank looks longer than it began."""
    setup = setup_of(registry, tiny_vit(), [4, 4], {"name": "lora", "rank": 4}, [4, 2], clip=None)

    def engine(model, start, plan, cohort, job):
        up = sequential.train(model, start, plan, cohort, job)
        arrived = [{name: (50.0 if job.t == 2 else 1.0) * rows for name, rows in r_j.items()} for r_j in up.r]
        return replace(up, r=arrived, sent={"r": up.r, "shared": up.shared})

    options = {"name": "hetlora", "gamma": 0.5, "lam": 20.0}
    method = registry.make("method", options, setup=replace(setup, engine=engine))
    state = method.init(generator(0))
    for t in range(3):
        state, _ = method.round(state, t, cohort_of([4, 4], ranks=[4, 2]), generator(0, t))
    assert state["memory"]["given_up"] == {"0": 2}


def test_terms_that_were_given_up_are_missing_from_every_later_draw(registry):
    """Of 4 drawn terms 2 were given up; of 8 that makes 6, but r_min, 2, is left of 3."""
    setup = setup_of(registry, tiny_vit(), [4, 4], {"name": "lora", "rank": 8}, [8, 2], clip=None)
    method = registry.make("method", {"name": "hetlora", "gamma": 0.5, "lam": 20.0}, setup=setup)
    state = method.init(generator(0))
    for t in range(4):
        state, _ = method.round(state, t, cohort_of([4, 4], ranks=[4, 2]), generator(0, t))
    assert state["memory"] == {"given_up": {"0": 2}}
    for drawn, held in ((8, 6), (3, 2)):
        _, report = method.round(state, 4, cohort_of([4, 4], ranks=[drawn, 2]), generator(0, 4))
        assert report.plan.ranks[:, 0].tolist() == [held, 2]


def after_round(registry, name, ranks, R=2, **options):
    setup = setup_of(registry, tiny_vit(), [4, 3], {"name": "lora", "rank": R, "alpha": 4}, ranks)
    method = registry.make("method", {"name": name, **options}, setup=setup)
    state = method.init(generator(0))
    return method.round(state, 0, cohort_of([4, 3], [3, 5], ranks=ranks), generator(0, 0))


def test_the_smallest_rank_for_everybody_is_an_adapter_of_that_rank(registry):
    state, report = after_round(registry, "fedit", [2, 1], smallest=True)
    assert report.plan.ranks.max() == 1
    assert all((r_j["mlp.fc2.lora_B"][:, 1:] == 0).all() and r_j["mlp.fc2.lora_B"][:, 0].any() for r_j in state["r"])


def test_fed_plora_of_full_rank_is_fedit(registry):
    one, two = (after_round(registry, name, [2, 2])[0] for name in ("fedit", "fed_plora"))
    torch.testing.assert_close({"r": one["r"], **one["shared"]}, {"r": two["r"], **two["shared"]}, rtol=0, atol=1e-12)


def test_fslora_whose_sketches_are_whole_is_fedit(registry):
    one, two = (after_round(registry, name, [2, 2], weights="uniform")[0] for name in ("fedit", "fslora"))
    torch.testing.assert_close({"r": one["r"], **one["shared"]}, {"r": two["r"], **two["shared"]}, rtol=0, atol=1e-12)


def test_every_term_is_as_likely_to_be_drawn():
    drawn = drawn_terms(torch.full((4000,), 2), 5, generator(0))
    assert drawn.sum(1).unique().tolist() == [2] and (drawn.double().mean(0) - 0.4).abs().max() < 0.03


def test_legends_ranks_grow_by_the_difference_and_do_not_fall_below_one():
    assert growing(12, 28, 1).tolist() == list(range(17, 29))  # as a third party's configuration has them
    assert growing(4, 4, 2).tolist() == [1, 1, 2, 4] and growing(3, 4, 0).tolist() == [4, 4, 4]


def test_a_client_of_legend_pays_for_the_layers_that_it_trains(registry):
    method = registry.make(
        "method", {"name": "legend"}, setup=setup_of(registry, tiny_vit(), [4, 1], {"name": "lora", "rank": 4})
    )
    deep, shallow = method.price(4, 0), method.price(1, 0)
    assert shallow.bytes_up < deep.bytes_up and shallow.memory_bytes < deep.memory_bytes
    assert shallow.flops_per_image < deep.flops_per_image
    assert [size.capacity for size in method.sizes] == [1, 2, 3, 4]


def test_hetlora_of_equal_ranks_and_weights_by_examples_is_fedit(registry):
    """r_min is R: nothing can be pruned, and so nothing is pulled."""
    one, two = (after_round(registry, *named)[0] for named in (("fedit", None), ("hetlora", None)))
    assert not torch.equal(one["r"][0]["attn.proj.lora_A"], two["r"][0]["attn.proj.lora_A"])  # sparsity weights
    two, _ = after_round(registry, "hetlora", None, weights="examples")
    assert same(one["r"], two["r"]) and same(one["shared"], two["shared"])


def test_raflora_of_one_rank_is_flexlora(registry):
    """One round from the same state: the products are equal, their factors split the singular values otherwise."""

    def products(name):
        setup = setup_of(registry, tiny_vit(), [4, 3], {"name": "lora", "rank": 2, "alpha": 4}, [2, 2])
        method = registry.make("method", {"name": name}, setup=setup)
        state, _ = method.round(method.init(generator(0)), 0, cohort_of([4, 3], [3, 5], ranks=[2, 2]), generator(0, 0))
        return [r_j[f"{at}.lora_B"] @ r_j[f"{at}.lora_A"] for r_j in state["r"] for at in ("attn.proj", "mlp.fc2")]

    torch.testing.assert_close(products("raflora"), products("flexlora"), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "name", ["hetlora", *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES if name != "hetlora")]
)
def test_the_contract_is_kept_with_ranks_too_and_prices_follow_them(registry, name):
    def made(setup):
        return registry.make("method", {"name": name}, setup=setup)

    check_method(made, registry, lambda: tiny_vit(depth=2), capacities=(2, 1, 1), ranks=(2, 1, 1))
    method = made(setup_of(registry, tiny_vit(), [4, 4], {"name": "lora", "rank": 4}, [4, 1]))
    large, small = method.price(4, 0, 4), method.price(4, 0, 1)
    assert small.bytes_up < large.bytes_up and small.flops_per_image < large.flops_per_image
    assert method.price(4, 0) == large
    assert (small.bytes_down == large.bytes_down) == (name == "fed_plora")


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_is_refused(registry, name):
    setup = setup_of(registry, tiny_vit(), [4], ranks=[3])
    method = registry.make("method", {"name": name}, setup=setup)
    with pytest.raises(UserError, match="a client's rank is 3, the adapter's 2"):
        method.round(method.init(generator(0)), 0, cohort_of([4], ranks=[3]), generator(0, 0))
    with pytest.raises(UserError, match=f"{name}: weights: expected .* or .*, got .votes"):
        registry.make("method", {"name": name, "weights": "votes"}, setup=setup)


def test_both_engines_agree_on_convolutions_too(registry):
    """The patch embedding's adapter stands in no layer; its A has a kernel, its B two axes more."""
    adapter = {"name": "lora", "rank": 3, "alpha": 4, "targets": "reference", "dropout": 0.2}
    states = []
    for engine in (sequential.train, fast.train):
        setup = setup_of(registry, tiny_vit(depth=2), [2, 1], adapter, [3, 1], regularizer={"fedprox": 0.5})
        method = registry.make("method", {"name": "flexlora"}, setup=replace(setup, engine=engine))
        state = method.init(generator(0))
        for t in range(2):
            state, _ = method.round(state, t, cohort_of([2, 1], ranks=[3, 1]), generator(0, t))
        states.append(state)
    close(*states)


def test_who_goes_by_products_is_not_applicable_under_feddyn(registry):
    for name in ("flexlora", "raflora", "hetlora"):
        with pytest.raises(NotApplicable, match="goes by products of them"):
            registry.make(
                "method", {"name": name}, setup=setup_of(registry, tiny_vit(), [4], regularizer={"feddyn": 1})
            )


def test_hetlora_refuses_numbers_that_mean_nothing(registry):
    for wrong in ({"gamma": 1.0}, {"lam": -1.0}, {"r_min": 0}):
        with pytest.raises(UserError, match=f"hetlora: {next(iter(wrong))}: expected a"):
            registry.make("method", {"name": "hetlora", **wrong}, setup=setup_of(registry, tiny_vit(), [4]))
