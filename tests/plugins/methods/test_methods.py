"""What is particular to each built-in method, in both profiles."""

from dataclasses import replace

import pytest
import torch

from fedbench.errors import NotApplicable, UserError
from fedbench.seeding import generator
from fedbench.testing.setups import cohort_of, setup_of, tiny_vit
from fedbench.types import ClientCost, Cohort, Exit, Plan, Uploads

pytestmark = pytest.mark.usefixtures("counted_once")

CAPACITIES = [12, 10, 8, 6, 4, 3]


@pytest.fixture(scope="module")
def deep():
    return lambda: tiny_vit(depth=12)


@pytest.fixture(autouse=True)
def unpriced(monkeypatch):
    """Who holds what is asked here, not what that costs, which would take most of the time."""
    cost = ClientCost(flops_per_image=1, bytes_down=1, bytes_up=1, memory_bytes=1)
    monkeypatch.setattr("fedbench.models.cost.pricing", lambda *given: lambda holding, added=0: cost)


def report_of(registry, ref, capacities, model, t=0, train=None):
    setup = setup_of(registry, model, capacities, **(train or {}))
    method = registry.make("method", ref, setup=setup)
    return method.round(method.init(generator(0)), t, cohort_of(capacities, steps=1), generator(0, t))


def test_fedra_keeps_or_covers(registry, deep):
    _, report = report_of(registry, {"name": "fedra"}, [2, 2], deep())
    assert not report.plan.M.any(0).all()
    _, report = report_of(registry, {"name": "fedra", "missing_layers": "cover"}, [6, 4, 4], deep())
    assert report.plan.M.any(0).all()
    with pytest.raises(UserError, match='missing_layers: expected "keep" or "cover", got "skip"'):
        report_of(registry, {"name": "fedra", "missing_layers": "skip"}, [2], deep())


def test_alllarge_gives_everybody_everything(registry, deep):
    _, report = report_of(registry, {"name": "alllarge"}, CAPACITIES, deep())
    assert report.plan.M.all()


def test_allsmall_gives_everybody_the_smallest_depth_also_at_test(registry, deep):
    setup = setup_of(registry, deep(), CAPACITIES)
    method = registry.make("method", {"name": "allsmall"}, setup=setup)
    state, report = method.round(method.init(generator(0)), 0, cohort_of(CAPACITIES, steps=1), generator(0, 0))
    assert report.plan.M.sum(1).tolist() == [3] * 6
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    model = setup.backbone
    torch.testing.assert_close(method.predictor(state)(x), model(x, [0, 1, 2], [Exit(3, "head")])[0])
    with pytest.raises(UserError, match="depth must lie between 1 and 12"):
        registry.make("method", {"name": "allsmall", "depth": 13}, setup=setup_of(registry, deep(), CAPACITIES))


def test_exclusive_takes_the_full_model_clients_alone(registry, deep):
    _, report = report_of(registry, {"name": "exclusive"}, CAPACITIES, deep())
    assert report.cohort.ids == [0] and report.plan.M.all()
    with pytest.raises(NotApplicable, match="no client can hold all 12 layers"):
        report_of(registry, {"name": "exclusive"}, [6, 6], deep())


def test_head_only_trains_no_adapter(registry, deep):
    state, report = report_of(registry, {"name": "head_only"}, [3, 12], deep())
    assert all(r_j == {} for r_j in state["r"]) and set(state["shared"]) == {"head.weight", "head.bias"}
    assert report.plan.M.all()


# --- DepthFL ------------------------------------------------------------------------------------------------------

