"""Next tokens: texts as the ids of a decoder's tokens, and its frozen head, without all logits of a batch at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

from fedbench.errors import UserError
from fedbench.models.kernels import frozen_linear
from fedbench.types import Objective, Texts

UNCOUNTED = -1  # in the place of a token whose prediction does not count: a prompt's, and padding
LOGITS_AT_ONCE = 2**22  # of an exit for a chunk of tokens: 16 MiB in float32
EXITS_AT_ONCE = 4  # that have so many; of more exits each has a part

Loss = Callable[[list[Tensor], Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class TokenStates:
    """What the head of a decoder reads at one exit; it stands in the place of a classifier's logits.

    Attributes:
        states: (B, T, D), the hidden states after the final norm.
        weight: (V, D), the frozen head, without a bias.
    """

    states: Tensor
    weight: Tensor

    def logits(self) -> Tensor:
        """(B, T, V): of all tokens at once. For short texts and small vocabularies."""
        return F.linear(self.states, self.weight)


def mean_of_answers(answers: Sequence[Any]) -> Any:
    """The mean of the logits of several exits, (B, C); of next tokens, whose head is linear, that of what it reads."""
    if isinstance(answers[0], TokenStates):
        return TokenStates(torch.stack([one.states for one in answers]).mean(0), answers[0].weight)
    return torch.stack(list(answers)).mean(0)


def counted(y: Tensor) -> int:
    """What a batch's loss is the mean of: its examples, y (B,), or the tokens that count, y (B, T)."""
    return len(y) if y.dim() == 1 else int((y != UNCOUNTED).sum())


def over_tokens(objective: Objective) -> Objective:
    """The objective of classifiers with every counted token for an example: the mean over all tokens of a batch.

    It takes `TokenStates` and y (B, T), and logits as the objective itself does. An objective that is a mean over
    examples may be cut into chunks of them, and so no more than LOGITS_AT_ONCE logits of an exit exist at any time.
    """
    return functools.partial(_over_tokens, objective=objective)


def _over_tokens(exits: Sequence[Any], y: Tensor, t: int, objective: Objective) -> Tensor:
    if not isinstance(exits[0], TokenStates):
        return objective(exits, y, t)
    rows, y = _rows_of([exit.states for exit in exits], y)
    loss: Tensor = _InChunks.apply(lambda logits, own: objective(logits, own, t), y, exits[0].weight, *rows)
    return loss


def _rows_of(states: Sequence[Tensor], y: Tensor) -> tuple[list[Tensor], Tensor]:
    """The counted tokens of a batch: their states (n, D) at each exit, and they themselves, (n,). Of shapes alone all
    count."""
    rows, y = [one.flatten(0, 1) for one in states], y.flatten()
    if y.is_meta:
        return rows, y
    at = (y != UNCOUNTED).nonzero().flatten()
    return [one.index_select(0, at) for one in rows], y[at]


