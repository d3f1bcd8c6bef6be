"""The backbone `micro_bert`: a BERT of 0.4 million parameters with a small vocabulary, pre-trained by masked words.

`weights/PROVENANCE.md` says where the weights come from; `bert_pretrain.py`, next to the tests of this file, makes them
again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice

import torch
from torch import Tensor, nn

from fedbench import hookimpl
from fedbench.models.backbone import Source
from fedbench.models.layered import PADDING, mean_of_tokens, must_leave_room
from fedbench.options import Natural, judged

from .micro import WEIGHTS, numbered, text_model

NAME = "micro_bert"
WORDS = WEIGHTS / "micro_bert-words.txt"  # one a line; a word's line is its id
CLS, SEP, MASK, UNKNOWN = range(4)  # the first lines: [CLS], [SEP], [MASK], [UNK]
MOST_TOKENS = 64
WIDTH, DEPTH, HEADS, MLP_RATIO = 64, 12, 4, 2
TOKEN = re.compile(r"\w+|[^\w\s]")


@lru_cache(maxsize=1)
def vocabulary() -> dict[str, int]:
    """The id of every word."""
    return numbered(WORDS)


class WordTokenizer:
    """Splits lower-cased texts at spaces and punctuation; a word that is not in the vocabulary is [UNK]."""

    def __call__(self, texts: Sequence[str] | Sequence[tuple[str, str]], max_length: int) -> list[list[int]]:
        """`[CLS] text [SEP]`, or `[CLS] a [SEP] b [SEP]`; of what is too long the ends are cut off, of a pair those of
        the longer text."""
        return [self._ids((text,) if isinstance(text, str) else text, max_length) for text in texts]

    def _ids(self, parts: Sequence[str], max_length: int) -> list[int]:
        must_leave_room(max_length, 1 + len(parts), len(parts) > 1)
        room = max_length - 1 - len(parts)
        ids = [list(islice(_words(part), room)) for part in parts]
        while sum(map(len, ids)) > room:
            max(ids, key=len).pop()
        made = [CLS]
        for part in ids:
            made += [*part, SEP]
        return made


def _words(text: str) -> Iterator[int]:
    known = vocabulary()
    return (known.get(found[0], UNKNOWN) for found in TOKEN.finditer(text.lower()))


class MicroBert(nn.Module):
    """Words and learned positions, then blocks as of a ViT; features are the mean over all tokens after the last norm.

    words: how many its vocabulary has.
    """

    reads_texts, last_fc = True, ("attn.proj", "mlp.fc2")

    def __init__(self, words: int) -> None:
        import timm

        super().__init__()
        block = timm.models.vision_transformer.Block
        self.num_features = WIDTH
        self.words = nn.Embedding(words, WIDTH)
        self.positions = nn.Parameter(torch.empty(MOST_TOKENS, WIDTH))
        self.blocks = nn.ModuleList([block(WIDTH, HEADS, MLP_RATIO, qkv_bias=True) for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        nn.init.normal_(self.words.weight, std=0.1)
        nn.init.normal_(self.positions, std=0.02)
        for name, parameter in self.blocks.named_parameters():
            if parameter.dim() > 1:
                nn.init.trunc_normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def embed(self, x: Tensor) -> Tensor:
        """Ids (B, T), PADDING where a text has ended -> (B, T, D)"""
        embedded: Tensor = self.words(x.clamp(min=0)) + self.positions[: x.shape[1]]
        return embedded

    def mask(self, x: Tensor) -> Tensor:
        """(B, T) bool: which ids are tokens."""
        return x != PADDING

    def run(self, j: int, hidden: Tensor, mask: Tensor | None) -> Tensor:
        made: Tensor = self.blocks[j](hidden, attn_mask=None if mask is None else mask[:, None, None])
        return made

    def tokens(self, x: Tensor) -> Tensor:
        """Ids (B, T) -> what all layers and the last norm make of them, (B, T, D)."""
        hidden, mask = self.embed(x), self.mask(x)
        for j in range(len(self.blocks)):
            hidden = self.run(j, hidden, mask)
        normed: Tensor = self.norm(hidden)
        return normed

    def pool(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        normed: Tensor = self.norm(hidden)
        return mean_of_tokens(normed, mask)

    def forward(self, x: Tensor) -> Tensor:
        return mean_of_tokens(self.tokens(x), self.mask(x))


@judged(NAME)
def make(pretrained: bool | str = True, weights_seed: Natural = 0, load: bool = True) -> Source:
    """A BERT of 12 layers, 0.4 million parameters, for texts of at most 64 tokens, pre-trained on phrases.

    Its vocabulary has the words of `phrases6`; of other texts most words are [UNK].

    Args:
        pretrained: true (the shipped weights), false (random) or a path, of a file or of a folder that holds
            micro_bert-seed0.safetensors and so on.
        weights_seed: which run; 0 and 1 are shipped.
    """
    model, fingerprint = text_model(NAME, lambda: MicroBert(len(vocabulary())), WORDS, pretrained, weights_seed, load)
    return Source(model, MOST_TOKENS, (0, 0, 0), (1, 1, 1), fingerprint, tokenizer=WordTokenizer())


@hookimpl
def fedbench_register_backbones(register) -> None:
    """Offer `micro_bert`."""
    register(NAME, make)
