"""The share of a model's commonest answer, by which a constant prediction is found."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedbench.results.tables import to_table
from fedbench.simulation.batches import Pixels
from fedbench.simulation.evaluation import Evaluation
from fedbench.simulation.federated_data import EvalSplit
from fedbench.simulation.round_records import commonest
from fedbench.types import Images

COLOURS = torch.arange(6, dtype=torch.uint8)  # one for each image; its class is its colour modulo 3
DOMAINS = [EvalSplit("low", np.array([0, 1, 2])), EvalSplit("high", np.array([3, 4]), split="validation")]
CLIENTS = [EvalSplit("low", np.array([0, 1, 2]), 4), EvalSplit("high", np.array([3, 4]), 7)]


def shares(splits, say, personal=False):
    """By split and output; say(client, colours) gives classes."""
    x = COLOURS.view(6, 1, 1, 1).expand(6, 3, 2, 2).numpy()
    test = Pixels(Images(x, (COLOURS % 3).long().numpy(), np.zeros(6, int)), (0.0,) * 3, (1 / 255,) * 3, "cpu")
    made = Evaluation(test, splits, {"n": lambda logits, y: len(y)}, 2, True, personal, classes=3)

    def predictor(client):
        def predict(x):
            said = say(client, x[:, 0, 0, 0].round().long())
            return {"": torch.eye(3)[said], "zero": torch.eye(3)[0 * said]}

        return predict

    rows = commonest(5, made, made.answers(predictor))
    to_table("answers", rows)
    assert {row["round"] for row in rows} <= {5}
    return {(row["split"], row["output"]): (row["examples"], row["top_share"]) for row in rows}


def test_domains_are_counted_together_and_splits_and_outputs_apart():
    both = [DOMAINS[0], EvalSplit("high", np.array([3, 4])), DOMAINS[1]]
    found = shares(both, lambda client, colours: (colours > 2).long())
    assert found == {
        ("test", ""): (5, pytest.approx(3 / 5)),  # constant on either domain, but not on both
        ("test", "zero"): (5, 1),
        ("validation", ""): (2, 1),
        ("validation", "zero"): (2, 1),
    }


def test_one_model_that_is_tested_by_client_is_counted_over_all_of_them():
    found = shares(CLIENTS, lambda client, colours: (colours > 2).long())
    assert found["test", ""] == (5, pytest.approx(3 / 5))


def test_clients_own_models_are_constant_where_each_of_them_is():
    assert shares(CLIENTS, lambda client, colours: 0 * colours + client % 3, True)["test", ""] == (5, 1)
    one = shares(CLIENTS, lambda client, colours: colours % 3 if client == 4 else 0 * colours, True)
    assert one["test", ""] == (5, pytest.approx(3 / 5))


def test_examples_of_one_class_tell_nothing():
    alone = [EvalSplit("low", np.array([0, 3]), 4), EvalSplit("high", np.array([1, 2]), 7)]
    assert shares(alone, lambda client, colours: colours % 3, True)["test", ""] == (2, 0.5)
    assert shares(alone[:1], lambda client, colours: colours % 3, True) == {}
