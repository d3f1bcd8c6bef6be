"""Texts in both engines: masks, padding and dropout, in float64 to 1e-12."""

from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from ragged import ragged, same
from tiny_texts import TextBatches, tiny_bert, tiny_llama

from fedbench.engine import cohort as fast
from fedbench.engine import microbatching, sequential
from fedbench.errors import NotApplicable
from fedbench.models.backbone import HEAD, body_of
from fedbench.models.layered import PADDING
from fedbench.seeding import generator
from fedbench.testing.setups import setup_of
from fedbench_plugins.adapters.lora import lora

pytestmark = pytest.mark.usefixtures("counted_once", "never_counted")

pytest.importorskip("transformers")

SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.05}
ADAPTERS = {
    "dropout": {"name": "lora", "rank": 2, "alpha": 4, "dropout": 0.3},
    "plain": {"name": "lora", "rank": 2, "alpha": 4, "targets": ["query", "output.dense"]},
    "bitfit": {"name": "bitfit"},
    "full": {"name": "full"},
    "bottleneck": {"name": "bottleneck", "size": 2},
}


PROXY = torch.randint(4, 20, (6, 7), generator=torch.Generator().manual_seed(9)), torch.arange(6) % 3


def texts(capacities, steps):
    """Clients whose batches have unequal lengths and sizes."""
    cohort = ragged(capacities, steps=steps, sizes=[3, 2])
    return replace(cohort, batches=TextBatches(cohort.ids, lengths=[5, 8, 3], sizes=[3, 2]))


def rounds(registry, engine, name, model, adapter, cohort, many=2):
    setup = setup_of(registry, model(), cohort.capacities.tolist(), adapter, engine=engine, optimizer=SGD, clip=0.5)
    method = registry.make("method", {"name": name}, setup=replace(setup, by_client=True, proxy=lambda: PROXY))
    state, reports = method.init(generator(0)), []
    for t in range(many):
        state, report = method.round(state, t, cohort, generator(0, t))
        reports.append(vars(report.uploads) | {"seconds": None})
    return state, reports


# One of each way to train, of those by the engine and of those by means of their own.
FEW = ("fedra", "flora", "fedavg", "local_only", "zero_round")


@pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_every_registered_method_trains_on_texts_or_says_that_it_cannot(registry, few):
    """Those that train by the engine equal the oracle, with masks, padding and dropout. Few are trained, all asked."""
    refused = {}
    for name in registry.catalogue.components["method"]:
        given = (name, tiny_bert, ADAPTERS["dropout"], texts([4, 1], [2, 1]), int(not few or name in FEW))
        try:
            one = rounds(registry, fast.train, *given)
        except NotApplicable as reason:
            refused[name] = str(reason)
            continue
        if not one[1]:
            continue
        assert all(up["loss"].isfinite().all() for up in one[1]), name
        setup = replace(setup_of(registry, tiny_bert(), [4]), by_client=True)
        if not registry.make("method", {"name": name}, setup=setup).alone:
            same(one, rounds(registry, sequential.train, *given), name)
    assert set(refused) == {"fedrolex", "fedv", "fedvz", "festa", "fjord", "heterofl", "reefl"}, refused


@pytest.mark.parametrize(
    ("model", "adapter"),
    [  # the others are the same on images, in test_cohort.py
        *((tiny_bert, name) for name in ("dropout", "plain")),
        *(pytest.param(tiny_bert, name, marks=pytest.mark.slow) for name in ("bitfit", "bottleneck", "full")),
        (tiny_llama, "dropout"),
    ],
)
def test_two_rounds_with_any_adapter_equal_the_oracles(registry, monkeypatch, model, adapter):
    monkeypatch.delattr(fast, "sequential")
    given = ("fedra", model, ADAPTERS[adapter], texts([4, 3, 1], [2, 1, 2]))
    one = rounds(registry, fast.train, *given)
    monkeypatch.undo()
    same(one, rounds(registry, sequential.train, *given))


def test_texts_that_pass_by_length_equal_the_oracles(registry, monkeypatch):
    given = ("depthfl", tiny_bert, ADAPTERS["plain"], texts([4, 3, 1], [2, 1, 2]))
    for name, value in (("ROWS", 1), ("EVERY", 1), ("CALLS", 0)):  # a client a group, and parts whatever they save
        monkeypatch.setattr(microbatching, name, value)
    tokens, whole = [], fast.forward_whole

    def noted(model, leaves, plan, x, *others):
        tokens.extend((n, *ids.shape) for n, ids in x.items())
        return whole(model, leaves, plan, x, *others)

    monkeypatch.setattr(fast, "forward_whole", noted)
    one = rounds(registry, fast.train, *given)
    assert {B for _, B, _ in tokens} == {1, 2}, "the shorter text of a batch passes by itself"
    same(one, rounds(registry, sequential.train, *given))


def test_parts_by_length_save_more_padding_than_their_calls_cost():
    model = body_of(tiny_bert())
    ids = torch.full((6, 40), PADDING)
    for row, length in zip(ids, (3, 40, 8, 9, 17, 5), strict=True):
        row[:length] = 4

    def parts(x):
        return [(rows.tolist(), T) for rows, T in microbatching.by_length(model, x)]

    each = sum(p.numel() for p in model.blocks[0].parameters())
    with patch.object(microbatching, "CALLS", 8 * each):
        assert parts({0: ids}) == [([0, 5, 2], 8), ([3], 16), ([4], 24), ([1], 40)]
    with patch.object(microbatching, "CALLS", 32 * each):
        assert parts({0: ids}) == [([0, 5, 2, 3], 16), ([4, 1], 40)]
        assert parts({0: ids, 1: ids}) == parts({0: torch.zeros(2, 3, 8, 8)}) == []
        lora(dropout=0.1)(model)
        assert parts({0: ids}) == [], "masks are drawn for a whole batch"


@pytest.mark.parametrize("make", [tiny_bert, tiny_llama])
@pytest.mark.parametrize("pooling", ["cls", "last", "mean"])
def test_padding_changes_nothing(make, pooling):
    model = body_of(make(pooling)).double()
    lora(rank=2, alpha=4)(model)
    model.add_classifier(HEAD, 3)
    model.double().draw(generator(0))
    x = torch.randint(4, 20, (2, 6))
    padded = torch.nn.functional.pad(x, (0, 5), value=PADDING)
    torch.testing.assert_close(model.pooled(padded), model.pooled(x), rtol=1e-12, atol=1e-12)


def test_a_second_text_and_every_token_are_read():
    """The same tokens in another order, or with the separator elsewhere, give other features."""
    model = body_of(tiny_bert())
    x = torch.tensor([[4, 5, 3, 6, 7, 3]])
    for other in ([[4, 3, 5, 6, 7, 3]], [[4, 5, 3, 7, 6, 3]], [[4, 5, 3, 6, 8, 3]]):
        assert not torch.allclose(model.pooled(x), model.pooled(torch.tensor(other)), atol=1e-5)
