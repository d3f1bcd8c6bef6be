"""Every format is loaded back: a distilled model has two classifiers, and one that answers otherwise is refused."""

from __future__ import annotations

import copy

import pytest
import torch
from exported import global_model, loaded
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from fedbench.errors import UserError
from fedbench.export import loralib, merged, peft
from fedbench.export.card import made
from fedbench.export.parts import check_adapters, parts_of
from fedbench.models.backbone import Architecture

SHAPE = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 3, "num_heads": 2}
FORMATS = {"peft": peft, "loralib": loralib}


class Doubled(VisionTransformer):
    """Answers by more than its classifier."""

    def forward_head(self, x: torch.Tensor, pre_logits: bool = False) -> torch.Tensor:
        x = super().forward_head(x, pre_logits)
        return x if pre_logits else 2 * x


class Deep(VisionTransformer):
    """Its classifier is no linear layer."""

    def reset_classifier(self, num_classes: int, *others) -> None:
        self.num_classes = num_classes
        width = self.embed_dim
        self.head = (
            nn.Sequential(nn.Linear(width, width), nn.Linear(width, num_classes)) if num_classes else nn.Identity()
        )


def models(kind: type[VisionTransformer], registry):
    """The parts of a cell's model, and the plain model that adapters go onto, without a trained classifier."""
    torch.manual_seed(0)
    model = kind(**SHAPE, num_classes=0).eval()
    bare = copy.deepcopy(model)
    bare.reset_classifier(5)
    return parts_of(global_model(model, range(3), registry), 32), bare.eval()


@pytest.mark.parametrize("form", FORMATS)
def test_adapters_of_a_distilled_model_answer_as_the_cell_does(registry, tmp_path, form):
    parts, bare = models(VisionTransformerDistilled, registry)
    assert parts.heads == ("head", "head_dist")
    FORMATS[form].write(tmp_path, parts)
    tensors, alpha = FORMATS[form].read(tmp_path, parts)
    check_adapters(form, bare, parts, tensors, alpha)
    x = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(bare(x), parts.logits(x), rtol=1e-4, atol=1e-5)


def test_peft_itself_loads_a_distilled_model(registry, tmp_path):
    pytest.importorskip("peft")
    parts, bare = models(VisionTransformerDistilled, registry)
    peft.write(tmp_path, parts)
    names = {"model": bare}
    exec(peft.LOAD.format(folder=str(tmp_path)), names)
    x = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(names["model"](x), parts.logits(x), rtol=1e-4, atol=1e-5)


def test_a_distilled_model_is_merged_with_both_classifiers(registry, tmp_path):
    parts, _ = models(VisionTransformerDistilled, registry)
    architecture = Architecture("timm.models.deit:VisionTransformerDistilled", SHAPE)
    merged.write(tmp_path, parts, architecture)
    plain = loaded(f"{made(architecture, 5)}\n{merged.LOAD.format(folder=str(tmp_path))}")
    x = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(plain(x), parts.logits(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("kind", "told"), [(Doubled, "Doubled does not answer by one linear"), (Deep, "has no head.")])
def test_a_model_that_would_answer_otherwise_is_refused_by_name(registry, tmp_path, form, kind, told):
    parts, bare = models(kind, registry)
    FORMATS[form].write(tmp_path, parts)
    with pytest.raises(UserError, match=f"--format {form}: .*{told}"):
        check_adapters(form, bare, parts, *FORMATS[form].read(tmp_path, parts))


def test_a_file_that_lacks_an_adapter_s_effect_is_refused(registry, tmp_path):
    parts, bare = models(VisionTransformer, registry)
    peft.write(tmp_path, parts)
    tensors, alpha = peft.read(tmp_path, parts)
    with pytest.raises(UserError, match="loaded back, these files answer otherwise"):
        check_adapters("peft", bare, parts, tensors, alpha / 2)
