"""The fast engine against the oracle, in float64 to 1e-12: every method, both backbones, all that can be ragged."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedbench.engine import cohort as fast
from fedbench.engine import sequential
from fedbench.layerwise import head_at_end, layerwise
from fedbench.objective import cross_entropy
from fedbench.seeding import generator
from fedbench.testing.world import cohort_of, setup_of, tiny_mixer, tiny_vit
from fedbench.types import Cohort, Exit, Job, Plan

ADAPTERS = {
    "plain": {"name": "lora", "rank": 2, "alpha": 4},
    "dropout": {"name": "lora", "rank": 2, "alpha": 4, "dropout": 0.3},
    "reference": {"name": "lora", "rank": 2, "alpha": 4, "dropout": 0.1, "targets": "reference"},
}
SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.05}
ADAMW = {"name": "adamw", "lr": 0.01, "momentum": 0.0, "weight_decay": 0.1}


def same(one, two, path=""):
    """Equal structure, and tensors equal to 1e-12."""
    if isinstance(one, dict):
        assert one.keys() == two.keys(), path
        for key in one:
            same(one[key], two[key], f"{path}/{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(two), path
        for i, (a, b) in enumerate(zip(one, two, strict=True)):
            same(a, b, f"{path}/{i}")
    elif isinstance(one, torch.Tensor):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12, msg=lambda text: f"{path}: {text}")
    else:
        assert one == two, path


def ragged(capacities, steps, sizes, ids=None):
    """A cohort whose clients differ in number of steps, and in the size of every batch."""
    ids = ids or list(range(len(capacities)))

    def batches(n):
        draw = torch.Generator().manual_seed(ids[n])
        for step in range(steps[n]):
            size = sizes[(n + step) % len(sizes)]
            yield (
                torch.randn(size, 3, 8, 8, generator=draw, dtype=torch.float64),
                torch.randint(3, (size,), generator=draw),
            )

    examples = [4 + n for n in range(len(capacities))]
    return Cohort(ids, torch.tensor(capacities), torch.tensor(examples), torch.tensor(steps), batches)


def rounds(registry, engine, ref, model, adapter, cohort, train):
    setup = dataclasses.replace(setup_of(registry, model, cohort.capacities.tolist(), adapter, **train), engine=engine)
    method = registry.make("method", ref, setup=setup)
    state = method.init(generator(0))
    reports = []
    for t in range(2):
        state, report = method.round(state, t, cohort, generator(0, t))
        reports.append(report.uploads)
    return state, [[up.r, up.shared, up.loss] for up in reports]


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("model", [tiny_vit, tiny_mixer])
def test_two_rounds_of_every_registered_method_equal_the_oracles(registry, model, adapter):
    names = [component.name for component in registry.catalogue if component.kind == "method"]
    assert {"fedra", "inclusivefl", "depthfl", "alllarge", "allsmall", "head_only", "exclusive"} <= set(names)
    for name in names:
        cohort = ragged([4, 3, 3, 1], steps=[3, 2, 3, 1], sizes=[4, 4, 2])
        options = (ADAPTERS[adapter], cohort, {"optimizer": SGD, "clip": 0.5})
        one, two = (
            rounds(registry, engine, {"name": name}, model(), *options) for engine in (fast.train, sequential.train)
        )
        same(one, two, name)


@pytest.mark.parametrize("most", [1, 12, 30])
def test_any_grouping_equals_the_oracle(registry, monkeypatch, most):
    monkeypatch.setattr(fast, "ROWS", most)
    args = (ADAPTERS["dropout"], ragged([4, 3, 3, 1], steps=[3, 2, 3, 1], sizes=[4, 4, 2]), {"optimizer": SGD})
    one, two = (
        rounds(registry, engine, {"name": "depthfl"}, tiny_vit(), *args) for engine in (fast.train, sequential.train)
    )
    same(one, two)


@pytest.mark.parametrize("optimizer", [SGD, ADAMW], ids=["sgd", "adamw"])
@pytest.mark.parametrize("clip", [None, 0.01])
def test_optimisers_and_clipping_equal_the_oracles(registry, optimizer, clip):
    cohort = ragged([4, 2, 1], steps=[4, 1, 3], sizes=[3])
    args = (ADAPTERS["plain"], cohort, {"optimizer": optimizer, "clip": clip})
    same(
        rounds(registry, fast.train, {"name": "fedra"}, tiny_vit(), *args),
        rounds(registry, sequential.train, {"name": "fedra"}, tiny_vit(), *args),
    )


def test_own_last_layers_equal_the_oracles(registry):
    """Clients that start from rows of their own."""
    ref = {"name": "inclusivefl", "own_last_layer": True, "aggregator": {"name": "weighted_mean"}}
    cohort = ragged([4, 2, 2], steps=[2, 2, 2], sizes=[4])
    args = (ADAPTERS["plain"], cohort, {})
    same(
        rounds(registry, fast.train, ref, tiny_vit(), *args),
        rounds(registry, sequential.train, ref, tiny_vit(), *args),
    )


@given(data=st.data())
def test_any_allocation_equals_the_oracle(registry, data):
    """M, steps and batch sizes drawn by hypothesis: empty columns, idle layers, clients without layers or steps."""
    N = data.draw(st.integers(1, 4))
    M = torch.tensor(data.draw(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=N, max_size=N)))
    steps = data.draw(st.lists(st.integers(0, 3), min_size=N, max_size=N))
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    setup = setup_of(registry, tiny_vit(depth=3, dim=4), [3], ADAPTERS["dropout"])
    state = layerwise(setup).init(generator(5))
    plan = Plan(M, [head_at_end(depth) for depth in M.sum(1).tolist()])
    job = Job(1, 0, SGD, 0.2, cross_entropy)
    cohort = ragged(M.sum(1).tolist(), steps, sizes)
    one, two = (engine.train(setup.backbone, state, plan, cohort, job) for engine in (fast, sequential))
    same([one.r, one.shared, one.loss], [two.r, two.shared, two.loss])


@pytest.mark.parametrize("optimizer", [SGD, ADAMW], ids=["sgd", "adamw"])
@pytest.mark.parametrize("which", [0, -1], ids=["first exit", "last exit"])
def test_what_an_objective_does_not_use_stays_as_it_was(registry, optimizer, which):
    """Exits after every layer, and a loss that reads one of them: the others' classifiers are no one's to decay, nor
    are the layers above the exit that is read."""

    def exits_of(depth):
        return [Exit(i + 1, f"e{i + 1}") for i in range(depth)]

    def final(engine):
        setup = setup_of(registry, tiny_vit(), [4, 2, 1], ADAPTERS["plain"], optimizer=optimizer)
        objective = lambda exits, y, t: cross_entropy([exits[which]], y, t)  # noqa: E731
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


def test_an_adapter_that_cannot_be_stacked_is_exact_all_the_same(registry):
    def attach(blocks):
        for block in blocks.blocks:
            block.mlp.fc2 = Scale(block.mlp.fc2)

    def final(engine):
        setup = setup_of(registry, tiny_vit(), [4, 2])
        method = layerwise(dataclasses.replace(setup, adapter=attach, engine=engine))
        return method.round(method.init(generator(0)), 0, cohort_of([4, 2]), generator(0, 0))[0]

    same(final(fast.train), final(sequential.train))


def test_an_empty_cohort_returns_empty_uploads(registry):
    setup = setup_of(registry, tiny_vit(), [4])
    state = layerwise(setup).init(generator(0))
    up = fast.train(
        setup.backbone, state, Plan(torch.zeros(0, 4).bool(), []), cohort_of([]), Job(0, 0, SGD, 1.0, cross_entropy)
    )
    assert len(up.arrived) == 0 and up.shared["head.weight"].shape == (0, 3, 8)
