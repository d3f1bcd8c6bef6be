"""The task `next_token` in a cell: its texts as inputs and targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.errors import UserError
from fedbench.models.backbone import Source
from fedbench.models.continuations import Continuing, Encoded, continued, encoded, fits, must_end
from fedbench.models.heads import UNCOUNTED
from fedbench.models.layered import EVERY, PADDING
from fedbench.simulation.batches import Inputs
from fedbench.types import Splits, Texts


class Continuations(Inputs):
    """Texts whose every token is to be predicted from those before it, or those of their completions."""

    labelled: Texts

    def __init__(self, texts: Texts, tokenizer: Continuing, most: int, device: str) -> None:
        """Args:
        texts: Of the split.
        tokenizer: The backbone's.
        most: Tokens that the backbone takes at once.
        device: Where batches are.
        """
        super().__init__(texts, device)
        self.tokenizer, self.most = tokenizer, most
        found = [] if texts.length and device == "meta" else list(encoded(tokenizer, texts, most))
        self.lengths = np.array([len(one.ids) - 1 for one in found], dtype=np.int64)
        longest = max(texts.length, int(self.lengths.max(initial=1)))
        self.size = min(most, -(-longest // EVERY) * EVERY)
        self.x, self.y = padded(found, self.size)

    def given(self, indices: np.ndarray, seed: int | None = None) -> Tensor:
        """(B, T): T is the longest of these texts, rounded up to a multiple of EVERY."""
        return self.sent(self.x[indices, : self._most(indices)])

    def __call__(self, indices: np.ndarray, seed: int | None = None) -> tuple[Tensor, Tensor]:
        """x (B, T) and y (B, T), the token after each, UNCOUNTED where that is no part of a completion."""
        return self.given(indices), self.sent(self.y[indices, : self._most(indices)])

    def features(self, indices: np.ndarray) -> tuple[Tensor, Tensor]:
        return self(indices)  # nothing that a head of tokens reads is kept

    def labels(self, indices: np.ndarray) -> Tensor:
        y = self.y[indices]
        return torch.from_numpy(y[y != UNCOUNTED])

    def order(self, indices: np.ndarray) -> np.ndarray:
        """By length, so that there is little padding; of shapes alone as they come."""
        return super().order(indices) if not len(self.lengths) else np.argsort(self.lengths[indices], kind="stable")

    def example(self, n: int) -> Tensor:
        return torch.zeros(n, self.size, dtype=torch.int64, device="meta")

    def alternatives(self, indices: np.ndarray) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The texts with another choice for a completion: (x, y, the choice's number of characters (B,)), choice after
        choice; of a text with fewer choices than others the last one again."""
        texts = self.labelled.at(indices)
        assert texts.choices is not None
        end = must_end(self.tokenizer)
        prompts = self.tokenizer.pieces(list(texts.text), begins=True)  # type: ignore[arg-type]
        for k in range(max(map(len, texts.choices))):
            others = [own[min(k, len(own) - 1)] for own in texts.choices]
            room = self.most - 1
            pieces = self.tokenizer.pieces(others)
            pairs = zip(prompts, pieces, strict=True)
            rows = [continued(prompt, [*piece[:room], end], self.most) for prompt, piece in pairs]
            longest = -(-max(len(one.ids) - 1 for one in rows) // EVERY) * EVERY
            x, y = padded(rows, min(self.most, longest))
            yield self.sent(x), self.sent(y), self.sent(characters(others))

    def prompts(self, indices: Sequence[int] | np.ndarray) -> list[list[int]]:
        """Their ids, of long ones the last that are half of `most`: answers are given the same room, whatever their
        length."""
        pieces = self.tokenizer.pieces([self.labelled.text[i] for i in indices], begins=True)  # type: ignore[misc]
        return [ids[-max(1, self.most // 2) :] for ids in pieces]

    def _most(self, indices: np.ndarray) -> int:
        return min(self.size, -(-int(self.lengths[indices].max()) // EVERY) * EVERY)

    def sent(self, values: np.ndarray) -> Tensor:
        """Where batches are."""
        return self._sent(values) if self.on_gpu else torch.from_numpy(np.ascontiguousarray(values))


def padded(texts: Iterable[Encoded], size: int) -> tuple[np.ndarray, np.ndarray]:
    """x and y (n, size) of texts: their tokens but for the last, and the token after each that counts."""
    texts = list(texts)
    x = np.full((len(texts), size), PADDING, dtype=np.int64)
    y = np.full((len(texts), size), UNCOUNTED, dtype=np.int64)
    for i, (ids, start) in enumerate(texts):
        x[i, : len(ids) - 1] = ids[:-1]
        y[i, start - 1 : len(ids) - 1] = ids[start:]
    return x, y


def characters(texts: Iterable[str]) -> np.ndarray:
    """(n,) int64: how long each is, without the space that parts it from its prompt; at least 1."""
    return np.array([max(1, len(text.lstrip())) for text in texts], dtype=np.int64)


def fitting(splits: Splits, source: Source, config: Mapping[str, Any]) -> Splits:
    """The splits without the completions that do not fit, which are counted as skipped. Raises UserError."""
    tokenizer, most = source.tokenizer, most_tokens(config, source)
    if not isinstance(tokenizer, Continuing):
        raise UserError(f"the backbone {config['backbone']['name']!r} has no tokenizer for next tokens")
    kept, skipped = {}, list(splits.skipped)
    for name in ("train", "test"):
        texts = getattr(splits, name)
        fit = np.ones(len(texts), dtype=bool) if texts.length else fits(tokenizer, texts, most)
        if not fit.any():
            raise UserError(f"data.max_length {most}: no completion of {config['data']['name']!r} fits into it")
        kept[name] = texts if fit.all() else texts.at(np.flatnonzero(fit))
        skipped += [f"{name} text {i}" for i in np.flatnonzero(~fit)]
    return replace(splits, **kept, skipped=tuple(skipped))


def most_tokens(config: Mapping[str, Any], source: Source) -> int:
    """How many tokens of a text are kept. Raises UserError where the backbone takes fewer."""
    most: int = config["data"].get("max_length") or source.image_size
    if most > source.image_size:
        name = config["backbone"]["name"]
        raise UserError(f"data.max_length {most}: the backbone {name!r} takes at most {source.image_size} tokens")
    return most
