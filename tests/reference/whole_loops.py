"""The independent implementation of the whole-model methods: numpy alone.

A network z = tanh(x W' + b), g = z U' + c, its gradients, SGD, and the algorithms as their papers write them. It takes
over the first weights, the images, and who takes part.
"""

from __future__ import annotations

import math

import numpy as np

CLASSES, SIDE, DIM, BATCH = 3, 8, 5, 4
HIDDEN = 6  # units of Fed-RoD's hyper-network
EXAMPLES = {0: 9, 1: 4, 2: 6, 3: 7}
ROUNDS = ([0, 2], [0, 1, 2], [1, 3])  # who takes part; client 2 never has images of class 2
STEPS = {0: 3, 1: 1, 2: 4, 3: 2}
TRAIN = {
    "optimizer": {"name": "sgd", "lr": 0.3, "momentum": 0.9, "weight_decay": 0.02},
    "clip": 2.0,
    "local_epochs": 1,
}


def batches_of(t, client):
    draw = np.random.default_rng([t, client])
    labels = 2 if client == 2 else CLASSES
    return [
        (draw.standard_normal((BATCH, 3, SIDE, SIDE)), draw.integers(0, labels, BATCH)) for _ in range(STEPS[client])
    ]


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


def balanced_loss(g, y, N, balance, gamma):
    """The class-balanced loss of logits, and its gradient by them; N_c images of class c."""
    there = N > 0
    if gamma == 0:  # nothing is balanced
        return entropy(g, y)
    if balance == "risk":
        q = np.where(there, 1 / np.maximum(N, 1) ** gamma, 0.0)
        return entropy(g, y, q * N.sum() / (q * N).sum())
    # absent classes have no part in the sum
    loss, part = entropy(g[:, there] + gamma * np.log(N[there]), (np.cumsum(there) - 1)[y])
    dg = np.zeros_like(g)
    dg[:, there] = part
    return loss, dg


def class_counts(batches):
    return np.bincount(np.concatenate([y for _, y in batches]), minlength=CLASSES)


def decoupled(w, kept, batches, balance, gamma):
    mine = dict(w)
    head = {"P": np.zeros((CLASSES, DIM)), "d": np.zeros(CLASSES)} if kept is None else dict(kept)
    N = class_counts(batches)
    velocity, own_velocity, losses = {}, {}, []
    for x, y in batches:
        z, g = forward(mine, x)
        _, both = entropy(g + z @ head["P"].T + head["d"], y)
        loss, dg = balanced_loss(g, y, N, balance, gamma)
        step(mine, backward(mine, x, z, dg), velocity)
        step(head, {"P": both.T @ z, "d": both.sum(0)}, own_velocity)
        losses.append(loss)
    return mine, sum(losses) / len(losses), head


def made(w, a):
    """The hyper-network's units before and after ReLU, and the head (P, d) it makes of a."""
    before = w["w1"] @ a + w["b1"]
    units = np.maximum(before, 0)
    flat = w["w2"] @ units + w["b2"]
    return before, units, flat[: CLASSES * DIM].reshape(CLASSES, DIM), flat[CLASSES * DIM :]


def hyper(w, kept, batches, balance, gamma, other=""):
    """On every batch first the generic part, then H, which sees what the generic part has become."""
    mine = dict(w)
    N = class_counts(batches)
    a = N / (1 if other == "by counts" else N.sum())
    velocity, own_velocity, losses = {}, {}, []
    for x, y in batches:
        z, g = forward(mine, x)
        loss, dg = balanced_loss(g, y, N, balance, gamma)
        gradient = backward(mine, x, z, dg)
        if other == "moves the body":
            _, both = entropy(g + z @ made(mine, a)[2].T + made(mine, a)[3], y)
            gradient = {name: d + backward(mine, x, z, both)[name] for name, d in gradient.items()}
        step(mine, gradient, velocity)
        losses.append(loss)
        if other != "together":
            z, g = forward(mine, x)
        before, units, P, d = made(mine, a)
        _, both = entropy(g + z @ P.T + d, y)
        df = np.concatenate([(both.T @ z).ravel(), both.sum(0)])
        du = (mine["w2"].T @ df) * (before > 0)
        step(mine, {"w1": np.outer(du, a), "b1": du, "w2": np.outer(df, units), "b2": df}, own_velocity)
    if other == "kept apart":
        mine |= {name: w[name] for name in ("w1", "b1", "w2", "b2")}
    return mine, sum(losses) / len(losses), {"a": a}
