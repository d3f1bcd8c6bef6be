"""How timm makes the model that an export goes into, and what of a model can be exported."""

from __future__ import annotations

import pytest
import timm
import torch
from exported import global_model, loaded
from torch import nn

from fedbench.errors import UserError
from fedbench.export import merged
from fedbench.export.card import made
from fedbench.export.parts import parts_of
from fedbench.models.backbone import Architecture, Source
from fedbench.models.globalmodel import GlobalModel
from fedbench.testing.setups import tiny_mixer, tiny_vit
from fedbench.types import Exit

NAMED = {
    "vit_tiny_patch16_224": {"img_size": 32, "depth": 4},
    "mixer_s32_224": {"img_size": 64},
    "gmlp_ti16_224": {"img_size": 32},
    "resmlp_12_224": {"img_size": 32},
    "gmixer_12_224": {"img_size": 32},
    "vit_small_patch16_rope_mixed_224": {"img_size": 32, "depth": 3, "embed_dim": 24, "num_heads": 2},
    "vit_base_patch16_gap_224": {"img_size": 32, "depth": 3, "embed_dim": 24, "num_heads": 2},
    "vit_small_patch16_dinov3": {"img_size": 32, "depth": 3, "embed_dim": 24, "num_heads": 2},
}


PARTS = [("vit_tiny_patch16_224", None), *((name, layers) for name in NAMED for layers in ([0, 1], [0, 2]))]
PARTS.remove(("vit_small_patch16_rope_mixed_224", [0, 2]))  # its positions are those of the second layer


@pytest.mark.parametrize(("name", "layers"), PARTS)
def test_timm_s_named_models_whole_and_in_part(registry, tmp_path, name, layers):
    args = NAMED[name]
    model = timm.create_model(name, num_classes=0, **args)
    source = Source(model, args["img_size"], (0.5,) * 3, (0.5,) * 3, "drawn", Architecture(name, args))
    targets = ["mlp_channels.fc2"] if name.startswith(("gmlp", "resmlp")) else "last_fc"
    parts = parts_of(global_model(model, layers or range(len(model.blocks)), registry, targets), source.image_size)
    architecture = merged.architecture_of(parts, source)
    merged.write(tmp_path, parts, architecture)
    plain = loaded(f"{made(architecture, 5)}\n{merged.LOAD.format(folder=str(tmp_path))}")
    x = torch.randn(2, 3, source.image_size, source.image_size)
    with torch.no_grad():
        torch.testing.assert_close(plain(x), parts.logits(x), rtol=1e-4, atol=1e-4)


def test_an_architecture_that_is_missing_or_wrong_is_found_out(registry, tmp_path):
    model = tiny_mixer()
    parts = parts_of(global_model(model, range(4), registry), 8)
    with pytest.raises(UserError, match="does not say how timm makes this model"):
        merged.architecture_of(parts, Source(model, 8, (0.5,) * 3, (0.5,) * 3, "x"))
    shape = {"img_size": 8, "patch_size": 4, "embed_dim": 8, "num_blocks": 4}
    mixer = "timm.models.mlp_mixer:MlpMixer"
    merged.write(tmp_path, parts, Architecture(mixer, shape))
    with pytest.raises(
        UserError, match=r"differs from this model in blocks\.3\.mlp_channels\.fc1\.bias, .* and 8 more"
    ):
        merged.write(tmp_path, parts, Architecture(mixer, shape | {"num_blocks": 3}))
    with pytest.raises(UserError, match="is another network"):
        merged.write(tmp_path, parts, Architecture(mixer, shape | {"act_layer": nn.ReLU}))


@pytest.mark.parametrize("args", [{"embed_dim": 12}, {"patch_size": 2}, {"odd": 1}])
def test_what_cannot_be_made_again_is_refused_in_a_line_that_names_the_other_formats(registry, tmp_path, args):
    model = tiny_mixer()
    parts = parts_of(global_model(model, [0, 1], registry), 8)
    shape = {"img_size": 8, "patch_size": 4, "embed_dim": 8, "num_blocks": 4}
    source = Source(model, 8, (0.5,) * 3, (0.5,) * 3, "x", Architecture("timm.models.mlp_mixer:MlpMixer", shape | args))
    with pytest.raises(UserError, match="--format peft and --format loralib need no more than the adapters$") as caught:
        merged.write(tmp_path, parts, merged.architecture_of(parts, source))
    assert "\n" not in str(caught.value)


def test_layers_that_cannot_do_without_the_others_are_refused(registry, tmp_path):
    args = NAMED[name := "vit_small_patch16_rope_mixed_224"]
    model = timm.create_model(name, num_classes=0, **args)
    source = Source(model, 32, (0.5,) * 3, (0.5,) * 3, "drawn", Architecture(name, args))
    for parameter in model.blocks.parameters():
        nn.init.normal_(parameter, std=0.3)
    parts = parts_of(global_model(model, [0, 2], registry), 32)
    with pytest.raises(UserError, match="is another network than the cell's backbone.*--format peft"):
        merged.write(tmp_path, parts, merged.architecture_of(parts, source))


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))


def test_adapters_that_are_not_low_rank_are_refused_by_name():
    blocks = global_model(tiny_vit(), range(4)).blocks
    blocks.blocks[1].mlp.extra = Scale()
    with pytest.raises(UserError, match=r"blocks\.1\.mlp\.extra\.scale is trained, and a plain model has no place"):
        parts_of(GlobalModel(blocks, range(4), [Exit(4, "head")]), 8)
    parts_of(GlobalModel(blocks, [0, 2], [Exit(2, "head")]), 8)  # without that layer all is well
