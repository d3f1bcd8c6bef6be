"""Rounds of SplitLoRA against plain loops, written from notes on the released code.

The loops are those of one process: a client's part and the server's are two dictionaries of tensors.
"""

from __future__ import annotations

import pytest
import torch
from test_reference_forward import LR, N, prepared
from test_reference_ranks import ALPHA, CAME, CLIP, R, flat, logits_of
from torch.nn import functional as F

from fedbench.engine import sequential
from fedbench.seeding import generator

pytestmark = pytest.mark.usefixtures("counted_once", "never_counted")

C = 2  # layers of the clients


def of_client(name):
    return name[0].isdigit() and int(name[0]) < C


def clipped(g):
    norm = sum((x**2).sum() for x in g.values()).sqrt()
    return {k: x * min(1.0, CLIP / (norm + 1e-6)) for k, x in g.items()}


def stepped(w, velocity, g):
    """Momentum SGD with decay; velocity changes in place."""
    for k, x in clipped(g).items():
        velocity[k] = 0.9 * velocity.get(k, 0.0) + x + 0.01 * w[k]
    return {k: w[k] - LR * velocity[k] for k in w}


def splitlora(w, batches, moments, in_turn):
    """(A and B of the clients as their mean, those of the server and the head as they are) after a round."""
    server = {k: v for k, v in w.items() if not of_client(k)}
    own = {n: {k: v for k, v in w.items() if of_client(k)} for n in CAME}
    velocity, given = {n: {} for n in CAME}, {n: list(batches(n)) for n in CAME}
    for k_th in range(max(map(len, given.values()))):
        waiting, examples = [], 0
        for n in CAME:
            if k_th >= len(given[n]):
                continue
            x, y = given[n][k_th]
            leaves = {k: v.clone().requires_grad_() for k, v in {**own[n], **server}.items()}
            loss = F.cross_entropy(logits_of(leaves, x, ALPHA / R, {}), y)
            g = dict(zip(leaves, torch.autograd.grad(loss, [*leaves.values()]), strict=True))
            own[n] = stepped(own[n], velocity[n], {k: g[k] for k in own[n]})
            of_server = {k: g[k] for k in server}
            if in_turn:
                server = stepped(server, moments, of_server)
            else:
                waiting.append((len(y), of_server))
                examples += len(y)
        if waiting:
            mean = {k: sum(m * g[k] for m, g in waiting) / examples for k in server}
            server = stepped(server, moments, mean)
    return {k: sum(own[n][k] for n in CAME) / len(CAME) for k in own[0]} | server


@pytest.mark.parametrize("in_turn", [True, False])
def test_rounds_equal_plain_loops(registry, in_turn):
    options = {"client_layers": C, "server": "in_turn" if in_turn else "together"}
    method, state, cohort = prepared(registry, "splitlora", sequential.train, **options)
    moments = {}
    for t in range(3):
        expected = splitlora(flat(state), cohort.batches, moments, in_turn)
        state, report = method.round(state, t, cohort, generator(0, t))
        torch.testing.assert_close(flat(state), expected, rtol=1e-10, atol=1e-10)
        assert report.uploads.arrived.tolist() == [n in CAME for n in range(N)]


def test_the_ways_differ(registry):
    """So that neither is tested against itself."""
    found = []
    for server in ("in_turn", "together"):
        method, state, cohort = prepared(registry, "splitlora", sequential.train, client_layers=C, server=server)
        found.append(flat(method.round(state, 0, cohort, generator(0, 0))[0]))
    assert max((found[0][k] - found[1][k]).abs().max().item() for k in found[0]) > 1e-3
