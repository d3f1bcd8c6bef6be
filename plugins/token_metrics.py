"""Metrics of next tokens: each is read off sums of the rows that `fedbench.models.tokens.example_rows` makes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedbench import hookimpl
from fedbench.models.tokens import CHOSEN, EXACT, HITS, NLL, NUMBER, TOKENS
from fedbench.types import NEXT_TOKEN, SummedMetric


def nll():
    """The mean negative log-likelihood of a counted token, in nats."""
    return _of_rows(lambda sums, examples: (sums[NLL] / sums[TOKENS]).item())


def perplexity():
    """exp(nll): among how many equally likely tokens the model chooses, in the geometric mean."""
    return _of_rows(lambda sums, examples: math.exp(min((sums[NLL] / sums[TOKENS]).item(), 700.0)))


def token_accuracy():
    """The share of counted tokens that have the largest logit, a fraction."""
    return _of_rows(lambda sums, examples: (sums[HITS] / sums[TOKENS]).item())


def choice_accuracy():
    """The share of texts whose completion is likelier than every other one that the data set gives for it, a fraction.

    Likelihoods are per character, without the end of the text, as `acc_norm` of lm-evaluation-harness.
    """
    return _of_rows(lambda sums, examples: (sums[CHOSEN] / examples).item())


def exact_match():
    """The share of texts whose completion is what greedy decoding says after the prompt, its end included, a fraction.

    That is so where each of its tokens has the largest logit after those before it, and so nothing is decoded.
    """
    return _of_rows(lambda sums, examples: (sums[EXACT] / examples).item())


def number_match():
    """The share of texts where the last number that greedy decoding says is the last of the completion, a fraction.

    It takes the last number, as `flexible-extract` of lm-evaluation-harness, but without examples in the prompt and
    without its stop strings: an answer that does not end is decoded to `data.max_length`. Numbers are compared, and not
    how they are written.
    """
    return _of_rows(lambda sums, examples: (sums[NUMBER] / examples).item())


def _of_rows(value) -> SummedMetric:
    """value(sums, examples): of the rows (n, 6) added up, and how many there are."""

    def sums(rows: Tensor, y: Tensor) -> Tensor:
        total = rows.double().sum(0)
        return torch.cat([total, total.new_tensor([len(rows)])])

    return SummedMetric(sums, lambda total: value(total[:-1], total[-1]), NEXT_TOKEN)


@hookimpl
def fedbench_register_metrics(register):
    register("nll", nll, better="lower", unit="nats", format=".3f")
    register("perplexity", perplexity, better="lower", format=".2f")
    register("token_accuracy", token_accuracy, better="higher", unit="%")
    register(
        "choice_accuracy",
        choice_accuracy,
        better="higher",
        unit="%",
        paper="Gao et al., lm-evaluation-harness, 2021 (acc_norm)",
    )
    register("exact_match", exact_match, better="higher", unit="%")
    register(
        "number_match",
        number_match,
        better="higher",
        unit="%",
        paper="Gao et al., lm-evaluation-harness, 2021 (flexible-extract)",
    )
