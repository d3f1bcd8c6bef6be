"""The oracle against plain PyTorch: what a client trains, what it leaves alone, and from where every draw comes."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedbench.engine import sequential
from fedbench.families.layerwise import head_at_end, layerwise
from fedbench.testing.setups import TRAIN, cohort_of, setup_of, tiny_mixer, tiny_vit
from fedbench.types import Job, Plan, Pull
from fedbench_plugins.objectives import cross_entropy


def prepared(registry, model, adapter=None, capacities=(4, 2), **train):
    """A model with adapters and head, and a first state."""
    setup = setup_of(registry, model, list(capacities), adapter, **train)
    method = layerwise(setup)
    return setup, method.init(torch.Generator().manual_seed(1))


def job(**changes):
    options = {"t": 0, "seed": 0, "optimizer": TRAIN["optimizer"], "clip": TRAIN["clip"], "objective": cross_entropy}
    return Job(**{**options, **changes})


@pytest.mark.parametrize("make", [tiny_vit, tiny_mixer])
def test_a_client_equals_a_shallow_model_trained_by_hand(registry, make):
    """Client 1 holds layers 2 and 4: the same as taking the others out and writing the LoRA product by hand."""
    setup, state = prepared(registry, make())
    M = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 1]]).bool()
    plan = Plan(M, [head_at_end(1), head_at_end(2)])
    cohort = cohort_of([1, 2])
    up = sequential.train(setup.backbone, state, plan, cohort, job(clip=0.05))

    layers = [copy.deepcopy(make().blocks[j]).double() for j in (1, 3)]
    whole = make().double()
    leaves = {(i, k): v.clone().requires_grad_() for i, j in enumerate((1, 3)) for k, v in state["r"][j].items()}
    head = {k: v.clone().requires_grad_() for k, v in state["shared"].items()}
    parameters = [*leaves.values(), *head.values()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)
    for x, y in cohort.batches(1):
        whole.blocks = nn.Sequential(*[adapted(layer, i, leaves) for i, layer in enumerate(layers)])
        logits = F.linear(whole(x), head["head.weight"], head["head.bias"])
        optimizer.zero_grad()
        F.cross_entropy(logits, y).backward()
        norm = torch.cat([p.grad.flatten() for p in parameters]).norm()
        for p in parameters:
            p.grad.mul_(min(1.0, 0.05 / (norm + 1e-6)))
        optimizer.step()
    for i, j in enumerate((1, 3)):
        for name, rows in up.r[j].items():
            torch.testing.assert_close(rows[-1], leaves[i, name].detach(), rtol=0, atol=1e-12)
    torch.testing.assert_close(up.shared["head.weight"][1], head["head.weight"].detach(), rtol=0, atol=1e-12)


def adapted(layer, i, leaves):
    """The layer with W replaced by W + (alpha / r) B A, alpha 4 and r 2."""
    targets = sorted({name.rsplit(".", 1)[0] for index, name in leaves if index == i})

    class Adapted(nn.Module):
        def forward(self, x):
            products = {t: 2.0 * leaves[i, f"{t}.lora_B"] @ leaves[i, f"{t}.lora_A"] for t in targets}
            weights = {f"{t}.weight": layer.get_submodule(t).weight + product for t, product in products.items()}
            return torch.func.functional_call(layer, weights, (x,))

    return Adapted()


def test_uploads_have_one_row_for_each_holder(registry):
    setup, state = prepared(registry, tiny_vit())
    M = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 1], [0, 0, 0, 1]]).bool()
    up = sequential.train(
        setup.backbone, state, Plan(M, [head_at_end(2)] * 2 + [head_at_end(1)]), cohort_of([2, 2, 1]), job()
    )
    assert [len(next(iter(r_j.values()))) for r_j in up.r] == [2, 1, 0, 2]
    assert len(up.shared["head.weight"]) == 3 and up.arrived.all() and up.steps.tolist() == [2, 2, 2]


def test_frozen_weights_never_move(registry):
    setup, state = prepared(registry, tiny_vit())
    before = {name: p.clone() for name, p in setup.backbone.named_parameters() if not p.requires_grad}
    sequential.train(setup.backbone, state, Plan(torch.ones(1, 4).bool(), [head_at_end(4)]), cohort_of([4]), job())
    after = dict(setup.backbone.named_parameters())
    assert before and all(torch.equal(value, after[name]) for name, value in before.items())


def test_clients_do_not_see_each_other(registry):
    """A client's upload is the same alone and in company: the order of clients cannot matter."""
    setup, state = prepared(registry, tiny_vit(), {"name": "lora", "rank": 2, "alpha": 4, "dropout": 0.5})
    plan = Plan(torch.ones(2, 4).bool(), [head_at_end(4)] * 2)
    together = sequential.train(setup.backbone, state, plan, cohort_of([4, 4], ids=[3, 5]), job())
    alone = sequential.train(setup.backbone, state, Plan(plan.M[:1], plan.exits[:1]), cohort_of([4], ids=[5]), job())
    for j in range(4):
        for name in together.r[j]:
            assert torch.equal(together.r[j][name][1], alone.r[j][name][0])


