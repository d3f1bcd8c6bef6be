"""What torch.compile makes of the engine's layers, counted on a CPU by a backend that compiles nothing: few graphs, of
which every later round is made up, whatever the clients hold and however many they are."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch
from engine.test_cohort import ADAPTERS, OTHERS, SGD
from ragged import ragged, same
from timm.models.vision_transformer import VisionTransformer

from fedbench.engine import cohort as fast
from fedbench.engine import evening, shortcuts
from fedbench.families.layerwise import head_at_end, layerwise
from fedbench.models import kernels
from fedbench.seeding import generator
from fedbench.testing.world import setup_of
from fedbench.types import Job, Plan
from fedbench_plugins.objectives import cross_entropy

L = 12
MOST = 4  # graphs: with one client or several, of tokens that ask for a gradient or do not
ROUNDS = [7, 2, 32, 3]  # clients
SIZES = [[4], [4, 4, 2]]  # of batches, in turn


@pytest.fixture
def counting(monkeypatch):
    """Compiles on this device by a backend that counts. graphs: made so far · ran: calls of them · asked: passes that
    were to be compiled."""
    told = SimpleNamespace(graphs=0, ran=0, asked=0, compiler=torch.compile)

    def backend(module, inputs):
        told.graphs += 1

        def graph(*given):
            told.ran += 1
            return module.forward(*given)

        return graph

    def pays(x):
        told.asked += 1
        return True

    monkeypatch.setattr(torch, "compile", lambda function, **how: told.compiler(function, **how, backend=backend))
    monkeypatch.setattr(shortcuts, "pays", pays)
    monkeypatch.setattr(shortcuts, "fast", lambda model: contextlib.nullcontext())  # as on a GPU
    monkeypatch.setattr(kernels, "_is_plain", lambda x: True)  # too
    torch._dynamo.reset()
    shortcuts.compiled.cache_clear()
    yield told
    torch._dynamo.reset()
    shortcuts.compiled.cache_clear()


def rounds(registry, adapter, how, sizes, counting):
    """What clients sent in every round, and how many graphs were made, passes asked, and run compiled in it."""
    torch.manual_seed(0)
    model = VisionTransformer(img_size=8, patch_size=4, embed_dim=8, depth=L, num_heads=2, mlp_ratio=2, num_classes=0)
    setup = setup_of(registry, model, [L], adapter, optimizer=SGD)
    state, sent, counts = layerwise(setup).init(generator(0)), [], []
    for t, clients in enumerate(ROUNDS):
        draw = torch.Generator().manual_seed(t)
        held = torch.randint(1, L + 1, (clients,), generator=draw)
        order = torch.rand(clients, L, generator=draw) if how == "random" else torch.arange(L).expand(clients, L)
        plan = Plan(order.argsort(1).argsort(1) < held[:, None], [head_at_end(depth) for depth in held.tolist()])
        cohort = ragged(held.tolist(), [1 + (n == 0) for n in range(clients)], sizes[t % len(sizes)])
        before = counting.graphs, counting.asked, counting.ran
        up = fast.train(setup.backbone, state, plan, cohort, Job(t, 0, SGD, None, cross_entropy))
        sent.append([up.r, up.shared, up.loss])
        after = counting.graphs, counting.asked, counting.ran
        counts.append(tuple(b - a for a, b in zip(before, after, strict=True)))
    return sent, counts


@pytest.mark.parametrize(
    ("adapter", "how"),
    [
        (ADAPTERS["dropout"], "random"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                (ADAPTERS["dropout"], "prefix"),
                (ADAPTERS["plain"], "random"),
                (ADAPTERS["plain"], "prefix"),
                *((OTHERS[name], "random") for name in ("bitfit", "ia3", "bottleneck")),
            ]
        ),
    ],
    ids=lambda case: case["name"] if isinstance(case, dict) else case,
)
def test_few_graphs_are_made_in_the_first_round_and_serve_all_others(registry, counting, monkeypatch, adapter, how):
    """Of 2 to 32 clients, in the second and fourth round with batches of uneven sizes, which are run plainly."""
    sent, counts = rounds(registry, adapter, how, SIZES, counting)
    assert 0 < counts[0][0] <= MOST and [graphs for graphs, _, _ in counts[1:]] == [0] * (len(ROUNDS) - 1)
    assert all(asked == ran for _, asked, ran in counts) and counts[2][2] > L // 2
    monkeypatch.setattr(shortcuts, "pays", lambda x: False)
    plain, none = rounds(registry, adapter, how, SIZES, counting)
    assert none == [(0, 0, 0)] * len(ROUNDS)
    same(sent, plain)


@pytest.mark.slow
@pytest.mark.parametrize("adapter", ["plain", "dropout"])
def test_so_do_they_uneven_batches_that_are_filled_up(registry, counting, monkeypatch, adapter):
    monkeypatch.setattr(evening, "fills", lambda sizes, x: len(set(sizes)) > 1)
    _, counts = rounds(registry, ADAPTERS[adapter], "random", SIZES, counting)
    assert 0 < counts[0][0] <= MOST and not any(graphs for graphs, _, _ in counts[1:])
    assert all(asked == ran for _, asked, ran in counts) and counts[1][1] > L // 2


@pytest.mark.slow
def test_so_do_those_of_rounded_products(registry, counting):
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        _, counts = rounds(registry, ADAPTERS["dropout"], "random", SIZES, counting)
    assert 0 < counts[0][0] <= MOST and not any(graphs for graphs, _, _ in counts[1:])
    assert all(asked == ran for _, asked, ran in counts)
