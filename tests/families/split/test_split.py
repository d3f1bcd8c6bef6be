"""Split learning: what it refuses, whom a round loads, and what remains of a message that is spoilt."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from memory import count_from_here, live_bytes
from uncut import MODELS, L

from fedbench.errors import NotApplicable, UserError
from fedbench.families.split import split
from fedbench.models.backbone import Plain
from fedbench.seeding import generator
from fedbench.simulation.faults import Faults, Guard, received
from fedbench.simulation.state import ClientStore
from fedbench.testing.method_check import check_method
from fedbench.testing.setups import cohort_of, same, setup_of, tiny_vit

pytestmark = pytest.mark.usefixtures("counted_once")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"head_blocks": -1}, "head_blocks: expected a whole number of at least 0, got -1"),
        ({"tail_blocks": True}, "tail_blocks: expected a whole number of at least 0, got true"),
        ({"head_blocks": 1.5}, "head_blocks: expected a whole number of at least 0, got 1.5"),
        ({"head_blocks": 2, "tail_blocks": 2}, "at least one stays on the server"),
        ({"client_start": "zero"}, 'client_start: expected "pretrained" or "random", got "zero"'),
        ({"learns": "never"}, 'learns: expected "last_step", "every_step" or "losses", got "never"'),
        ({"fedround": 0}, "fedround: expected a whole number of at least 1, got 0"),
        ({"num_directions": 0}, "num_directions: expected a whole number of at least 1, got 0"),
        ({"server_lr": -1}, "server_lr: expected a number of at least 0, or null, got -1"),
        ({"server_lr": float("nan")}, "server_lr: expected a number of at least 0, or null, got NaN"),
        ({"epsilon": 0}, "epsilon: expected a number above 0, got 0"),
        ({"server_decay": "half"}, 'server_decay: expected a number above 0, got "half"'),
    ],
)
def test_what_means_nothing_is_refused(registry, options, told):
    with pytest.raises(UserError, match=told):
        split(setup_of(registry, tiny_vit(), [L]), **options)


def test_what_cannot_be_cut_or_pulled_is_not_applicable(registry):
    class Whole(torch.nn.Linear):
        num_features = 4

        def forward(self, x):
            return super().forward(x.mean((1, 2, 3))[:, None].expand(-1, 4))

    with pytest.raises(NotApplicable, match="cannot be cut"):
        split(replace(setup_of(registry, tiny_vit(), [L]), backbone=Plain(Whole(4, 4))))
    with pytest.raises(NotApplicable, match="regularisers"):
        split(setup_of(registry, tiny_vit(), [L], regularizer={"fedprox": 0.1}))


OPTIONS = (
    {"name": "fedv", "fedround": 1, "head_blocks": 1, "tail_blocks": 1, "client_start": "pretrained"},
    {"name": "fedv", "server_lr": 0},
    {"name": "fedvz", "num_directions": 2, "tail_blocks": 1},
    {"name": "festa", "fedround": 2, "head_blocks": 2},
    {"name": "festa", "server_optimizer": {"name": "sgd", "momentum": 0.9}},
    {"name": "fedv", "server_optimizer": {"name": "adamw"}},
)


@pytest.mark.parametrize(
    ("options", "make"),
    [  # a server that learns from losses; testing/test_kit.py tries them as they are
        pytest.param(options, make, marks=() if (i, j) == (2, 0) else pytest.mark.slow)
        for i, options in enumerate(OPTIONS)
        for j, make in enumerate(MODELS)
    ],
    ids=lambda of: (
        "".join(str(of.get(key, "")) for key in ("name", "server_lr", "server_optimizer"))
        if isinstance(of, dict)
        else of.__name__
    ),
)
def test_options_keep_the_contract(registry, make, options):
    check_method(lambda setup: registry.make("method", options, setup=setup), registry, make)


@pytest.mark.parametrize("name", ["festa", "fedv"])
def test_clients_may_start_pretrained_around_an_encoder_that_is_drawn(registry, name):
    own = dict(tiny_vit().named_parameters())
    options = {"name": name, "encoder": "random", "client_start": "pretrained", "tail_blocks": 1}
    state = registry.make("method", options, setup=setup_of(registry, tiny_vit(), [L])).init(generator(0))
    theirs = {place.removeprefix("model."): w for place, w in state["shared"].items() if place.startswith("model.")}
    assert len(theirs) > 4 and all(torch.equal(w, own[place]) for place, w in theirs.items())
    servers = {place.removeprefix("model."): w for place, w in state["encoder"].items()}
    assert any(not torch.equal(w, own[place]) for place, w in servers.items() if w.dim() > 1)


def test_aggregators_work_on_heads_and_tails(registry):
    """The coordinate-wise median of three clients' heads, not of the encoder's gradient."""
    setup = setup_of(registry, tiny_vit(), [L] * 3)
    method = registry.make("method", {"name": "fedv", "aggregator": "coordinate_median"}, setup=setup)
    state, report = method.round(method.init(generator(0)), 0, cohort_of([L] * 3), generator(0, 0))
    for name, rows in report.uploads.shared.items():
        torch.testing.assert_close(state["shared"][name], rows.median(0).values)


def test_only_clients_of_the_round_are_loaded(registry):
    """And a round leaves no client's tensors in the state."""
    setup = setup_of(registry, tiny_vit(), [L] * 9)
    method, asked = registry.make("method", {"name": "fedv"}, setup=setup), []
    usual = setup.store.get
    setup.store.get = lambda key, device="cpu": asked.append(key) or usual(key, device)
    state = method.init(generator(0))
    for t, ids in enumerate(([0, 1, 2, 3], [3, 8])):
        state, _ = method.round(state, t, cohort_of([L] * len(ids), ids=ids), generator(0, t))
    assert len(asked) == 1
    assert sorted(state["clients"]) == ["0", "1", "2", "3", "8"]
    assert len({state["clients"][i] for i in "012"}) == 1, "who got the average keeps the same file"


