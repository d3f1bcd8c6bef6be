"""The backbones `micro_vit` and `micro_mixer`: timm models of 0.4 million parameters, pre-trained.

`weights/PROVENANCE.md` says where the weights come from; `micro_pretrain.py`, next to the tests of this file, makes
them again, and others by other recipes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from fedbench import hookimpl
from fedbench.disk import expanded, hash_of_bytes, hash_of_file
from fedbench.errors import DataMissing, UserError
from fedbench.models.backbone import Architecture, Source
from fedbench.options import Natural, judged

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

    Args:
        pretrained: True loads the shipped weights, False draws new ones, a path loads that safetensors file, or of a
            folder the file that is named as the shipped ones are (`micro_vit-seed0.safetensors`).
        weights_seed: which pre-training run, or the seed of the draw. Features are (B, 64).

    Raises: DataMissing where there is no such file, UserError where it holds something else.
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
    given = WEIGHTS if pretrained is True else expanded(pretrained)
    own = f"{name}-seed{weights_seed}.safetensors"
    file = given / own if given.is_dir() else given
    if file.is_file():
        return file
    if pretrained is True:
        seeds = sorted(path.stem.rpartition("seed")[2] for path in WEIGHTS.glob(f"{name}-seed*.safetensors"))
        raise UserError(f"{name}: no weights at {file}; weights_seed can be {', '.join(seeds)}")
    # Of a folder that is missing with many files in it this is one message for all of them.
    lacking = next((part for part in reversed(file.parents) if not part.exists()), file)
    raise DataMissing(
        f"{name}: no weights at {lacking}; pretrained: true loads the shipped weights, and the repository's "
        "tests/plugins/backbones/micro_pretrain.py makes others"
    )


def _build(name: str, pretrained: bool | str, weights_seed: int) -> nn.Module:
    file = weights_file(name, pretrained, weights_seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(weights_seed)
        model = architecture(name)
    if file is not None:
        load_weights(model, name, file)
    return model


def text_model(
    name: str, make: Callable[[], nn.Module], words: Path, pretrained: bool | str, weights_seed: int, load: bool
) -> tuple[nn.Module, str]:
    """A text model with the weights that these options mean, and the fingerprint of these and of its vocabulary.

    Args:
        name: of the model.
        make: makes it, its weights drawn from torch's current random state.
        words: the file of its vocabulary.
        pretrained, weights_seed: as for `micro_vit`.
        load: whether to read the weights.
    """
    file = weights_file(name, pretrained, weights_seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(weights_seed)
        model = make()
    if file is not None and load:
        load_weights(model, name, file)
    weights = hash_of_file(file)[:16] if file else f"random-seed{weights_seed}"
    return model, f"{name}-{weights}-{hash_of_bytes(words.read_bytes())[:16]}"


def numbered(words: Path) -> dict[str, int]:
    """The id of every word: its line in the file of a vocabulary."""
    return {word: number for number, word in enumerate(words.read_text(encoding="utf-8").split("\n")[:-1])}


def load_weights(model: nn.Module, name: str, file: Path) -> None:
    """Load the half-precision weights of a safetensors file. Raises UserError where they are of another model."""
    try:
        model.load_state_dict({key: tensor.float() for key, tensor in load_file(file).items()})
    except Exception as error:
        raise UserError(f"{name}: {file} does not hold weights of this model: {error}") from error


def _source(name: str, pretrained: bool | str, weights_seed: int, load: bool) -> Source:
    file = weights_file(name, pretrained, weights_seed)
    origin = hash_of_file(file)[:16] if file else f"random-seed{weights_seed}"
    model = _build(name, pretrained, weights_seed) if load else architecture(name)
    return Source(model, IMAGE_SIZE, HALF, HALF, fingerprint=f"{name}-{origin}", architecture=Architecture(*TIMM[name]))


@judged("micro_vit")
def make_vit(pretrained: bool | str = True, weights_seed: Natural = 0, load: bool = True) -> Source:
    """A Vision Transformer of 12 blocks, 0.4 million parameters, for 32x32 images, pre-trained on glyphs.

    Args:
        pretrained: true (the shipped weights), false (random) or a path, of a file or of a folder that holds
            micro_vit-seed0.safetensors and so on.
        weights_seed: which run; 0, 1 or 2 are shipped.
    """
    return _source("micro_vit", pretrained, weights_seed, load)


@judged("micro_mixer")
def make_mixer(pretrained: bool | str = True, weights_seed: Natural = 0, load: bool = True) -> Source:
    """An MLP-Mixer of 12 blocks, 0.4 million parameters, for 32x32 images, pre-trained on glyphs.

    Args:
        pretrained: true (the shipped weights), false (random) or a path, of a file or of a folder that holds
            micro_mixer-seed0.safetensors and so on.
        weights_seed: which run; 0 and 1 are shipped.
    """
    return _source("micro_mixer", pretrained, weights_seed, load)


@hookimpl
def fedbench_register_backbones(register) -> None:
    """Offer `micro_vit` and `micro_mixer`."""
    register("micro_vit", make_vit)
    register("micro_mixer", make_mixer)
