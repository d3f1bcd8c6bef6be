"""Exports of next tokens: adapters in PEFT's format for the causal model of `transformers` that the cell began with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fedbench.errors import UserError
from fedbench.export.parts import CLOSE, Parts, adapters_of, plain
from fedbench.export.peft import CONFIG, PREFIX, TENSORS
from fedbench.models.layered import Pretrained

LOAD = """\
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
name = {name!r}
model = AutoModelForCausalLM.from_pretrained(name{revision}, dtype='float32', use_safetensors=True).eval()
tokenizer = AutoTokenizer.from_pretrained(name{revision}){layers}
model = PeftModel.from_pretrained(model, {folder!r})"""


def write(folder: Path, out: Path, form: str, parts: Parts) -> str:
    """Write the adapters, and return the lines that load them. Raises UserError where they have no such form, and where
    the model loaded back has other logits than the cell's."""
    pretrained = parts.texts.pretrained if parts.texts else None
    if form != "peft" or pretrained is None:
        raise UserError(
            f"--format {form}: a model of next tokens is exported as --format peft, for the causal model of "
            "transformers that its backbone is made of, as those of hf and smollm2_135m are"
        )
    targets, one = adapters_of(parts, form)
    model = causal(pretrained, parts)
    before = f"{model.base_model_prefix}."
    turned = pretrained.config.model_type == "gpt2"
    tensors = {}
    for name, adapter in parts.adapters.items():
        tensors[f"{PREFIX}{before}{name}.lora_A.weight"] = plain(adapter.A)
        tensors[f"{PREFIX}{before}{name}.lora_B.weight"] = plain(adapter.B)
    save_file(tensors, folder / TENSORS, metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": pretrained.name,
        "task_type": "CAUSAL_LM",
        "inference_mode": True,
        "r": one.rank,
        "lora_alpha": one.alpha,
        "lora_dropout": one.dropout,
        "target_modules": [f"{before}{name}" for name in targets],
        "bias": "none",
        "fan_in_fan_out": turned,
        "use_dora": False,
        "use_rslora": False,
    }
    (folder / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    _check(model, folder, before, parts, config)
    revision = f", revision={pretrained.revision!r}" if pretrained.revision else ""
    kept = "" if parts.whole else f"\n{_blocks(pretrained, before)} = torch.nn.ModuleList("
    if kept:
        kept += f"[{_blocks(pretrained, before)}[j] for j in {list(parts.layers)}])"
    return LOAD.format(name=pretrained.name, revision=revision, layers=kept, folder=str(out))


def _blocks(pretrained: Pretrained, before: str) -> str:
    return f"model.{before}{pretrained.names['blocks']}"


def causal(pretrained: Pretrained, parts: Parts) -> Any:
    """The causal model with the frozen weights, of the cell's layers alone."""
    auto: Any = import_module("transformers").AutoModelForCausalLM
    given = {"revision": pretrained.revision} if pretrained.revision else {}
    model = auto.from_pretrained(pretrained.name, **given, dtype="float32", use_safetensors=True).eval()
    if not parts.whole:
        name = f"{model.base_model_prefix}.{pretrained.names['blocks']}"
        blocks = model.get_submodule(name)
        model.set_submodule(name, nn.ModuleList([blocks[j] for j in parts.layers]))
    return model


@torch.no_grad()
def _check(model: Any, folder: Path, before: str, parts: Parts, config: Mapping[str, Any]) -> None:
    """Put what was written onto the causal model, and compare logits. Raises UserError where they differ."""
    written = load_file(folder / TENSORS)
    for name in parts.adapters:
        A, B = (written[f"{PREFIX}{before}{name}.lora_{factor}.weight"] for factor in "AB")
        delta = config["lora_alpha"] / config["r"] * B @ A
        weight = model.get_parameter(f"{before}{name}.weight")
        weight += delta.T if config["fan_in_fan_out"] else delta
    assert parts.texts is not None  # `write` has seen to it
    x = parts.texts.sample
    mask = x >= 0
    found = model(input_ids=x.clamp(min=0), attention_mask=mask.long()).logits[mask]
    wanted = logits(parts, x)[mask]
    if found.shape != wanted.shape or (found - wanted).abs().max() > CLOSE * wanted.abs().max():
        raise UserError("--format peft: loaded back, these files give other logits than the cell's model")


def logits(parts: Parts, x: Tensor) -> Tensor:
    """Ids (B, T) -> (B, T, V): of the deepest exit."""
    (answer,) = parts.model.blocks(x, parts.layers, [parts.model.last])
    made: Tensor = answer.logits()  # `TokenStates`, which stand in for logits
    return made