def tokens_at_once(words: int, exits: int = 1) -> int:
    """Return how many tokens have their logits over so many words at once: of many exits fewer, as all have theirs."""
    return max(1, LOGITS_AT_ONCE // (words * -(-exits // EXITS_AT_ONCE)))


def chunks(tokens: int, each: int) -> Iterator[slice]:
    """The tokens, so many at a time."""
    return (slice(i, min(i + each, tokens)) for i in range(0, tokens, each))


class _InChunks(torch.autograd.Function):
    """The mean over n tokens of a loss of their logits (n, V) at several exits, and its gradient for the states (n, D).

    Both are computed chunk by chunk in the forward pass, as in Liger's fused linear cross-entropy (Hsu et al., 2024,
    arXiv 2410.10989); the backward pass scales what is there.
    """

    @staticmethod
    def forward(ctx: Any, loss_of: Loss, y: Tensor, weight: Tensor, *states: Tensor) -> Tensor:
        total = states[0].new_zeros(())
        grads: list[Tensor | None] = [None] * len(states)
        wanted = [i for i, needed in enumerate(ctx.needs_input_grad[3:]) if needed]
        for rows in chunks(len(y), tokens_at_once(len(weight), len(states))):
            logits = [frozen_linear(one[rows], weight) for one in states]
            with torch.enable_grad(), saved_tensors_hooks(_as_it_is, _as_it_is):  # of what is let go at once
                leaves = [one.requires_grad_(i in wanted) for i, one in enumerate(logits)]
                loss = len(y[rows]) / len(y) * loss_of(leaves, y[rows])
            total = total + loss.detach()
            used = _gradients(loss, [leaves[i] for i in wanted])
            del loss, leaves, logits
            for i, grad in zip(wanted, used, strict=True):
                if grad is not None:
                    whole = grads[i] = torch.empty_like(states[i]) if grads[i] is None else grads[i]
                    assert whole is not None
                    whole[rows] = frozen_linear(grad, weight.t())
        ctx.save_for_backward(*grads)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = (None if one is None else grad * one for one in ctx.saved_tensors)
        return (None, None, None, *saved)


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor


def _gradients(loss: Tensor, leaves: Sequence[Tensor]) -> Sequence[Tensor | None]:
    """Of the loss for each of them; None for those that it does not depend on."""
    if not loss.requires_grad:
        return [None] * len(leaves)
    return torch.autograd.grad(loss, leaves, allow_unused=True)


NLL, TOKENS, HITS, CHOSEN, EXACT, NUMBER = range(6)  # the columns of an example's row, which metrics add up


class TokenScores(NamedTuple):
    """Of every token, (B, T): its negative log-likelihood in nats, float64, 0 where it does not count, and whether it
    counts and has the largest logit."""

    nll: Tensor
    hits: Tensor


@torch.no_grad()
def token_scores(answer: TokenStates, y: Tensor) -> TokenScores:
    """Score the tokens y (B, T), UNCOUNTED where they do not count."""
    (states,), own = _rows_of([answer.states], y)
    nll = states.new_zeros(len(own), dtype=torch.float64)
    hits = torch.zeros(len(own), dtype=torch.bool, device=own.device)
    for rows in chunks(len(own), tokens_at_once(len(answer.weight))):
        logits = frozen_linear(states[rows], answer.weight)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        nll[rows] = F.cross_entropy(logits, own[rows], reduction="none").double()
        hits[rows] = logits.argmax(1) == own[rows]
    at = y != UNCOUNTED
    whole = torch.zeros(y.shape, dtype=torch.float64, device=y.device).masked_scatter(at, nll)
    return TokenScores(whole, torch.zeros_like(at).masked_scatter(at, hits))


def example_rows(scores: TokenScores, y: Tensor, chosen: Tensor | None = None, number: Tensor | None = None) -> Tensor:
    """(B, 6) float64: an example's NLL, TOKENS, HITS, and whether it is CHOSEN and EXACT and its NUMBER is right.

    A completion is what greedy decoding says where every one of its tokens, and its end, has the largest logit after
    those before it.

    Args:
        scores: of its tokens.
        y: (B, T), the tokens, UNCOUNTED where they do not count.
        chosen: (B,) bool, whether it is the likeliest of its choices.
        number: (B,) bool, whether the last number of its answer is right. None counts as false.
    """
    at = y != UNCOUNTED
    tokens, hits = at.sum(1), scores.hits.sum(1)
    chosen, number = (torch.zeros_like(tokens) if one is None else one.to(y.device) for one in (chosen, number))
    columns = (scores.nll.sum(1), tokens, hits, chosen, hits == tokens, number)
    return torch.stack([column.double() for column in columns], 1)


def without_end(y: Tensor) -> Tensor:
    """y (B, T) whose last counted token of each text does not count."""
    at = y != UNCOUNTED
    last = at.shape[1] - 1 - at.flip(1).int().argmax(1)
    return y.scatter(1, last[:, None], UNCOUNTED)


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
