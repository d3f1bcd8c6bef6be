"""Rounds of FedKSeed, SPRY and FwdLLM against plain loops, written from the papers and notes on the released code.

The loops know the directions by their seeds. SPRY's derivatives are those of backward passes, multiplied by the
direction: forward mode gives the same number.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_reference_ranks import ALPHA, CAME, CLIP, EXAMPLES, R, flat, logits_of
from torch.nn import functional as F

from fedbench.engine import cohort as fast
from fedbench.engine import sequential
from fedbench.seeding import generator, numpy_generator
from fedbench.testing.setups import cohort_of, setup_of, tiny_vit

pytestmark = pytest.mark.usefixtures("counted_once", "never_counted")

LR, N = 0.1, 4
SGD = {"name": "sgd", "lr": LR, "momentum": 0.9, "weight_decay": 0.01}


def z_of(name, like, t, client, number):
    """The part of a direction that belongs to a tensor."""
    place = f"r/{name.replace('.', '/', 1)}" if name[0].isdigit() else f"shared/{name}"
    draw = generator(0, t, client, f"spsa/{number}/{place}")
    return torch.empty_like(like).normal_(generator=draw)


def loss_of(w, batch):
    """With frozen weights that no gradient is asked of."""
    return F.cross_entropy(logits_of(w, batch[0], ALPHA / R, {}), batch[1])


def moved(w, z, scale):
    return {k: v + scale * z[k] for k, v in w.items()}


def fedkseed(w, batches, t, K=5, eps=5e-4):
    """w^(t+1) = sum_n p_n w_n, each w_n after steps along the K directions; and what each has sent, by seed."""
    uploads, scalars = {}, {}
    for n in CAME:
        own, draw, G = w, numpy_generator(0, t, n, "fedkseed"), [0.0] * K
        for batch in batches(n):
            j = int(draw.integers(K))
            z = {k: z_of(k, v, -1, -1, j) for k, v in w.items()}
            g = (loss_of(moved(own, z, eps), batch) - loss_of(moved(own, z, -eps), batch)).item() / (2 * eps)
            own, G[j] = moved(own, z, -LR * g), G[j] + g
        uploads[n], scalars[n] = own, G
    total = sum(EXAMPLES[n] for n in CAME)
    # The server's way: from the scalars alone.
    G = [sum(EXAMPLES[n] / total * scalars[n][j] for n in CAME) for j in range(K)]
    new = w
    for j in range(K):
        new = moved(new, {k: z_of(k, v, -1, -1, j) for k, v in w.items()}, -LR * G[j])
    for k in w:  # which is the mean of the clients' models
        mean = sum(EXAMPLES[n] / total * uploads[n][k] for n in CAME)
        torch.testing.assert_close(new[k], mean, rtol=1e-10, atol=1e-10)
    return new


def spry(w, batches, t, K=2):
    """Layer n to client n; momentum SGD along the clipped mean of K (dL . v) v."""
    new = dict(w)
    heads = {k: 0.0 for k in w if k.startswith("head")}
    total = sum(EXAMPLES[n] for n in CAME)
    for n in CAME:
        layer = (n - t) % N
        mine = [k for k in w if k[0] == str(layer) or k in heads]
        own, velocity = dict(w), {}
        for i, batch in enumerate(batches(n)):
            leaves = {k: v.clone().requires_grad_() for k, v in own.items()}
            gradient = dict(zip(leaves, torch.autograd.grad(loss_of(leaves, batch), [*leaves.values()]), strict=True))
            g = dict.fromkeys(mine, 0.0)
            for k_th in range(K):
                v = {k: z_of(k, w[k], t, n, i * K + k_th) for k in mine}
                slope = sum((gradient[k] * v[k]).sum() for k in mine)
                g = {k: g[k] + slope * v[k] / K for k in mine}
            norm = sum((x**2).sum() for x in g.values()).sqrt()
            for k in mine:
                step = g[k] * min(1.0, CLIP / (norm + 1e-6)) + 0.01 * own[k]
                velocity[k] = 0.9 * velocity[k] + step if k in velocity else step
                own[k] = own[k] - LR * velocity[k]
        for k in mine:
            if k in heads:
                heads[k] = heads[k] + EXAMPLES[n] / total * own[k]
            else:
                new[k] = own[k]
    return new | heads


def fwdllm(w, batches, t, old, pool, h=0.01, threshold=1.2, candidates=3):
    """(w, the last gradient, the pool of estimates that wait) after a round."""
    sums, counts = pool or ([], [])
    sums, counts = list(sums), list(counts)
    for n in CAME:
        given = list(batches(n))
        chosen = {}
        for k, value in w.items():
            drawn = [z_of(k, value, t, n, c) for c in range(candidates * len(given))]
            if old is not None:
                drawn.sort(key=lambda v, k=k: -float(F.cosine_similarity(v.flatten(), old[k].flatten(), dim=0)))
            chosen[k] = drawn[: len(given)]
        total = {k: torch.zeros_like(v) for k, v in w.items()}
        for i, batch in enumerate(given):
            v = {k: chosen[k][i] for k in w}
            jvp = (loss_of(moved(w, v, h), batch) - loss_of(moved(w, v, -h), batch)) / (2 * h)
            total = {k: total[k] + jvp * v[k] for k in w}
        sums.append(total)
        counts.append(len(given))
    first, second = (
        torch.cat([(sum(s[k] for s in sums[i::2]) / sum(counts[i::2])).flatten() for k in w]) for i in (0, 1)
    )
    var = torch.stack([first, second]).var(0).mean()
    if var > threshold:
        return w, old, (sums, counts)
    g = {k: sum(s[k] for s in sums) / sum(counts) for k in w}
    return {k: v - LR * g[k] for k, v in w.items()}, g, None


def prepared(registry, name, engine, **options):
    adapter = {"name": "lora", "rank": R, "alpha": ALPHA}
    setup = setup_of(registry, tiny_vit(), [4] * N, adapter, optimizer=SGD, clip=CLIP)
    method = registry.make("method", {"name": name, **options}, setup=replace(setup, engine=engine))
    state, draw = method.init(generator(0)), torch.Generator().manual_seed(7)
    for tensors in (*state["r"], state["shared"]):
        for value in tensors.values():
            value.normal_(0, 0.3, generator=draw)
    arrives = torch.tensor([n in CAME for n in range(N)])
    return method, state, replace(cohort_of([4] * N, EXAMPLES), arrives=arrives)


@pytest.mark.parametrize("engine", [sequential.train, fast.train])
@pytest.mark.parametrize(
    ("name", "loop", "options"),
    [("fedkseed", fedkseed, {"K": 5}), ("spry", spry, {"perturbation_count": 2})],
)
def test_rounds_equal_plain_loops(registry, name, loop, options, engine):
    method, state, cohort = prepared(registry, name, engine, **options)
    for t in range(2):
        expected = loop(flat(state), cohort.batches, t)
        state, report = method.round(state, t, cohort, generator(0, t))
        torch.testing.assert_close(flat(state), expected, rtol=1e-9, atol=1e-9)
        assert method.prices(cohort, t) == report.cost
    assert method.round(state, 2, cohort.only([]), generator(0, 2))[0] is state


def test_fwdllm_equals_plain_loops_while_it_waits_and_when_it_steps(registry):
    method, state, cohort = prepared(registry, "fwdllm", sequential.train, var_threshold=1.2, candidates=3)
    old, pool, waited = None, None, []
    for t in range(6):
        w, old, pool = fwdllm(flat(state), cohort.batches, t, old, pool)
        state, _ = method.round(state, t, cohort, generator(0, t))
        waited.append(pool is not None)
        torch.testing.assert_close(flat(state), w, rtol=1e-8, atol=1e-8)
    assert True in waited and False in waited
