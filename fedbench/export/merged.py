"""A plain model: the adapters are added to the frozen weights, and the deepest classifier is its head."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from fedbench.errors import UserError
from fedbench.export.parts import Parts, agrees
from fedbench.export.texts import PlainText
from fedbench.models.backbone import Architecture, Source
from fedbench.words import shortened

FILE = "model.safetensors"
LOAD = """\
from safetensors.torch import load_file
model.load_state_dict(load_file({folder!r} + "/model.safetensors"))"""

DEPTHS = ("depth", "num_blocks")  # what timm calls the number of layers


def architecture_of(parts: Parts, source: Source) -> Architecture:
    """How timm makes a model of these layers alone. Raises UserError where that is not known."""
    made = source.architecture
    if made is None:
        raise UserError(
            "--format merged: the backbone's plugin does not say how timm makes this model (`architecture` of "
            f"`fedbench.models.backbone.Source`){_instead(parts)}"
        )
    if parts.whole:
        return made
    layers = len(parts.layers)
    shallow = (replace(made, args={**made.args, depth: layers}) for depth in DEPTHS)
    return next((one for one in shallow if _fits(one, parts)), replace(made, layers=layers))


def _fits(architecture: Architecture, parts: Parts) -> bool:
    """Whether it takes these arguments, and makes a model of such shapes."""
    try:
        with torch.device("meta"):
            made = architecture.make(parts.num_classes)
    except Exception:  # of timm or torch, each in its own words
        return False
    return not _differences(made, parts)


def _differences(model: nn.Module, parts: Parts) -> list[str]:
    """The tensors that a model has and the cell's has not, or the other way round, or in another shape."""
    wanted = {name: tensor.shape for name, tensor in {**parts.frozen, **parts.head()}.items()}
    wanted |= {f"{name}.weight": adapter.weight.shape for name, adapter in parts.adapters.items()}
    found = {name: tensor.shape for name, tensor in model.state_dict().items()}
    return sorted(name for name in wanted | found if wanted.get(name) != found.get(name))


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
        odd = _differences(model, parts)
        if not odd:
            model.load_state_dict(load_file(folder / FILE))
    except Exception as error:  # of timm or torch, each in its own words
        why = str(error).strip().partition("\n")[0]
        raise UserError(f"--format merged: {architecture.name} cannot be made again: {why}{_instead(parts)}") from error
    if odd:
        raise UserError(
            f"--format merged: {architecture.name} differs from this model in {shortened(odd, 4)}{_instead(parts)}"
        )
    if not agrees(model, parts):
        if parts.texts:
            raise UserError(
                f"--format merged: a {architecture.name} with these weights answers otherwise than the cell"
            )
        raise UserError(
            f"--format merged: {architecture.name} with {dict(architecture.args)} is another network than the cell's "
            f"backbone; its plugin's `architecture` is wrong{_instead(parts)}"
        )


def _instead(parts: Parts) -> str:
    """What else there is for such a model, as the end of a message."""
    return "; --format peft and --format loralib need no more than the adapters" if parts.adapters else ""
