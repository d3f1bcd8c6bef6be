"""Exports of models of texts: what is written answers as the cell's model does, by the lines that are printed."""

from __future__ import annotations

import json

import pytest
import torch
from exported import computed
from safetensors.torch import load_file
from tiny_texts import SMALL

from fedbench.errors import UserError
from fedbench.export import FORMATS, export
from fedbench.export.texts import TextBackbone
from fedbench.simulation.saved_model import reopen
from fedbench_plugins.backbones.micro_bert import MicroBert, vocabulary

transformers = pytest.importorskip("transformers")

SUITE = """
suite: exported_texts
defaults:
  data: {{name: phrases6, classes: 3, train_per_class: 2, test_per_class: 1, max_length: 16}}
  train: {{rounds: 1, max_steps: 1, batch_size: 4, optimizer: {{name: sgd, lr: 0.5, momentum: 0.0, weight_decay: 0.0}}}}
  capacities: [3, 2, 2, 2, 2, 2]
  adapter: {{name: lora, rank: 2, alpha: 16}}
scenarios:
  bert: {{backbone: {{name: hf, model: {folder}/bert, pooling: mean}}}}
  modernbert: {{backbone: {{name: hf, model: {folder}/modernbert}}}}
  llama: {{backbone: {{name: hf, model: {folder}/llama}}}}
  drawn: {{backbone: {{name: hf, model: {folder}/llama, pretrained: false}}}}
  micro: {{backbone: micro_bert}}
methods: [fedra, allsmall, depthfl]
"""
CELLS = [("bert", "fedra"), ("modernbert", "allsmall"), ("llama", "depthfl"), ("drawn", "fedra"), ("micro", "allsmall")]
CAN = [
    *(("bert", "fedra", form) for form in FORMATS),
    *(("micro", "allsmall", form) for form in FORMATS),
    *(("llama", "depthfl", form) for form in ("peft", "merged")),
    ("modernbert", "allsmall", "peft"),
    ("modernbert", "allsmall", "merged"),
    ("drawn", "fedra", "merged"),
]
OFTEN = {  # every model and every form once or twice
    *(("bert", "fedra", "loralib"), ("micro", "allsmall", "peft"), ("llama", "depthfl", "merged")),
    *(("modernbert", "allsmall", "peft"), ("drawn", "fedra", "merged")),
}
PHRASES = ["the cat sees a red ball", "a dog", "some words that are not in it, and a comma"]


@pytest.fixture(scope="module")
def cells(registry, tmp_path_factory):
    """Every cell, computed: its folder by scenario and method."""
    folder = tmp_path_factory.mktemp("texts")
    for name in ("bert", "modernbert", "llama"):
        tiny_model(folder / name, name)
    (folder / "suite.yaml").write_text(SUITE.format(folder=folder))
    return computed(folder / "suite.yaml", registry, CELLS)


def tiny_model(folder, name) -> None:
    """A model that `from_pretrained` takes, with the words of phrases6."""
    folder.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(w for w in vocabulary() if not w.startswith("["))]
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    shape = SMALL | {"vocab_size": len(words), "num_hidden_layers": 3}
    ids = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
    torch.manual_seed(0)
    if name == "bert":
        config = transformers.BertConfig(**shape)
    elif name == "modernbert":
        config = transformers.ModernBertConfig(**shape, **ids, cls_token_id=2, sep_token_id=3, local_attention=4)
    else:
        config = transformers.LlamaConfig(**shape, **ids, num_key_value_heads=1)
    model = transformers.AutoModel.from_config(config)
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3)
    model.save_pretrained(folder)


def asked(lines, *columns):
    """The logits that the printed lines give."""
    names: dict = {}
    exec(lines, names)
    return names["logits"](*columns)


def own(cell, registry, texts):
    """The logits of the cell's model, with and without its adapters."""
    simulation, model = reopen(cell, registry, images=False)
    ids = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(row) for row in simulation.source.tokenizer(texts, 16)], True, -1
    )
    found = []
    for _ in range(2):
        logits = model(ids)
        found.append(logits["last"] if isinstance(logits, dict) else logits)
        for name, parameter in model.blocks.named_parameters():
            if name.endswith("lora_B"):
                parameter.zero_()
    return found


@torch.no_grad()
@pytest.mark.parametrize(
    ("scenario", "method", "form"), [pytest.param(*one, marks=() if one in OFTEN else pytest.mark.slow) for one in CAN]
)
def test_the_printed_lines_give_the_logits_of_the_cell(cells, registry, tmp_path, scenario, method, form):
    pytest.importorskip("peft" if form == "peft" else "loralib" if form == "loralib" else "transformers")
    written = export(cells[scenario, method], form, tmp_path / "out", registry)
    wanted, bare = own(cells[scenario, method], registry, PHRASES)
    torch.testing.assert_close(asked(written.loading, PHRASES), wanted, rtol=1e-5, atol=1e-5)
    assert (bare - wanted).abs().max() > 2e-4


@torch.no_grad()
def test_a_merged_model_is_one_of_transformers_and_takes_pairs(cells, registry, tmp_path):
    written = export(cells["bert", "fedra"], "merged", tmp_path / "out", registry)
    pairs = ["a dog", "the cat"], ["sees", "a red ball"]
    torch.testing.assert_close(
        asked(written.loading, *pairs), own(cells["bert", "fedra"], registry, list(zip(*pairs, strict=True)))[0]
    )
    model = transformers.AutoModel.from_pretrained(tmp_path / "out", add_pooling_layer=False)
    assert model.config.pooling == "mean" and len(model.config.label_names) == 3
    weights = load_file(tmp_path / "out/model.safetensors")
    assert torch.equal(model.encoder.layer[2].output.dense.weight, weights["encoder.layer.2.output.dense.weight"])


def test_an_export_of_fewer_layers_says_how_many(cells, registry, tmp_path):
    export(cells["modernbert", "allsmall"], "merged", tmp_path / "out", registry)
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["num_hidden_layers"] == len(config["layer_types"]) == 2
    assert config["architectures"] == ["ModernBertModel"] and config["fedbench"]["format"] == "merged"


def test_what_cannot_be_exported_is_refused_by_name(cells, registry, tmp_path, monkeypatch):
    with pytest.raises(UserError, match="--format peft: the backbone's weights were drawn at random"):
        export(cells["drawn", "fedra"], "peft", tmp_path / "out", registry)
    monkeypatch.setattr(TextBackbone, "answer", lambda *given: torch.ones(2, 3))
    with pytest.raises(UserError, match="a BertModel with these weights answers otherwise than the cell"):
        export(cells["bert", "fedra"], "merged", tmp_path / "out", registry)
    monkeypatch.setattr(MicroBert, "forward", None)
    with pytest.raises(UserError, match="MicroBert cannot be exported: its forward gives no pooled features"):
        export(cells["micro", "allsmall"], "merged", tmp_path / "out", registry)
    assert not list(tmp_path.iterdir())
