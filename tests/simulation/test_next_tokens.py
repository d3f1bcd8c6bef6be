"""Next tokens in a cell: what texts become, how answers are scored, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedbench.errors import UserError
from fedbench.models.backbone import Source
from fedbench.models.continuations import continued, encoded, fits
from fedbench.models.heads import CHOSEN, EXACT, UNCOUNTED, TokenStates
from fedbench.models.layered import PADDING
from fedbench.registry.facts import task_fault
from fedbench.simulation.next_tokens import Continuations, fitting, metrics_fault, token_rows
from fedbench.types import NEXT_TOKEN, Dataset, Splits, Texts

END, V = 9, 10


class Letters:
    """A tokenizer of letters: a is 1, b is 2; texts begin with 0 and end with END."""

    end: int | None = END

    def __call__(self, texts, max_length):
        return [ids[:max_length] for ids in self.pieces(texts, True)]

    def pieces(self, texts, begins=False):
        rows = [[1 + ord(sign) - ord("a") for sign in text.strip()] for text in texts]
        return [[0, *row] for row in rows] if begins else rows


def texts(prompts, completions=None, choices=None):
    zeros = np.zeros(len(prompts), dtype=np.int64)
    return Texts(prompts, zeros, zeros, completion=completions, choices=choices)


def continuations(*given, most=8):
    return Continuations(texts(*given), Letters(), most, "cpu")


def test_a_completion_and_its_end_count_and_its_prompt_does_not():
    x, y = continuations(["ab", "c"], [" cd", " d"])(np.array([0, 1]))
    assert x[0].tolist()[:5] == [0, 1, 2, 3, 4] and x[0].tolist()[5:] == [PADDING] * 3
    assert y[0].tolist()[:5] == [-1, -1, 3, 4, END] and set(y[0].tolist()[5:]) == {UNCOUNTED}
    assert y[1].tolist()[:3] == [-1, 4, END]


def test_all_of_a_whole_text_counts_and_its_end_is_cut_off_where_it_is_too_long():
    x, y = continuations(["abcdefgh", "ab"], most=8)(np.array([0, 1]))
    assert x[0].tolist() == [0, 1, 2, 3, 4, 5, 6, 7] and y[0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert y[1].tolist()[:3] == [1, 2, END]


def test_a_prompt_is_cut_on_the_left_and_a_completion_never():
    assert continued([0, 1, 2, 3], [4, 5, END], 4) == ([2, 3, 4, 5, END], 2)
    assert continued([0, 1, 2, 3], [4, 5, 6, END], 4) == ([3, 4, 5, 6, END], 1)
    (one,) = encoded(Letters(), texts(["abcdef"], ["gh"]), 4)
    assert one.ids[-3:] == [7, 8, END] and len(one.ids) - 1 == 4


def test_what_does_not_fit_is_left_out_and_counted():
    own = texts(["a", "b"], ["abcd", "ab"])
    assert fits(Letters(), own, 5).tolist() == [True, True] and fits(Letters(), own, 4).tolist() == [False, True]
    source = Source(torch.nn.Identity(), 8, (0, 0, 0), (1, 1, 1), "", tokenizer=Letters())
    config = {"data": {"name": "letters", "max_length": 4}, "backbone": {"name": "some"}}
    found = fitting(Splits(own, own), source, config)
    assert found.train.text == ["b"] and found.left_out == {"images": 2, "of": 4}
    with pytest.raises(UserError, match="no completion of 'letters' fits"):
        fitting(Splits(own, own), source, {**config, "data": {"name": "letters", "max_length": 2}})
    with pytest.raises(UserError, match="takes at most 8 tokens"):
        fitting(Splits(own, own), source, {**config, "data": {"name": "letters", "max_length": 9}})


def test_a_tokenizer_without_an_end_is_one_line():
    class Endless(Letters):
        end = None

    with pytest.raises(UserError, match="no token that ends a text"):
        Continuations(texts(["a"], ["b"]), Endless(), 8, "cpu")


def bigrams(likely):
    """A model whose next token is `likely[token]` with odds e^3 : 1."""
    weight = torch.zeros(V, V, dtype=torch.float64)
    for token, after in likely.items():
        weight[after, token] = 3.0

    def predict(x):
        return TokenStates(torch.nn.functional.one_hot(x.clamp(min=0), V).double(), weight)

    return predict


def test_the_likeliest_choice_is_by_characters_and_without_the_end():
    given = ["a", "a"], [" bc", " bd"], [[" bbbbbb", " d"], [" bc", " d"]]
    own = continuations(*given)
    predict = bigrams({1: 2, 2: 3, 3: END})
    rows = token_rows(predict, own, np.array([0, 1]), True)[""]
    assert rows[:, CHOSEN].tolist() == [1, 0] and rows[:, EXACT].tolist() == [1, 0]
    for example, completion in enumerate(given[1]):
        whole = [completion, *given[2][example]]
        scores = []
        for text in whole:
            ids = [0, 1, *Letters().pieces([text])[0]]
            log_p = predict(torch.tensor([ids])).logits().log_softmax(-1)[0]
            scores.append(sum(log_p[t, ids[t + 1]].item() for t in range(1, len(ids) - 1)) / len(text.strip()))
        assert (int(np.argmax(scores)) == 0) == bool(rows[example, CHOSEN])


def test_exact_match_is_what_greedy_decoding_says():
    draw = np.random.default_rng(0)
    for _ in range(20):
        likely = {token: int(after) for token, after in enumerate(draw.integers(1, V, V))}
        token, said = 1, []
        while len(said) < 5 and (not said or said[-1] != END):
            said.append(token := likely[token])
        completion = "".join(chr(ord("a") + one - 1) for one in said if one != END)
        if not completion:
            continue
        own = continuations(["a", "a"], [completion, "aaa"])
        rows = token_rows(bigrams(likely), own, np.array([0, 1]), False)[""]
        assert rows[0, EXACT] == (said[-1] == END)


def test_answers_that_no_head_of_tokens_reads_are_refused():
    with pytest.raises(ValueError, match="must be TokenStates of next tokens"):
        token_rows(lambda x: torch.zeros(1, V), continuations(["a"], ["b"]), np.array([0]), False)


def test_metrics_of_another_task_and_choices_that_are_not_there_are_one_line(registry):
    metrics = {name: registry.make("metric", {"name": name}) for name in ("nll", "choice_accuracy", "accuracy")}
    dataset = Dataset(("d",), ("text",), "", lambda: None, texts=True, task=NEXT_TOKEN)
    given = texts(["a"], ["b"])
    assert "accuracy is a metric of classification" in metrics_fault(metrics, dataset, given)
    assert "nll is a metric of next_token" in task_fault("classification", metrics)
    del metrics["accuracy"]
    assert "the data has none" in metrics_fault(metrics, dataset, given)
    assert not metrics_fault(metrics, dataset, replace(given, choices=[["c"]]))
