"""Next tokens of `transformers`' decoders: equal to its own causal models, with any padding."""

from __future__ import annotations

import pytest
import torch
from tiny_texts import IDS, SMALL

from fedbench.errors import UserError
from fedbench.models.backbone import HEAD, body_of
from fedbench.models.layered import PADDING
from fedbench.types import Exit
from fedbench_plugins.backbones import text_models
from fedbench_plugins.backbones.text_models import ATTENTION, TextModel, Words, attention

transformers = pytest.importorskip("transformers")

KINDS = {
    "llama": ("LlamaConfig", {"num_key_value_heads": 1}),
    "llama, tied": ("LlamaConfig", {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "mistral": ("MistralConfig", {"num_key_value_heads": 1, "sliding_window": 3}),
    "qwen2": ("Qwen2Config", {"num_key_value_heads": 1}),
    "gpt2": ("GPT2Config", {"n_embd": 8, "n_layer": 4, "n_head": 2, "n_inner": 16, "n_positions": 32}),
}


def causal(kind):
    """A tiny model of random weights in float64, and what it would take to be one of fedbench's."""
    name, options = KINDS[kind]
    small = {key: value for key, value in SMALL.items() if name != "GPT2Config" or key == "vocab_size"}
    config = getattr(transformers, name)(**{**small, **IDS, **options})
    transformers.AttentionInterface.register(ATTENTION, attention)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config)
        for parameter in model.parameters():
            parameter.data.normal_(std=0.3)
    model.tie_weights()
    return model.double().eval()


def blocks_of(model):
    """The same as a model in layers, whose head is what transformers has for one."""
    tied = model.config.tie_word_embeddings
    own = model.get_output_embeddings().weight.detach().clone()
    body = getattr(model, "model", None) or model.transformer
    body.config._attn_implementation = ATTENTION
    made = body_of(TextModel(body, head=None if tied else lambda: own)).double()
    made.predict_tokens()
    made.add_classifier(HEAD, 20)
    return made


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_logits_equal_those_of_the_causal_model_with_padding_on_either_side(kind, side):
    model = causal(kind)
    draw = torch.Generator().manual_seed(1)
    texts = [torch.randint(4, 20, (n,), generator=draw) for n in (9, 4, 6)]
    ids, mask = torch.zeros(3, 9, dtype=torch.int64), torch.zeros(3, 9, dtype=torch.int64)
    for row, text in enumerate(texts):
        place = slice(9 - len(text), 9) if side == "left" else slice(0, len(text))
        ids[row, place], mask[row, place] = text, 1
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    expected = model(input_ids=ids, attention_mask=mask, position_ids=positions).logits
    blocks = blocks_of(model)
    for packs in (False, True):
        blocks.packs = packs
        x = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=PADDING)
        (answer,) = blocks(x, range(4), [Exit(4, HEAD)])
        for row, text in enumerate(texts):
            found = answer.logits()[row, : len(text)]
            torch.testing.assert_close(found, expected[row][mask[row] > 0], rtol=1e-12, atol=1e-12)


def test_gpt2_adapts_its_transposed_layers_as_linear_ones(registry):
    blocks = blocks_of(causal("gpt2"))
    registry.make("adapter", {"name": "lora", "rank": 2})(blocks)
    assert {name: p.shape[-1] for name, p in blocks.r(0).items() if name.endswith("A")} == {
        "attn.c_proj.lora_A": 8,
        "mlp.c_proj.lora_A": 16,
    }


class Tokenizer:
    """What is asked of one of transformers."""

    bos_token_id, eos_token_id, unk_token_id = 1, 2, 0

    def __init__(self, begins=True):
        self.begins = begins

    def __call__(self, texts, add_special_tokens=True):
        one = isinstance(texts, str)
        rows = [[4 + ord(sign) - ord("a") for sign in text] for text in ([texts] if one else texts)]
        rows = [[1, *row] if self.begins and add_special_tokens else row for row in rows]
        return {"input_ids": rows[0] if one else rows}


def test_pieces_have_no_special_tokens_but_the_one_that_begins_a_text():
    words = Words("some", Tokenizer(), 40)
    assert words.pieces(["ab", ""]) == [[4, 5], []] and words.pieces([]) == [] and words.end == 2
    assert words.pieces(["ab", ""], begins=True) == [[1, 4, 5], [1]]
    assert Words("some", Tokenizer(False), 40).pieces(["ab", ""], begins=True) == [[4, 5], [1]]


def test_a_vocabulary_that_does_not_fit_is_one_line():
    with pytest.raises(UserError, match="gives the id 29, and the model has 20 tokens"):
        Words("some", Tokenizer(), 20).pieces(["z"])


def test_an_untied_head_that_is_drawn_is_the_same_whenever_it_is_opened(tmp_path):
    config = causal("llama").config
    head = text_models._head_of("some", config, False, True)
    assert head is not None and torch.equal(head(), head()) and head().shape == (20, 8)
    assert text_models._head_of("some", causal("llama, tied").config, False, True) is None
