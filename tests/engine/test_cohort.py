"""The fast engine against the oracle, in float64 to 1e-12: every method, both backbones, all that can be ragged."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ragged import ragged, same
from torch import nn

from fedbench.engine import cohort as fast
from fedbench.engine import microbatching, sequential
from fedbench.families.layerwise import head_at_end, layerwise
from fedbench.models.adapter import SeededDropout
from fedbench.models.param_paths import holders, places
from fedbench.seeding import generator
from fedbench.testing.setups import cohort_of, setup_of, tiny_mixer, tiny_vit
from fedbench.types import Exit, Job, Plan, Pull
from fedbench_plugins.objectives import cross_entropy

pytestmark = pytest.mark.usefixtures("counted_once", "never_counted")

ADAPTERS = {
    "plain": {"name": "lora", "rank": 2, "alpha": 4},
    "dropout": {"name": "lora", "rank": 2, "alpha": 4, "dropout": 0.3},
    "reference": {"name": "lora", "rank": 2, "alpha": 4, "dropout": 0.1, "targets": "reference"},
}
OTHERS = {
    "bitfit": {"name": "bitfit"},
    "full": {"name": "full"},
    "ia3": {"name": "ia3"},
    "bottleneck": {"name": "bottleneck", "size": 2},
    "pfeiffer": {"name": "bottleneck", "size": 2, "activation": "relu", "where": "mlp"},
    "prompts": {"name": "vpt", "prompts": 2},
    "deep prompts": {"name": "vpt", "prompts": 2, "deep": True},
}
# Of the same modules as another, which is in the ordinary suite.
ALIKE = {(tiny_vit, "pfeiffer"), (tiny_vit, "prompts"), (tiny_mixer, "bottleneck")}
SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.05}
ADAMW = {"name": "adamw", "lr": 0.01, "momentum": 0.0, "weight_decay": 0.1}
FIRST = {"fedra", "inclusivefl", "depthfl", "alllarge", "allsmall", "head_only", "exclusive"}
# Any set of layers, an exit after each of the first layers, terms with a pull, additions, half an adapter.
FEW = {"fedra", "depthfl", "hetlora", "fed_plora", "flora", "rolora"}
FEDDYN, FEDPROX = {"feddyn": 0.7}, {"fedprox": 0.7}


def rounds(registry, engine, ref, model, adapter, cohort, train, many=2):
    made = f"{type(model).__name__} {adapter}"  # what one costs is measured once
    setup = setup_of(registry, model, cohort.capacities.tolist(), adapter, engine=engine, origin=made, **train)
    method = registry.make("method", ref, setup=setup)
    state = method.init(generator(0))
    reports = []
    for t in range(many):
        state, report = method.round(state, t, cohort, generator(0, t))
        reports.append(report.uploads)
    return state, [vars(up) | {"seconds": None} for up in reports]


@pytest.fixture(scope="module")
def by_the_engine(registry):
    """The registered methods that train by the engine: the others compute the same under any."""
    setups = {name: setup_of(registry, tiny_vit(), [4]) for name in registry.catalogue.components["method"]}
    return [
        name
        for name, setup in setups.items()
        if not registry.make("method", {"name": name}, setup=dataclasses.replace(setup, by_client=True)).alone
    ]


@pytest.mark.parametrize(
    ("name", "model", "regularizer"), [("fedra", tiny_mixer, FEDDYN), ("depthfl", tiny_vit, FEDPROX)]
)
def test_two_rounds_with_any_part_equal_the_oracles(registry, name, model, regularizer):
    """Each part once; `test_optimisers_and_clipping_equal_the_oracles` has the plain adapter."""
    equal_the_oracles(registry, [name], model, "reference", regularizer)


@pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_round_of_registered_methods_equals_the_oracles(registry, by_the_engine, few):
    """Of those that train by the engine. What sets them apart is in their plans, which test_plans.py draws; here they
    meet dropout alone."""
    assert set(by_the_engine) > FIRST | FEW
    methods = FEW if few else by_the_engine
    equal_the_oracles(registry, methods, tiny_vit, "dropout", None, many=1, steps=[2, 1, 2, 1])


@pytest.mark.slow
@pytest.mark.parametrize("regularizer", [None, FEDDYN, FEDPROX], ids=["plain", "feddyn", "fedprox"])
@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("model", [tiny_vit, tiny_mixer])
def test_so_do_two_rounds_of_many_methods_with_any_part(registry, by_the_engine, model, adapter, regularizer):
    methods = FIRST if regularizer or adapter != "dropout" else by_the_engine
    equal_the_oracles(registry, methods, model, adapter, regularizer)


def equal_the_oracles(registry, methods, model, adapter, regularizer, many=2, steps=(3, 2, 3, 1)):
    for name in methods:
        cohort = ragged([4, 3, 3, 1], steps=steps, sizes=[4, 4, 2])
        options = (ADAPTERS[adapter], cohort, {"optimizer": SGD, "clip": 0.5, "regularizer": regularizer})
        one, two = (
            rounds(registry, engine, {"name": name}, model(), *options, many)
            for engine in (fast.train, sequential.train)
        )
        same(one, two, name)


@pytest.mark.parametrize(
    ("model", "adapter"),
    [
        pytest.param(model, adapter, marks=pytest.mark.slow if (model, adapter) in ALIKE else ())
        for model in (tiny_vit, tiny_mixer)
        for adapter in OTHERS
        if model is tiny_vit or adapter == "bottleneck"
    ],
)
def test_two_rounds_with_any_adapter_equal_the_oracles(registry, monkeypatch, model, adapter):
    """And are computed for all clients at once, of uneven batches in the first step and even ones in the second: every
    module that owns something can use a stack."""
    monkeypatch.delattr(fast, "sequential")
    cohort = ragged([4, 3, 1], steps=[2, 1, 2], sizes=[4, 4, 2])
    one, two = (
        rounds(registry, engine, {"name": "fedra"}, model(), OTHERS[adapter], cohort, {"optimizer": SGD})
        for engine in (fast.train, sequential.train)
    )
    same(one, two)


@pytest.mark.parametrize("name", ["fedra", "depthfl"])
def test_clients_that_are_late_or_lost_equal_the_oracles(registry, name):
    """Of four clients one has done no step, one some, and neither returns; one returns a part of its work."""
    cohort = ragged([4, 3, 3, 1], [0, 2, 1, 3], sizes=[4, 2], arrives=[False, False, True, True])
    options = (ADAPTERS["dropout"], cohort, {"optimizer": SGD, "clip": 0.5})
    one, two = (
        rounds(registry, engine, {"name": name}, tiny_vit(), *options) for engine in (fast.train, sequential.train)
    )
    same(one, two)
    assert one[1][0]["arrived"].tolist() == [False, False, True, True]
    assert one[1][0]["steps"].tolist() == [0, 2, 1, 3] and one[1][0]["loss"].isnan().tolist() == [True] + [False] * 3


class Shift(nn.Module):
    """A trained shift of what a frozen module gives."""

    def __init__(self, frozen):
        super().__init__()
        self.frozen, self.shift, self.stack = frozen, nn.Parameter(torch.zeros(8)), None

    def draw(self, generator):
        nn.init.normal_(self.shift, generator=generator)

    def forward(self, x):
        y = self.frozen(x)
        return y + self.shift if self.stack is None else self.stack.map(y, lambda part, own: part + own["shift"])


def test_an_adapter_behind_the_last_layer_is_each_clients_own(registry):
    def after(engine):
        setup = setup_of(registry, tiny_vit(), [4, 2], optimizer=SGD)

        def attach(model):
            model.model.norm = Shift(model.model.norm)
            model.double()

        method = layerwise(dataclasses.replace(setup, engine=engine, adapter=attach))
        state = method.init(generator(0))
        return method.round(state, 0, ragged([4, 2], [2, 1], [3]), generator(0, 0))[0]

    one, two = after(fast.train), after(sequential.train)
    same(one, two)
    assert "model.norm.shift" in one["shared"]


def test_any_grouping_equals_the_oracle(registry, monkeypatch):
    monkeypatch.setattr(microbatching, "ROWS", 12)
    args = (ADAPTERS["dropout"], ragged([4, 3, 3, 1], steps=[3, 2, 3, 1], sizes=[4, 4, 2]), {"optimizer": SGD})
    one, two = (
        rounds(registry, engine, {"name": "depthfl"}, tiny_vit(), *args) for engine in (fast.train, sequential.train)
    )
    same(one, two)


@pytest.mark.parametrize(
    ("optimizer", "clip", "regularizer"),
    [(SGD, None, None), (ADAMW, 0.01, FEDDYN), ({**SGD, "head_lr": 0.7}, 1.0, None)],
)
def test_optimisers_and_clipping_equal_the_oracles(registry, optimizer, clip, regularizer):
    cohort = ragged([4, 2, 1], steps=[4, 1, 3], sizes=[3])
    args = (ADAPTERS["plain"], cohort, {"optimizer": optimizer, "clip": clip, "regularizer": regularizer})
    same(
        rounds(registry, fast.train, {"name": "fedra"}, tiny_vit(), *args),
        rounds(registry, sequential.train, {"name": "fedra"}, tiny_vit(), *args),
    )


@pytest.mark.parametrize("engine", [fast.train, sequential.train])
def test_head_lr_is_the_rate_of_every_classifier_and_of_nothing_else(registry, engine):
    """One plain step: what moves, moves in proportion to its rate."""
    plain = {"name": "sgd", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}
    once = [
        rounds(
            registry, engine, {"name": "depthfl"}, tiny_vit(), ADAPTERS["plain"],
            ragged([4, 2], steps=[1, 1], sizes=[3]), {"optimizer": optimizer, "clip": None}, many=1,
        )[1][0]
        for optimizer in ({**plain, "lr": 0.0}, plain, {**plain, "head_lr": 0.3})
    ]  # fmt: skip
    still, moved, apart = (dict(places(uploads)) for uploads in once)
    heads = [place for place in moved if place.startswith("shared/")]
    assert len(heads) > 2 and len(moved) > len(heads)
    for place, was in still.items():
        share = 3 if place in heads else 1
        torch.testing.assert_close(apart[place] - was, share * (moved[place] - was), rtol=0, atol=1e-12)


def test_own_last_layers_equal_the_oracles(registry):
    """Clients that start from rows of their own, and are pulled back to those."""
    ref = {"name": "inclusivefl", "own_last_layer": True, "aggregator": {"name": "weighted_mean"}}
    cohort = ragged([4, 2, 2], steps=[2, 2, 2], sizes=[4])
    args = (ADAPTERS["plain"], cohort, {"regularizer": FEDPROX})
    same(
        rounds(registry, fast.train, ref, tiny_vit(), *args),
        rounds(registry, sequential.train, ref, tiny_vit(), *args),
    )


def random_rows(state, plan):
    """A row for each holder, for every tensor."""
    draw = torch.Generator().manual_seed(9)

    def rows(place, value):
        return torch.randn(len(holders(plan, place)), *value.shape, generator=draw, dtype=torch.float64)

    return {
        "r": [{name: rows(f"r/{j}", value) for name, value in r_j.items()} for j, r_j in enumerate(state["r"])],
        "shared": {name: rows(f"shared/{name}", value) for name, value in state["shared"].items()},
    }


@settings(max_examples=10)
@given(data=st.data())
def test_any_allocation_equals_the_oracle(registry, data):
    """M, adapters, steps, batch sizes and pulls drawn by hypothesis: empty columns, idle layers, clients without layers
    or steps."""
    N = data.draw(st.integers(1, 4))
    M = torch.tensor(data.draw(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=N, max_size=N)))
    steps = data.draw(st.lists(st.integers(0, 3), min_size=N, max_size=N))
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    adapter = data.draw(st.sampled_from([ADAPTERS["dropout"], *OTHERS.values()]))
    setup = setup_of(registry, tiny_vit(depth=3, dim=4), [3], adapter)
    state = layerwise(setup).init(generator(5))
    plan = Plan(M, [head_at_end(depth) for depth in M.sum(1).tolist()])
    linear = random_rows(state, plan) if data.draw(st.booleans()) else None
    job = Job(1, 0, SGD, 0.2, cross_entropy, data.draw(st.sampled_from([None, Pull(0.7, linear)])))
    arrives = data.draw(st.lists(st.booleans(), min_size=N, max_size=N))
    cohort = ragged(M.sum(1).tolist(), steps, sizes, arrives=arrives)
    one, two = (engine.train(setup.backbone, state, plan, cohort, job) for engine in (fast, sequential))
    same(*(vars(up) | {"seconds": None} for up in (one, two)))


def first_alone(exits, y, t):
    return cross_entropy(exits[:1], y, t)


def last_alone(exits, y, t):
    return cross_entropy(exits[-1:], y, t)


@pytest.mark.parametrize(  # every two of them together once
    ("optimizer", "objective", "regularizer"),
    [
        *((SGD, first_alone, None), (SGD, last_alone, FEDPROX)),
        *((ADAMW, last_alone, None), (ADAMW, first_alone, FEDPROX)),
    ],
)
def test_what_an_objective_does_not_use_stays_as_it_was(registry, optimizer, objective, regularizer):
    """Exits after every layer, and a loss that reads one of them: the others' classifiers are no one's to decay, nor
    are the layers above the exit that is read, unless a pull uses all."""

    def exits_of(depth):
        return [Exit(i + 1, f"e{i + 1}") for i in range(depth)]

    def final(engine):
        train = {"optimizer": optimizer, "regularizer": regularizer}
        setup = setup_of(registry, tiny_vit(), [4, 2, 1], ADAPTERS["plain"], **train)
        method = layerwise(dataclasses.replace(setup, engine=engine), objective=objective, exits_of=exits_of)
        return method.round(method.init(generator(0)), 0, cohort_of([4, 2, 1]), generator(0, 0))[0]

    same(final(fast.train), final(sequential.train))


class Scale(nn.Module):
    """A stranger's adapter, which knows nothing of stacks: a trained factor for every output channel."""

    def __init__(self, frozen):
        super().__init__()
        self.frozen, self.factor = frozen, nn.Parameter(torch.ones(frozen.out_features, dtype=torch.float64))

    def forward(self, x):
        return self.frozen(x) * self.factor


