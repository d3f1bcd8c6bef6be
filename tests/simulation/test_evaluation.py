"""The global model on the test images: who is asked what, and in which passes."""

import numpy as np
import pytest
import torch

from fedbench.engine.process_group import together
from fedbench.simulation.batches import Pixels
from fedbench.simulation.evaluation import Evaluation
from fedbench.simulation.failure_reason import Diverged
from fedbench.simulation.federated_data import EvalSplit
from fedbench.types import Images

COLOURS = torch.arange(7, dtype=torch.uint8)  # one for each image; its class is its colour modulo 2
DOMAIN = np.array([1, 0, 1, 1, 0, 1, 1])


BY_DOMAIN = [EvalSplit("even", np.flatnonzero(DOMAIN == 0)), EvalSplit("odd", np.flatnonzero(DOMAIN == 1))]
BY_CLIENT = [
    EvalSplit("odd", np.array([0, 3, 5]), 4),
    EvalSplit("even", np.array([1]), 7),
    EvalSplit("odd", np.array([2, 6]), 9),
]


def evaluation(mixed, batch_size=2, splits=BY_DOMAIN, personal=False):
    x = COLOURS.view(7, 1, 1, 1).expand(7, 3, 2, 2).numpy()
    test = Pixels(Images(x, (COLOURS % 2).long().numpy(), DOMAIN), (0.0,) * 3, (1 / 255,) * 3, "cpu")
    metrics = {"accuracy": lambda logits, y: (logits.argmax(1) == y).double().mean(), "n": lambda logits, y: len(y)}
    return Evaluation(test, splits, metrics, batch_size, mixed, personal, classes=2)


def odd_from_four(x):
    """Sees the parity of the colour, but calls 0, 1, 2 and 3 even."""
    colour = x[:, 0, 0, 0].round().long()
    guess = torch.where(colour < 4, 0, colour % 2)
    return {"": torch.nn.functional.one_hot(guess, 2).float(), "never": torch.tensor([[0.0, 1.0]]).expand(len(x), 2)}


@pytest.mark.parametrize("mixed", [True, False])
def test_every_metric_of_every_domain_and_output(mixed):
    made = evaluation(mixed)
    scores = made.scored(made.answers(lambda client: odd_from_four))
    found = {(score.split.domain, score.metric): score.value for score in scores}
    assert found == {
        ("even", "accuracy"): 0.5,  # images 1 and 4
        ("even", "n"): 2,
        ("even", "accuracy/never"): 0.5,
        ("even", "n/never"): 2,
        ("odd", "accuracy"): 0.8,  # images 0, 2, 3, 5, 6
        ("odd", "n"): 5,
        ("odd", "accuracy/never"): 0.4,
        ("odd", "n/never"): 5,
    }
    assert {(score.split.client, len(score.split.indices)) for score in scores} == {(-1, 2), (-1, 5)}


def test_mixed_passes_hold_images_of_several_domains():
    assert [len(p.indices) for p in evaluation(mixed=False).passes] == [2, 2, 2, 1]
    assert [len(p.indices) for p in evaluation(mixed=True, batch_size=3).passes] == [3, 3, 1]


@pytest.mark.parametrize("mixed", [True, False])
def test_one_model_answers_once_for_all_clients(mixed):
    """Images 0, 3 and 5 are client 4's, image 1 is client 7's, 2 and 6 are client 9's, and 4 is nobody's."""
    asked, seen = [], []

    def predictor(client):
        asked.append(client)

        def predict(x):
            seen.extend(x[:, 0, 0, 0].round().long().tolist())
            return odd_from_four(x)[""]

        return predict

    made = evaluation(mixed, splits=BY_CLIENT)
    scores = made.scored(made.answers(predictor))
    assert asked == [None] and sorted(seen) == [0, 1, 2, 3, 5, 6]
    found = {(s.split.domain, s.split.client, s.metric): (s.value, len(s.split.indices)) for s in scores}
    assert found == {
        ("odd", 4, "accuracy"): (pytest.approx(2 / 3), 3),
        ("odd", 4, "n"): (3, 3),
        ("even", 7, "accuracy"): (0, 1),
        ("even", 7, "n"): (1, 1),
        ("odd", 9, "accuracy"): (1, 2),
        ("odd", 9, "n"): (2, 2),
    }


@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("processes", [1, 2])
def test_personal_models_answer_for_their_own_clients_and_are_made_once(mixed, processes):
    """Client 4's model says 0 to everything, client 7's and 9's say 1; a model is gone once another is made."""
    current = []

    def predictor(client):
        current.append(client)

        def predict(x):
            assert current[-1] == client
            return torch.eye(2)[torch.full((len(x),), int(client > 4))]

        return predict

    made = evaluation(mixed, splits=BY_CLIENT, personal=True)
    scores = made.scored(together(processes, lambda team: made.answers(predictor, team)))
    values = {score.split.client: score.value for score in scores if score.metric == "accuracy"}
    assert values == {4: pytest.approx(1 / 3), 7: 1, 9: 0}
    assert processes > 1 or current == [4, 7, 9]


def test_where_domains_are_scored_the_global_model_answers_even_if_clients_have_their_own():
    asked = []
    evaluation(True, personal=True).answers(lambda client: asked.append(client) or odd_from_four)
    assert asked == [None]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("mixed", [True, False])
def test_an_answer_that_is_no_number_is_a_divergence(mixed, bad):
    """Whose largest logit would be the first one's, as good as any guess."""

    def spoilt(x):
        given = odd_from_four(x)
        given["never"] = torch.where(x[:, :1, 0, 0].round() == 5, bad, given["never"])
        return given

    with pytest.raises(Diverged, match="^1 of 14 answers to test and validation examples are not finite$"):
        evaluation(mixed).answers(lambda client: spoilt)


@pytest.mark.parametrize(
    "answer, told",
    [
        (lambda x: torch.zeros(len(x), 3), r"a predictor's answer must be .* \(7, 2\), .* not \(7, 3\)"),
        (lambda x: torch.zeros(len(x) - 1, 2), r"7 images of 2 classes, not \(6, 2\)"),
        (lambda x: torch.zeros(len(x)), r"not \(7,\)"),
        (lambda x: None, "not NoneType"),
        (lambda x: {"": torch.zeros(len(x), 2), "last": torch.zeros(2)}, r"a predictor's 'last' must .* not \(2,\)"),
        (lambda x: {}, "it gave none"),
    ],
)
def test_what_are_no_logits_is_refused(answer, told):
    with pytest.raises(ValueError, match=told):
        evaluation(True, batch_size=7).answers(lambda client: answer)
