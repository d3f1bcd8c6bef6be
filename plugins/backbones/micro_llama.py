"""The backbone `micro_llama`: a Llama of half a million parameters with the words of `phrases6`, pre-trained by next
words.

`weights/PROVENANCE.md` says where the weights come from; `llama_pretrain.py`, next to the tests of this file, makes
them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedbench import hookimpl
from fedbench.models.backbone import Source
from fedbench.models.layered import must_leave_room
from fedbench.options import Natural, judged

from .micro import WEIGHTS, numbered, text_model
from .micro_bert import TOKEN

NAME = "micro_llama"
WORDS = WEIGHTS / "micro_llama-words.txt"  # one a line; a word's line is its id
BEGIN, END, UNKNOWN = range(3)  # the first lines: [BEGIN], [END], [UNK]
MOST_TOKENS = 128
WIDTH, DEPTH, HEADS, MLP_WIDTH, THETA, EPSILON = 64, 12, 4, 128, 10_000.0, 1e-6


@lru_cache(maxsize=1)
def vocabulary() -> dict[str, int]:
    """The id of every word."""
    return numbered(WORDS)


class WordTokenizer:
    """Splits lower-cased texts at spaces and punctuation; a word that is not in the vocabulary is [UNK]."""

    end = END

    def __call__(self, texts: Sequence[str] | Sequence[tuple[str, str]], max_length: int) -> list[list[int]]:
        """`[BEGIN] text`, of a pair one after the other; of what is too long the end is cut off."""
        whole = [text if isinstance(text, str) else " ".join(text) for text in texts]
        must_leave_room(max_length, 1, False)
        return [ids[:max_length] for ids in self.pieces(whole, begins=True)]

    def pieces(self, texts: Sequence[str], begins: bool = False) -> list[list[int]]:
        """The ids of every text, [BEGIN] before them where it begins."""
        known = vocabulary()
        start = [BEGIN] if begins else []
        return [[*start, *(known.get(word, UNKNOWN) for word in TOKEN.findall(text.lower()))] for text in texts]

    def text(self, ids: Sequence[int]) -> str:
        """The words of these ids, with spaces between them."""
        words = list(vocabulary())
        return " ".join(words[id] for id in ids if id > UNKNOWN)


class Attention(nn.Module):
    """Every token reads those before it and itself; positions are rotary (Su et al., 2021, arXiv 2104.09864)."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D), by explicit products, which are short, and which torch counts on every device."""
        T, d = x.shape[1], WIDTH // HEADS
        q, k, v = (part(x).unflatten(2, (HEADS, d)).transpose(1, 2) for part in (self.q_proj, self.k_proj, self.v_proj))
        cos, sin = rotary(T, x)
        q, k = (part * cos + _turned(part) * sin for part in (q, k))
        behind = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        shares = (q @ k.mT * d**-0.5).masked_fill(behind, torch.finfo(x.dtype).min).softmax(-1)
        mixed: Tensor = self.o_proj((shares @ v).transpose(1, 2).flatten(2))
        return mixed


def rotary(T: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin (T, D / heads) of the angles by which the T positions are turned."""
    half = torch.arange(0, WIDTH // HEADS, 2, device=like.device, dtype=like.dtype) / (WIDTH // HEADS)
    angles = torch.arange(T, device=like.device, dtype=like.dtype)[:, None] * THETA**-half
    both = torch.cat([angles, angles], 1)
    return both.cos(), both.sin()


def _turned(x: Tensor) -> Tensor:
    """The second half of the last axis, its sign turned, then the first."""
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


class Mlp(nn.Module):
    """SwiGLU (Shazeer, 2020, arXiv 2002.05202)."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(WIDTH, MLP_WIDTH, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(MLP_WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return made


class Layer(nn.Module):
    """A layer of Llama (Touvron et al., 2023, arXiv 2302.13971), its parts named as `transformers` does."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(), Mlp()
        self.input_layernorm, self.post_attention_layernorm = (nn.RMSNorm(WIDTH, EPSILON) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class MicroLlama(nn.Module):
    """Words, layers and a norm; what stands behind a text changes nothing, and so padding needs no mask.

    words: how many its vocabulary has. The head is the embedding's weight.
    """

    reads_texts, last_fc = True, ("self_attn.o_proj", "mlp.down_proj")

    def __init__(self, words: int) -> None:
        super().__init__()
        self.num_features = WIDTH
        self.embed_tokens = nn.Embedding(words, WIDTH)
        self.blocks = nn.ModuleList([Layer() for _ in range(DEPTH)])
        self.norm = nn.RMSNorm(WIDTH, EPSILON)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                narrow = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=0.08 / (2 * DEPTH) ** 0.5 if narrow else 0.08)

    def embed(self, x: Tensor) -> Tensor:
        """Ids (B, T), PADDING where a text has ended -> (B, T, D)"""
        embedded: Tensor = self.embed_tokens(x.clamp(min=0))
        return embedded

    def mask(self, x: Tensor) -> Tensor:
        """(B, T) bool: which ids are tokens."""
        return x >= 0

    def run(self, j: int, hidden: Tensor, mask: Tensor | None) -> Tensor:
        made: Tensor = self.blocks[j](hidden)
        return made

    def pool(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T, D) -> (B, D): of the last token."""
        last = hidden.shape[1] - 1 if mask is None else mask.sum(1) - 1
        return self.states(hidden[torch.arange(len(hidden), device=hidden.device), last])

    def open_head(self) -> None:
        """It is there: the weight of the embedding."""

    @property
    def vocabulary(self) -> Tensor:
        return self.embed_tokens.weight

    def states(self, hidden: Tensor) -> Tensor:
        normed: Tensor = self.norm(hidden)
        return normed

    def forward(self, x: Tensor) -> Tensor:
        """Ids (B, T) -> (B, D)"""
        hidden, mask = self.embed(x), self.mask(x)
        for j in range(len(self.blocks)):
            hidden = self.run(j, hidden, mask)
        return self.pool(hidden, mask)


@judged(NAME)
def make(pretrained: bool | str = True, weights_seed: Natural = 0, load: bool = True) -> Source:
    """A Llama of 12 layers, half a million parameters, for texts of at most 128 words, pre-trained on phrases by next
    words.

    Its vocabulary has the words of `phrases6`; of other texts most words are [UNK].

    Args:
        pretrained: true (the shipped weights), false (random) or a path, of a file or of a folder that holds
            micro_llama-seed0.safetensors and so on.
        weights_seed: which run; 0 is shipped.
    """
    model, fingerprint = text_model(NAME, lambda: MicroLlama(len(vocabulary())), WORDS, pretrained, weights_seed, load)
    return Source(model, MOST_TOKENS, (0, 0, 0), (1, 1, 1), fingerprint, tokenizer=WordTokenizer())


@hookimpl
def fedbench_register_backbones(register) -> None:
    """Offer `micro_llama`."""
    register(NAME, make)
