"""Many clients' losses at once equal each client's own, whatever the objective knows of stacks."""

import functools

import pytest
import torch
from torch.nn import functional as F

from fedbench.engine.losses import Losses
from fedbench.engine.readout import Answers
from fedbench_plugins import objectives

STRANGERS = {
    "plain": lambda exits, y, t: sum(F.cross_entropy(o, y) for o in exits) / (t + 1),
    "looks at values": lambda exits, y, t: (
        F.cross_entropy(exits[0], y) * (2 if float(exits[0][0, 0].detach()) > 0 else 1)
    ),
}


def answers(n=3, B=5, exits=2, dtype=torch.float64):
    draw = torch.Generator().manual_seed(B)
    logits = [torch.randn(n, B, 4, generator=draw, dtype=dtype).requires_grad_() for _ in range(exits)]
    return Answers(list(range(n)), logits), {i: torch.randint(4, (B,), generator=draw) for i in range(n)}


def one_by_one(objective, given, y, t=2):
    return torch.stack([objective([o[i] for o in given.exits], y[i], t) for i in y])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("B", [1, 15, 16, 17, 33, 50])
@pytest.mark.parametrize("name", ["cross_entropy", "mutual_kl"])
def test_our_objectives_are_to_the_bit_what_they_are_to_each_client(name, B, dtype):
    own = objectives.cross_entropy
    if name == "mutual_kl":
        own = functools.partial(objectives.mutual_kl, ramp_rounds=5, epsilon=1e-7)
        own.stacked = functools.partial(objectives.each_mutual_kl, ramp_rounds=5, epsilon=1e-7)
    given, y = answers(B=B, exits=3, dtype=dtype)
    each, plain = Losses(own).of([given], y, 2), one_by_one(own, given, y)
    assert torch.equal(each, plain)
    grads = [torch.autograd.grad(loss.sum(), given.exits) for loss in (each, plain)]
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


@pytest.mark.parametrize("name", STRANGERS)
def test_a_strangers_objective_is_asked_client_by_client_on_a_cpu(name):
    given, y = answers()
    losses = Losses(STRANGERS[name])
    assert torch.equal(losses.of([given], y, 1), one_by_one(STRANGERS[name], given, y, 1))
    assert losses.stacked == losses.one_by_one


@pytest.mark.parametrize(("name", "way"), [("plain", "at_once"), ("looks at values", "one_by_one")])
def test_elsewhere_it_is_mapped_where_that_says_the_same(name, way):
    given, y = answers()
    losses = Losses(STRANGERS[name])
    losses.stacked = losses._tried(given.exits, torch.stack(list(y.values())), 1)
    assert losses.stacked == getattr(losses, way)
    torch.testing.assert_close(losses.of([given], y, 1), one_by_one(STRANGERS[name], given, y, 1))


def test_losses_of_uneven_batches_come_in_the_order_of_the_clients():
    (one, y), (two, more) = answers(n=2), answers(n=2, B=3)
    y = {4: y[0], 1: more[0], 2: y[1], 3: more[1]}
    found = Losses(objectives.cross_entropy).of([Answers([4, 2], one.exits), Answers([1, 3], two.exits)], y, 0)
    alone = [objectives.cross_entropy([o[i] for o in own.exits], y[n], 0) for own, i, n in ((one, 0, 4), (two, 0, 1))]
    assert torch.equal(found[:2], torch.stack(alone))