PAPER_EXITS = {
    12: [(3, "exit3"), (6, "exit6"), (9, "exit9"), (12, "head")],
    10: [(3, "exit3"), (6, "exit6"), (9, "exit9"), (10, "head")],
    8: [(3, "exit3"), (6, "exit6"), (8, "head")],
    6: [(3, "exit3"), (6, "exit6")],
    4: [(3, "exit3"), (4, "head")],
    3: [(3, "exit3")],
}
# (depth - 1) // 3 exits after blocks 4, 7 and 10, and the final head for everyone
REFERENCE_EXITS = {
    12: [(4, "exit4"), (7, "exit7"), (10, "exit10"), (12, "head")],
    10: [(4, "exit4"), (7, "exit7"), (10, "exit10"), (10, "head")],
    8: [(4, "exit4"), (7, "exit7"), (8, "head")],
    6: [(4, "exit4"), (6, "head")],
    4: [(4, "exit4"), (4, "head")],
    3: [(3, "head")],
}
REFERENCE = {"name": "depthfl", "first_exit": 4, "every": 3, "head": "always", "answer": "last"}


@pytest.mark.parametrize(("ref", "expected"), [({"name": "depthfl"}, PAPER_EXITS), (REFERENCE, REFERENCE_EXITS)])
def test_depthfl_exits_by_depth(registry, deep, ref, expected):
    method = registry.make("method", ref, setup=setup_of(registry, deep(), list(expected)))
    cohort = cohort_of(list(expected), steps=0)
    _, report = method.round(method.init(generator(0)), 0, cohort, generator(0, 0))
    found = [[(exit.depth, exit.classifier) for exit in exits] for exits in report.plan.exits]
    assert found == list(expected.values())


