"""The independent implementation of the methods of unequal width: a CNN of two layers as plain functions of a dict of
tensors, slices as lists of numbers, sums and counts number by number.

W (6, 3, 3, 3), V (8, 6, 3, 3) convolutions; s, b (6,), q, d (8,) of two group norms of two groups; U (C, 8), c (C,) the
classifier. It takes over the first weights, the images, and who takes part.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch.nn import functional as F

CLASSES, SIDE, BATCH = 3, 8, 4
K1, K2, GROUPS = 6, 8, 2
EXAMPLES = {0: 9, 1: 4, 2: 6, 3: 7}
WIDTHS = {0: 1.0, 1: 0.5, 2: 0.25, 3: 0.3}
ROUNDS = ([0, 1, 2], [1, 3], [2, 3, 0])  # nobody holds everything in the second; client 2 has no image of class 2
STEPS = {0: 2, 1: 3, 2: 1, 3: 2}
LR, MOMENTUM, DECAY, CLIP = 0.3, 0.9, 0.02, 2.0
TRAIN = {
    "optimizer": {"name": "sgd", "lr": LR, "momentum": MOMENTUM, "weight_decay": DECAY},
    "clip": CLIP,
    "local_epochs": 1,
}
FOLLOWS = {"W": (1, 0), "s": (1,), "b": (1,), "V": (2, 1), "q": (2,), "d": (2,), "U": (0, 2), "c": (0,)}


def batches_of(t, client):
    draw = torch.Generator().manual_seed(1000 * t + client)
    labels = 2 if client == 2 else CLASSES
    return [
        (
            torch.randn(BATCH, 3, SIDE, SIDE, generator=draw, dtype=torch.float64),
            torch.randint(labels, (BATCH,), generator=draw),
        )
        for _ in range(STEPS[client])
    ]


def ceil(K, g):
    return next(k for k in range(1, K + 1) if k >= K * g - 1e-9)


def firsts(g, t):
    return {1: list(range(ceil(K1, g))), 2: list(range(ceil(K2, g)))}


def windows(g, t):
    return {layer: [(t + i) % K for i in range(ceil(K, g))] for layer, K in ((1, K1), (2, K2))}


def index_of(name, held, sizes):
    """Every coordinate of a tensor that a slice holds."""
    along = [held.get(layer, range(size)) for layer, size in zip(FOLLOWS[name], sizes, strict=False)]
    return list(itertools.product(*along))


def cut(w, held):
    """The slice of every tensor, by lists."""
    own = {}
    for name, value in w.items():
        for axis, layer in enumerate(FOLLOWS[name]):
            if layer:
                value = torch.stack([value.select(axis, i) for i in held[layer]], axis)
        own[name] = value
    return own


def normed(x, scale, shift, numbers, K):
    """Every group of the whole layer, over those of its channels that are there."""
    out = []
    for group in range(GROUPS):
        rows = [row for row, k in enumerate(numbers) if k // (K // GROUPS) == group]
        if rows:
            z = x[:, rows]
            mean = z.mean((1, 2, 3), keepdim=True)
            z = (z - mean) / ((z - mean) ** 2).mean((1, 2, 3), keepdim=True).add(1e-5).sqrt()
            out += [(row, z[:, i] * scale[row] + shift[row]) for i, row in enumerate(rows)]
    return torch.stack([plane for _, plane in sorted(out, key=lambda pair: pair[0])], 1)


def forward(w, x, held, scale=1.0):
    z = normed(F.conv2d(x, w["W"]) / scale, w["s"], w["b"], held[1], K1).relu()
    z = normed(F.conv2d(z, w["V"]) / scale, w["q"], w["d"], held[2], K2).relu()
    return z.mean((2, 3)) @ w["U"].T + w["c"]


def entropy(g, target):
    """Cross-entropy against labels (B,) or distributions (B, C)."""
    log_p = g - g.logsumexp(1, keepdim=True)
    if target.dim() == 1:
        return -log_p[range(len(g)), target].mean()
    return -(target * log_p).sum(1).mean()


def descent(w, batches, loss_of):
    """Local SGD on tensors of their own; (weights, mean loss)."""
    w, velocity, losses = dict(w), {}, []
    for x, y in batches:
        leaves = {name: value.detach().clone().requires_grad_() for name, value in w.items()}
        loss = loss_of(leaves, x, y)
        gradient = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
        norm = math.sqrt(sum(float((g**2).sum()) for g in gradient.values()))
        for name, g in gradient.items():
            step = g * min(1.0, CLIP / (norm + 1e-6)) + DECAY * w[name]
            velocity[name] = MOMENTUM * velocity[name] + step if name in velocity else step
            w[name] = w[name] - LR * velocity[name]
        losses.append(loss.item())
    return w, sum(losses) / len(losses)


def sliced(first, choose, scale=True, mask=True, rounds=ROUNDS, rates=(1, 0.5, 0.25)):
    """HeteroFL and FedRolex, which choose other units; (weights, losses)."""
    w, told = dict(first), []
    for t, ids in enumerate(rounds):
        sums = {name: torch.zeros_like(value) for name, value in w.items()}
        counts = {name: torch.zeros_like(value) for name, value in w.items()}
        losses = []
        for i in ids:
            g = max(rate for rate in rates if rate <= WIDTHS[i])
            held = {layer: sorted(numbers) for layer, numbers in choose(g, t).items()}
            batches = batches_of(t, i)
            classes = sorted({int(label) for _, y in batches for label in y}) if mask else list(range(CLASSES))
            away = torch.tensor([label not in classes for label in range(CLASSES)])

            def loss_of(own, x, y, held=held, away=away, g=g):
                return entropy(torch.where(away, 0.0, forward(own, x, held, g if scale else 1.0)), y)

            own, loss = descent(cut(w, held), batches, loss_of)
            losses.append(loss)
            for name, value in own.items():
                places = index_of(name, {**held, 0: classes} if name in "Uc" else held, w[name].shape)
                here = index_of(name, {layer: range(len(k)) for layer, k in held.items()}, value.shape)
                if name in "Uc":
                    here = [place for place in here if place[0] in classes]
                for place, mine in zip(places, here, strict=True):
                    sums[name][place] += value[mine]
                    counts[name][place] += 1
        w = {name: torch.where(counts[name] > 0, sums[name] / counts[name].clamp(min=1), w[name]) for name in w}
        told.append(losses)
    return w, told


def ordered(first, drawn, distill, rounds=ROUNDS, ps=(0.25, 0.5, 1)):
    """FjORD; drawn(t, client, choices) -> which of so many p every batch takes."""
    w, told = dict(first), []
    for t, ids in enumerate(rounds):
        returned, losses = {}, []
        for i in ids:
            own_ps = [p for p in ps if p <= WIDTHS[i]]
            wide, turns = firsts(own_ps[-1], t), iter(drawn(t, i, len(own_ps)))

            def loss_of(own, x, y, t=t, wide=wide, turns=turns, own_ps=own_ps):
                held = firsts(own_ps[next(turns)], t)
                g = forward(cut(own, held), x, held)
                if not distill:
                    return entropy(g, y)
                whole = forward(own, x, wide)
                return entropy(whole, y) + entropy(g, whole.detach().softmax(1))

            own, loss = descent(cut(w, wide), batches_of(t, i), loss_of)
            returned[i] = own_ps[-1], own
            losses.append(loss)
        new = {name: value.clone() for name, value in w.items()}
        for p in sorted(ps, reverse=True):
            there = [i for i in ids if returned[i][0] >= p]
            total, held = sum(EXAMPLES[i] for i in there), firsts(p, t)
            for name in w if there else ():
                for place in index_of(name, held, w[name].shape):
                    new[name][place] = sum(EXAMPLES[i] * returned[i][1][name][place] for i in there) / total
        w = new
        told.append(losses)
    return w, told
