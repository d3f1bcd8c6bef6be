"""What FFA-LoRA, RoLoRA, FedSA-LoRA, FedEx-LoRA, FLoRA and LoRA-FAIR promise."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from fedbench.errors import NotApplicable, UserError
from fedbench.seeding import generator
from fedbench.simulation.layer_effects import effects
from fedbench.testing import check_method
from fedbench.testing.setups import CLASSES, cohort_of, setup_of, tiny_vit
from fedbench.types import Exit
from fedbench_plugins.methods.lora_products import CorrectionSearch

pytestmark = pytest.mark.usefixtures("counted_once")

L, R, SCALE = 4, 2, 2.0  # alpha / rank of the set-up's adapter, and FLoRA's own
EXAMPLES = [4, 2, 6]
P = [n / sum(EXAMPLES) for n in EXAMPLES]
NAMES = [f"blocks.{j}.{target}" for j in range(L) for target in ("attn.proj", "mlp.fc2")]
METHODS = ["ffa_lora", "rolora", "fedsa_lora", "fedex_lora", "flora", "lora_fair"]
X = torch.randn(3, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


def made(registry, name, ranks=None, by_client=True, adapter=None, train=None, **options):
    setup = replace(setup_of(registry, tiny_vit(L), [L] * 3, adapter, ranks, **(train or {})), by_client=by_client)
    return registry.make("method", {"name": name, **options}, setup=setup), setup


def cohort(ranks=None):
    return cohort_of([L] * 3, EXAMPLES, ranks=ranks)


def ran(registry, name, rounds=2, ranks=None, **options):
    """The states around every round, with its report, and the method."""
    method, setup = made(registry, name, ranks, **options)
    states, reports = [method.init(generator(0))], []
    for t in range(rounds):
        state, report = method.round(states[-1], t, cohort(ranks), generator(0, t))
        states.append(state)
        reports.append(report)
    return states, reports, method, setup


def factor(state, name, which):
    _, j, target = name.split(".", 2)
    return state["r"][int(j)][f"{target}.lora_{which}"]


def addition(state, name):
    _, j, target = name.split(".", 2)
    return state.get("frozen", {}).get(f"r/{j}/{target}", torch.zeros((), dtype=torch.float64))


# --- what they promise --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "ranks"), [("fedex_lora", None), ("flora", [1, 2, 2])])
def test_nothing_is_lost_in_aggregation(registry, name, ranks):
    """Also with one client whose work is lost: W + addition + s B A has gained the mean of the clients' products."""
    states, reports, method, setup = ran(registry, name, ranks=ranks)
    everybody = cohort(ranks)
    some = replace(everybody, arrives=torch.tensor([True, False, True]))
    third, last = method.round(states[-1], 2, some, generator(0, 2))
    for before, after, report, p in [(*states[:2], reports[0], P), (states[-1], third, last, [0.4, 0.0, 0.6])]:
        for at in NAMES:
            A, B = (factor({"r": report.uploads.r}, at, which) for which in "AB")
            if ranks:
                A = A * report.plan.terms[:, int(at.split(".")[1]), :, None]
            gained = (
                addition(after, at) - addition(before, at) + SCALE * factor(after, at, "B") @ factor(after, at, "A")
            )
            wanted = sum(p_n * SCALE * b @ a for p_n, b, a in zip(p, B, A, strict=True))
            torch.testing.assert_close(gained, wanted, rtol=0, atol=1e-10)
        rows = effects(setup.backbone, before, after, report, "examples")
        assert len(rows) == L and all(row.aggregation_error < 1e-10 < row.product_norm for row in rows)


def test_the_mean_of_one_half_is_exact_and_the_other_does_not_move(registry):
    for name in ("ffa_lora", "rolora"):
        states, reports, _, setup = ran(registry, name)
        for t, (before, after, report) in enumerate(zip(states, states[1:], reports, strict=False)):
            still, moves = "BA" if name == "rolora" and t else "AB"
            for at in NAMES:
                assert torch.equal(factor(after, at, still), factor(before, at, still))
                assert not torch.equal(factor(after, at, moves), factor(before, at, moves))
                assert factor({"r": report.uploads.r}, at, still).shape[0] == 0
            rows = effects(setup.backbone, before, after, report, "examples")
            assert all(row.aggregation_error <= 1e-15 < row.product_norm for row in rows)


def test_lora_fair_loses_less_than_the_mean_and_nothing_without_a_correction(registry):
    states, reports, _, setup = ran(registry, "lora_fair", rounds=1)
    mean, _, _, _ = ran(registry, "lora_fair", rounds=1, aggregator={"name": "refined_mean", "steps": 0})
    plain, _, _, _ = ran(registry, "fedex_lora", rounds=1)
    closer = 0
    for at in NAMES:
        A, B = (factor({"r": reports[0].uploads.r}, at, which) for which in "AB")
        wanted = sum(p * b @ a for p, b, a in zip(P, B, A, strict=True)).flatten()
        one, other = (
            torch.cosine_similarity(wanted, (factor(s[1], at, "B") @ factor(s[1], at, "A")).flatten(), dim=0)
            for s in (states, mean)
        )
        assert one >= other
        closer += int(one > other)
        assert torch.equal(factor(mean[1], at, "B"), factor(plain[1], at, "B"))
    assert closer == len(NAMES)


