"""What a model is cut into: something that embeds its input, layers that run one after another, and a read-out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from fedbench.errors import UserError
from fedbench.words import counted

PADDING = -1  # stands for no token where texts of several lengths are one tensor
EVERY = 8  # tokens, of which the length of a batch of texts is a multiple


class Tokenizer(Protocol):
    """Makes tokens of texts."""

    def __call__(self, texts: Sequence[str] | Sequence[tuple[str, str]], max_length: int) -> list[list[int]]:
        """Return the ids of every text or pair of texts, special tokens included: 1 to max_length of each."""
        ...


def must_leave_room(max_length: int, special: int, pairs: bool) -> None:
    """Raises UserError where the special tokens of a text, or of a pair, are all that `max_length` leaves of it."""
    if max_length <= special:
        what = "pair of texts" if pairs else "text"
        raise UserError(
            f"data.max_length {max_length}: this backbone puts {counted(special, 'special token')} around a {what}, so "
            f"that nothing of it is left; at least {special + 1}"
        )


def tokenized(tokenizer: Tokenizer, texts: Any, max_length: int) -> list[list[int]]:
    """The ids of all texts. Raises UserError where a text has none, or more than `max_length`."""
    ids = tokenizer(texts, max_length)
    odd = next((len(own) for own in ids if not 1 <= len(own) <= max_length), None)
    if odd is not None:
        raise UserError(
            f"data.max_length {max_length}: the backbone's tokenizer gives {odd} ids of a text; it must give 1 to "
            f"{max_length}"
        )
    return ids


@dataclass(frozen=True)
class Pretrained:
    """Which model of `transformers` a model of texts is made of. One that has it as its attribute `pretrained` is
    exported for that model.

    Attributes:
        name: On the Hub, or a folder.
        revision: The commit on the Hub, where there is one.
        kind: The class in `transformers`.
        config: Its configuration.
        names: What it calls the parts of ours: `{"blocks": "encoder.layer"}`.
        options: What its class is given so that it has no more parts than ours.
    """

    name: str
    revision: str | None
    kind: str
    config: Any
    names: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Packing:
    """Where the tokens of B texts stand in one row without padding: the shortest text first, the others behind it.

    Attributes:
        mask: (B, T) bool, which places of the padded texts are tokens: the first ones of each text.
        at: (N,), the place in the flattened (B T) of every token of the row.
        groups: How many texts of how many tokens follow each other: `[(2, 7), (1, 12)]`.
    """

    mask: Tensor
    at: Tensor
    groups: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, mask: Tensor) -> Packing:
        lengths, order = mask.sum(1).sort(stable=True)
        places = torch.arange(mask.numel(), device=mask.device).view_as(mask)
        found, texts = lengths.unique_consecutive(return_counts=True)
        return cls(mask, places[order][mask[order]], list(zip(texts.tolist(), found.tolist(), strict=True)))

    @cached_property
    def positions(self) -> Tensor:
        """(1, N): the position of every token in its text, counted from 0."""
        return (self.at % self.mask.shape[1])[None]

    def packed(self, hidden: Tensor) -> Tensor:
        """Hidden states (B, T, D) -> (1, N, D)"""
        return hidden.flatten(0, 1).index_select(0, self.at)[None]

    def padded(self, row: Tensor) -> Tensor:
        """Hidden states (1, N, D) -> (B, T, D), zeros where there is no token."""
        whole = row.new_zeros(self.mask.numel(), row.shape[-1])
        return whole.index_copy(0, self.at, row[0]).view(*self.mask.shape, -1)


Mask = Tensor | Packing | None  # which hidden states are tokens; None for images, where all of them are


class Layered(Protocol):
    """A model that can be cut into layers. A model of texts implements it itself; timm's are wrapped, see `cut`.

    Attributes:
        reads_texts: Whether it takes the ids of tokens, and not images.
        blocks: Its L layers, which are also the model's attribute of that name.
        num_features: D, of pooled features.
        last_fc: The names within a layer of the last fully connected layer of attention (or what mixes tokens) and
            of the MLP.

    A model of texts with an attribute `packs` that is true promises that `run` takes a `Packing` for a mask, with
    hidden states (1, N, D). Such a model computes no padding. One that can predict next tokens is a `Decoder` too.
    """

    reads_texts: bool
    blocks: Any
    num_features: int
    last_fc: tuple[str, str]

    def embed(self, x: Tensor) -> Tensor:
        """Images (B, 3, H, W), or ids (B, T) with PADDING behind the shorter texts -> hidden states (B, T, D)."""
        ...

    def mask(self, x: Tensor) -> Tensor | None:
        """Which of the ids (B, T) are tokens, (B, T) bool; None for images."""
        ...

    def run(self, j: int, hidden: Tensor, mask: Any) -> Tensor:
        """What layer j makes of hidden states (B, T, D), of the same shape. mask: as `mask` gives it."""
        ...

    def pool(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T, D) -> what classifiers read, (B, D): after the final norm."""
        ...


