"""The backbone `micro_llama`: its words, its layers, and the weights that ship with it."""

from __future__ import annotations

import json

import llama_pretrain
import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn

from fedbench.models.layered import PADDING, cut
from fedbench_plugins.backbones import micro_llama
from fedbench_plugins.backbones.micro import WEIGHTS
from fedbench_plugins.backbones.micro_llama import BEGIN, UNKNOWN, WordTokenizer, make, vocabulary
from fedbench_plugins.datasets import phrases6

tokenize = WordTokenizer()


def test_words_are_lower_cased_and_begin_with_a_token_of_their_own():
    the, king = vocabulary()["the"], vocabulary()["king"]
    assert tokenize(["The KING xyzzy", ("the", "king")], 64) == [[BEGIN, the, king, UNKNOWN], [BEGIN, the, king]]
    assert tokenize.pieces(["the", ""]) == [[the], []] and tokenize.pieces(["the", ""], True) == [[BEGIN, the], [BEGIN]]


def test_the_vocabulary_has_every_word_of_the_registers_and_of_prompts():
    assert list(vocabulary()) == llama_pretrain.words()
    prompts = phrases6.prompts(phrases6.class_meanings("upstream"), "gossip", np.random.default_rng(0))
    assert not any(UNKNOWN in ids for ids in tokenize.pieces(prompts))


@torch.no_grad()
def test_layers_one_by_one_are_the_model_and_padding_changes_nothing():
    model = make().model.double().eval()
    assert cut(model) is model
    ids = list(map(torch.tensor, tokenize(["the king feeds the cook", "lol", ""], 64)))
    x = nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=PADDING)
    for row, own in zip(model(x), ids, strict=True):
        torch.testing.assert_close(row, model(own[None])[0], rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_it_is_a_llama_of_transformers():
    transformers = pytest.importorskip("transformers")
    model = make().model.double().eval()
    config = transformers.LlamaConfig(
        vocab_size=len(vocabulary()), hidden_size=micro_llama.WIDTH, intermediate_size=micro_llama.MLP_WIDTH,
        num_hidden_layers=micro_llama.DEPTH, num_attention_heads=micro_llama.HEADS, rms_norm_eps=micro_llama.EPSILON,
        tie_word_embeddings=True,
    )  # fmt: skip
    other = transformers.LlamaForCausalLM(config).double().eval()
    names = {name: f"model.{name}".replace("model.blocks.", "model.layers.") for name in model.state_dict()}
    other.load_state_dict({names[name]: value for name, value in model.state_dict().items()}, strict=False)
    other.tie_weights()
    x = torch.randint(3, len(vocabulary()), (2, 9), generator=torch.Generator().manual_seed(0))
    hidden = model.embed(x)
    for j in range(len(model.blocks)):
        hidden = model.run(j, hidden, None)
    logits = model.states(hidden) @ model.vocabulary.T
    torch.testing.assert_close(logits, other(input_ids=x).logits, rtol=1e-5, atol=1e-5)  # its norms are of float32


def test_shipped_weights_say_where_they_come_from():
    (file,) = WEIGHTS.glob("micro_llama-seed*.safetensors")
    assert file.stat().st_size < 1_200_000
    with safe_open(file, "pt") as opened:
        facts = json.loads(opened.metadata()["provenance"])
    assert facts["seed"] == 0 and facts["arch"] == "micro_llama" and facts["script"] == llama_pretrain.SCRIPT
    assert facts["steps"] == llama_pretrain.STEPS and facts["completion_nll"] < 1.1
    assert "micro_llama-seed0" in (WEIGHTS / "PROVENANCE.md").read_text()


def test_a_step_of_pre_training_is_the_same_again_and_its_texts_are_narrow():
    one, other = (llama_pretrain.pretrain(0, steps=1, batch=4, say=str).state_dict() for _ in range(2))
    torch.use_deterministic_algorithms(False)
    assert all(torch.equal(one[name], other[name]) for name in one)
    drawn = next(llama_pretrain.upstream_batches(np.random.default_rng(0), 50))
    words = list(vocabulary())
    named = {words[i] for i in drawn.x[drawn.x >= 0].tolist()} & set(phrases6.REGISTERS)
    assert named == {"plain"} and ((drawn.y >= 0) >= drawn.completes).all()
