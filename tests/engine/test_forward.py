"""Clients of forward passes alone: losses and derivatives are those of backward passes, whatever is predicted."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_texts import tiny_bert, tiny_llama

from fedbench.engine import cohort as fast
from fedbench.engine import sequential
from fedbench.models.backbone import HEAD, body_of
from fedbench.models.param_paths import places
from fedbench.models.tokens import UNCOUNTED, over_tokens
from fedbench.testing.setups import CLASSES, tiny_mixer, tiny_vit
from fedbench.types import Cohort, Exit, Job, Plan
from fedbench_plugins.adapters.lora import lora
from fedbench_plugins.objectives import cross_entropy

pytestmark = pytest.mark.usefixtures("counted_once", "never_counted")

SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}


def images(draw):
    return torch.randn(5, 3, 8, 8, generator=draw, dtype=torch.float64), torch.randint(CLASSES, (5,), generator=draw)


def texts(draw):
    return torch.randint(4, 20, (5, 6), generator=draw), torch.randint(CLASSES, (5,), generator=draw)


def tokens(draw):
    y = torch.randint(4, 20, (5, 6), generator=draw)
    y[:, :2], y[0, 3:] = UNCOUNTED, UNCOUNTED
    return torch.randint(4, 20, (5, 6), generator=draw), y


KINDS = {
    "vit": (tiny_vit, images),
    "mixer": (tiny_mixer, images),
    "bert": (tiny_bert, texts),
    "llama": (tiny_llama, texts),
    "next tokens": (tiny_llama, tokens),
}


def model_of(kind, dropout):
    made = body_of(KINDS[kind][0]()).double()
    if kind == "next tokens":
        made.predict_tokens()
    lora(rank=2, alpha=4, targets="last_fc", dropout=dropout)(made)
    made.add_classifier(HEAD, CLASSES)
    return made.double().eval()


def round_of(kind, forward, dropout=0.0, micro_batch=None, **plan):
    """One client of three layers and one batch."""
    model, batch = model_of(kind, dropout), KINDS[kind][1](torch.Generator().manual_seed(1))
    draw = torch.Generator().manual_seed(0)
    values = {p: 0.3 * torch.randn(v.shape, generator=draw, dtype=torch.float64) for p, v in model.trained().items()}
    r = [{name: values[f"r/{j}/{name}"] for name in model.r(j)} for j in range(4)]
    start = {"r": r, "shared": {name: values[f"shared/{name}"] for name in model.shared()}}
    M = torch.tensor([[1, 0, 1, 1]], dtype=torch.bool)
    one = torch.ones(1, dtype=torch.int64)
    cohort = Cohort([0], 3 * one, 5 * one, one, lambda n: iter([batch, batch]))
    objective = over_tokens(cross_entropy) if kind == "next tokens" else cross_entropy
    job = Job(0, 0, SGD, None, objective, micro_batch=micro_batch, forward=forward)
    return model, start, Plan(M, [[Exit(3, HEAD)]], **plan), cohort, job


def derived(kind, **more):
    """The client's loss and derivative along a random direction, and the gradient of a backward pass times that."""
    found = {}

    def forward(client):
        draw = torch.Generator().manual_seed(2)
        v = {p: torch.randn(w.shape, generator=draw, dtype=w.dtype) for p, w in client.parameters.items()}
        (batch,) = client.batches()
        found["pass"] = client.loss(batch)
        found["loss"], found["slope"] = client.derivative(batch, v)
        found["v"] = v
        return found["loss"]

    given = round_of(kind, forward, **more)
    up = sequential.train(*given)
    model, start, plan, cohort, job = given
    back = flat(sequential.train(model, start, plan, cohort, replace(job, forward=None)))
    before = dict(places(start))
    gradient = {p: (before[p] - back[p][0]) / SGD["lr"] for p in found["v"]}
    return found, sum((gradient[p] * v).sum() for p, v in found["v"].items()), up


def flat(up):
    return dict(places({"r": up.r, "shared": up.shared}))


@pytest.mark.parametrize("micro_batch", [None, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_forward_mode_gives_the_slope_of_the_backward_pass(kind, micro_batch):
    found, expected, up = derived(kind, micro_batch=micro_batch)
    within = 1e-9 if KINDS[kind][0] is not tiny_llama else 1e-7  # whose norms are in float32
    torch.testing.assert_close(torch.tensor(found["slope"], dtype=torch.float64), expected, rtol=within, atol=within)
    assert found["pass"] == pytest.approx(found["loss"], rel=within) == up.loss.item()


def test_dropout_is_that_of_training_in_forward_mode_and_off_in_a_plain_pass():
    found, expected, _ = derived("vit", dropout=0.5)
    torch.testing.assert_close(torch.tensor(found["slope"], dtype=torch.float64), expected, rtol=1e-9, atol=1e-11)
    assert found["pass"] == pytest.approx(derived("vit")[0]["pass"], rel=1e-12) != found["loss"]


def test_a_client_sends_what_it_has_moved_and_nothing_of_terms_that_it_does_not_train():
    def forward(client):
        for parameter in client.parameters.values():
            parameter.data += 1.0
        client.mask()
        return 0.5

    terms = torch.zeros(1, 4, 2, dtype=torch.bool)
    terms[0, :, 0] = True
    given = round_of("vit", forward, trained_terms=terms & torch.tensor([[1, 0, 1, 1]]).bool()[:, :, None])
    before = dict(places(given[1]))
    one, other = (flat(train(*given)) for train in (sequential.train, fast.train))
    moved = one["r/2/attn.proj.lora_A"][0] - before["r/2/attn.proj.lora_A"]
    torch.testing.assert_close(moved, torch.tensor([1.0, 0.0], dtype=torch.float64)[:, None].expand_as(moved))
    assert all(torch.equal(rows, other[place]) for place, rows in one.items())
