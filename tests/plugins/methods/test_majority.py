"""The majority class: what clients count, and what answers for whom."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from fedbench.seeding import generator
from fedbench.testing.setups import cohort_of, same, setup_of, tiny_vit

IMAGES = torch.zeros(2, 3, 8, 8)
LABELS = [[2, 2, 1], [0, 1, 1, 1], [0, 2]]  # of three clients, in two batches each


@pytest.fixture
def method(registry):
    return registry.make("method", {"name": "majority"}, setup=setup_of(registry, tiny_vit(), [4, 2, 1]))


def cohort(*ids: int, lost: int | None = None):
    """A round of these clients, of whom that one's work is lost."""

    def batches(n):
        y = torch.tensor(LABELS[ids[n]])
        return ((torch.zeros(len(part), 3, 8, 8), part) for part in y.split(2))

    arrives = torch.tensor([i != lost for i in ids])
    made = cohort_of([4] * len(ids), steps=2)
    return replace(made, ids=list(ids), batches=batches, arrives=arrives)


def after(method, *cohorts):
    state = method.init(generator(0))
    for t, one in enumerate(cohorts):
        state, _ = method.round(state, t, one, generator(0, t))
    return state


def answers(method, state, client=None):
    return method.predictor(state, client)(IMAGES)


def test_each_client_answers_with_the_commonest_class_of_its_own(method):
    state = after(method, cohort(0, 1, 2))
    assert [answers(method, state, i).argmax(1).tolist() for i in range(3)] == [[2, 2], [1, 1], [0, 0]]
    torch.testing.assert_close(answers(method, state, 1), torch.tensor([[2.0, 4.0, 1.0]]).log().expand(2, 3))


def test_its_loss_is_that_of_the_smoothed_distribution_of_classes(method):
    """Of one image more of each class: p_c = (N_c + 1) / (N + C)."""
    state, p = after(method, cohort(0)), torch.tensor([1.0, 2.0, 3.0]) / 6
    y = torch.tensor([0, 2])
    torch.testing.assert_close(F.cross_entropy(answers(method, state, 0), y), -p[y].log().mean())


def test_the_global_model_counts_every_client_once_however_often_it_comes(method):
    once, often = after(method, cohort(0, 1)), after(method, cohort(0), cohort(0, 1), cohort(1))
    assert same(once, often)
    torch.testing.assert_close(answers(method, often).exp()[0], torch.tensor([1.0, 4.0, 2.0]) + 1)
    torch.testing.assert_close(answers(method, often, 2), answers(method, often))  # it never came


def test_counts_that_are_lost_are_nobodys(method):
    state = after(method, cohort(0, 1, lost=1))
    assert list(state["clients"]) == ["0"]
    assert same(state, after(method, cohort(0)))


def test_what_is_refused_counts_for_nothing(registry):
    def refuse(uploads, start, plan, cohort, t, later=None):
        came = uploads.arrived.clone()
        came[0] = False
        return replace(uploads, arrived=came, rejected={0: "wrong shape"})

    setup = replace(setup_of(registry, tiny_vit(), [4, 2, 1]), receive=refuse)
    method = registry.make("method", {"name": "majority"}, setup=setup)
    assert list(after(method, cohort(2, 1))["clients"]) == ["1"]


def test_a_client_pays_for_sending_its_counts_alone(method):
    cost = method.cost(4, 0)
    assert (cost.flops_per_image, cost.bytes_down, cost.bytes_up, cost.memory_bytes) == (0, 0, 24, 24)
    assert cost.exchange(10, 2) == [("counts", 0, 24)]
    assert method.personal and method.alone and method.running(None) == 24
