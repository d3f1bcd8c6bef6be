"""Models to cut, and their sizes."""

from __future__ import annotations

import torch

from fedbench.testing.setups import CLASSES, tiny_mixer, tiny_vit

L, T, D, H, C = 4, 5, 8, 16, CLASSES
SHAPE = {"img_size": 8, "patch_size": 4, "embed_dim": D, "depth": L, "num_heads": 2, "mlp_ratio": 2.0}


def distilled():
    """A DeiT with a distillation token."""
    from timm.models.deit import VisionTransformerDistilled

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return VisionTransformerDistilled(**SHAPE, num_classes=0)


def averaging():
    """A ViT without class token, as some of timm's are: mean pooling, a norm behind it, scaled layers."""
    from timm.models.vision_transformer import VisionTransformer

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return VisionTransformer(
            **SHAPE, num_classes=0, global_pool="avg", class_token=False, init_values=0.1, pre_norm=True
        )


MODELS = [tiny_vit, tiny_mixer, distilled, averaging]
