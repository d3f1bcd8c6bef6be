"""Which units models have, and what is said of a model whose units are not known."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedbench.errors import NotApplicable
from fedbench.families.wholemodel import WholeModel
from fedbench.families.width.maps import map_of
from fedbench.families.width.units import Axis
from fedbench.models.backbone import body_of
from fedbench.testing.setups import tiny_mixer, tiny_vit


def whole(model, classes=3):
    body = body_of(model)
    body.add_classifier("head", classes)
    return WholeModel(body)


class Residual(nn.Module):
    """Two branches into one sum, and a convolution that is used twice."""

    num_features = 6

    def __init__(self):
        super().__init__()
        self.stem, self.a, self.b = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 6, 1), nn.Conv2d(4, 6, 1)
        self.norm, self.again = nn.GroupNorm(2, 6), nn.Conv2d(6, 6, 1)

    def forward(self, x):
        z = self.stem(x).relu()
        z = self.norm(self.a(z)) + self.b(z)
        return (z + self.again(self.again(z))).mean((2, 3))


def test_a_sum_ties_the_channels_of_its_branches():
    found = map_of(whole(Residual()))
    assert sorted(units.total for units in found.units.values()) == [4, 6]
    (four,), (six,) = ([name for name, units in found.units.items() if units.total == K] for K in (4, 6))
    assert found.axes["model.stem.weight"] == (Axis(four), None, None, None)
    for name in ("a", "b"):
        assert found.axes[f"model.{name}.weight"] == (Axis(six), Axis(four), None, None)
    assert found.axes["model.again.weight"][:2] == (Axis(six), Axis(six))
    assert found.axes["model.norm.bias"] == found.axes["model.again.bias"] == (Axis(six),)
    assert found.axes["head.weight"] == (None, Axis(six)) and found.axes["head.bias"] == (None,)


def test_a_transformer_has_an_embedding_heads_and_hidden_units():
    found = map_of(whole(tiny_vit(depth=2)))
    sizes = {name: (units.each, units.runs) for name, units in found.units.items()}
    one_layer = {"attn": (4, 2), "mlp": (16, 1)}
    layers = {f"{j}.{name}": size for j in (0, 1) for name, size in one_layer.items()}
    assert sizes == {"embedding": (8, 1), **layers}
    assert found.axes["model.blocks.1.attn.qkv.weight"] == (Axis("1.attn", 3), Axis("embedding"))
    assert found.axes["model.pos_embed"] == (None, None, Axis("embedding"))


def test_a_mixer_keeps_its_tokens():
    found = map_of(whole(tiny_mixer(depth=1)))
    assert found.axes["model.blocks.0.mlp_tokens.fc1.weight"] == (Axis("0.mlp_tokens"), None)
    assert found.axes["model.blocks.0.mlp_tokens.fc2.bias"] == (None,)
    assert found.axes["model.blocks.0.mlp_channels.fc1.weight"] == (Axis("0.mlp"), Axis("embedding"))


def test_a_resnet_of_timm_has_channels_for_each_stage_and_those_within_its_blocks(registry):
    with torch.device("meta"):
        source = registry.make("backbone", {"name": "resnet50_gn", "pretrained": False}, load=False)
        found = map_of(whole(source.model, 10))
    assert {units.total for units in found.units.values()} == {64, 128, 256, 512, 1024, 2048}
    assert len(found.units) == 1 + 4 + 2 * 16  # stem, stages, and two within each block
    assert found.axes["model.layer1.2.conv3.weight"][0] == found.axes["model.layer1.0.downsample.0.weight"][0]


def spoilt(**parts):
    model = tiny_vit(depth=1)
    for name, part in parts.items():
        setattr(model if hasattr(model, name) else model.blocks[0], name, part)
    return model


class Mixing(nn.Linear):
    def forward(self, x, **asked):
        return super().forward(x)


class Shuffled(Residual):
    def forward(self, x):
        return super().forward(x).flip(1)


class Branching(Residual):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else x


class Grouped(Residual):
    def __init__(self):
        super().__init__()
        self.again = nn.Conv2d(6, 6, 1, groups=2)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (lambda: spoilt(mark=nn.Parameter(torch.zeros(1))), r"which units its parameter blocks\.0\.mark follows"),
        (lambda: spoilt(attn=Mixing(8, 8)), "the heads of its Mixing are not known"),
        (Shuffled, "what `flip` does to its channels is not known"),
        (Branching, "its way from the image to the features cannot be followed"),
        (Grouped, r"what `again` \(Conv2d\) does to its channels is not known"),
    ],
)
def test_a_model_whose_units_are_not_known_is_not_applicable_and_says_why(model, why):
    with pytest.raises(NotApplicable, match=f"cannot be cut to a width: .*{why}"):
        map_of(whole(model()))
