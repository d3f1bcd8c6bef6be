"""Every class of timm: a small model is trained by both engines, in layers or as a whole, or refused in one line."""

from __future__ import annotations

import dataclasses
import re

import pytest
import timm
import torch
from ragged import same
from timm.models import _registry

from fedbench.engine import cohort, sequential
from fedbench.errors import NotApplicable, UserError
from fedbench.models.backbone import Blocks, body_of
from fedbench.seeding import generator
from fedbench.testing.setups import CLASSES, cohort_of, setup_of

WORDS = {"embed_dim": 48, "depth": 2, "num_heads": 3}  # sizes of a transformer
STAGES = {"depths": [1, 1, 1, 1]}
LAYERS = {"layers": [1, 1, 1, 1]}
SMALL = {"img_size": 64}  # pixels a side; by default those that the model is made for

# The class of a model that can be trained: a small member of it, what makes that smaller, and its images where the
# constructor is not asked for them.
TRAINED = {
    "Beit": ("beit_base_patch16_224", WORDS | SMALL),
    "ByobNet": ("regnetz_b16_evos", {}, 64),
    "CSATv2": ("csatv2", {}, 128),
    "Cait": ("cait_xxs24_224", WORDS | SMALL),
    "CoaT": ("coat_tiny", {}),
    "ConVit": ("convit_tiny", WORDS | SMALL),
    "ConvNeXt": ("test_convnext", STAGES, 64),
    "CrossVit": ("crossvit_tiny_240", {}),
    "DaVit": ("davit_tiny", STAGES, 64),
    "DeepseekVitClassifier": ("deepseek_vit_412m", WORDS | {"img_size": 56}),
    "EdgeNeXt": ("edgenext_xx_small", STAGES, 64),
    "EfficientNet": ("test_efficientnet_gn", {}, 64),
    "Eva": ("vit_small_patch16_dinov3", WORDS | SMALL),
    "FocalNet": ("focalnet_tiny_srf", {}, 64),
    "Gemma4VitClassifier": ("gemma4_vit_167m", WORDS | {"img_size": 96}),
    "GlobalContextVit": ("gcvit_xxtiny", {}),
    "Hiera": ("hiera_tiny_224", {}),
    "HieraDet": ("hieradet_small", {}),
    "MambaOut": ("test_mambaout", STAGES, 64),
    "MaxxVit": ("coatnext_nano_rw_224", STAGES | SMALL),
    "MetaFormer": ("poolformerv2_s12", {}, 64),
    "MlpMixer": ("mixer_s32_224", SMALL),
    "MobileNetV5": ("mobilenetv5_base", {"channel_multiplier": 0.25}, 64),
    "MultiScaleVit": ("mvitv2_tiny", {}),
    "NaFlexVit": ("naflexvit_base_patch16_parfac_gap", WORDS | SMALL),
    "Nest": ("jx_nest_tiny", {}),
    "NormFreeNet": ("test_nfnet", {}, 64),
    "PoolingVisionTransformer": ("pit_ti_224", {}),
    "PyramidVisionTransformerV2": ("pvt_v2_b0", STAGES, 64),
    "Qwen3VitClassifier": ("qwen3_vit_88m", WORDS | SMALL),
    "RDNet": ("rdnet_tiny", {}, 64),
    "RegNet": ("regnety_040_sgn", {}, 64),
    "ResNet": ("resnet50_gn", LAYERS, 64),
    "ResNetV2": ("resnetv2_50x1_bit", {}, 64),
    "Sequencer2d": ("sequencer2d_s", LAYERS, 64),
    "SwinTransformer": ("swin_tiny_patch4_window7_224", STAGES | SMALL),
    "SwinTransformerV2": ("swinv2_tiny_window16_256", STAGES | SMALL),
    "SwinTransformerV2Cr": ("swinv2_cr_tiny_224", STAGES | SMALL),
    "TNT": ("tnt_s_legacy_patch16_224", {"depth": 2}),
    "Twins": ("twins_svt_small", STAGES | SMALL),
    "VGG": ("vgg11", {"mlp_ratio": 0.01}),
    "VisionTransformer": ("test_vit", {}),
    "VisionTransformerDistilled": ("deit_tiny_distilled_patch16_224", WORDS | SMALL),
    "VisionTransformerRelPos": ("test_vit_relpos", {}),
    "VisionTransformerSAM": ("samvit_base_patch16_224", WORDS | SMALL),
    "VovNet": ("ese_vovnet39b_evos", {}, 64),
}

