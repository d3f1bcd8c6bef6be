"""Next tokens in a cell: what texts become, how answers are scored, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedbench.errors import UserError
from fedbench.models.backbone import Source
from fedbench.models.layered import PADDING
from fedbench.models.tokens import CHOSEN, EXACT, NUMBER, UNCOUNTED, TokenStates, continued, encoded, fits
from fedbench.registry.facts import task_fault
from fedbench.simulation.next_tokens import Continuations, fitting, greedy, last_number, metrics_fault, token_rows
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
    rows = token_rows(predict, own, np.array([0, 1]), ["choice_accuracy"])[""]
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
        rows = token_rows(bigrams(likely), own, np.array([0, 1]))[""]
        assert rows[0, EXACT] == (said[-1] == END)


class Digits(Letters):
    """A tokenizer of the digits 1 to 8 and of a space, which is 0; texts begin with nothing."""

    def pieces(self, texts, begins=False):
        return [[int(sign) if sign in "12345678" else 0 for sign in text] for text in texts]

    def text(self, ids):
        return "".join(str(id) if id else " " for id in ids)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("He has 3 + 4 = 7 apples.\n#### 7", 7),
        ("about 1,250,000 of them.", 1_250_000),
        ("it falls by 10-3 or to -3.50", -3.5),
        ("10-3", 3),
        ("room 12.", 12),
        ("none", None),
    ],
)
def test_the_last_number_of_a_text(text, number):
    assert last_number(text) == number


def test_answers_are_decoded_token_by_token_to_their_end_or_as_far_as_the_model_goes():
    own = Continuations(texts(["1", "5 1", "6"], ["23", "23", "7"]), Digits(), 8, "cpu")
    predict = bigrams({1: 2, 2: 3, 3: END, 6: 7, 7: 6})
    prompts = own.prompts([0, 1, 2])
    assert prompts == [[1], [5, 0, 1], [6]]
    long = Continuations(texts(["12345678"], ["2"]), Digits(), 8, "cpu")
    assert long.prompts([0]) == [[5, 6, 7, 8]], "its answer has half of the room, however long it should be"
    assert greedy(predict, own, prompts) == [[2, 3], [2, 3], [7, 6, 7, 6, 7, 6, 7, 6]]


def test_a_number_is_right_whatever_is_said_before_it():
    said = bigrams({1: 4, 4: 0, 0: 2, 2: 3, 3: END})  # "1" -> "4 23"
    own = Continuations(texts(["1", "1", "1"], ["4 23", "8 23", "24"]), Digits(), 8, "cpu")
    rows = token_rows(said, own, np.array([0, 1, 2]), ["number_match"])[""]
    assert rows[:, NUMBER].tolist() == [1, 1, 0] and rows[:, EXACT].tolist() == [1, 0, 0]
    assert not token_rows(said, own, np.array([0, 1, 2]))[""][:, NUMBER].any()


def test_every_output_is_decoded_by_itself():
    own = Continuations(texts(["1"], ["2"]), Digits(), 8, "cpu")
    outputs = {"": bigrams({1: 2, 2: END}), "last": bigrams({1: 3, 3: END})}
    rows = token_rows(lambda x: {name: one(x) for name, one in outputs.items()}, own, np.array([0]), ["number_match"])
    assert {name: one[0, NUMBER].item() for name, one in rows.items()} == {"": 1.0, "last": 0.0}


def test_answers_that_no_head_of_tokens_reads_are_refused():
    with pytest.raises(ValueError, match="must be TokenStates of next tokens"):
        token_rows(lambda x: torch.zeros(1, V), continuations(["a"], ["b"]), np.array([0]))


def test_metrics_of_another_task_and_choices_that_are_not_there_are_one_line(registry):
    metrics = {name: registry.make("metric", {"name": name}) for name in ("nll", "choice_accuracy", "accuracy")}
    dataset = Dataset(("d",), ("text",), "", lambda: None, texts=True, task=NEXT_TOKEN)
    given = continuations(["a"], ["b"])
    assert "accuracy is a metric of classification" in metrics_fault(metrics, dataset, [given])
    assert "nll is a metric of next_token" in task_fault("classification", metrics)
    del metrics["accuracy"]
    chosen = continuations(["a"], ["b"], [["c"]])
    assert "there are none" in metrics_fault(metrics, dataset, [given])
    assert "there are none" in metrics_fault(metrics, dataset, [chosen, given])  # validation examples have no choices
    assert not metrics_fault(metrics, dataset, [chosen])


def test_numbers_need_a_tokenizer_that_says_texts_and_a_number_in_every_completion(registry):
    metrics = {"number_match": registry.make("metric", {"name": "number_match"})}
    dataset = Dataset(("d",), ("text",), "", lambda: None, texts=True, task=NEXT_TOKEN)
    assert "tokenizer has no `text`" in metrics_fault(metrics, dataset, [continuations(["a"], ["b 1"])])
    spoken = [Continuations(texts(["1", "1"], [one, "2"]), Digits(), 8, "cpu") for one in ("none", "3")]
    assert "a number in every completion, and 1 have none" in metrics_fault(metrics, dataset, spoken[:1])
    assert metrics_fault(metrics, dataset, spoken[1:]) == ""
