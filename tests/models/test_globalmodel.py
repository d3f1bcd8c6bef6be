"""The global model: what it answers, and what its deepest classifier reads."""

from __future__ import annotations

import pytest
import torch

from fedbench.models.adapter import fold
from fedbench.models.backbone import Blocks
from fedbench.models.globalmodel import GlobalModel
from fedbench.seeding import generator
from fedbench.testing.setups import CLASSES, cohort_of, setup_of, tiny_mixer, tiny_vit
from fedbench.types import Exit

pytestmark = pytest.mark.usefixtures("counted_once")

CAPACITIES = [4, 3, 2]
DEPTH = {"fedra": 4, "allsmall": 2, "inclusivefl": 4, "depthfl": 3}  # of 4 layers


@pytest.fixture
def x():
    return torch.randn(5, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def trained(registry, name, model, capacities=CAPACITIES):
    setup = setup_of(registry, model, capacities)
    method = registry.make("method", {"name": name}, setup=setup)
    state, _ = method.round(method.init(generator(0)), 0, cohort_of(capacities), generator(0, 0))
    return method.predictor(state)


@pytest.mark.parametrize(("name", "model"), [*((name, tiny_vit) for name in DEPTH), ("depthfl", tiny_mixer)])
def test_every_layer_wise_method_gives_its_global_model(registry, name, model, x):
    found = trained(registry, name, model(), [3, 3] if name == "depthfl" else CAPACITIES)
    assert isinstance(found, GlobalModel)
    assert found.last.depth == DEPTH[name]
    features = found.features(x)
    assert features.shape == (5, 8)
    deepest = found.blocks.classifiers[found.last.classifier](features)
    answer = found(x)
    torch.testing.assert_close(answer["last"] if name == "depthfl" else answer, deepest, rtol=0, atol=0)


def test_features_are_timm_s_own(x):
    blocks = Blocks(tiny_vit()).double()
    model = blocks.model
    found = GlobalModel(blocks, range(4), [Exit(4, "head")]).features(x)
    torch.testing.assert_close(found, model.forward_head(model.forward_features(x), pre_logits=True))


def test_it_runs_its_own_layers_and_no_more(x):
    blocks = Blocks(tiny_vit()).double()
    blocks.add_classifier("head", CLASSES)
    some = GlobalModel(blocks, [1, 3], [Exit(2, "head")])
    before = some(x), some.features(x)
    blocks.blocks[0].mlp.fc2.weight.data.zero_()
    assert torch.equal(some(x), before[0]) and torch.equal(some.features(x), before[1])
    blocks.blocks[3].mlp.fc2.weight.data.zero_()
    assert not torch.equal(some(x), before[0]) and not torch.equal(some.features(x), before[1])


def test_without_a_way_to_combine_one_classifier_is_wanted(x):
    blocks = Blocks(tiny_vit()).double()
    for name in ("exit2", "head"):
        blocks.add_classifier(name, CLASSES)
    both = [Exit(2, "exit2"), Exit(4, "head")]
    with pytest.raises(ValueError, match="too many values"):
        GlobalModel(blocks, range(4), both)(x)
    mean = GlobalModel(blocks, range(4), both, lambda logits: sum(logits) / len(logits))
    torch.testing.assert_close(mean(x), sum(blocks(x, range(4), both)) / 2)


def test_folded_adapters_answer_alike(registry, x):
    found = trained(registry, "fedra", tiny_vit())
    with torch.no_grad():
        before, features = found(x), found.features(x)
        fold(found.blocks)
        torch.testing.assert_close(found(x), before)
        torch.testing.assert_close(found.features(x), features)
