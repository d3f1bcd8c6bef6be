"""What is cut into layers computes what timm's own forward pass does; all else is used as a whole, or refused."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import timm
import torch
from ragged import same
from torch import nn

from fedbench.engine import cohort, sequential
from fedbench.errors import NotApplicable, UserError
from fedbench.models.backbone import Blocks, Plain, body_of
from fedbench.seeding import generator
from fedbench.testing.setups import cohort_of, setup_of, tiny_vit

pytestmark = pytest.mark.usefixtures("counted_once")

SMALL = {"embed_dim": 48, "depth": 4, "num_heads": 3}

# What is particular about them: rotary positions, absolute ones as well, none; class token, registers; pooling.
EVAS = {
    "vit_small_patch16_dinov3": 64,
    "eva02_tiny_patch14_224": 56,
    "eva_giant_patch14_224": 56,
    "vit_small_patch16_rope_mixed_ape_224": 64,
    "vit_medium_patch16_rope_reg1_gap_256": 64,
    "vit_pe_core_tiny_patch16_384": 64,
}


def eva(name: str, size: int) -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model(name, pretrained=False, num_classes=0, img_size=size, **SMALL).eval()


@pytest.mark.parametrize("name", EVAS)
def test_an_eva_cut_into_layers_gives_what_timm_gives_whole_and_in_part(name):
    size = EVAS[name]
    model, x = eva(name, size), torch.randn(2, 3, size, size)
    body = body_of(model, image_size=size)
    assert isinstance(body, Blocks) and body.num_layers == 4
    with torch.device("meta"):
        assert isinstance(body_of(timm.create_model(name, num_classes=0, img_size=size, **SMALL)), Blocks)
    with torch.no_grad():
        assert torch.equal(body.pooled(x), model(x))
        tokens = body.embed(x)
        for j in (0, 1):
            tokens = body.layer(j, tokens)
        model.blocks = model.blocks[:2]
        assert torch.equal(body.features(tokens), model(x))


@pytest.mark.parametrize("name", ["vit_small_patch16_dinov3", "vit_small_patch16_rope_mixed_ape_224"])
def test_a_later_layer_of_an_eva_has_the_positions_of_its_place(name):
    size = EVAS[name]
    model, x = eva(name, size), torch.randn(2, 3, size, size)
    body = body_of(model, image_size=size)
    with torch.no_grad():
        tokens, positions = model._pos_embed(model.patch_embed(x))
        own = positions[3] if getattr(model, "rope_mixed", False) else positions
        expected = model.blocks[3](model.norm_pre(tokens), rope=own)
        assert torch.equal(body.layer(3, body.embed(x)), expected)
        assert not torch.equal(expected, model.blocks[3](model.norm_pre(tokens), rope=None))


def tiny_eva(rope: str = "dinov3", **options) -> nn.Module:
    """For 8x8 images; positions by `rope` in every layer."""
    torch.manual_seed(0)
    size = {"img_size": 8, "patch_size": 4, "embed_dim": 16, "depth": 4, "num_heads": 2, "num_classes": 0}
    return timm.models.Eva(**size, use_rot_pos_emb=True, rope_type=rope, **options).eval()


LORA, PROMPTS = {"name": "lora", "rank": 2, "dropout": 0.2}, {"name": "vpt", "prompts": 3}
PLAIN, REGISTERS = {}, {"dynamic_img_size": True, "num_reg_tokens": 2}
MIXED = {"rope": "mixed", "global_pool": "token"}


@pytest.mark.parametrize(
    ("method", "options", "adapter"),
    [  # every method, kind of position and adapter at least once; the rest of their product is slow
        *(("fedra", MIXED, LORA), ("depthfl", REGISTERS, PROMPTS)),
        *(
            pytest.param(method, options, adapter, marks=pytest.mark.slow)
            for method, options, adapter in (
                *(("fedra", PLAIN, PROMPTS), ("fedra", PLAIN, LORA)),
                *(("fedra", REGISTERS, LORA), ("fedra", REGISTERS, PROMPTS)),
                *(("fedra", MIXED, PROMPTS), ("depthfl", PLAIN, LORA), ("depthfl", PLAIN, PROMPTS)),
                *(("depthfl", REGISTERS, LORA), ("depthfl", MIXED, LORA), ("depthfl", MIXED, PROMPTS)),
                # which trains all weights, without adapters
                *(("fedavg", PLAIN, LORA), ("fedavg", MIXED, LORA), ("fedavg", REGISTERS, LORA)),
            )
        ),
    ],
)
def test_both_engines_train_an_eva_to_equal_weights(registry, method, options, adapter):
    found = []
    for engine in (sequential.train, cohort.train):
        setup = setup_of(registry, tiny_eva(**options), [4, 2, 1], adapter, engine=engine)
        made = registry.make("method", {"name": method}, setup=setup)
        state = made.init(generator(0))
        for t in range(2):
            state, report = made.round(state, t, cohort_of([4, 2, 1]), generator(0, t))
        assert report.uploads.loss.isfinite().all()
        found.append(state)
    same(*found)


def test_prompts_of_an_eva_have_no_rotary_position(registry):
    """With prompts that no token attends to, a model answers as without them: its patches are where they were."""
    model, x = tiny_eva(), torch.randn(2, 3, 8, 8)
    expected = model(x)
    body = body_of(model)
    registry.make("adapter", {"name": "vpt", "prompts": 3})(body)
    for block in body.blocks:
        keys = torch.zeros(8, 8)
        keys[:, 1:4] = -torch.inf  # the prompts, behind the class token
        forward = block.attn.forward
        block.attn.forward = lambda x, rope=None, attn_mask=None, is_causal=False, of=forward, keys=keys: of(
            x, rope, keys[:, : x.shape[1]]
        )
    torch.testing.assert_close(body.pooled(x), expected)


@pytest.mark.parametrize(("rope", "told"), [("dinov3", ""), ("mixed", "rotary positions that are learned")])
def test_split_learning_cuts_an_eva_whose_positions_nobody_trains(registry, rope, told):
    setup = setup_of(registry, tiny_eva(rope), [4, 4])
    with pytest.raises(NotApplicable, match=told) if told else nullcontext():
        made = registry.make("method", {"name": "fedv", "head_blocks": 1}, setup=setup)
        _, report = made.round(made.init(generator(0)), 0, cohort_of([4, 4]), generator(0, 0))
        assert report.uploads.loss.isfinite().all()


class Other(nn.Module):
    """Something with a ViT's parts, whose forward pass is another."""

    num_features = 8

    def __init__(self, how):
        super().__init__()
        self.vit, self.how = tiny_vit(), how
        for part in ("blocks", "patch_embed", "norm", "norm_pre", "patch_drop"):
            setattr(self, part, getattr(self.vit, part))

    def _pos_embed(self, x):
        return self.vit._pos_embed(x)

    def forward_head(self, x, pre_logits):
        return self.vit.forward_head(x, pre_logits)

    def forward(self, x):
        tokens = self.norm_pre(self._pos_embed(self.patch_embed(x)))
        for block in reversed(self.blocks) if self.how == "backwards" else self.blocks:
            tokens = block(tokens)
        if self.how == "a sum besides":
            tokens = tokens + self.blocks[0](tokens)
        features = self.forward_head(self.norm(tokens), True)
        return features[:, :5] if self.how == "another width" else features


