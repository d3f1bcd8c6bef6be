"""Layers that change by stage or by batch, against plain loops over lists of layers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_reference_ranks import ALPHA, EXAMPLES, OPTIMIZER, PLACES, VIT, R, flat
from torch.nn import functional as F

from fedbench.engine import cohort as fast
from fedbench.engine import sequential
from fedbench.errors import NotApplicable
from fedbench.seeding import generator, numpy_generator
from fedbench.testing.setups import cohort_of, setup_of, tiny_vit
from fedbench.types import Size

pytestmark = pytest.mark.usefixtures("counted_once", "never_counted")

T, B = 4, 2  # rounds, blocks of two layers


def logits_of(w, x, layers):
    """timm's parts by name, these layers with W + s B A, then its norm and the class token."""
    weights = {}
    for at in PLACES:
        layer, _, target = at.partition(".")
        W = VIT.blocks[int(layer)].get_submodule(target).weight.detach()
        weights[at] = W + ALPHA / R * w[f"{at}.lora_B"] @ w[f"{at}.lora_A"]
    tokens = VIT._pos_embed(VIT.patch_embed(x))
    for j in layers:
        own = {f"{target}.weight": weights[f"{j}.{target}"] for target in ("attn.proj", "mlp.fc2")}
        tokens = torch.func.functional_call(VIT.blocks[j], own, (tokens,))
    return F.linear(VIT.norm(tokens)[:, 0], w["head.weight"], w["head.bias"])


def stage_loop(w, batches, t, clients):
    block = t * B // T
    layers, depth = range(2 * block, 2 * block + 2), 2 * block + 2
    mine = [k for k in w if k.startswith("head") or int(k[0]) in layers]
    uploads = {}
    for n in clients:
        own, velocity = dict(w), {}
        for x, y in batches(n):
            leaves = {k: own[k].clone().requires_grad_() for k in mine}
            loss = F.cross_entropy(logits_of(own | leaves, x, range(depth)), y)
            for k, g in zip(mine, torch.autograd.grad(loss, [*leaves.values()]), strict=True):
                step = g + 0.01 * own[k]
                velocity[k] = 0.9 * velocity[k] + step if k in velocity else step
                own[k] = own[k] - 0.1 * velocity[k]
        uploads[n] = own
    total = sum(EXAMPLES[n] for n in clients)
    return w | {k: sum(EXAMPLES[n] / total * uploads[n][k] for n in clients) for k in mine}


def batch_loop(w, batches, t, capacities, mu):
    """L_n other layers in each batch; neither a step, momentum nor FedProx's pull for what it does not run."""
    uploads = []
    for n, L_n in enumerate(capacities):
        own, velocity = dict(w), {}
        for step, (x, y) in enumerate(batches(n)):
            layers = sorted(numpy_generator(0, t, n, f"layers/{step}").permutation(4)[:L_n].tolist())
            mine = [k for k in w if k.startswith("head") or int(k[0]) in layers]
            leaves = {k: own[k].clone().requires_grad_() for k in mine}
            loss = F.cross_entropy(logits_of(own | leaves, x, layers), y)
            for k, g in zip(mine, torch.autograd.grad(loss, [*leaves.values()]), strict=True):
                direction = g + mu * (own[k] - w[k]) + 0.01 * own[k]
                velocity[k] = 0.9 * velocity[k] + direction if k in velocity else direction
                own[k] = own[k] - 0.1 * velocity[k]
        uploads.append(own)
    total = sum(EXAMPLES)
    return {k: sum(e / total * up[k] for e, up in zip(EXAMPLES, uploads, strict=True)) for k in w}


def prepared(registry, engine, capacities, regularizer=None, **method):
    adapter, how = {"name": "lora", "rank": R, "alpha": ALPHA}, {"clip": None, "regularizer": regularizer}
    setup = setup_of(registry, tiny_vit(), capacities, adapter, optimizer=OPTIMIZER, rounds=T, **how)
    method = registry.make(
        "method", method or {"name": "block_stages", "blocks": B}, setup=replace(setup, engine=engine)
    )
    state, draw = method.init(generator(0)), torch.Generator().manual_seed(7)
    for tensors in (*state["r"], state["shared"]):
        for value in tensors.values():
            value.normal_(0, 0.3, generator=draw)
    return method, state, cohort_of(capacities, EXAMPLES[: len(capacities)])


@pytest.mark.parametrize("engine", [sequential.train, fast.train])
def test_every_stage_equals_plain_loops_and_answers_with_the_layers_so_far(registry, engine):
    method, state, cohort = prepared(registry, engine, [4, 2, 1, 3])
    x = torch.randn(3, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for t in range(T):
        expected = stage_loop(flat(state), cohort.batches, t, [0, 1, 3])  # client 2 can train one layer alone
        state, report = method.round(state, t, cohort, generator(0, t))
        torch.testing.assert_close(flat(state), expected, rtol=1e-11, atol=1e-11)
        depth = 2 + 2 * (t >= T // 2)
        assert report.plan.M.sum(1).tolist() == [depth] * 3 and report.plan.trains.sum(1).tolist() == [2] * 3
        torch.testing.assert_close(method.predictor(state)(x), logits_of(flat(state), x, range(depth)))
    assert list(method.sizes) == [Size(4)] and method.running(Size(3)) is None and method.running(Size(4))
    assert torch.equal(method.at(state, Size(4))(x), method.predictor(state)(x))
    assert method.averages == "examples"  # as its aggregator says


def test_it_is_not_applicable_where_nobody_can_train_the_largest_block(registry):
    with pytest.raises(NotApplicable, match="no client can train a block of 2 layers"):
        prepared(registry, sequential.train, [1, 1])


def test_more_blocks_than_layers_are_one_for_each(registry):
    method, _, _ = prepared(registry, sequential.train, [1], name="block_stages", blocks=9)
    assert method.price(1, 0) == method.price(4, 0)


@pytest.mark.parametrize("mu", [0.0, 0.5])
@pytest.mark.parametrize("engine", [sequential.train, fast.train])
def test_layers_of_a_batch_equal_plain_loops(registry, engine, mu):
    capacities, pull = [4, 2, 1, 3], {"fedprox": mu} if mu else None
    method, state, cohort = prepared(registry, engine, capacities, pull, name="batch_layers")
    for t in range(2):
        expected = batch_loop(flat(state), cohort.batches, t, capacities, mu)
        state, report = method.round(state, t, cohort, generator(0, t))
        torch.testing.assert_close(flat(state), expected, rtol=1e-11, atol=1e-11)
        assert report.plan.M.all() and len(report.cost) == 4
