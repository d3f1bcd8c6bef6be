"""The backbone `micro_bert`: its tokens, its layers, and the weights that ship with it."""

from __future__ import annotations

import json

import bert_pretrain
import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn

from fedbench.errors import UserError
from fedbench.models.layered import PADDING, cut
from fedbench_plugins.backbones import micro_bert
from fedbench_plugins.backbones.micro import WEIGHTS
from fedbench_plugins.backbones.micro_bert import CLS, MOST_TOKENS, SEP, UNKNOWN, WordTokenizer, make, vocabulary
from fedbench_plugins.datasets import phrases6

tokenize = WordTokenizer()


def test_words_are_lower_cased_and_split_at_punctuation():
    the, king = vocabulary()["the"], vocabulary()["king"]
    assert tokenize(["The KING,xyzzy"], 64) == [[CLS, the, king, vocabulary()[","], UNKNOWN, SEP]]


def test_pairs_have_a_separator_and_what_is_too_long_is_cut_at_the_longer_end():
    the, king = vocabulary()["the"], vocabulary()["king"]
    assert tokenize([("the", "king king")], 64) == [[CLS, the, SEP, king, king, SEP]]
    assert tokenize([("the", "king " * 9)], 6) == [[CLS, the, SEP, king, king, SEP]]
    assert tokenize(["king " * 10_000], 5) == [[CLS, king, king, king, SEP]]
    assert tokenize([("the", "king")], 4) == [[CLS, SEP, king, SEP]]


def test_a_text_without_words_is_its_special_tokens():
    assert tokenize(["", " \n", ("", "")], 64) == [[CLS, SEP], [CLS, SEP], [CLS, SEP, SEP]]


@pytest.mark.parametrize(("text", "special"), [("the", 2), (("the", "king"), 3)])
def test_a_length_that_leaves_nothing_of_a_text_is_refused(text, special):
    for most in (1, special):
        with pytest.raises(
            UserError, match=rf"max_length {most}: .* {special} special tokens .* at least {special + 1}"
        ):
            tokenize([text], most)


def test_the_vocabulary_has_every_word_of_the_registers():
    assert list(vocabulary()) == bert_pretrain.words()


def model_of(dtype=torch.float64):
    return make().model.to(dtype).eval()


@torch.no_grad()
def test_layers_one_by_one_are_the_model_and_padding_changes_nothing():
    model = model_of()
    assert cut(model) is model
    ids = list(map(torch.tensor, tokenize(["the king feeds the cook", "lol", ""], MOST_TOKENS)))
    x = nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=PADDING)
    hidden, mask = model.embed(x), model.mask(x)
    for j in range(len(model.blocks)):
        hidden = model.run(j, hidden, mask)
    torch.testing.assert_close(model.pool(hidden, mask), model(x), rtol=0, atol=0)
    for row, own in zip(model(x), ids, strict=True):
        torch.testing.assert_close(row, model(own[None])[0], rtol=1e-12, atol=1e-12)


def test_shipped_weights_say_where_they_come_from_and_differ():
    files = sorted(WEIGHTS.glob("micro_bert-seed*.safetensors"))
    assert len({file.read_bytes() for file in files}) == len(files) == 2
    for seed, file in enumerate(files):
        assert file.stat().st_size < 1_200_000
        with safe_open(file, "pt") as opened:
            facts = json.loads(opened.metadata()["provenance"])
        assert facts["seed"] == seed and facts["arch"] == "micro_bert" and facts["writer"] == phrases6.WRITER
        assert facts["script"] == bert_pretrain.SCRIPT


def test_shipped_weights_guess_masked_words_as_well_as_their_file_says():
    file = WEIGHTS / "micro_bert-seed0.safetensors"
    with safe_open(file, "pt") as opened:
        facts = json.loads(opened.metadata()["provenance"])
    model = bert_pretrain.Upstream(make().model).eval()  # without the bias of words, which is not kept
    drawn = bert_pretrain.masked_batch(np.random.default_rng(5), 100)
    with torch.no_grad():
        found = (model(drawn.x, drawn.where)[0].argmax(1) == drawn.word).float().mean().item()
    assert found == pytest.approx(facts["masked_accuracy"], abs=0.06)
    assert facts["upstream_accuracy"] > 0.5


@pytest.mark.slow
def test_pre_training_learns_and_repeats_bit_for_bit():
    lines = []
    one = bert_pretrain.pretrain(0, steps=50, batch=8, say=lines.append)
    two = bert_pretrain.pretrain(0, steps=50, batch=8, say=lambda line: None)
    assert all(torch.equal(*pair) for pair in zip(one.parameters(), two.parameters(), strict=True))
    assert float(lines[0].partition("loss ")[2].split()[0]) < 5.5  # chance is 6.06
    assert bert_pretrain.accuracy(one, 0, batches=1)["masked_accuracy"] > 0.05


def test_options_are_part_of_the_fingerprint_and_what_is_missing_is_named():
    made = [make(), make(weights_seed=1), make(pretrained=False), make(pretrained=False, weights_seed=1)]
    assert len({source.fingerprint for source in made}) == 4
    assert make(load=False).fingerprint == made[0].fingerprint
    with pytest.raises(UserError, match="weights_seed can be 0, 1"):
        make(weights_seed=9)
    assert made[0].image_size == MOST_TOKENS and isinstance(made[0].tokenizer, micro_bert.WordTokenizer)
