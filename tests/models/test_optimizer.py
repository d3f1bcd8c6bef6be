"""Rates by round, and of classifiers apart."""

import math

import pytest
import torch

from fedbench.models.optimizer import Rates, make_optimizer, rate_share

SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}


def shares(T, **options):
    return [rate_share(options, t, T) for t in range(T)]


def test_without_a_schedule_every_round_has_the_whole_rate():
    assert shares(5) == shares(5, schedule="constant") == [1.0] * 5


def test_a_linear_schedule_falls_by_equal_steps_and_never_to_zero():
    assert shares(4, schedule="linear") == [1, 0.75, 0.5, 0.25]


def test_a_cosine_schedule_is_torchs():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 7)
    for share in shares(7, schedule="cosine"):
        assert share == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-12)
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize("warmup", [3, 0.3])
def test_warmup_rises_to_the_whole_rate_in_the_round_after_it(warmup):
    found = shares(10, warmup=warmup, schedule="linear")
    assert found[:4] == [0.25, 0.5, 0.75, 1.0] and found[4] == pytest.approx(6 / 7)
    assert shares(2, warmup=5) == pytest.approx([1 / 3, 2 / 3])  # a shorter run rises all the time


def test_rates_of_a_round_are_read_where_the_suites_are_and_leave_the_suite_alone():
    train = {"rounds": 4, "optimizer": {**SGD, "head_lr": 0.02, "schedule": "linear"}, "clip": None}
    rates = Rates(train)
    seen = dict(rates.train)["optimizer"]  # as a method has it that copies the section
    rates.enter(3)
    assert (seen["lr"], seen["head_lr"]) == pytest.approx((0.025, 0.005))
    rates.enter(0)
    assert (seen["lr"], seen["head_lr"]) == (0.1, 0.02) and train["optimizer"]["lr"] == 0.1


def test_a_constant_rate_is_the_suites_own_section():
    train = {"rounds": 4, "optimizer": SGD}
    assert Rates(train).train is train


@pytest.mark.parametrize("options", [SGD, {**SGD, "name": "adamw"}])
def test_classifiers_have_a_rate_of_their_own(options):
    body, head = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    both = {**options, "head_lr": 0.01}
    assert [g["lr"] for g in make_optimizer([body, head], both, heads=[head]).param_groups] == [0.1, 0.01]
    assert [g["lr"] for g in make_optimizer([head], both, heads=[head]).param_groups] == [0.01]
    assert [g["lr"] for g in make_optimizer([body, head], options, heads=[head]).param_groups] == [0.1]
    assert math.isclose(make_optimizer([body], both).param_groups[0]["lr"], 0.1)