@pytest.mark.parametrize("how", ["backwards", "a sum besides", "another width"])
def test_a_model_that_computes_otherwise_than_its_parts_is_used_as_a_whole(how):
    body, x = body_of(Other(how)), torch.randn(2, 3, 8, 8)
    assert isinstance(body, Plain)
    assert torch.equal(body.pooled(x), body.model(x)) and body.pooled(x).shape[1] == body.num_features
    assert isinstance(body_of(Other("")), Blocks)


class Wide(nn.Module):
    """A head of 7 features on convolutions of 5, as MobileNets have."""

    num_features = 5

    def __init__(self, flat=True):
        super().__init__()
        self.conv, self.flat = nn.Conv2d(3, 7, 3), flat

    def forward(self, x):
        return self.conv(x).mean((2, 3)) if self.flat else self.conv(x)


def test_a_model_of_another_width_than_it_says_has_the_width_of_its_features():
    for model in (Wide(), timm.create_model("test_nfnet", num_classes=0, global_pool="catavgmax")):
        body = body_of(model)
        body.add_classifier("head", 3)
        assert body.num_features != model.num_features
        assert body.classifiers["head"](body.pooled(torch.randn(2, 3, 32, 32))).shape == (2, 3)


def test_a_model_without_pooled_features_is_refused_with_what_it_gives():
    with pytest.raises(UserError, match=r"Wide cannot be a backbone: its forward pass gives a tensor \(1, 7, 30, 30\)"):
        body_of(Wide(flat=False))
    with pytest.raises(UserError, match="takes no image of 2 pixels a side"):
        body_of(Wide(), image_size=2)


def test_running_statistics_are_refused_in_what_is_cut_too():
    model = tiny_vit()
    model.blocks[1].mlp.norm = nn.BatchNorm1d(5)
    with pytest.raises(UserError, match="VisionTransformer keeps running statistics"):
        body_of(model)
    hybrid = timm.create_model("vit_tiny_r_s16_p8_224", pretrained=False, num_classes=0, img_size=32)
    assert isinstance(body_of(hybrid), Blocks), "group norm in its stem keeps none"


def test_an_adapter_that_eva_would_never_call_is_refused(registry):
    body = body_of(eva("eva_giant_patch14_224", 56))
    with pytest.raises(UserError, match="EvaAttention reads the weight of its qkv and never calls it"):
        registry.make("adapter", {"name": "lora", "targets": ["attn.qkv"]})(body)


class OwnLayers(nn.Module):
    """A model of images that says itself how it is cut, as a package of somebody's may."""

    reads_texts, num_features, last_fc = False, 4, ("0", "1")

    def __init__(self):
        super().__init__()
        self.patches = nn.Linear(3 * 4 * 4, 4)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)) for _ in range(3))

    def embed(self, x):
        return self.patches(x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2))

    def mask(self, x):
        return None

    def run(self, j, hidden, mask):
        return self.blocks[j](hidden)

    def pool(self, hidden, mask):
        return hidden.mean(1)


def test_a_model_of_images_may_say_itself_how_it_is_cut(registry):
    """And is no model of texts for that."""
    body = body_of(OwnLayers(), image_size=8)
    assert not body.reads_texts and (body.num_layers, body.tokens(8)) == (3, 4)
    assert body.pooled(torch.zeros(2, 3, 8, 8)).shape == (2, 4)
    setup = setup_of(registry, OwnLayers(), [3, 2, 1])
    method = registry.make("method", {"name": "fedra"}, setup=setup)
    _, report = method.round(method.init(generator(0)), 0, cohort_of([3, 2, 1]), generator(0, 0))
    assert report.uploads.loss.isfinite().all() and method.cost(3, 0).memory_bytes > method.cost(1, 0).memory_bytes