def test_dropout_draws_from_seed_round_and_client(registry):
    setup, state = prepared(registry, tiny_vit(), {"name": "lora", "rank": 2, "alpha": 4, "dropout": 0.5})
    plan = Plan(torch.ones(1, 4).bool(), [head_at_end(4)])

    def upload(**changes):
        return sequential.train(setup.backbone, state, plan, cohort_of([4]), job(**changes)).r[0]["attn.proj.lora_B"]

    assert torch.equal(upload(), upload())
    assert not torch.equal(upload(), upload(t=1))
    assert not torch.equal(upload(), upload(seed=1))


def test_a_row_for_each_holder_may_be_where_they_start(registry):
    """A start tensor with one more axis gives each holder its own values (InclusiveFL's own last layers)."""
    setup, state = prepared(registry, tiny_vit())
    plan = Plan(torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0]]).bool(), [head_at_end(1), head_at_end(2)])
    rows = {name: torch.stack([value, value + 1]) for name, value in state["r"][0].items()}
    start = {**state, "r": [rows, *state["r"][1:]]}
    up = sequential.train(setup.backbone, start, plan, cohort_of([1, 2], steps=0), job())
    torch.testing.assert_close(up.r[0]["attn.proj.lora_B"][1], state["r"][0]["attn.proj.lora_B"] + 1)


def test_a_pull_is_a_term_of_the_loss_that_is_not_reported(registry):
    """One step of plain SGD adds lr (<linear>) to what it would be, the quadratic being flat at the start; a second one
    is pulled back by strength (w - w_start)."""
    setup, state = prepared(registry, tiny_vit())
    plan = Plan(torch.ones(1, 4).bool(), [head_at_end(4)])
    options = {"name": "sgd", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}
    linear = {
        "r": [{name: torch.ones(1, *value.shape).double() for name, value in r_j.items()} for r_j in state["r"]],
        "shared": {name: torch.ones(1, *value.shape).double() for name, value in state["shared"].items()},
    }

    def upload(steps, pull):
        chosen = job(optimizer=options, clip=None, objective=lambda o, y, t: 0.0 * o[0].sum() + 3.0, pull=pull)
        return sequential.train(setup.backbone, state, plan, cohort_of([4], steps=steps), chosen)

    for steps, moved in ((1, 0.1), (2, 0.1 + 0.1 * (1 - 0.4 * 0.1))):
        up = upload(steps, Pull(0.4, linear))
        rows = {**up.r[2], **up.shared}
        for name, before in {**state["r"][2], **state["shared"]}.items():
            torch.testing.assert_close(rows[name][0], before + moved, rtol=0, atol=1e-12)
        assert up.loss.tolist() == [3.0]
    assert torch.equal(upload(2, Pull(0.4)).shared["head.weight"][0], state["shared"]["head.weight"])


def test_adamw_trains_too(registry):
    setup, state = prepared(registry, tiny_vit())
    plan = Plan(torch.ones(1, 4).bool(), [head_at_end(4)])
    options = {"name": "adamw", "lr": 0.01, "momentum": 0.0, "weight_decay": 0.1}
    up = sequential.train(setup.backbone, state, plan, cohort_of([4]), job(optimizer=options))
    assert not torch.equal(up.shared["head.weight"][0], state["shared"]["head.weight"])


def test_an_empty_cohort_returns_empty_uploads(registry):
    setup, state = prepared(registry, tiny_vit())
    up = sequential.train(setup.backbone, state, Plan(torch.zeros(0, 4).bool(), []), cohort_of([]), job())
    assert len(up.arrived) == 0 and up.shared["head.weight"].shape == (0, 3, 8)