def test_twelve_clients_do_not_cost_twelve_models_of_memory(registry, monkeypatch):
    """All of them in one round, counted when the 4th, the 8th and the last put their heads and tails away."""
    count_from_here()
    setup = setup_of(registry, tiny_vit(dim=32), [L] * 12)
    method = registry.make("method", {"name": "fedv", "head_blocks": 1, "tail_blocks": 2}, setup=setup)
    state = method.init(generator(0))
    one, before, most = sum(w.nbytes for w in state["shared"].values()), live_bytes(), []
    put = ClientStore.put

    def counted(store, own):
        most.append(live_bytes() if len(most) in (3, 7, 11) else 0)
        return put(store, own)

    monkeypatch.setattr(ClientStore, "put", counted)
    state = method.round(state, 1, cohort_of([L] * 12, steps=1), generator(0, 1))[0]
    assert len(state["clients"]) == len(most) == 12
    assert 2 < (max(most) - before) / one < 6  # its start, its weights, gradient, momentum; and the encoder's gradient
    assert max(most) - most[3] < one / 10


def spoilt(setup, kind, client=1):
    """A set-up in which that client's messages arrive spoilt, in every round."""
    faults = Faults({"corrupted": {"probability": 1.0, "kind": kind}}, seed=0)
    usual = faults.kind_of
    faults.kind_of = lambda t, i: usual(t, i) if i == client else ""
    return replace(setup, receive=lambda *of_a_round: received(*of_a_round, faults, Guard()))


@pytest.mark.parametrize(("name", "kind", "t"), [("fedv", "nan", 0), ("fedvz", "wrong_shape", 1), ("festa", "nan", 1)])
def test_of_a_refused_client_nothing_remains(registry, name, t, kind):
    """Whether heads and tails are averaged or not, it is as if its work had been lost."""
    spoiling, well = (setup_of(registry, tiny_vit(), [L] * 3) for _ in range(2))
    a, b = (registry.make("method", {"name": name}, setup=one) for one in (spoilt(spoiling, kind), well))
    cohort = cohort_of([L] * 3)
    with_it, report = a.round(a.init(generator(0)), t, cohort, generator(0, t))
    lost = replace(cohort, arrives=torch.tensor([True, False, True]))
    without, _ = b.round(b.init(generator(0)), t, lost, generator(0, t))
    assert same(with_it, without)
    assert list(report.uploads.rejected) == [1] == list(report.uploads.spoilt)
    assert report.uploads.arrived.tolist() == [True, False, True]


def test_what_a_client_keeps_is_not_spoilt_on_the_way(registry):
    """Boosted a million times, a message moves the encoder; the client's own head and tail it does not, unless they
    were sent."""
    setups = [setup_of(registry, tiny_vit(), [L] * 3) for _ in range(2)]
    a, b = (registry.make("method", {"name": "fedv"}, setup=s) for s in (spoilt(setups[0], "scaled"), setups[1]))
    for t, sent in ((1, False), (0, True)):
        one, two = (m.round(m.init(generator(0)), t, cohort_of([L] * 3), generator(0, t))[0] for m in (a, b))
        assert not same(one["encoder"], two["encoder"])
        assert (one["clients"] == two["clients"]) != sent
