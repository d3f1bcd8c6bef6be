"""Texts in both engines: masks, padding and dropout, in float64 to 1e-12."""

from dataclasses import replace

import pytest
import torch
from ragged import ragged, same
from tiny_texts import TextBatches, tiny_bert, tiny_llama

from fedbench.engine import cohort as fast
from fedbench.engine import microbatching, sequential, shortcuts
from fedbench.errors import NotApplicable
from fedbench.models.backbone import HEAD, Blocks, body_of
from fedbench.models.layered import PADDING, Packing
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


@pytest.mark.parametrize(("model", "adapter"), [(tiny_bert, "plain"), (tiny_bert, "full"), (tiny_llama, "full")])
def test_packed_texts_equal_the_oracles(registry, monkeypatch, model, adapter):
    given = ("depthfl", model, ADAPTERS[adapter], texts([4, 3, 1], [2, 1, 2]))
    monkeypatch.setattr(microbatching, "ROWS", 1)  # a client a group
    passed, layer = [], Blocks.layer

    def noted(model, j, tokens, mask):
        passed.append((len(tokens), isinstance(mask, Packing)))
        return layer(model, j, tokens, mask)

    monkeypatch.setattr(Blocks, "layer", noted)
    one = rounds(registry, fast.train, *given)
    assert set(passed) == {(1, True)}
    same(one, rounds(registry, sequential.train, *given))
    assert (1, True) not in passed[-4:], "the oracle pads"


def test_dropout_is_drawn_for_padded_texts_and_several_clients_are_padded(registry, monkeypatch):
    monkeypatch.setattr(Packing, "of", None)
    given = ("fedra", tiny_bert, ADAPTERS["plain"], texts([4, 3, 1], [2, 1, 2]))
    rounds(registry, fast.train, *given)
    monkeypatch.setattr(microbatching, "ROWS", 1)
    rounds(registry, fast.train, "fedra", tiny_bert, ADAPTERS["dropout"], given[-1])


def test_texts_are_packed_within_fast_on_a_cpu():
    model = body_of(tiny_bert())
    with shortcuts.fast(model):
        assert model.packs
    assert not model.packs
    with shortcuts.fast(model.to("meta")):
        assert not model.packs


def test_a_packing_lays_texts_by_length_and_back():
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 0]]).bool()
    packing = Packing.of(mask)
    assert packing.groups == [(1, 1), (2, 3)]
    assert packing.positions.tolist() == [[0, 0, 1, 2, 0, 1, 2]]
    hidden = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    row = packing.packed(hidden)
    assert torch.equal(row[0, 1:4], hidden[0, :3]) and torch.equal(row[0, 0], hidden[1, 0])
    assert torch.equal(packing.padded(row), hidden * mask.unsqueeze(-1))
    assert torch.autograd.gradcheck(lambda h: packing.padded(packing.packed(h)), hidden)


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
    """The same tokens in another order, or with a second text that begins elsewhere, give other features."""
    model = body_of(tiny_bert())
    x = torch.tensor([[4, 5, 3, 26, 27, 23]])
    for other in ([[4, 5, 3, 6, 7, 3]], [[4, 3, 5, 26, 27, 23]], [[4, 5, 3, 27, 26, 23]], [[4, 5, 3, 6, 27, 23]]):
        assert (model.pooled(x) - model.pooled(torch.tensor(other))).abs().max() > 4e-6
