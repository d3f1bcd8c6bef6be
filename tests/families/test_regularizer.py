"""FedDyn and FedProx: the books, the server's step, and where they lead."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbench.errors import NotApplicable
from fedbench.families.layerwise import head_at_end
from fedbench.families.regularizer import first_books, pull_of, server_step, towards
from fedbench.seeding import generator
from fedbench.testing.method_check import check_method
from fedbench.testing.setups import cohort_of, setup_of, tiny_vit
from fedbench.types import Plan, Uploads

pytestmark = pytest.mark.usefixtures("counted_once")

METHODS = ["fedra", "inclusivefl", "depthfl", "head_only", "exclusive"]
SOME = ("depthfl",)  # whose aggregator keeps a memory, and which has exits besides
A = 0.5
FEDDYN = {"feddyn": A}


# --- books and server step, on one layer with one number ----------------------------------------------------------


def state_of(value):
    return {"r": [{"w": torch.tensor([value])}], "shared": {}, **first_books(FEDDYN)}


def plan_of(*held):
    return Plan(torch.tensor(held).bool()[:, None], [head_at_end(int(h)) for h in held])


def uploads_of(rows, arrived):
    N = len(arrived)
    zeros = torch.zeros(N)
    rows = torch.tensor(rows, dtype=torch.float32).reshape(-1, 1)
    return Uploads([{"w": rows}], {}, torch.tensor(arrived, dtype=torch.bool), zeros, zeros, zeros)


def step(state, rows, arrived, held, ids, registered=4):
    """The rows that the aggregator is given, and the state with its new books."""
    given_, books = server_step(FEDDYN, registered, state, state, uploads_of(rows, arrived), plan_of(*held), ids)
    return given_.r[0]["w"].flatten().tolist(), {**state, **books}


def test_books_are_of_those_who_train_and_of_what_they_train():
    """All hold the layer, clients 0 and 2 train it, the last its first number alone; each began with its own."""
    state = {"r": [{"w": torch.tensor([1.0, 1.0])}], "shared": {}, **first_books(FEDDYN)}
    plan = Plan(torch.ones(3, 1) > 0, [()] * 3, trained=torch.tensor([[1], [0], [1]]) > 0)
    assert pull_of(FEDDYN, state, plan, [5, 6, 7]).linear["r"][0]["w"].tolist() == [[0.0, 0.0]] * 2
    start = {"r": [{"w": torch.tensor([[1.0, 1.0], [9.0, 9.0], [2.0, 2.0]])}], "shared": {}}
    zeros = torch.zeros(3)
    up = Uploads([{"w": torch.tensor([[3.0, 1.0], [4.0, 2.0]])}], {}, zeros == 0, zeros, zeros, zeros)
    up.coordinates = {"r/0/w": torch.tensor([[True, True], [True, False]])}
    given_, books = server_step(FEDDYN, 4, state, start, up, plan, [5, 6, 7])
    g = {client: own["r/0/w"].tolist() for client, own in books["feddyn"]["g"].items()}
    assert g == {"5": [-1.0, 0.0], "7": [-1.0, 0.0]} and books["feddyn"]["h"]["r/0/w"].tolist() == [-0.5, 0.0]
    assert given_.r[0]["w"].tolist() == [[4.0, 1.0], [5.0, 2.0]]


def test_a_client_books_what_it_trained_and_the_server_what_arrived():
    """Client 7 has trained 3, and -1 arrives: its sign was turned."""
    state, up = state_of(1.0), uploads_of([-1.0, 0.0], [True, True])
    up.sent = {"r": [{"w": torch.tensor([[3.0], [0.0]])}], "shared": {}}
    given_, books = server_step(FEDDYN, 4, state, state, up, plan_of(1, 1), [7, 2])
    assert books["feddyn"]["g"] == {"7": {"r/0/w": torch.tensor([-1.0])}, "2": {"r/0/w": torch.tensor([0.5])}}
    assert books["feddyn"]["h"] == {"r/0/w": torch.tensor([0.375])}  # -0.5 / 4 * (-2 - 1)
    assert given_.r[0]["w"].flatten().tolist() == [-1.75, -0.75]


def test_two_rounds_of_books_by_hand():
    state = state_of(1.0)
    assert pull_of(FEDDYN, state, plan_of(1, 1), [7, 2]).linear["r"][0]["w"].tolist() == [[0.0], [0.0]]
    rows, state = step(state, [3.0, 0.0], [True, True], held=[1, 1], ids=[7, 2])
    assert state["feddyn"]["g"] == {"7": {"r/0/w": torch.tensor([-1.0])}, "2": {"r/0/w": torch.tensor([0.5])}}
    assert state["feddyn"]["h"] == {"r/0/w": torch.tensor([-0.125])}  # -0.5 / 4 * (2 - 1)
    assert rows == [3.25, 0.25]  # their mean is 1.5 + 0.125 / 0.5
    state["r"][0]["w"] = torch.tensor([2.0])
    pull = pull_of(FEDDYN, state, plan_of(0, 1, 1), [7, 3, 2])
    assert pull.strength == A and pull.linear["r"][0]["w"].tolist() == [[0.0], [0.5]]
    rows, state = step(state, [4.0, 2.0], [True, True, True], held=[0, 1, 1], ids=[7, 3, 2])
    assert {client: own["r/0/w"].item() for client, own in state["feddyn"]["g"].items()} == {"7": -1, "2": 0.5, "3": -1}
    assert state["feddyn"]["h"]["r/0/w"].item() == -0.375
    assert rows == [4.75, 2.75]


def test_a_round_copies_the_books_of_those_who_return_alone():
    state = state_of(1.0)
    state["feddyn"]["g"] = {str(client): {"r/0/w": torch.tensor([float(client)])} for client in range(50)}
    given = state["feddyn"], FEDDYN, 1000
    _, new = server_step(*given[1:], state, state, uploads_of([2.0, 3.0], [True, False]), plan_of(1, 1), [7, 8])
    before, after = given[0]["g"], new["feddyn"]["g"]
    assert [client for client in before if after[client] is not before[client]] == ["7"]
    assert before["7"]["r/0/w"].item() == 7.0 and after["7"]["r/0/w"].item() == 7.0 - A * (2.0 - 1.0)


def test_a_lost_upload_changes_neither_its_g_nor_h():
    rows, state = step(state_of(1.0), [3.0, 9.0], [True, False], held=[1, 1], ids=[0, 1])
    assert state["feddyn"]["g"].keys() == {"0"} and state["feddyn"]["h"]["r/0/w"].item() == -0.25
    before = copy.deepcopy(state["feddyn"])
    _, after = step(state, [5.0], [False], held=[1], ids=[0])
    assert after["feddyn"] == before


def test_fedprox_has_no_linear_part_and_no_books():
    state = {"r": [{"w": torch.ones(1)}], "shared": {}}
    assert first_books({"fedprox": 0.1}) == first_books(None) == {}
    pull = pull_of({"fedprox": 0.1}, state, plan_of(1), [0])
    assert (pull.strength, pull.linear) == (0.1, None)
    up = uploads_of([2.0], [True])
    assert server_step({"fedprox": 0.1}, 1, state, state, up, plan_of(1), [0]) == (up, {})


client = st.tuples(st.booleans(), st.booleans(), st.floats(-2, 2, width=16))  # holds it, arrives, returns


@given(st.lists(st.lists(client, min_size=3, max_size=3), max_size=4))
def test_h_is_the_mean_of_all_g(rounds):
    """Whoever holds and returns what: h = 1/m sum_n g_n, over all registered clients."""
    state = state_of(1.0)
    for clients in rounds:
        rows = [row for holds, _, row in clients if holds]
        _, state = step(state, rows, [came for _, came, _ in clients], [holds for holds, _, _ in clients], [0, 1, 2], 3)
    g = [own["r/0/w"] for own in state["feddyn"]["g"].values()]
    h = state["feddyn"]["h"].get("r/0/w", torch.zeros(1))
    torch.testing.assert_close(h, sum(g, torch.zeros(1)) / 3)


# --- whole methods ------------------------------------------------------------------------------------------------


def prepared(registry, regularizer, capacities=(4, 3, 1), ref="fedra", engine=None, model=tiny_vit):
    setup = setup_of(registry, model(), list(capacities), regularizer=regularizer)
    setup = dataclasses.replace(setup, engine=engine or setup.engine)
    return registry.make("method", ref if isinstance(ref, dict) else {"name": ref}, setup=setup)


@pytest.mark.parametrize(
    ("name", "regularizer"),
    [
        *(pytest.param(name, FEDDYN, marks=() if name in SOME else pytest.mark.slow) for name in METHODS),
        pytest.param("fedra", {"fedprox": 0.1}, marks=pytest.mark.slow),
    ],
)
def test_a_method_is_one_with_it_too(registry, name, regularizer):
    """Its state remains JSON and tensors of their own, a layer that nobody returned keeps its value, and so on."""

    def make(setup):
        setup = dataclasses.replace(setup, train={**setup.train, "regularizer": regularizer})
        return registry.make("method", {"name": name}, setup=setup)

    check_method(make, registry)


@pytest.mark.parametrize("regularizer", [None, {"fedprox": 0.1}], ids=["none", "fedprox"])
def test_without_feddyn_the_state_is_as_it_was(registry, regularizer):
    method = prepared(registry, regularizer)
    state, _ = method.round(method.init(generator(0)), 0, cohort_of([4, 3, 1]), generator(0))
    assert state.keys() == {"r", "shared", "scores", "history", "memory"}


def test_books_and_an_aggregator_s_memory_stand_beside_each_other(registry):
    method = prepared(registry, FEDDYN, ref="inclusivefl")
    state = method.init(generator(0))
    for t in range(2):
        state, _ = method.round(state, t, cohort_of([4, 3, 1], ids=[0, 4, 2]), generator(0, t))
    assert state["memory"] and state["feddyn"]["g"].keys() == {"0", "4", "2"}
    assert {place.split("/")[1] for place in state["feddyn"]["g"]["2"] if place.startswith("r/")} == {"0"}
    assert {place.split("/")[1] for place in state["feddyn"]["h"] if place.startswith("r/")} == {"0", "1", "2", "3"}


def test_feddyn_is_not_applicable_where_sizes_keep_their_own_last_layer(registry):
    ref = {"name": "inclusivefl", "own_last_layer": True, "aggregator": {"name": "weighted_mean"}}
    with pytest.raises(NotApplicable, match="FedDyn"):
        prepared(registry, FEDDYN, ref=ref)
    assert prepared(registry, {"fedprox": 0.1}, ref=ref)


def test_what_the_aggregator_leaves_alone_stays(registry):
    """The released code averages adapters outside the layers only if client 0 takes part."""
    adapter = {"name": "lora", "rank": 2, "alpha": 4, "targets": "reference"}
    setup = setup_of(registry, tiny_vit(), [4, 3, 1], adapter, regularizer=FEDDYN)
    ref = {"name": "fedra", "aggregator": {"name": "weighted_mean", "outside_layers": "with_client_0"}}
    method = registry.make("method", ref, setup=setup)
    first, _ = method.round(method.init(generator(0)), 0, cohort_of([4, 3]), generator(0))
    second, _ = method.round(first, 1, cohort_of([3, 1], ids=[1, 2]), generator(0, 1))
    outside = [name for name in first["shared"] if name.startswith("model.")]
    assert outside and all(torch.equal(first["shared"][name], second["shared"][name]) for name in outside)
    assert not torch.equal(first["shared"]["head.weight"], second["shared"]["head.weight"])


# --- where it leads: quadratic losses -----------------------------------------------------------------------------

CURVATURE, CENTRE = torch.tensor([0.5, 1.0, 3.0]).double(), torch.tensor([-2.0, 1.0, 4.0]).double()
LOCAL_STEPS, LR = 5, 0.2


def quadratic(model, start, plan, cohort, job):
    """An engine in which client n's loss is c_n / 2 ||w - m_n||^2 over all it holds, in LOCAL_STEPS gradient steps."""

    def tuned(values, held, linear):
        rows = {}
        for name, value in values.items():
            ids = [cohort.ids[n] for n in held]
            c, m = (per.view(-1, *[1] * value.dim()) for per in (CURVATURE[ids], CENTRE[ids]))
            w = value.expand(len(held), *value.shape)
            for _ in range(LOCAL_STEPS):
                gradient = c * (w - m)
                if job.pull:
                    gradient = gradient + job.pull.strength * (w - value) - (linear[name] if linear else 0)
                w = w - LR * gradient
            rows[name] = w
        return rows

    linear = job.pull and job.pull.linear
    r = [
        tuned(r_j, plan.M[:, j].nonzero().flatten().tolist(), linear and linear["r"][j])
        for j, r_j in enumerate(start["r"])
    ]
    shared = tuned(start["shared"], range(len(cohort)), linear and linear["shared"])
    zeros = torch.zeros(len(cohort), dtype=torch.float64)
    return Uploads(r, shared, torch.ones(len(cohort), dtype=torch.bool), zeros, cohort.steps, zeros)


