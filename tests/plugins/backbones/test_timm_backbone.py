"""Any timm ViT or Mixer by name; what is missing is named."""

import subprocess
import sys

import pytest
import timm
import torch
from safetensors.torch import save_file

from fedbench.errors import UserError
from fedbench.models.backbone import Blocks
from fedbench.registry.facts import CachedFacts
from fedbench_plugins.backbones.timm import _names, refuse

SMALL = {"name": "vit_tiny_patch16_224", "img_size": 32, "pretrained": False}


def test_a_vit_and_a_mixer_by_name_at_another_image_size(registry):
    for name, layers in (("vit_tiny_patch16_224", 12), ("mixer_s32_224", 8)):
        source = registry.make("backbone", {**SMALL, "name": name})
        assert Blocks(source.model).num_layers == layers and source.image_size == 32


def test_an_unknown_name_gets_suggestions(registry):
    with pytest.raises(
        UserError, match="no backbone is called 'vit_tinny_patch16_224'; did you mean vit_tiny_patch16_224"
    ):
        registry.make("backbone", {**SMALL, "name": "vit_tinny_patch16_224"})


WITHOUT_TORCH = """
import sys
from fedbench.errors import UserError
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
try:
    CachedFacts(Registry()).backbone({"name": "micro_vti"})
except UserError as error:
    print(error, {"torch", "timm"} & sys.modules.keys())
"""


def test_a_second_unknown_name_is_told_of_without_importing_torch(registry):
    with pytest.raises(UserError, match="did you mean micro_vit"):
        CachedFacts(registry).backbone({"name": "micro_vti"})
    with pytest.raises(UserError, match="no backbone is called '0'; there are .*micro_vit, .*and timm's$"):
        CachedFacts(registry).backbone({"name": "0"})
    with pytest.raises(UserError, match="a language model reads texts: `{name: hf, model: bert-base-uncased}`"):
        CachedFacts(registry).backbone({"name": "bert-base-uncased"})
    told = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, timeout=60)
    assert told.stdout == "no backbone is called 'micro_vti'; did you mean micro_vit? set()\n", told.stderr


def test_names_that_timm_has_given_up_and_tags_are_known(registry):
    for name in ("vit_base_patch16_224_in21k", "vit_base_patch16_224.augreg_in21k"):
        refuse(name)
    assert set(timm.list_models()) < set(_names()["all"]) and all(map(timm.is_model, _names()["all"]))


def test_what_is_neither_vit_nor_mixer_is_refused(registry):
    with pytest.raises(UserError, match="ResNet cannot be cut into layers"):
        Blocks(registry.make("backbone", {"name": "resnet10t", "pretrained": False}).model)


def test_weights_that_cannot_be_fetched_name_the_file_and_the_mend(registry, monkeypatch):
    def offline(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", offline)
    with pytest.raises(UserError) as caught:
        registry.make("backbone", {"name": "vit_tiny_patch16_224"})
    assert "Wanted: model.safetensors of the hub repository timm/vit_tiny_patch16_224" in str(caught.value)
    assert "pretrained: path/to/model.safetensors" in str(caught.value)


def test_a_weights_file_is_loaded_and_enters_the_fingerprint(registry, tmp_path):
    model = registry.make("backbone", SMALL).model
    path = tmp_path / "weights.safetensors"
    save_file({key: value + 1 for key, value in model.state_dict().items()}, path)
    source = registry.make("backbone", {**SMALL, "pretrained": str(path)})
    torch.testing.assert_close(source.model.norm.bias, model.norm.bias + 1)
    assert source.fingerprint.startswith("sha256:")
    assert registry.make("backbone", {**SMALL, "pretrained": str(path)}, load=False).fingerprint == source.fingerprint


def test_a_weights_file_that_does_not_fit_says_why(registry, tmp_path):
    with pytest.raises(UserError, match="there is no file"):
        registry.make("backbone", {**SMALL, "pretrained": str(tmp_path / "none.safetensors")})
    torn = tmp_path / "torn.safetensors"
    torn.write_bytes(b"\x00" * 7)
    with pytest.raises(UserError, match="no readable .safetensors file"):
        registry.make("backbone", {**SMALL, "pretrained": str(torn)})
    other = tmp_path / "other.safetensors"
    save_file({"cls_token": torch.zeros(1)}, other)
    with pytest.raises(UserError, match="does not fit VisionTransformer: it lacks"):
        registry.make("backbone", {**SMALL, "pretrained": str(other)})


@pytest.mark.parametrize(
    ("name", "saved", "wanted"),
    [
        ("vit_tiny_patch16_224", {"img_size": 96}, {"img_size": 32}),
        ("vit_tiny_patch16_224", {"img_size": 32}, {"img_size": 64, "patch_size": 8}),
        ("flexivit_small", {"img_size": 96}, {"img_size": 64}),  # without antialiasing, as it was trained
        ("eva02_tiny_patch14_224", {"img_size": 84}, {"img_size": 56}),
    ],
)
def test_weights_saved_at_another_image_size_are_resampled_as_timm_does(registry, tmp_path, name, saved, wanted):
    torch.manual_seed(0)
    small = {"depth": 1, "embed_dim": 12, "num_heads": 3}
    weights = timm.create_model(name, pretrained=False, **saved, **small).state_dict()
    weights["pos_embed"] += torch.randn(weights["pos_embed"].shape)
    overlay = {"state_dict": dict(weights)}
    own = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, num_classes=0, **wanted, **small)
    save_file(weights, path := tmp_path / "weights.safetensors")
    ref = {"name": name, "pretrained": str(path), **wanted, **small}
    found = registry.make("backbone", ref).model.state_dict()
    assert own.state_dict().keys() == found.keys()
    for key, tensor in own.state_dict().items():
        assert torch.equal(tensor, found[key]), key
    with torch.device("meta"):
        assert registry.make("backbone", ref, load=False).fingerprint.startswith("sha256:")


def test_weights_that_timm_cannot_resample_are_refused(registry, tmp_path):
    mixer = registry.make("backbone", {"name": "mixer_s32_224", "img_size": 64, "pretrained": False}).model
    save_file(mixer.state_dict(), path := tmp_path / "weights.safetensors")
    with pytest.raises(UserError, match="has another shape for blocks.0.mlp_tokens.fc1.weight"):
        registry.make("backbone", {"name": "mixer_s32_224", "img_size": 96, "pretrained": str(path)})


def test_the_fingerprint_names_the_tag_without_fetching(registry):
    assert registry.make("backbone", {"name": "vit_tiny_patch16_224"}, load=False).fingerprint == (
        "timm:vit_tiny_patch16_224.augreg_in21k_ft_in1k"
    )


@pytest.mark.parametrize("option", ["cache_dir", "checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay"])
def test_an_option_that_names_files_of_other_formats_is_refused(registry, option):
    with pytest.raises(UserError, match=f"the option {option} is not for suites"):
        registry.make("backbone", {**SMALL, option: "weights.pt"})
