"""Prompts: where they stand among the tokens, which layers have their own, and that no classifier reads them."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fedbench.engine import shortcuts
from fedbench.errors import UserError
from fedbench.models.backbone import Blocks
from fedbench.models.counting import blank
from fedbench.testing.setups import tiny_mixer, tiny_vit

X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def averaged():
    model = tiny_vit()
    model.global_pool = "avg"
    return model


def by_hand(model, prompts, layers):
    """[x, P, E] through layers, P anew in each that has prompts; the features without them."""
    plain = Blocks(model()).double().eval()
    tokens, p = plain.embed(X), len(prompts[0])
    x, P, E = tokens[:, :1], None, tokens[:, 1:]
    for j, own in zip(layers, prompts, strict=True):
        P = P if own is None else own.expand(2, -1, -1)
        x, P, E = plain.blocks[j](torch.cat([x, P, E], 1)).split([1, p, 4], 1)
    return plain.features(torch.cat([x, E], 1))


@pytest.mark.parametrize("model", [tiny_vit, averaged])
@pytest.mark.parametrize("deep", [False, True], ids=["shallow", "deep"])
def test_a_model_with_prompts_equals_the_paper_s_formulas(adapted, model, deep):
    """Of a client that holds layers 0 and 2: of deep prompts it has the first and the third set."""
    blocks, layers = adapted(model(), name="vpt", prompts=3, deep=deep), [0, 2]
    tokens = blocks.embed(X)
    for j in layers:
        tokens = blocks.blocks[j](tokens)
    if deep:
        prompts = [blocks.r(j)["norm1.prompts"] for j in layers]
    else:
        prompts = [blocks.shared()["model.norm_pre.prompts"], None]
    torch.testing.assert_close(blocks.features(tokens), by_hand(model, prompts, layers), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("deep", [False, True], ids=["shallow", "deep"])
def test_prompts_are_tokens_of_the_model_and_the_last_layer_reads_them(adapted, deep):
    blocks = adapted(tiny_vit(), name="vpt", prompts=3, deep=deep)
    assert blocks.tokens(8) == 1 + 4 + 3 and shortcuts.reads_class_token(blocks, 3)
    tokens = blocks.embed(X)
    last, whole = shortcuts.last_layer(blocks.blocks[3], tokens), blocks.blocks[3](tokens)
    torch.testing.assert_close(blocks.features(last), blocks.features(whole), rtol=1e-12, atol=1e-12)


def test_a_layer_pays_for_its_prompts(adapted):
    T, D, H = 8, 8, 16
    twin = blank(adapted(tiny_vit(), name="vpt", prompts=3, deep=True))
    with FlopCounterMode(display=False) as counter:
        twin.blocks[1](torch.empty(1, T, D, device="meta", dtype=torch.float64))
    assert counter.get_total_flops() == 2 * (2 * T * D * T + T * D * 4 * D + 2 * T * D * H)


def test_they_are_drawn_as_asked(adapted):
    def drawn(**options):
        return adapted(tiny_vit(), name="vpt", prompts=500, **options).shared()["model.norm_pre.prompts"]

    bound = (6 / (3 * 4 * 4 + 8)) ** 0.5
    assert 0.99 * bound < drawn().abs().max() <= bound
    assert drawn(init="normal").std().item() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (tiny_vit, {"prompts": 0}, "prompts: expected a whole number of at least 1, got 0"),
        (tiny_vit, {"init": "zero"}, 'init: expected "uniform" or "normal", got "zero"'),
        (tiny_mixer, {}, "a MlpMixer has no place for prompts.*they are for a VisionTransformer"),
    ],
)
def test_what_has_no_place_for_prompts_is_refused(adapted, model, options, message):
    with pytest.raises(UserError, match=message):
        adapted(model(), name="vpt", **options)


def test_layers_of_another_kind_have_no_prompts_of_their_own(adapted):
    from timm.models.vision_transformer import ResPostBlock, VisionTransformer

    model = VisionTransformer(img_size=8, patch_size=4, embed_dim=8, depth=1, num_heads=2, block_fn=ResPostBlock)
    with pytest.raises(UserError, match="are ResPostBlock, and prompts in every layer"):
        adapted(model, name="vpt", deep=True)
