"""The task `next_token` in a cell: its texts as inputs and targets, and what a model answers.

Answers are the rows that metrics read, choices, and what a model says when it is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.errors import UserError
from fedbench.method import Predict
from fedbench.models.backbone import Source
from fedbench.models.kernels import frozen_linear
from fedbench.models.layered import EVERY, PADDING
from fedbench.models.tokens import (
    UNCOUNTED,
    Continuing,
    Decoding,
    Encoded,
    TokenScores,
    TokenStates,
    continued,
    encoded,
    example_rows,
    fits,
    must_end,
    token_scores,
    without_end,
)
from fedbench.registry.facts import task_fault
from fedbench.simulation.batches import Inputs
from fedbench.types import Dataset, Splits, Texts


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


CHOICE = "choice_accuracy"  # the metric for which choices are scored, too
NUMBER = "number_match"  # the metric for which answers are decoded
NUMERAL = re.compile(r"(?:(?<!\d)-)?\d[\d,]*(?:\.\d+)?")


def token_rows(
    predict: Predict, texts: Continuations, indices: np.ndarray, metrics: Collection[str] = ()
) -> dict[str, Tensor]:
    """What metrics read of a model's answers to these texts, (B, 6) by output's name, see `heads.example_rows`.

    Choices are scored, and answers decoded, only where one of the metrics asks for that.
    """
    x, y = texts(indices)
    scores = {name: token_scores(answer, y) for name, answer in named(predict(x), x).items()}
    chosen = _chosen(predict, texts, indices, scores, y) if CHOICE in metrics else {}
    numbers = {name: right_numbers(predict, texts, indices, name) for name in scores} if NUMBER in metrics else {}
    return {name: example_rows(one, y, chosen.get(name), numbers.get(name)) for name, one in scores.items()}


def _chosen(
    predict: Predict, texts: Continuations, indices: np.ndarray, scores: Mapping[str, TokenScores], y: Tensor
) -> dict[str, Tensor]:
    """(B,) bool by output: whether the completion is likelier than all other choices, by log-likelihood per character,
    without the token that ends it, as `acc_norm` of lm-evaluation-harness."""
    assert texts.labelled.completion is not None
    own = texts.sent(characters(texts.labelled.completion[i] for i in indices))
    best = {name: _mean_nll(one.nll, y, own) for name, one in scores.items()}
    chosen = {name: torch.ones(len(indices), dtype=torch.bool, device=y.device) for name in scores}
    for x_k, y_k, length in texts.alternatives(indices):
        for name, answer in named(predict(x_k), x_k).items():
            chosen[name] &= best[name] < _mean_nll(token_scores(answer, y_k).nll, y_k, length)
    return chosen


def _mean_nll(nll: Tensor, y: Tensor, characters: Tensor) -> Tensor:
    """(B,): per character, of all counted tokens but the last."""
    return (nll * (without_end(y) != UNCOUNTED)).sum(1) / characters


def named(given: Any, x: Tensor) -> dict[str, TokenStates]:
    """What a predictor gave, by output. Raises ValueError where that is nothing for a head of tokens."""
    outputs = given if isinstance(given, Mapping) else {"": given}
    for name, answer in outputs.items():
        if not isinstance(answer, TokenStates) or answer.states.shape[:2] != x.shape:
            found = type(answer).__name__
            raise ValueError(f"a predictor's {name!r} must be TokenStates of next tokens {tuple(x.shape)}, not {found}")
    return dict(outputs)


def last_number(text: str) -> Decimal | None:
    """The last number of a text, without the commas between its thousands; None where there is none."""
    found = NUMERAL.findall(text)
    return Decimal(found[-1].replace(",", "")) if found else None


@torch.no_grad()
def greedy(predict: Predict, texts: Continuations, prompts: Sequence[list[int]], output: str = "") -> list[list[int]]:
    """The tokens that a model says after each prompt, without the one that ends its text.

    Each is the token with the largest logit after all tokens before it. An answer that does not end goes on until
    prompt and answer have `most` tokens. Nothing is kept from one token to the next, so every token costs a whole pass:
    in return any model of texts can be asked.

    Args:
        predict: the model.
        texts: where the tokenizer and `most` are from.
        prompts: their ids, one each at least.
        output: which of the model's outputs is asked.
    """
    end, most = must_end(texts.tokenizer), texts.most
    whole = [list(prompt) for prompt in prompts]
    going = list(range(len(whole)))
    while going:
        longest = max(len(whole[i]) for i in going)
        rows = [Encoded([*whole[i], end], len(whole[i])) for i in going]
        x = texts.sent(padded(rows, min(most, -(-longest // EVERY) * EVERY))[0])
        answer = named(predict(x), x)[output]
        last = torch.tensor([len(whole[i]) - 1 for i in going], device=x.device)
        states = answer.states[torch.arange(len(going), device=x.device), last]
        for i, token in zip(going, frozen_linear(states, answer.weight).float().argmax(1).tolist(), strict=True):
            whole[i].append(token)
        going = [i for i in going if whole[i][-1] != end and len(whole[i]) <= most]
    said = (own[len(prompt) :] for own, prompt in zip(whole, prompts, strict=True))
    return [ids[:-1] if ids and ids[-1] == end else ids for ids in said]


def right_numbers(predict: Predict, texts: Continuations, indices: np.ndarray, output: str) -> Tensor:
    """(B,) bool: whether the last number that is said after each prompt is the last one of its completion, both as the
    tokenizer writes them."""
    tokenizer, completions = texts.tokenizer, texts.labelled.completion
    assert isinstance(tokenizer, Decoding) and completions is not None  # see `metrics_fault`
    wanted = [last_number(tokenizer.text(ids)) for ids in tokenizer.pieces([completions[i] for i in indices])]
    said = greedy(predict, texts, texts.prompts(indices), output)
    numbers = [last_number(tokenizer.text(ids)) for ids in said]
    return torch.tensor([one is not None and one == other for one, other in zip(numbers, wanted, strict=True)])


def metrics_fault(metrics: Mapping[str, Any], dataset: Dataset, scored: Iterable[Inputs]) -> str:
    """Why the metrics of a cell cannot be read off its task's answers; "" where they can.

    scored: its test examples, and those that validation examples are from.
    """
    if fault := task_fault(dataset.task, metrics):
        return fault
    return next(filter(None, (_texts_fault(metrics, one) for one in scored)), "")


def _texts_fault(metrics: Mapping[str, Any], test: Inputs) -> str:
    """Why these texts cannot be scored by the metrics."""
    texts = test.labelled
    if not isinstance(texts, Texts) or texts.length:
        return ""
    if CHOICE in metrics and texts.choices is None:
        return f"evaluation.metrics: {CHOICE} looks for a completion among given choices, and there are none"
    if NUMBER in metrics and isinstance(test, Continuations):
        if not isinstance(test.tokenizer, Decoding):
            return f"evaluation.metrics: {NUMBER} reads what the model says, and the backbone's tokenizer has no `text`"
        if lacking := sum(last_number(one) is None for one in texts.completion or [""] * len(texts)):
            return f"evaluation.metrics: {NUMBER} needs a number in every completion, and {lacking} have none"
    return ""