class Decoder(Protocol):
    """What a model of texts has in addition to `Layered` that predicts next tokens: no token reads those behind it."""

    def open_head(self) -> None:
        """Have the head that the model was pre-trained with among its parameters, where it has one of its own."""
        ...

    @property
    def vocabulary(self) -> Tensor:
        """The head's weight (V, D), one row for each token; often that of the embeddings."""
        ...

    def states(self, hidden: Tensor) -> Tensor:
        """(B, T, D) -> what the head reads, of the same shape: after the final norm."""
        ...


class TimmMixer:
    """timm's MlpMixer in layers."""

    reads_texts = False
    last_fc = ("mlp_tokens.fc2", "mlp_channels.fc2")

    def __init__(self, model: nn.Module) -> None:
        self.model = cast(Any, model)
        self.blocks: Any = self.model.blocks
        self.num_features: int = self.model.num_features

    def embed(self, x: Tensor) -> Tensor:
        made: Tensor = self.model.stem(x)
        return made

    def mask(self, x: Tensor) -> None:
        return None

    def run(self, j: int, hidden: Tensor, mask: Tensor | None) -> Tensor:
        made: Tensor = self.blocks[j](hidden)
        return made

    def pool(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        pooled: Tensor = self.model.forward_head(self.model.norm(hidden), pre_logits=True)
        return pooled


class TimmViT(TimmMixer):
    """timm's VisionTransformer or Eva in layers."""

    last_fc = ("attn.proj", "mlp.fc2")

    def embed(self, x: Tensor) -> Tensor:
        embedded = self.model._pos_embed(self.model.patch_embed(x))
        tokens = embedded[0] if isinstance(embedded, tuple) else embedded  # see `run` for the rotary positions
        normed: Tensor = self.model.norm_pre(self.model.patch_drop(tokens) if self.model.patch_drop else tokens)
        return normed

    def run(self, j: int, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Rotary positions, where a model has them, travel with the tokens: they follow from the number of patches,
        which stand in a square behind class token and registers."""
        block, rope = self.blocks[j], getattr(self.model, "rope", None)
        if rope is None:
            return super().run(j, hidden, mask)
        side = math.isqrt(hidden.shape[1] - block.attn.num_prefix_tokens)
        fixed = hasattr(rope, "feat_shape") and not getattr(self.model, "dynamic_img_size", False)
        positions = rope.get_embed() if fixed else rope.get_embed(shape=(side, side))
        own: Tensor = block(hidden, rope=positions[j] if getattr(self.model, "rope_mixed", False) else positions)
        return own


def mean_of_tokens(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Hidden states (B, T, D) -> (B, D): their mean over the tokens of each text, or over all without a mask."""
    if mask is None:
        return hidden.mean(1)
    counted = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * counted).sum(1) / counted.sum(1)


def is_layered(model: object) -> bool:
    """Whether a model implements `Layered` itself."""
    return all(hasattr(type(model), name) for name in ("embed", "mask", "run", "pool"))


def cut(model: nn.Module) -> Layered | None:
    """The model in layers; None where it is neither Layered itself nor looks like timm's VisionTransformer, Eva or
    MlpMixer."""
    if is_layered(model):
        return cast(Layered, model)
    if not all(hasattr(model, part) for part in ("blocks", "norm", "forward_head", "num_features")):
        return None
    if hasattr(model, "stem"):
        return TimmMixer(model)
    return TimmViT(model) if hasattr(model, "patch_embed") and hasattr(model, "_pos_embed") else None