@pytest.mark.parametrize("L", [3, 4, 7])
def test_depthfl_has_the_exits_of_the_released_code_at_every_depth(registry, L):
    """(depth - 1) // 3 of them, the last one after the last layer where L - 1 divides by 3, and the final head."""
    _, report = report_of(registry, REFERENCE, [L], tiny_vit(depth=L))
    exits = [4 + 3 * i for i in range((L - 1) // 3)]
    assert [(e.depth, e.classifier) for e in report.plan.exits[0]] == [*((e, f"exit{e}") for e in exits), (L, "head")]


def test_depthfl_of_the_paper_has_one_classifier_after_the_last_layer(registry):
    _, report = report_of(registry, {"name": "depthfl"}, [9], tiny_vit(depth=9))
    assert [exit.classifier for exit in report.plan.exits[0]] == ["exit3", "exit6", "head"]


def test_depthfl_reference_profile_is_registered(registry):
    assert registry.catalogue.components["method"]["depthfl"].profiles["reference"] == {
        key: value for key, value in REFERENCE.items() if key != "name"
    }
    kl = registry.catalogue.components["objective"]["mutual_kl"]
    assert kl.profiles["reference"] == {"ramp_rounds": 500, "epsilon": 1e-7}


def test_depthfl_answers_with_the_mean_of_its_classifiers(registry, deep):
    setup = setup_of(registry, deep(), [12])
    method = registry.make("method", {"name": "depthfl"}, setup=setup)
    state, _ = method.round(method.init(generator(0)), 0, cohort_of([12], steps=1), generator(0, 0))
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    answer = method.predictor(state)(x)
    logits = setup.backbone(x, range(12), [Exit(3, "exit3"), Exit(6, "exit6"), Exit(9, "exit9"), Exit(12, "head")])
    assert list(answer) == ["ensemble", "last"]
    torch.testing.assert_close(answer["ensemble"], sum(logits) / 4)
    torch.testing.assert_close(answer["last"], logits[-1])


def test_depthfl_gives_no_say_to_classifiers_nobody_trained(registry, deep):
    setup = setup_of(registry, deep(), [6])
    method = registry.make("method", {"name": "depthfl"}, setup=setup)
    state, _ = method.round(method.init(generator(0)), 0, cohort_of([6], steps=1), generator(0, 0))
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    logits = setup.backbone(x, range(12), [Exit(3, "exit3"), Exit(6, "exit6")])
    torch.testing.assert_close(method.predictor(state)(x)["ensemble"], sum(logits) / 2)


def test_depthfl_classifiers_are_averaged_over_their_holders(registry, deep):
    state, report = report_of(registry, {"name": "depthfl"}, [12, 3], deep())
    up = report.uploads
    assert len(up.shared["exit3.weight"]) == 2 and len(up.shared["exit6.weight"]) == 1
    torch.testing.assert_close(state["shared"]["exit3.weight"], up.shared["exit3.weight"].mean(0))
    torch.testing.assert_close(state["shared"]["exit6.weight"], up.shared["exit6.weight"][0])


# --- clients that are lost ----------------------------------------------------------------------------------------


def lossy(capacities, arrives):
    return replace(cohort_of(capacities, steps=1), arrives=torch.tensor(arrives))


@pytest.mark.parametrize("missing_layers", ["keep", "cover"])
def test_a_layer_that_only_lost_clients_held_keeps_its_value(registry, missing_layers):
    setup = setup_of(registry, tiny_vit(), [2, 2])
    method = registry.make("method", {"name": "fedra", "missing_layers": missing_layers}, setup=setup)
    start = method.init(generator(0))
    state, report = method.round(start, 0, lossy([2, 2], [False, True]), generator(0, 0))
    M, name = report.plan.M, "attn.proj.lora_B"
    assert (M[0] & ~M[1]).any() and not report.uploads.arrived[0]
    kept = [torch.equal(new[name], old[name]) for new, old in zip(state["r"], start["r"], strict=True)]
    assert kept == (~M[1]).tolist()
    assert state["history"].tolist() == M[1].long().tolist()
    assert ((state["scores"] > 0) == M[1]).all()


def test_exclusive_stays_as_it_is_where_its_only_client_is_lost(registry):
    method = registry.make("method", {"name": "exclusive"}, setup=setup_of(registry, tiny_vit(), [4, 2]))
    start = method.init(generator(0))
    state, report = method.round(start, 0, lossy([4, 2], [False, True]), generator(0, 0))
    assert report.cohort.ids == [0] and len(report.cost) == 1
    assert state["history"].tolist() == [0] * 4 and torch.equal(
        state["shared"]["head.weight"], start["shared"]["head.weight"]
    )


def test_depthfl_gives_no_say_to_a_classifier_whose_clients_were_lost(registry, deep):
    method = registry.make("method", {"name": "depthfl"}, setup=setup_of(registry, deep(), [6, 3]))
    state, _ = method.round(method.init(generator(0)), 0, lossy([6, 3], [False, True]), generator(0, 0))
    assert state["memory"]["trained"] == ["exit3"]


# --- the reference's aggregation ----------------------------------------------------------------------------------


def test_outside_layers_only_with_client_0(registry):
    aggregate = registry.make("aggregator", {"name": "weighted_mean", "outside_layers": "with_client_0"})
    for ids, back, expected in (([0, 3], [1, 1], 3.0), ([1, 3], [1, 1], 9.0), ([0, 3], [0, 1], 9.0)):
        state = {"r": [], "shared": {"model.patch_embed.proj.lora_A": torch.tensor([9.0])}}
        up = Uploads(
            [],
            {"model.patch_embed.proj.lora_A": torch.tensor([[2.0], [4.0]])},
            torch.tensor(back).bool(),
            *[torch.zeros(2)] * 3,
        )
        cohort = Cohort(ids, torch.tensor([1, 1]), torch.tensor([1, 1]), torch.ones(2), lambda n: iter(()))
        new = aggregate(state, up, Plan(torch.zeros(2, 0).bool(), [[], []]), cohort)
        assert new["shared"]["model.patch_embed.proj.lora_A"].item() == expected


def test_reference_profiles_average_uniformly(registry):
    methods, aggregators = (registry.catalogue.components[kind] for kind in ("method", "aggregator"))
    assert aggregators["weighted_mean"].profiles["reference"] == {"weights": "uniform"}
    assert methods["inclusivefl"].profiles["reference"] == {"aggregator": "weighted_mean"}
    assert methods["fedra"].profiles["reference"]["aggregator"]["outside_layers"] == "with_client_0"
