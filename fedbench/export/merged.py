"""A plain model: the adapters are added to the frozen weights, and the deepest classifier is its head."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from fedbench.errors import UserError
from fedbench.export.parts import Parts, agrees
from fedbench.export.texts import PlainText
from fedbench.models.backbone import Architecture, Source
from fedbench.words import shortened

FILE = "model.safetensors"
LOAD = """\
from safetensors.torch import load_file
model.load_state_dict(load_file({folder!r} + "/model.safetensors"))"""

# The argument for the number of layers.
DEPTH = {"VisionTransformer": "depth", "Eva": "depth", "MlpMixer": "num_blocks"}


def architecture_of(parts: Parts, source: Source) -> Architecture:
    """How timm makes a model of these layers alone. Raises UserError where that is not known."""
    made, model = source.architecture, parts.model.blocks.model
    if made is None:
        raise UserError(
            "--format merged: the backbone's plugin does not say how timm makes this model "
            "(`architecture` of `fedbench.models.backbone.Source`); --format peft needs no more than the adapters"
        )
    if parts.whole:
        return made
    kind = next((kind.__name__ for kind in type(model).__mro__ if kind.__name__ in DEPTH), None)
    if kind is None:
        raise UserError(f"--format merged: how a {type(model).__name__} of fewer layers is made is not known")
    if kind == "MlpMixer" and ":" not in made.name:  # timm's named Mixers take no other depth
        sizes = {name: getattr(model.stem, name)[0] for name in ("img_size", "patch_size")}
        made = Architecture("timm.models.mlp_mixer:MlpMixer", {**sizes, "embed_dim": model.num_features})
    return Architecture(made.name, {**made.args, DEPTH[kind]: len(parts.layers)})


def write(folder: Path, parts: Parts, architecture: Architecture | PlainText) -> None:
    """model.safetensors: W + (alpha / r) B A, by the plain model's names.

    The file is loaded into a new model, which must answer as the cell's does. Raises UserError where it
    does not.
    """
    merged = {f"{name}.weight": adapter.merged().cpu() for name, adapter in parts.adapters.items()}
    save_file({**parts.frozen, **merged, **parts.head()}, folder / FILE, metadata={"format": "pt"})
    try:
        with torch.random.fork_rng(devices=[]):
            model = architecture.make(parts.num_classes).eval()
        lost = model.load_state_dict(load_file(folder / FILE), strict=False)
        if odd := [*lost.missing_keys, *lost.unexpected_keys]:
            raise UserError(f"--format merged: {architecture.name} differs from this model in {shortened(odd, 4)}")
    except UserError:
        raise
    except Exception as error:  # of timm or torch, each in its own words
        raise UserError(f"--format merged: {architecture.name} cannot hold this model: {error}") from error
    if not agrees(model, parts):
        if parts.texts:
            raise UserError(
                f"--format merged: a {architecture.name} with these weights answers otherwise than the cell"
            )
        raise UserError(
            f"--format merged: {architecture.name} with {dict(architecture.args)} is another network than the cell's "
            "backbone; its plugin's `architecture` is wrong"
        )
