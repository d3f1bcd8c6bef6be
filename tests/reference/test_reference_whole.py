"""Two rounds of the whole-model methods in float64 against plain loops with gradients written out by hand.

The second part of this file is numpy alone: a network z = tanh(x W' + b), g = z U' + c, its gradients, SGD, and the
algorithms as their papers write them. It takes over the first weights, the images, and who takes part.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fedbench.seeding import generator
from fedbench.testing.world import setup_of
from fedbench.types import Cohort

CLASSES, SIDE, DIM, BATCH = 3, 8, 5, 4
EXAMPLES = {0: 9, 1: 4, 2: 6, 3: 7}
ROUNDS = ([0, 2], [0, 1, 2], [1, 3])  # who takes part; client 2 never has images of class 2
STEPS = {0: 3, 1: 1, 2: 4, 3: 2}
TRAIN = {
    "optimizer": {"name": "sgd", "lr": 0.3, "momentum": 0.9, "weight_decay": 0.02},
    "clip": 2.0,
    "local_epochs": 1,
}


class Net(nn.Module):
    num_features = DIM

    def __init__(self):
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.W = nn.Parameter(0.1 * torch.randn(DIM, 3 * SIDE * SIDE, generator=draw))
        self.b = nn.Parameter(torch.randn(DIM, generator=draw))

    def forward(self, x):
        return torch.tanh(x.flatten(1) @ self.W.T + self.b)


def batches_of(t, client):
    draw = np.random.default_rng([t, client])
    labels = 2 if client == 2 else CLASSES
    return [
        (draw.standard_normal((BATCH, 3, SIDE, SIDE)), draw.integers(0, labels, BATCH)) for _ in range(STEPS[client])
    ]


def cohort_of_round(t):
    ids = ROUNDS[t]
    numbers = [torch.tensor([own[i] for i in ids]) for own in (dict.fromkeys(ids, 1), EXAMPLES, STEPS)]
    made = {i: [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in batches_of(t, i)] for i in ids}
    return Cohort(ids, *numbers, lambda n: iter(made[ids[n]]))


@pytest.fixture
def ran(registry):
    """ran(method, **train) -> the first weights, the last ones, every client's own tensors, losses, and predict.

    by_client: whether clients are tested, each by itself.
    """

    def run(ref, by_client=False, **train):
        setup = setup_of(registry, Net(), [1] * len(EXAMPLES), **{**TRAIN, **train})
        setup = replace(setup, by_client=by_client)
        method = registry.make("method", ref, setup=setup)
        state = method.init(generator(0))
        first, losses = plain(state["shared"]), []
        for t in range(len(ROUNDS)):
            state, report = method.round(state, t, cohort_of_round(t), generator(0, t))
            losses.append(report.uploads.loss.tolist())
        own = {int(i): plain(setup.store.get(key)) for i, key in state.get("clients", {}).items()}
        return first, plain(state["shared"]), own, losses, lambda i=None: method.predictor(state, client=i)

    return run


def plain(tensors):
    short = {"model.W": "W", "model.b": "b", "head.weight": "U", "head.bias": "c"}
    own = {"personal.weight": "P", "personal.bias": "d"}
    return {{**short, **own}[name]: value.numpy().copy() for name, value in tensors.items()}


def close(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=0, atol=1e-12, err_msg=name)


def test_fedavg(ran):
    first, last, own, losses, predict = ran({"name": "fedavg"})
    w, told, _ = looped(first, averaging)
    close(last, w)
    assert not own
    np.testing.assert_allclose(np.concatenate(losses), np.concatenate(told), atol=1e-12)
    answers_alike(predict(), forward(w, PICTURES)[1])
    answers_alike(predict(0), forward(w, PICTURES)[1])


def test_the_local_models_of_fedavg_are_what_clients_sent_last(ran):
    first, last, own, losses, predict = ran({"name": "fedavg", "local": True}, by_client=True)
    w, told, local = looped(first, sending)
    close(last, w)
    np.testing.assert_allclose(np.concatenate(losses), np.concatenate(told), atol=1e-12)
    answers_alike(predict(), forward(w, PICTURES)[1])
    assert own.keys() == local.keys() == {0, 1, 2, 3}
    for i in (*local, 7):  # nobody knows client 7
        close(own.get(i, w), local.get(i, w))
        both = predict(i)(torch.from_numpy(PICTURES))
        assert list(both) == ["", "local"]  # the method's own answer first
        for name, weights in (("", w), ("local", local.get(i, w))):
            np.testing.assert_allclose(both[name].numpy(), forward(weights, PICTURES)[1], atol=1e-12)
    for i in local:  # neither the global model, nor what any round but the client's last has left of it
        assert not np.allclose(local[i]["W"], w["W"])
    _, _, earlier = looped(first, sending, rounds=ROUNDS[:-1])
    assert not np.allclose(earlier[1]["W"], local[1]["W"])


def test_local_models_are_kept_only_where_clients_are_tested(ran):
    first, last, own, _, predict = ran({"name": "fedavg", "local": True})
    close(last, looped(first, averaging)[0])
    assert not own
    answers_alike(predict(0), forward(last, PICTURES)[1])


def test_fedavg_under_fedprox(ran):
    first, last, _, losses, _ = ran({"name": "fedavg"}, regularizer={"fedprox": 0.5})
    w, told, _ = looped(first, averaging, mu=0.5)
    close(last, w)
    np.testing.assert_allclose(np.concatenate(losses), np.concatenate(told), atol=1e-12)


@pytest.mark.parametrize(("epochs", "passes"), [(None, 1), (2, 2)])
def test_ditto(ran, epochs, passes):
    first, last, own, losses, predict = ran({"name": "ditto", "lam": 0.75, "personal_epochs": epochs})
    w, told, v = looped(first, dittos, lam=0.75, passes=passes)
    close(last, w)
    assert own.keys() == v.keys() == {0, 1, 2, 3}
    for i in v:
        close(own[i], v[i])
        answers_alike(predict(i), forward(v[i], PICTURES)[1])
    np.testing.assert_allclose(np.concatenate(losses), np.concatenate(told), atol=1e-12)
    answers_alike(predict(), forward(w, PICTURES)[1])
    answers_alike(predict(7), forward(w, PICTURES)[1])


@pytest.mark.parametrize(
    ("balance", "gamma"), [("softmax", 1.0), ("softmax", 0.5), ("softmax", 0), ("risk", 1.0), ("risk", 0)]
)
def test_fedrod(ran, balance, gamma):
    first, last, own, losses, predict = ran({"name": "fedrod", "balance": balance, "gamma": gamma})
    w, told, heads = looped(first, decoupled, balance=balance, gamma=gamma)
    close(last, w)
    assert own.keys() == heads.keys() == {0, 1, 2, 3}
    z, g = forward(w, PICTURES)
    for i in heads:
        close(own[i], heads[i])
        answers_alike(predict(i), g + z @ heads[i]["P"].T + heads[i]["d"])
    np.testing.assert_allclose(np.concatenate(losses), np.concatenate(told), atol=1e-12)
    answers_alike(predict(), g)
    answers_alike(predict(7), g)


def answers_alike(predict, expected):
    np.testing.assert_allclose(predict(torch.from_numpy(PICTURES)).numpy(), expected, atol=1e-12)


def test_the_gradients_are_clipped_in_some_steps_and_not_in_others(ran):
    looped(ran({"name": "fedavg"})[0], averaging)
    assert min(NORMS) < TRAIN["clip"] < max(NORMS), sorted(NORMS)


# --- the independent implementation -------------------------------------------------------------------------------

PICTURES = np.random.default_rng(99).standard_normal((6, 3, SIDE, SIDE))
NORMS: list[float] = []


def forward(w, x):
    z = np.tanh(x.reshape(len(x), -1) @ w["W"].T + w["b"])
    return z, z @ w["U"].T + w["c"]


def backward(w, x, z, dg):
    da = dg @ w["U"] * (1 - z**2)
    return {"W": da.T @ x.reshape(len(x), -1), "b": da.sum(0), "U": dg.T @ z, "c": dg.sum(0)}


def softmax(g):
    e = np.exp(g - g.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def entropy(g, y, q=None):
    """Mean of q_y CE and its gradient by the logits."""
    rows, p = np.arange(len(y)), softmax(g)
    weight = np.ones(len(y)) if q is None else q[y]
    loss = (-weight * np.log(p[rows, y])).mean()
    p[rows, y] -= 1
    return loss, p * weight[:, None] / len(y)


def step(w, gradient, velocity):
    o, norm = TRAIN["optimizer"], math.sqrt(sum(float((g**2).sum()) for g in gradient.values()))
    NORMS.append(norm)
    shrink = min(1.0, TRAIN["clip"] / (norm + 1e-6))
    for name, g in gradient.items():
        d = g * shrink + o["weight_decay"] * w[name]
        velocity[name] = o["momentum"] * velocity[name] + d if name in velocity else d
        w[name] = w[name] - o["lr"] * velocity[name]


def descent(w, batches, towards=None, strength=0.0):
    """Local SGD on cross-entropy + strength / 2 ||w - towards||^2; the losses without that."""
    velocity, losses = {}, []
    for x, y in batches:
        z, g = forward(w, x)
        loss, dg = entropy(g, y)
        gradient = backward(w, x, z, dg)
        if towards is not None:
            gradient = {name: d + strength * (w[name] - towards[name]) for name, d in gradient.items()}
        step(w, gradient, velocity)
        losses.append(loss)
    return sum(losses) / len(losses)


def looped(first, local, rounds=ROUNDS, **options):
    """All rounds: local(w, kept, batches, **options) -> (client's weights, loss, what it keeps); then the mean."""
    w, kept, told = dict(first), {}, []
    for t, ids in enumerate(rounds):
        returned = {i: local(dict(w), kept.get(i), batches_of(t, i), **options) for i in ids}
        total = sum(EXAMPLES[i] for i in ids)
        w = {name: sum(EXAMPLES[i] / total * returned[i][0][name] for i in ids) for name in w}
        told.append([returned[i][1] for i in ids])
        kept |= {i: own for i, (_, _, own) in returned.items()}
    return w, told, kept


def averaging(w, kept, batches, mu=0.0):
    mine = dict(w)
    return mine, descent(mine, batches, w, mu), None


def sending(w, kept, batches):
    mine, loss, _ = averaging(w, kept, batches)
    return mine, loss, dict(mine)


def dittos(w, kept, batches, lam, passes):
    mine, v = dict(w), dict(w if kept is None else kept)
    loss = descent(mine, batches)
    descent(v, batches * passes, w, lam)
    return mine, loss, v


def decoupled(w, kept, batches, balance, gamma):
    mine = dict(w)
    head = {"P": np.zeros((CLASSES, DIM)), "d": np.zeros(CLASSES)} if kept is None else dict(kept)
    N = np.bincount(np.concatenate([y for _, y in batches]), minlength=CLASSES)
    there = N > 0
    velocity, own_velocity, losses = {}, {}, []
    for x, y in batches:
        z, g = forward(mine, x)
        both = softmax(g + z @ head["P"].T + head["d"])
        both[np.arange(len(y)), y] -= 1
        both /= len(y)
        if gamma == 0:  # nothing is balanced
            loss, dg = entropy(g, y)
        elif balance == "softmax":  # absent classes have no part in the sum
            loss, part = entropy(g[:, there] + gamma * np.log(N[there]), (np.cumsum(there) - 1)[y])
            dg = np.zeros_like(g)
            dg[:, there] = part
        else:
            q = np.where(there, 1 / np.maximum(N, 1) ** gamma, 0.0)
            loss, dg = entropy(g, y, q * N.sum() / (q * N).sum())
        step(mine, backward(mine, x, z, dg), velocity)
        step(head, {"P": both.T @ z, "d": both.sum(0)}, own_velocity)
        losses.append(loss)
    return mine, sum(losses) / len(losses), head
