"""PEFT's own format: `PeftModel.from_pretrained(model, folder)` puts the adapters and the head onto a plain model."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from fedbench.export.parts import Parts, adapters_of, plain

PREFIX = "base_model.model."
TENSORS, CONFIG = FILES = "adapter_model.safetensors", "adapter_config.json"
LOAD = """\
from peft import PeftModel
model = PeftModel.from_pretrained(model, {folder!r})"""


def write(folder: Path, parts: Parts) -> None:
    """adapter_model.safetensors and adapter_config.json, by PEFT's names; a convolution's adapter has the same
    form in PEFT."""
    targets, one = adapters_of(parts, "peft")
    tensors = {PREFIX + name: value for name, value in parts.head().items()}
    for name, adapter in parts.adapters.items():
        tensors[f"{PREFIX}{name}.lora_A.weight"] = plain(adapter.A)
        tensors[f"{PREFIX}{name}.lora_B.weight"] = plain(adapter.B)
    save_file(tensors, folder / TENSORS, metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": None,  # which backbone it is stands in config.json
        "task_type": None,
        "inference_mode": True,
        "r": one.rank,
        "lora_alpha": one.alpha,
        "lora_dropout": one.dropout,
        "target_modules": targets,
        "modules_to_save": list(parts.heads),
        "bias": "none",
        "fan_in_fan_out": False,
        "use_dora": False,
        "use_rslora": False,
    }
    (folder / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def read(folder: Path, parts: Parts) -> tuple[dict[str, Tensor], float]:
    """What `write` wrote, by timm's names as `check_adapters` takes them, and alpha."""
    tensors = load_file(folder / TENSORS)
    names = {name: name.removeprefix(PREFIX) for name in tensors}
    alpha = json.loads((folder / CONFIG).read_text(encoding="utf-8"))["lora_alpha"]
    return {_short(short): tensors[name] for name, short in names.items()}, alpha


def _short(name: str) -> str:
    return name.removesuffix(".weight") if ".lora_" in name else name