# The class of a model that is refused: its smallest member. Most keep running statistics.
REFUSED = {
    "CPUBone": "cpubone_nano",
    "ConvMixer": "convmixer_768_32",
    "CspNet": "cs3darknet_focus_s",
    "CspNext": "cspnext_tiny",
    "DLA": "dla46x_c",
    "DPN": "dpn48b",
    "DenseNet": "densenet121",
    "EfficientFormer": "efficientformer_l1",
    "EfficientFormerV2": "efficientformerv2_s0",
    "EfficientViM": "efficientvim_m1",
    "EfficientViMDistilled": "efficientvim_m1_dist",
    "EfficientVit": "efficientvit_b0",
    "EfficientVitLarge": "efficientvit_l1",
    "EfficientVitMsra": "efficientvit_m0",
    "FastVit": "fastvit_t8",
    "FasterNet": "fasternet_t0",
    "GhostNet": "ghostnet_050",
    "HighPerfGpuNet": "hgnetv2_b0",
    "HighResolutionNet": "hrnet_w18_small",
    "IFormer": "iformer_t",
    "InceptionResnetV2": "inception_resnet_v2",
    "InceptionV3": "inception_v3",
    "InceptionV4": "inception_v4",
    "LCNetV2": "lcnetv2_small",
    "Levit": "levit_256d",
    "LevitDistilled": "levit_128s",
    "LowFormer": "lowformer_b0",
    "MetaNeXt": "inception_next_atto",
    "MobileNetV3": "lcnet_035",
    "MobileNetV5Encoder": "mobilenetv5_300m_enc",
    "NASNetALarge": "nasnetalarge",
    "NextViT": "nextvit_small",
    "PNASNet5Large": "pnasnet5large",
    "Qwen3VitEncoder": "qwen3_vit_88m_enc",
    "RepGhostNet": "repghostnet_050",
    "RepVit": "repvit_m1",
    "RexNet": "rexnet_100",
    "SENet": "legacy_seresnet18",
    "SHViT": "shvit_s1",
    "SelecSls": "selecsls42",
    "StarNet": "starnet_s050",
    "SwiftFormer": "swiftformer_xs",
    "TResNet": "tresnet_m",
    "TinyVit": "tiny_vit_5m_224",
    "VOLO": "volo_d1_224",
    "Visformer": "visformer_tiny",
    "Xception": "legacy_xception",
    "XceptionAligned": "xception41p",
    "Xcit": "xcit_nano_12_p8_224",
}
# Encoders of tokens, whose shapes alone do not tell that nothing pools them.
TOKENS = {
    "DeepseekVitEncoder": ("deepseek_vit_412m_enc", WORDS | {"img_size": 56}),
    "Gemma4VitEncoder": ("gemma4_vit_167m_enc", WORDS | {"img_size": 96}),
}
# Of modules whose models are all of a class above.
ELSEWHERE = {
    "byoanet",
    "hardcorenas",
    "mobilevit",
    "res2net",
    "resnest",
    "sknet",
    "vision_transformer_hybrid",
    "vitamin",
}


def test_no_module_of_timm_is_forgotten():
    tried = [name for name, *_ in TRAINED.values()] + list(REFUSED.values())
    modules = {_registry._model_to_module[name] for name in tried}
    assert {module for module, names in _registry._module_to_models.items() if names} == modules | ELSEWHERE


def made(name: str, options: dict[str, object] | None = None) -> torch.nn.Module:
    torch.manual_seed(0)
    return timm.create_model(name, pretrained=False, num_classes=0, **(options or {})).eval()


@pytest.mark.slow
@pytest.mark.parametrize("kind", REFUSED)
def test_a_class_that_cannot_be_a_backbone_is_refused_in_one_line(kind):
    with torch.device("meta"):
        model = made(REFUSED[kind])
    assert type(model).__name__ == kind
    with pytest.raises(
        UserError, match=rf"^{kind} (keeps running statistics|cannot be a backbone: its forward)"
    ) as told:
        body_of(model, image_size=model.pretrained_cfg["input_size"][1])
    assert len(str(told.value).splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", TOKENS)
def test_a_class_without_pooled_features_is_refused_once_it_has_weights(kind):
    model = made(*TOKENS[kind])
    gives = rf"^{kind} cannot be a backbone: its forward pass gives a tensor \(1, \d+, \d+\), no pooled features"
    with pytest.raises(UserError, match=gives):
        body_of(model, image_size=TOKENS[kind][1]["img_size"])


def one_image_each(size: int, clients: int):
    """A cohort of clients with one image of that size each."""

    def batches(n):
        draw = torch.Generator().manual_seed(n)
        x = torch.randn(1, 3, size, size, generator=draw, dtype=torch.float64)
        yield x, torch.randint(CLASSES, (1,), generator=draw)

    return dataclasses.replace(cohort_of([1] * clients, steps=1), batches=batches)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRAINED)
def test_a_class_of_timm_is_trained_by_both_engines(registry, kind):
    name, options, *pixels = TRAINED[kind]
    model = made(name, options)
    assert type(model).__name__ == kind
    size = options.get("img_size") or (pixels or model.pretrained_cfg["input_size"][1:])[0]
    with torch.device("meta"):
        shape = body_of(made(name, options), image_size=size)
    assert shape.pooled(torch.empty(1, 3, size, size, device="meta")).shape == (1, shape.num_features)
    method = "fedra" if isinstance(shape, Blocks) else "fedavg"
    states = []
    for engine in (sequential.train, cohort.train):
        setup = setup_of(registry, made(name, options), [1, 1], engine=engine, image_size=size)
        assert type(setup.backbone) is type(shape) and setup.backbone.num_features == shape.num_features
        try:
            ours = registry.make("method", {"name": method}, setup=setup)
        except NotApplicable as error:
            assert kind == "CoaT" and str(error).startswith("CoaT has one parameter in several places")
            return
        state, report = ours.round(ours.init(generator(0)), 0, one_image_each(size, 2), generator(0, 0))
        assert report.uploads.loss.isfinite().all()
        states.append(state)
    same(*states)
    if not isinstance(shape, Blocks):
        setup = setup_of(registry, made(name, options), [1], image_size=size)
        with pytest.raises(NotApplicable, match="cannot be cut into layers"):
            registry.make("method", {"name": "fedra"}, setup=setup)


def test_layers_that_an_adapter_does_not_fit_are_named(registry):
    """A gMLP is an MlpMixer whose blocks have no layer that mixes tokens alone."""
    setup = setup_of(registry, made("gmlp_ti16_224", {"img_size": 32}), [1], image_size=32)
    with pytest.raises(UserError) as told:
        registry.make("method", {"name": "fedra"}, setup=setup)
    assert re.fullmatch(r"adapter\.targets: no module is called 'mlp_tokens\.fc2' in MlpMixer; .*", str(told.value))
