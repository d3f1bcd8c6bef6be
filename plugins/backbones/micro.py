"""The backbones `micro_vit` and `micro_mixer`: timm models of 0.4 million parameters, pre-trained.

Where the weights come from stands in `weights/PROVENANCE.md`; `micro_pretrain.py`, beside the tests of this file, makes
them again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from fedbench import hookimpl
from fedbench.disk import hash_of_file
from fedbench.errors import UserError
from fedbench.models.backbone import Architecture, Source

IMAGE_SIZE = 32
HALF = (0.5, 0.5, 0.5)  # mean and standard deviation of the normalisation
WEIGHTS = Path(__file__).parent / "weights"
SHAPE = {"img_size": IMAGE_SIZE, "patch_size": 8, "embed_dim": 64}
TIMM: dict[str, tuple[str, dict[str, Any]]] = {
    "micro_vit": (
        "timm.models.vision_transformer:VisionTransformer",
        {**SHAPE, "depth": 12, "num_heads": 4, "mlp_ratio": 2},
    ),
    "micro_mixer": ("timm.models.mlp_mixer:MlpMixer", {**SHAPE, "num_blocks": 12, "mlp_ratio": (0.5, 4.0)}),
}


def micro_vit(pretrained: bool | str = True, weights_seed: int = 0) -> nn.Module:
    """A timm VisionTransformer without head: 12 blocks, 64 channels, 4 heads, patches of 8x8, a class token.

    pretrained: True loads the shipped weights, False draws new ones, a path loads that safetensors file ·
    weights_seed: which pre-training run, or the seed of the draw. Features are (B, 64).
    Raises UserError where there is no such file, or where it holds something else.
    """
    return _build("micro_vit", pretrained, weights_seed)


def micro_mixer(pretrained: bool | str = True, weights_seed: int = 0) -> nn.Module:
    """A timm MlpMixer without head: 12 blocks, 64 channels, patches of 8x8, the paper's MLP ratios 0.5 and 4.

    pretrained, weights_seed: as for `micro_vit`.
    """
    return _build("micro_mixer", pretrained, weights_seed)


def architecture(name: str) -> nn.Module:
    """The timm model of that name with num_classes=0, its weights drawn from torch's current random state."""
    return Architecture(*TIMM[name]).make(num_classes=0)


def weights_file(name: str, pretrained: bool | str, weights_seed: int) -> Path | None:
    """The safetensors file that these options mean, or None for random weights."""
    if pretrained is False:
        return None
    shipped_file = WEIGHTS / f"{name}-seed{weights_seed}.safetensors"
    file = shipped_file if pretrained is True else Path(pretrained).expanduser()
    if not file.is_file():
        seeds = sorted(path.stem.rpartition("seed")[2] for path in WEIGHTS.glob(f"{name}-seed*.safetensors"))
        shipped = f"weights_seed can be {', '.join(seeds)}"
        hint = shipped if pretrained is True else "pretrained: true loads the shipped weights"
        raise UserError(f"{name}: no weights at {file}; {hint}")
    return file


def _build(name: str, pretrained: bool | str, weights_seed: int) -> nn.Module:
    file = weights_file(name, pretrained, weights_seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(weights_seed)
        model = architecture(name)
    if file is not None:
        try:
            model.load_state_dict({key: tensor.float() for key, tensor in load_file(file).items()})
        except Exception as error:
            raise UserError(f"{name}: {file} does not hold weights of this model: {error}") from error
    return model


def _source(name: str, pretrained: bool | str, weights_seed: int, load: bool) -> Source:
    file = weights_file(name, pretrained, weights_seed)
    origin = hash_of_file(file)[:16] if file else f"random-seed{weights_seed}"
    model = _build(name, pretrained, weights_seed) if load else architecture(name)
    return Source(model, IMAGE_SIZE, HALF, HALF, fingerprint=f"{name}-{origin}", architecture=Architecture(*TIMM[name]))


def make_vit(pretrained: bool | str = True, weights_seed: int = 0, load: bool = True) -> Source:
    """A Vision Transformer of 12 blocks, 0.4 million parameters, for 32x32 images, pre-trained on glyphs.

    pretrained: true (the shipped weights), false (random) or the path of a file · weights_seed: 0, 1 or 2.
    """
    return _source("micro_vit", pretrained, weights_seed, load)


def make_mixer(pretrained: bool | str = True, weights_seed: int = 0, load: bool = True) -> Source:
    """An MLP-Mixer of 12 blocks, 0.4 million parameters, for 32x32 images, pre-trained on glyphs.

    pretrained: true (the shipped weights), false (random) or the path of a file · weights_seed: which run.
    """
    return _source("micro_mixer", pretrained, weights_seed, load)


@hookimpl
def fedbench_register_backbones(register) -> None:
    """Offer `micro_vit` and `micro_mixer`."""
    register("micro_vit", make_vit)
    register("micro_mixer", make_mixer)
