"""Texts as the ids of a decoder's tokens, and which of them its loss counts: prompts with completions, or all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from fedbench.errors import UserError
from fedbench.types import Texts


@runtime_checkable
class Continuing(Protocol):
    """What the tokenizer of a decoder has besides what every tokenizer has.

    Attributes:
        end: The id that ends a text; None where it has none.
    """

    end: int | None

    def pieces(self, texts: Sequence[str], begins: bool = False) -> list[list[int]]:
        """Return the ids of every text without special tokens.

        Args:
            texts: Each a whole text or a part of one.
            begins: Whether a text begins here: with the token that the model has for that, if there is one, and never
                empty.
        """
        ...


@runtime_checkable
class Decoding(Continuing, Protocol):
    """A tokenizer that can also turn ids back into text."""

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of these ids, without special tokens."""
        ...


class Encoded(NamedTuple):
    """One text.

    Attributes:
        ids: of all its tokens, its end included.
        start: the first token that counts.
    """

    ids: list[int]
    start: int


def fits(tokenizer: Continuing, texts: Texts, most: int) -> np.ndarray:
    """(n,) bool: which completions fit into `most` tokens with one token before them; whole texts are cut instead."""
    if texts.completion is None:
        return np.ones(len(texts), dtype=bool)
    # a token has one byte at least, so that only long completions must be looked at
    long = [i for i, one in enumerate(texts.completion) if len(one.encode("utf-8", "replace")) + 1 > most]
    pieces = tokenizer.pieces([texts.completion[i] for i in long])
    fitting = np.ones(len(texts), dtype=bool)
    fitting[[i for i, ids in zip(long, pieces, strict=True) if len(ids) + 1 > most]] = False
    return fitting


def encoded(tokenizer: Continuing, texts: Texts, most: int) -> Iterator[Encoded]:
    """The texts, with at most `most` tokens before the last one.

    A prompt that is too long loses its beginning, a whole text its end; completions fit, see `fits`. Raises UserError
    for a tokenizer whose texts have no end.
    """
    end = must_end(tokenizer)
    prompts = tokenizer.pieces(list(texts.text), begins=True)  # type: ignore[arg-type]  # whole texts are no pairs
    if texts.completion is None:
        yield from (Encoded([*ids, end][: most + 1], 1) for ids in prompts)
        return
    for prompt, completion in zip(prompts, tokenizer.pieces(texts.completion), strict=True):
        yield continued(prompt, [*completion, end], most)


def continued(prompt: list[int], completion: list[int], most: int) -> Encoded:
    """A prompt, cut on the left where it is too long, and a completion, which is not cut."""
    kept = prompt[max(0, len(prompt) - max(1, most + 1 - len(completion))) :]
    return Encoded([*kept, *completion], len(kept))


def must_end(tokenizer: Any) -> int:
    """The id that ends a text. Raises UserError where there is none."""
    if (end := getattr(tokenizer, "end", None)) is None:
        raise UserError("next tokens: the backbone's tokenizer has no token that ends a text")
    return int(end)