def limit(registry, regularizer, ref, cohorts, rounds):
    method = prepared(registry, regularizer, (2, 1, 1), ref, quadratic, lambda: tiny_vit(depth=2, dim=2))
    state = method.init(generator(0))
    for t in range(rounds):
        state, _ = method.round(state, t, cohorts[t % len(cohorts)], generator(0, t))
    return [value for r_j in state["r"] for value in r_j.values()] + list(state["shared"].values())


def everyone():
    return [cohort_of([2, 1, 1], examples=[1, 2, 5])]


def pairs():
    return [cohort_of([2, 1], examples=[1, 5], ids=ids) for ids in ([0, 1], [1, 2], [2, 0])]


@pytest.mark.parametrize(
    ("ref", "cohorts"),
    [
        ("fedra", pairs),
        pytest.param("alllarge", everyone, marks=pytest.mark.slow),
    ],
)
def test_feddyn_ends_in_the_optimum_of_all_clients_and_fedavg_does_not(registry, ref, cohorts):
    """Whoever takes part and holds what, and whatever the aggregator's weights (1 : 2 : 5 here): the minimum of the
    plain sum of all losses."""
    optimum = (CURVATURE * CENTRE).sum() / CURVATURE.sum()
    for value in limit(registry, {"feddyn": 1.0}, ref, cohorts(), rounds=120):
        torch.testing.assert_close(value, optimum.expand_as(value), rtol=0, atol=1e-6)
    for other in (None, {"fedprox": 1.0}):
        assert all(((value - optimum).abs() > 0.1).all() for value in limit(registry, other, ref, cohorts(), 30))


def test_fedavg_misses_its_own_weighted_optimum_too(registry):
    weights = torch.tensor([1, 2, 5]).double() * CURVATURE
    optimum = (weights * CENTRE).sum() / weights.sum()
    assert all(((v - optimum).abs() > 0.05).all() for v in limit(registry, None, "alllarge", everyone(), 30))


def test_the_proximal_term_has_the_gradient_of_its_formula_and_keeps_no_copy():
    """To the bit; what is kept for the backward pass are w and w_start as they are."""
    torch.manual_seed(0)
    w = {"a": torch.randn(5, 3, requires_grad=True), "b": torch.randn(7, requires_grad=True)}
    start = {name: torch.randn(p.shape) for name, p in w.items()}
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda p: kept.append(p.data_ptr()) or p, lambda p: p):
        term = towards(w, start, 0.3)
    plain = 0.3 / 2 * torch.stack([((p - start[name]) ** 2).sum() for name, p in w.items()]).sum()
    assert term.equal(plain)
    ours, theirs = (torch.autograd.grad(value, list(w.values())) for value in (term, plain))
    assert all(map(torch.equal, ours, theirs))
    own = [p.data_ptr() for p in (*w.values(), *start.values())]
    assert set(own) <= set(kept) and len(kept) == len(own)