class Dropped(Scale):
    """One that drops some of what it reads."""

    def __init__(self, frozen):
        super().__init__(frozen)
        self.dropout = SeededDropout(0.5)

    def forward(self, x):
        return super().forward(self.dropout(x))


def scaled_in(blocks):
    for block in blocks.blocks:
        block.mlp.fc2 = Scale(block.mlp.fc2)


def scaled_outside(blocks):
    blocks.model.head_drop = Scale(nn.Linear(8, 8, bias=False).double().requires_grad_(False))
    with torch.no_grad():
        blocks.model.head_drop.frozen.weight.copy_(torch.eye(8))


def dropped(blocks):
    for block in blocks.blocks:
        block.mlp.fc2 = Dropped(block.mlp.fc2)


@pytest.mark.parametrize("attach", [scaled_in, scaled_outside, dropped])
def test_an_adapter_that_cannot_be_stacked_is_left_to_the_other_engine(registry, attach):
    """In a layer or outside of all, with dropout of its own or without."""

    def final(engine):
        setup = setup_of(registry, tiny_vit(), [4, 2])
        method = layerwise(dataclasses.replace(setup, adapter=attach, engine=engine))
        state = method.init(generator(0))
        assert not fast.can_train(setup.backbone)
        return method.round(state, 0, cohort_of([4, 2]), generator(0, 0))[0]

    state = final(fast.train)
    same(state, final(sequential.train))
    assert all((factor != 1).any() for name, factor in places(state) if name.endswith("factor"))


def test_an_empty_cohort_returns_empty_uploads(registry):
    setup = setup_of(registry, tiny_vit(), [4])
    state = layerwise(setup).init(generator(0))
    up = fast.train(
        setup.backbone, state, Plan(torch.zeros(0, 4).bool(), []), cohort_of([]), Job(0, 0, SGD, 1.0, cross_entropy)
    )
    assert len(up.arrived) == 0 and up.shared["head.weight"].shape == (0, 3, 8)
