"""What a cell takes by its rates, and which cells are of one kind."""

from __future__ import annotations

import pytest
from factories import config

from fedbench.runs.estimate.rates import Rates, kind

SGD = {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.0}
VERSIONS = {"torch": "2"}
TOTALS = {"flops": 1000, "tested": 600, "evaluations": 3, "images": 7}


def cell(**changes):
    method = changes.pop("method", "fedra")
    return config(method, **{"train__optimizer": SGD} | changes)


def test_a_cell_takes_the_sum_of_its_parts():
    rates = Rates(start=2.0, per_round=0.5, per_flop=0.01, per_evaluation=0.25, per_image=0.125)
    assert rates.seconds(4, TOTALS) == 2.0 + 4 * 0.5 + 1000 * 0.01 + 3 * 0.25 + 600 * 0.125


def test_several_processes_share_training_and_testing_alone():
    rates = Rates(2.0, 0.5, 0.01, 0.25, 0.125, train_share=0.75, test_share=0.5)
    assert rates.seconds(4, TOTALS) == 2.0 + 2.0 + 7.5 + 0.75 + 37.5


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 7},
        {"capacities": {"uniform": [1, 12]}},
        {"participation": {"count": 3}},
        {"train__rounds": 99},
        {"train__max_steps": 5},
        {"train__optimizer": SGD | {"lr": 0.1, "momentum": 0.0}},
        {"data__partition": {"name": "dirichlet", "alpha": 0.5}},
        {"evaluation__every": 1},
    ],
)
def test_what_does_not_change_the_speed_is_of_one_kind(changes):
    assert kind(cell(**changes), VERSIONS) == kind(cell(), VERSIONS)


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "depthfl"},
        {"backbone": {"name": "micro_mixer"}},
        {"adapter__rank": 4},
        {"data__image_size": 64},
        {"train__batch_size": 8},
        {"train__clip": 1.0},
        {"train__optimizer": SGD | {"name": "adamw"}},
        {"train__regularizer": {"fedprox": 0.1}},
        {"engine": "cohort"},
        {"precision": "bf16"},
        {"profile": "reference"},
    ],
)
def test_what_may_change_the_speed_is_another_kind(changes):
    assert kind(cell(**changes), VERSIONS) != kind(cell(), VERSIONS)


def test_another_version_is_another_kind():
    assert kind(cell(), VERSIONS) != kind(cell(), {"torch": "3"})


def test_a_kind_leaves_the_configuration_as_it_is():
    given = cell()
    kind(given, VERSIONS)
    assert given == cell()
