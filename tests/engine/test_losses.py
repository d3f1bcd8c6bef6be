"""Many clients' losses at once equal each client's own, whatever the objective knows of stacks."""

import functools

import pytest
import torch
from torch.nn import functional as F

from fedbench.engine.readout import Answers, losses_of
from fedbench_plugins import objectives

OTHERS = {
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
    each, plain = losses_of(own, [given], y, 2), one_by_one(own, given, y)
    assert torch.equal(each, plain)
    grads = [torch.autograd.grad(loss.sum(), given.exits) for loss in (each, plain)]
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


@pytest.mark.parametrize("name", OTHERS)
def test_an_objective_without_a_stacked_form_is_called_client_by_client(name):
    given, y = answers()
    assert torch.equal(losses_of(OTHERS[name], [given], y, 1), one_by_one(OTHERS[name], given, y, 1))


def test_losses_of_uneven_batches_come_in_the_order_of_the_clients():
    (one, y), (two, more) = answers(n=2), answers(n=2, B=3)
    y = {4: y[0], 1: more[0], 2: y[1], 3: more[1]}
    found = losses_of(objectives.cross_entropy, [Answers([4, 2], one.exits), Answers([1, 3], two.exits)], y, 0)
    alone = [objectives.cross_entropy([o[i] for o in own.exits], y[n], 0) for own, i, n in ((one, 0, 4), (two, 0, 1))]
    assert torch.equal(found[:2], torch.stack(alone))
