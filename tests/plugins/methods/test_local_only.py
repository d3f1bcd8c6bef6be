"""No federation: a client's model is what it made of its own images, and nobody else's."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedbench.errors import NotApplicable
from fedbench.models import cost
from fedbench.models.param_paths import places
from fedbench.seeding import generator
from fedbench.testing.setups import cohort_of, same, setup_of, tiny_vit
from fedbench.types import Exit

X = torch.randn(2, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def free(monkeypatch):
    """Where nobody asks what a round costs."""
    monkeypatch.setattr(cost, "measure", lambda *given, **more: None)


def made(registry, name="local_only", **train):
    setup = setup_of(registry, tiny_vit(), [4, 2], **train)
    return setup, registry.make("method", {"name": name}, setup=setup)


def after(method, rounds, arrives=None):
    """The state after rounds of these (clients, capacities)."""
    state = method.init(generator(0))
    for t, (ids, capacities) in enumerate(rounds):
        cohort = cohort_of(capacities, ids=ids)
        if arrives is not None:
            cohort = replace(cohort, arrives=torch.tensor(arrives))
        state, report = method.round(state, t, cohort, generator(0, t))
    return state, report


def test_a_client_alone_has_what_alllarge_makes_of_it_and_others_change_nothing(free, registry):
    """Two rounds: the mean over one client is what it sent."""
    _, method = made(registry)
    _, alone = made(registry, "alllarge")
    together, _ = after(method, [([0, 1], [4, 4]), ([0, 1], [4, 4])])
    for client in (0, 1):
        trained, _ = after(alone, [([client], [4]), ([client], [4])])
        torch.testing.assert_close(method.predictor(together, client)(X), alone.predictor(trained)(X), rtol=0, atol=0)


def test_a_clients_model_is_as_deep_as_it_last_was(free, registry):
    setup, method = made(registry)
    state, report = after(method, [([0, 1], [4, 2])])
    shallow = method.predictor(state, 1)
    assert list(shallow.layers) == [0, 1] and shallow.exits == [Exit(2, "head")]
    own = setup.store.get(state["clients"]["1"])
    assert torch.equal(own["shared/head.weight"], report.uploads.shared["head.weight"][1])
    assert torch.equal(own["r/1/attn.proj.lora_B"], report.uploads.r[1]["attn.proj.lora_B"][1])
    assert not any(place.startswith(("r/2", "r/3")) for place in own)
    torch.testing.assert_close(shallow(X), setup.backbone(X, range(2), [Exit(2, "head")])[0])
    state, _ = after(method, [([1], [2]), ([1], [3])])
    assert list(method.predictor(state, 1).layers) == [0, 1, 2]


def test_there_is_no_global_model_but_the_start(free, registry):
    _, method = made(registry)
    start = method.init(generator(0))
    state, _ = after(method, [([0, 1], [4, 2])])
    for (place, value), (_, before) in zip(places(state), places(start), strict=True):
        assert torch.equal(value, before), place
    expected = method.predictor(start)(X)
    assert torch.equal(method.predictor(state)(X), expected) and expected.isfinite().all()
    assert torch.equal(method.predictor(state, 7)(X), expected)  # it never took part
    assert not torch.equal(method.predictor(state, 0)(X), expected)


def test_lost_work_is_not_kept(free, registry):
    _, method = made(registry)
    state, _ = after(method, [([0, 1], [4, 2])], arrives=[True, False])
    assert set(state["clients"]) == set(state["memory"]["depths"]) == {"0"}
    start = method.init(generator(0))
    assert same(after(method, [([0, 1], [4, 2])], arrives=[False, False])[0], start)


def test_nothing_but_the_frozen_layers_is_sent(registry):
    _, method = made(registry)
    price = method.cost(2, 0)
    assert [sent.what for sent in price.sent] == ["backbone"] and price.bytes_up == 0
    assert method.personal


def test_feddyn_has_nothing_to_correct(registry):
    with pytest.raises(NotApplicable, match="local_only has none"):
        made(registry, regularizer={"feddyn": 0.1})