def test_what_moves_a_layer_through_its_frozen_weights_is_told_to_allocations(registry):
    states, _, _, _ = ran(registry, "flora")
    for before, after in itertools.pairwise(states):
        for j in range(L):
            parts = [after["r"][j][p] - before["r"][j][p] for p in after["r"][j]]
            parts += [addition(after, at) - addition(before, at) for at in NAMES if f".{j}." in at]
            norm = sum(part.square().sum() for part in parts).sqrt()
            assert norm > 0
            torch.testing.assert_close(after["scores"][j], norm)


def bytes_of(cost, what):
    return next(((sent.down, sent.up) for sent in cost.sent if sent.what == what), (0, 0))


IN, OUT = (8, 16), (8, 8)  # of attn.proj and mlp.fc2
BYTES_A, BYTES_B = (8 * L * R * sum(sizes) for sizes in (IN, OUT))


def test_what_travels(registry):
    costs = {name: [made(registry, name)[0].cost(L, t) for t in range(2)] for name in METHODS}
    costs["fedex_lora"] = [report.cost[2] for report in ran(registry, "fedex_lora")[1]]
    for name in ("fedex_lora", "lora_fair"):
        assert [bytes_of(c, "adapters") for c in costs[name]] == [(BYTES_A + BYTES_B,) * 2] * 2
    assert [bytes_of(c, "adapters") for c in costs["ffa_lora"]] == [(BYTES_B, BYTES_B)] * 2
    assert [bytes_of(c, "adapters") for c in costs["fedsa_lora"]] == [(BYTES_A, BYTES_A)] * 2
    assert all(bytes_of(c, "classifiers") == (0, 0) for c in costs["fedsa_lora"])
    both = BYTES_A + BYTES_B
    assert [bytes_of(c, "adapters") for c in costs["rolora"]] == [(both, BYTES_B), (both, BYTES_A)]
    assert [bytes_of(c, "adapters") for c in costs["flora"]] == [(0, both)] * 2
    matrices = 8 * L * (8 * 8 + 8 * 16)  # smaller here than factors of rank 3 R or 4 R
    assert [bytes_of(c, "additions") for c in costs["fedex_lora"]] == [(0, 0), (matrices, 0)]
    flora = ran(registry, "flora", ranks=[1, 1, 1])[1][1]  # rank 3 for 8 x 8 and 8 x 16
    assert bytes_of(flora.cost[0], "additions") == (8 * L * (3 * 16 + 3 * 24), 0)
    assert bytes_of(flora.cost[0], "adapters") == (0, both // 2)


EXACT_FEDRA = {"name": "fedra", "allocation": "prefix", "aggregator": "exact_mean"}


@pytest.mark.parametrize("options", [{"name": "flora"}, {"name": "fedex_lora"}, EXACT_FEDRA], ids=lambda o: o["name"])
def test_additions_are_charged_to_who_holds_their_layers(registry, options):
    """Capacities 4 and 1: the second is sent what was added to layer 1; of the others, which were one client's, an
    exact mean has lost nothing."""
    setup = setup_of(registry, tiny_vit(L), [L, 1])
    method = registry.make("method", options, setup=setup)
    state, _ = method.round(method.init(generator(0)), 0, cohort_of([L, 1]), generator(0, 0))
    _, report = method.round(state, 1, cohort_of([L, 1]), generator(0, 1))
    factors, matrices = 8 * R * sum((*IN, *OUT)), 8 * (8 * 8 + 8 * 16)  # of one client's rank; smaller than rank 3 R
    wanted = [2 * factors + (L - 1) * factors, 2 * factors] if options["name"] == "flora" else [matrices, matrices]
    assert [bytes_of(cost, "additions")[0] for cost in report.cost] == wanted
    usual = [method.cost(depth, 1) for depth in (L, 1)]  # W is sent whole, and what was added to it is in it
    frozen = [bytes_of(cost, "backbone")[0] - new for cost, new in zip(usual, wanted, strict=True)]
    assert [bytes_of(cost, "backbone")[0] for cost in report.cost] == frozen
    assert [cost.bytes_down for cost in report.cost] == [cost.bytes_down for cost in usual]


@pytest.mark.parametrize("size", [0.1, 10, 100])
def test_lora_fairs_descent_suits_factors_of_any_size(size):
    """The value that it comes to, against L-BFGS on the same."""
    draw = generator(0)
    B, A, dW = (torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in ((8, 2), (2, 8), (8, 8)))
    B *= size / B.norm()
    search = CorrectionSearch(lam=0.01, squared=True, steps=100, lr=0.5)

    def value(D):
        X = (B + D) @ A
        return 1 - (dW * X).sum() / (dW.norm() * X.norm()) + 0.01 * D.square().sum()

    best = torch.zeros_like(B).requires_grad_()
    descent = torch.optim.LBFGS([best], max_iter=500, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def closure():
        descent.zero_grad()
        loss = value(best)
        loss.backward()
        return loss

    descent.step(closure)
    found, start, least = (float(value(D)) for D in (search.correction(dW, B, A), torch.zeros_like(B), best.detach()))
    assert start - found >= 0.95 * (start - least) > 0


def test_a_classifier_of_a_clients_own_reads_the_layers_that_it_has_trained_behind(registry):
    """Under FedRA's random layers all are tested, as in its protocol, also with such as happen to be the first."""
    for allocation, depth in (("prefix", 2), ({"name": "prefix"}, 2), ("random", L)):
        setup = replace(setup_of(registry, tiny_vit(L), [L, 2]), by_client=True)
        method = registry.make("method", {"name": "fedsa_lora", "allocation": allocation}, setup=setup)
        state, _ = method.round(method.init(generator(0)), 0, cohort_of([L, 2]), generator(0, 0))
        assert [len(method.predictor(state, client).layers) for client in (0, 1, 2)] == [L, depth, L]
        assert method.predictor(state, 1).exits == [Exit(depth, "head")]


def test_what_stays_at_home_is_in_no_state(registry):
    states, _, method, setup = ran(registry, "fedsa_lora")
    for at in NAMES:
        assert torch.equal(factor(states[2], at, "B"), factor(states[0], at, "B"))
    assert torch.equal(states[2]["shared"]["head.weight"], states[0]["shared"]["head.weight"])
    own = setup.store.get(states[2]["clients"]["1"])
    assert {place.rpartition("/")[2].rpartition("_")[2] for place in own if place.startswith("r/")} == {"B"}
    assert not torch.equal(own["shared/head.weight"], states[0]["shared"]["head.weight"])
    with pytest.raises(NotApplicable, match="evaluation: {by: client}"):
        made(registry, "fedsa_lora", by_client=False)


def test_flora_draws_by_round_and_client(registry):
    method, setup = made(registry, "flora")
    state, starts = method.init(generator(0)), []

    def engine(model, start, *rest):
        starts.append(start["r"][1]["mlp.fc2.lora_A"])
        return setup.engine(model, start, *rest)

    method = registry.make(
        "method", {"name": "flora"}, setup=replace(setup_of(registry, tiny_vit(L), [L] * 3), engine=engine)
    )
    for t in (0, 1):
        method.round(state, t, cohort(), generator(0, t))
    method.round(state, 1, cohort().only([2]), generator(0, 1))
    draws = torch.cat(starts)  # (3 + 3 + 1, R, in)
    assert len({tuple(draw.flatten().tolist()) for draw in draws}) == 6 and torch.equal(draws[5], draws[6])


# --- contracts and refusals ---------------------------------------------------------------------------------------


@pytest.mark.slow  # test_ranks.py has HetLoRA's
def test_flora_keeps_its_contract_with_ranks_too(registry):
    check_method(lambda setup: registry.make("method", {"name": "flora"}, setup=setup), registry, ranks=(2, 1, 1))


@pytest.mark.parametrize("name", METHODS)
def test_an_adapter_without_factors_is_not_for_them(registry, name):
    with pytest.raises(NotApplicable, match="low-rank adapters B A, and the adapter has none"):
        made(registry, name, adapter={"name": "bitfit"})


@pytest.mark.parametrize("name", ["fedsa_lora", "fedex_lora", "flora", "lora_fair"])
def test_feddyn_is_not_for_those_that_go_by_products_or_own_tensors(registry, name):
    with pytest.raises(NotApplicable, match="FedDyn"):
        made(registry, name, train={"regularizer": {"feddyn": 0.1}})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("rolora", {"first": "C"}, 'first: expected "A" or "B", got "C"'),
        ("flora", {"scale": 0}, "scale: expected a number above 0, got 0"),
        ("flora", {"weights": "all"}, 'flora: weights: expected "examples" or "uniform", got "all"'),
        ("lora_fair", {"aggregator": {"name": "refined_mean", "lr": 0}}, "refined_mean: lr: expected a number above 0"),
        (
            "fedex_lora",
            {"aggregator": {"name": "exact_mean", "weights": "all"}},
            "exact_mean: weights: expected",
        ),
    ],
)
def test_mistakes_are_told(registry, name, options, message):
    with pytest.raises(UserError, match=message):
        made(registry, name, **options)


def test_fedra_can_take_the_exact_mean(registry):
    """With layers of each client's own: what came of a layer is averaged over those who held it."""
    method = registry.make(
        "method", {"name": "fedra", "aggregator": "exact_mean"}, setup=setup_of(registry, tiny_vit(L), [4, 2, 1])
    )
    state, report = method.round(method.init(generator(0)), 0, cohort_of([4, 2, 1], EXAMPLES), generator(0, 0))
    assert report.plan.M.sum() == 7 and any(value.any() for value in state["frozen"].values())
    assert method.predictor(state)(X).shape == (3, CLASSES)
