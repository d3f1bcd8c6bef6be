"""Probes of frozen features, written out: gradients by hand, client after client, and their mean."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from ragged import ragged, same
from torch.nn.functional import one_hot

from fedbench.engine import cohort as fast
from fedbench.engine import sequential
from fedbench.seeding import generator
from fedbench.testing.setups import CLASSES, setup_of, tiny_vit

pytestmark = pytest.mark.usefixtures("counted_once")

LR, MOMENTUM, DECAY = 0.3, 0.9, 0.02
SGD = {"name": "sgd", "lr": LR, "momentum": MOMENTUM, "weight_decay": DECAY}
CAPACITIES, STEPS = [4, 2, 2], [3, 2, 1]
ENGINES = pytest.mark.parametrize("engine", [fast.train, sequential.train])


def softmaxs(logits, y):
    """The gradient of the mean cross-entropy by the logits."""
    return (logits.softmax(1) - one_hot(y, CLASSES)) / len(y)


def sigmoids(logits, y):
    """The gradient of the mean over examples of the sum of the classes' binary cross-entropies."""
    return (1 / (1 + (-logits).exp()) - one_hot(y, CLASSES)) / len(y)


def descent(W, b, batches, gradient):
    """SGD with momentum and weight decay on z W^T + b."""
    W, b, v, u = W.clone(), b.clone(), torch.zeros_like(W), torch.zeros_like(b)
    for z, y in batches:
        g = gradient(z @ W.T + b, y)
        v = MOMENTUM * v + g.T @ z + DECAY * W
        u = MOMENTUM * u + g.sum(0) + DECAY * b
        W, b = W - LR * v, b - LR * u
    return W, b


def mean(of_clients, examples):
    return [
        sum(n * one for n, one in zip(examples, part, strict=True)) / sum(examples)
        for part in zip(*of_clients, strict=True)
    ]


def one_round(registry, engine, ref):
    model = tiny_vit()
    cohort = ragged(CAPACITIES, steps=STEPS, sizes=[3, 2])
    setup = setup_of(registry, model, CAPACITIES, engine=engine, optimizer=SGD, clip=None)
    method = registry.make("method", ref, setup=setup)
    start = method.init(generator(0))
    end, report = method.round(start, 0, cohort, generator(0, 0))
    body = setup.backbone

    @torch.no_grad()
    def features(n, depth):
        return [(body.pooled(x, range(depth)), y) for x, y in cohort.batches(n)]

    return start["shared"], end, features, cohort, method


def head(shared, name):
    return shared[f"{name}.weight"], shared[f"{name}.bias"]


@ENGINES
@pytest.mark.parametrize(("name", "gradient"), [("head_only", softmaxs), ("ova_lp", sigmoids)])
def test_a_probe_is_the_mean_of_clients_descents_on_all_layers(registry, engine, name, gradient):
    start, end, features, cohort, _ = one_round(registry, engine, {"name": name})
    found = [descent(*head(start, "head"), features(n, 4), gradient) for n in range(3)]
    same(list(head(end["shared"], "head")), mean(found, cohort.num_examples.tolist()))


@ENGINES
def test_exit_probe_trains_a_classifier_at_each_depth_that_clients_hold(registry, engine):
    """Those of capacity 2 train the one after two layers, the client of capacity 4 both, and the model answers with
    their mean."""
    start, end, features, cohort, method = one_round(registry, engine, {"name": "exit_probe"})
    examples = cohort.num_examples.tolist()
    shallow = [descent(*head(start, "exit2"), features(n, 2), softmaxs) for n in range(3)]
    deep = descent(*head(start, "exit4"), features(0, 4), softmaxs)
    same(list(head(end["shared"], "exit2")), mean(shallow, examples))
    same(list(head(end["shared"], "exit4")), list(deep))
    assert not any(end["r"])  # no adapters

    x, _ = next(cohort.batches(0))
    answered = method.predictor(end)(x)
    each = [
        z @ head(end["shared"], f"exit{d}")[0].T + head(end["shared"], f"exit{d}")[1]
        for d in (2, 4)
        for z, _ in features(0, d)[:1]
    ]
    assert list(answered) == ["ensemble", "last"]
    same(answered["ensemble"], (each[0] + each[1]) / 2)
    same(answered["last"], each[1])


@pytest.mark.parametrize(("steps", "taken"), [("all", 6), ("client", 3)])
def test_pooled_probe_is_one_descent_on_everybodys_batches(registry, steps, taken):
    """`client`: as many steps as the client takes that takes most."""
    start, end, features, *_ = one_round(registry, sequential.train, {"name": "pooled_probe", "steps": steps})
    in_order = [batch for n in range(3) for batch in features(n, 4)][:taken]
    same(list(head(end["shared"], "head")), list(descent(*head(start, "head"), in_order, softmaxs)))
    assert not any(end["r"])


def test_pooled_takes_the_steps_of_one_client_where_it_is_told(registry):
    taken = []

    def engine(model, start, plan, cohort, job):
        taken.append(cohort.steps.tolist())
        return sequential.train(model, start, plan, cohort, job)

    for steps in ("all", "client"):
        one_round(registry, engine, {"name": "pooled", "steps": steps})
    assert taken == [[6], [3]]


def test_a_round_that_nobody_comes_back_from_leaves_pooled_as_it_was(registry):
    setup = setup_of(registry, tiny_vit(), CAPACITIES, engine=sequential.train, optimizer=SGD, clip=None)
    cohort = ragged(CAPACITIES, steps=STEPS, sizes=[3])
    method = registry.make("method", {"name": "pooled_probe", "steps": "client"}, setup=setup)
    start = method.init(generator(0))
    lost = replace(cohort, arrives=torch.zeros(3, dtype=torch.bool))
    same(method.round(start, 0, lost, generator(0, 0))[0]["shared"], start["shared"])
