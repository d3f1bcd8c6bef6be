"""The global model on the test images: who is asked what, and in which passes."""

import numpy as np
import pytest
import torch

from fedbench.evaluation import Evaluation, evaluated_rounds
from fedbench.pixels import Pixels
from fedbench.types import Images

COLOURS = torch.arange(7, dtype=torch.uint8)  # one for each image; its class is its colour modulo 2
DOMAIN = np.array([1, 0, 1, 1, 0, 1, 1])


def evaluation(mixed, batch_size=2, share=None):
    x = COLOURS.view(7, 1, 1, 1).expand(7, 3, 2, 2).numpy()
    test = Pixels(Images(x, (COLOURS % 2).long().numpy(), DOMAIN), (0.0,) * 3, (1 / 255,) * 3, "cpu")
    metrics = {"accuracy": lambda logits, y: (logits.argmax(1) == y).double().mean(), "n": lambda logits, y: len(y)}
    return Evaluation(test, ["even", "odd"], metrics, batch_size, mixed)


def odd_from_four(x):
    """Sees the parity of the colour, but calls 0, 1, 2 and 3 even."""
    colour = x[:, 0, 0, 0].round().long()
    guess = torch.where(colour < 4, 0, colour % 2)
    return {"": torch.nn.functional.one_hot(guess, 2).float(), "never": torch.tensor([[0.0, 1.0]]).expand(len(x), 2)}


@pytest.mark.parametrize("mixed", [True, False])
def test_every_metric_of_every_domain_and_output(mixed):
    rows = evaluation(mixed).rows(3, odd_from_four)
    found = {(row["domain"], row["metric"]): row["value"] for row in rows}
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
    assert {(row["round"], row["split"], row["client"], row["examples"]) for row in rows} == {
        (3, "test", -1, 2),
        (3, "test", -1, 5),
    }


def test_mixed_passes_hold_images_of_several_domains():
    assert [len(p) for p in evaluation(mixed=False).passes] == [2, 2, 2, 1]
    assert [len(p) for p in evaluation(mixed=True, batch_size=3).passes] == [3, 3, 1]


@pytest.mark.parametrize(
    ("rounds", "every", "expected"),
    [(12, None, {2, 4, 6, 8, 10, 12}), (3, None, {1, 2, 3}), (10, 4, {2, 6, 10}), (5, 100, {5})],
)
def test_evaluation_is_spread_and_always_includes_the_last_round(rounds, every, expected):
    assert evaluated_rounds(rounds, every) == expected
