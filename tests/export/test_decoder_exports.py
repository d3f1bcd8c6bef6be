"""Exports of next tokens: PEFT puts them onto the causal model of `transformers`, with equal logits."""

from __future__ import annotations

import json

import pytest
import torch
from exported import computed, loaded
from test_text_exports import tiny_model

from fedbench.errors import UserError
from fedbench.export import export
from fedbench.export.decoders import logits
from fedbench.export.parts import parts_of
from fedbench.export.texts import TextBackbone
from fedbench.simulation.saved_model import reopen

transformers = pytest.importorskip("transformers")

SUITE = """
suite: exported_decoders
defaults:
  data: {{name: phrases6, task: next_token, classes: 3, train_per_class: 2, test_per_class: 1, max_length: 64}}
  train: {{rounds: 1, max_steps: 1, batch_size: 4, optimizer: {{name: sgd, lr: 0.5, momentum: 0.0, weight_decay: 0.0}}}}
  capacities: [3, 2, 2, 2, 2, 2]
  adapter: {{name: lora, rank: 2, alpha: 16}}
  evaluation: {{metrics: [nll, perplexity, token_accuracy, choice_accuracy, exact_match]}}
scenarios:
  llama: {{backbone: {{name: hf, model: {folder}/llama}}}}
  gpt2: {{backbone: {{name: hf, model: {folder}/gpt2}}}}
  micro: {{backbone: micro_llama, capacities: [12, 1, 1, 1, 1, 1]}}
methods: [fedra, allsmall, depthfl]
"""
CELLS = [("llama", "fedra"), ("llama", "depthfl"), ("gpt2", "allsmall"), ("micro", "allsmall")]


@pytest.fixture(scope="module")
def cells(registry, tmp_path_factory):
    """Every cell, computed: its folder by scenario and method."""
    folder = tmp_path_factory.mktemp("decoders")
    for name in ("llama", "gpt2"):
        tiny_model(folder / name, "llama")
    for name, kind in (("llama", "LlamaConfig"), ("gpt2", "GPT2Config")):
        causal_model(folder / name, kind)
    (folder / "suite.yaml").write_text(SUITE.format(folder=folder))
    return computed(folder / "suite.yaml", registry, CELLS)


def causal_model(folder, kind) -> None:
    """Give a folder another model, with a head of its own where it is a Llama."""
    words = json.loads((folder / "config.json").read_text())["vocab_size"]
    ids = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0, "vocab_size": words}
    if kind == "LlamaConfig":
        shape = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 16}
    else:
        shape = {"n_embd": 8, "n_layer": 3, "n_head": 2, "n_inner": 16, "n_positions": 64}
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind)(**shape, **ids))
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3)
    model.save_pretrained(folder)


@pytest.mark.parametrize("cell", CELLS[:3])
def test_the_printed_lines_make_a_causal_model_with_the_cells_logits(cells, registry, tmp_path, cell):
    made = export(cells[cell], "peft", tmp_path / "out", registry)
    model = loaded(made.loading)
    simulation, own = reopen(cells[cell], registry, images=False)
    texts = TextBackbone(simulation.model.model, simulation.source.tokenizer, {}, 64, registry)
    x = texts.sample
    mask = x >= 0
    with torch.no_grad():
        found = model(input_ids=x.clamp(min=0), attention_mask=mask.long()).logits[mask]
        wanted = logits(parts_of(own, 64, texts), x)[mask]
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    card = json.loads((tmp_path / "out" / "config.json").read_text())
    assert card["task"] == "next_token" and "nll" in card["fedbench"]["scores"]
    assert json.loads((tmp_path / "out" / "adapter_config.json").read_text())["task_type"] == "CAUSAL_LM"


def test_other_forms_and_backbones_are_refused(cells, registry, tmp_path):
    with pytest.raises(UserError, match="exported as --format peft"):
        export(cells["llama", "fedra"], "merged", tmp_path / "out", registry)
    with pytest.raises(UserError, match="exported as --format peft"):
        export(cells["micro", "allsmall"], "peft", tmp_path / "out", registry)
