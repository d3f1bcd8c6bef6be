"""loralib's names: a state dict for a plain model whose target layers are `loralib.Linear`."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from fedbench.errors import UserError
from fedbench.export.parts import Parts, adapters_of, plain

FILE = "lora.safetensors"
LOAD = """\
import json, loralib
from safetensors.torch import load_file
lora = json.load(open({folder!r} + "/config.json"))["adapter"]
for name in lora["targets"]:
    old = model.get_submodule(name)
    new = loralib.Linear(old.in_features, old.out_features, r=lora["rank"], lora_alpha=lora["alpha"], merge_weights=False)
    new.weight, new.bias = old.weight, old.bias
    model.set_submodule(name, new)
model.load_state_dict(load_file({folder!r} + "/lora.safetensors"), strict=False)"""  # noqa: E501


def write(folder: Path, parts: Parts) -> None:
    """lora.safetensors: `<layer>.lora_A` (r, in) and `<layer>.lora_B` (out, r), `head.weight` and `head.bias`.

    Raises UserError for a convolution's adapter, which loralib factorises in another way.
    """
    adapters_of(parts, "loralib")
    if convolutions := [name for name, adapter in parts.adapters.items() if adapter.weight.dim() > 2]:
        raise UserError(
            f"--format loralib: {convolutions[0]} is a convolution, whose adapter loralib factorises in another way; "
            "try --format peft or merged"
        )
    tensors = parts.head()
    for name, adapter in parts.adapters.items():
        tensors |= {f"{name}.lora_A": plain(adapter.A), f"{name}.lora_B": plain(adapter.B)}
    save_file(tensors, folder / FILE)


def read(folder: Path, parts: Parts) -> tuple[dict[str, Tensor], float]:
    """What `write` wrote, and the alpha of config.json."""
    return load_file(folder / FILE), adapters_of(parts, "loralib")[1].alpha
