"""Two rounds of FedRA with FedDyn against plain loops."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedbench.seeding import generator
from fedbench.testing.setups import cohort_of, setup_of, tiny_vit
from fedbench.types import Cohort

pytestmark = pytest.mark.usefixtures("never_counted")

A = 0.5
CAPACITIES, EXAMPLES, STEPS, IDS = [3, 2, 1], [4, 2, 6], 3, [[0, 1, 2], [2, 0]]
OPTIMIZER = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
CLIP = 0.4


def cohort_in(t) -> Cohort:
    ids = IDS[t]
    return cohort_of([CAPACITIES[i] for i in ids], [EXAMPLES[i] for i in ids], STEPS, ids)


def logits_of(layers, own, x):
    """timm's ViT with the layers in S_n alone, every adapted weight written as W + (alpha / r) B A."""
    vit = copy.deepcopy(tiny_vit()).double()
    kept = [vit.blocks[j] for j in layers]
    vit.blocks = nn.Sequential(*kept)
    weights = {}
    for i, j in enumerate(layers):
        for target in ("attn.proj", "mlp.fc2"):
            B, A_ = (own[f"{j}.{target}.lora_{part}"] for part in "BA")
            weights[f"blocks.{i}.{target}.weight"] = kept[i].get_submodule(target).weight.detach() + 2.0 * B @ A_
    return F.linear(torch.func.functional_call(vit, weights, (x,)), own["head.weight"], own["head.bias"])


def tuned(layers, w_global, g_n, batches):
    """Momentum SGD on the clipped gradient of loss - <g_n, w> + a / 2 ||w - w_global||^2; also the losses' mean."""
    w = {k: v.clone() for k, v in w_global.items() if k.startswith(("head.", *(f"{j}." for j in layers)))}
    velocity, losses = {}, []
    for x, y in batches:
        leaves = {name: value.clone().requires_grad_() for name, value in w.items()}
        loss = F.cross_entropy(logits_of(layers, leaves, x), y)
        losses.append(loss.item())
        found = torch.autograd.grad(loss, list(leaves.values()))
        gradient = {k: found[i] - g_n.get(k, 0) + A * (w[k] - w_global[k]) for i, k in enumerate(w)}
        norm = sum((g**2).sum() for g in gradient.values()).sqrt()
        for k in w:
            direction = gradient[k] * min(1.0, CLIP / (norm + 1e-6)) + 0.01 * w[k]
            velocity[k] = 0.9 * velocity[k] + direction if k in velocity else direction
            w[k] = w[k] - 0.1 * velocity[k]
    return w, sum(losses) / len(losses)


def test_two_rounds_of_fedra_equal_plain_loops(registry):
    setup = setup_of(registry, tiny_vit(), CAPACITIES, regularizer={"feddyn": A}, optimizer=OPTIMIZER, clip=CLIP)
    method = registry.make("method", {"name": "fedra"}, setup=setup)
    state = method.init(generator(0))
    model = flat(state)
    g, h = {n: {} for n in range(3)}, {}
    for t in range(2):
        cohort = cohort_in(t)
        state, report = method.round(state, t, cohort, generator(0, t))
        returned, losses = [], []
        for row, n in enumerate(IDS[t]):
            layers = report.plan.M[row].nonzero().flatten().tolist()
            w_n, loss = tuned(layers, model, g[n], cohort.batches(row))
            returned.append((EXAMPLES[n], w_n))
            losses.append(loss)
            for k in w_n:
                g[n][k] = g[n].get(k, 0) - A * (w_n[k] - model[k])
        for k, before in list(model.items()):
            came = [(d, w_n[k]) for d, w_n in returned if k in w_n]
            if came:
                h[k] = h.get(k, 0) - A / 3 * sum(w - before for _, w in came)
                model[k] = sum(d * w for d, w in came) / sum(d for d, _ in came) - h[k] / A
        torch.testing.assert_close(flat(state), model, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(report.uploads.loss, torch.tensor(losses).double(), rtol=1e-7, atol=0)
    assert not report.plan.M.any(0).all()  # a layer that nobody held has kept its value


def flat(state):
    return {f"{j}.{name}": v for j, r_j in enumerate(state["r"]) for name, v in r_j.items()} | state["shared"]
