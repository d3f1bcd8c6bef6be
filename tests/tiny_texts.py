"""Models of texts that take a millisecond, and texts of unequal lengths for them."""

from __future__ import annotations

import copy
import functools

import torch

from fedbench.models.layered import PADDING
from fedbench.testing.setups import CLASSES
from fedbench_plugins.backbones.text_models import ATTENTION, TextModel, attention

SMALL = {"hidden_size": 8, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 20}
SEPARATOR = 3
IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def tiny_bert(pooling="cls"):
    """A BERT of four layers of width 8."""
    return TextModel(copy.deepcopy(made("BertConfig")), pooling)


def tiny_llama(pooling="last"):
    """A Llama of four layers of width 8."""
    return TextModel(copy.deepcopy(made("LlamaConfig", **IDS, num_key_value_heads=1)), pooling)


@functools.cache
def made(kind, **options):
    """A model of a configuration of that kind, to be copied."""
    import transformers
    from transformers import AttentionInterface, AutoModel

    config = getattr(transformers, kind)(**SMALL, **options)
    AttentionInterface.register(ATTENTION, attention)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = AutoModel.from_config(config)
        model.config._attn_implementation = ATTENTION
        for parameter in model.parameters():  # large enough that a wrong mask shows
            parameter.data.normal_(std=0.3)
    return model


class TextBatches:
    """Batches of texts, as many tokens as `lengths` says of each client's batches in turn, one text shorter."""

    image_size = 8

    def __init__(self, ids, lengths, sizes):
        self.ids, self.lengths, self.sizes = ids, lengths, sizes

    def __call__(self, n):
        draw = torch.Generator().manual_seed(100 + self.ids[n])
        for k in range(5):
            T = self.lengths[(self.ids[n] + k) % len(self.lengths)]
            B = self.sizes[(self.ids[n] + k) % len(self.sizes)]
            x = torch.randint(4, 20, (B, T), generator=draw)
            x[0, 1 + T // 2 :] = PADDING
            yield x, torch.randint(CLASSES, (B,), generator=draw)

    def first(self, n):
        return max(self.sizes)

    def labels(self, n):
        return torch.cat([y for _, y in self(n)])

    def only(self, rows):
        return TextBatches([self.ids[n] for n in rows], self.lengths, self.sizes)
