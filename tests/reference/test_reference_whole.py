"""Two rounds of the whole-model methods in float64 against plain loops with gradients written out by hand, see
whole_loops.py."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from whole_loops import (
    CLASSES,
    DIM,
    EXAMPLES,
    HIDDEN,
    NORMS,
    PICTURES,
    ROUNDS,
    SIDE,
    STEPS,
    TRAIN,
    averaging,
    batches_of,
    decoupled,
    dittos,
    forward,
    hyper,
    looped,
    made,
    sending,
)

from fedbench.seeding import generator
from fedbench.testing.setups import setup_of
from fedbench.types import Cohort

pytestmark = pytest.mark.usefixtures("counted_once")


class Net(nn.Module):
    num_features = DIM

    def __init__(self):
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.W = nn.Parameter(0.1 * torch.randn(DIM, 3 * SIDE * SIDE, generator=draw))
        self.b = nn.Parameter(torch.randn(DIM, generator=draw))

    def forward(self, x):
        return torch.tanh(x.flatten(1) @ self.W.T + self.b)


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
    own = {"personal.weight": "P", "personal.bias": "d", "a_m": "a"}
    own |= {
        f"{part}.{kind}": f"{kind[0]}{n}"
        for n, part in ((1, "hyper_hidden"), (2, "hyper_made"))
        for kind in ("weight", "bias")
    }
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


HYPER = {"name": "fedrod", "personal": "hypernetwork", "hidden": HIDDEN}


@pytest.mark.parametrize(("balance", "gamma"), [("softmax", 1.0), ("risk", 0.5)])
def test_fedrod_with_a_hypernetwork(ran, balance, gamma):
    first, last, own, losses, predict = ran({**HYPER, "balance": balance, "gamma": gamma})
    assert first["w1"].shape == (HIDDEN, CLASSES) and first["w2"].shape == (CLASSES * DIM + CLASSES, HIDDEN)
    assert not first["w2"].any() and not first["b2"].any() and first["w1"].any()  # the heads begin at 0
    w, told, kept = looped(first, hyper, balance=balance, gamma=gamma)
    close(last, w)
    np.testing.assert_allclose(np.concatenate(losses), np.concatenate(told), atol=1e-12)
    assert own.keys() == kept.keys() == {0, 1, 2, 3}
    z, g = forward(w, PICTURES)
    for i in kept:
        close(own[i], kept[i])
        P, d = made(w, kept[i]["a"])[2:]
        assert np.abs(P).max() > 1e-3
        answers_alike(predict(i), g + z @ P.T + d)
    answers_alike(predict(), g)
    answers_alike(predict(7), g)


@pytest.mark.parametrize("other", ["together", "by counts", "moves the body", "kept apart"])
def test_another_rule_of_the_hypernetwork_is_noticed(ran, other):
    first, last, *_ = ran(HYPER)
    w = looped(first, hyper, balance="softmax", gamma=1.0, other=other)[0]
    with pytest.raises(AssertionError):
        close(last, w)


def answers_alike(predict, expected):
    np.testing.assert_allclose(predict(torch.from_numpy(PICTURES)).numpy(), expected, atol=1e-12)


def test_the_gradients_are_clipped_in_some_steps_and_not_in_others(ran):
    looped(ran({"name": "fedavg"})[0], averaging)
    assert min(NORMS) < TRAIN["clip"] < max(NORMS), sorted(NORMS)
