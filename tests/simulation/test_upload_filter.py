"""What the server takes of what clients send: a refused upload is a lost one, and everything else is left alone."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from fedbench.engine import cohort as fast
from fedbench.engine import sequential
from fedbench.families.layerwise import head_at_end
from fedbench.seeding import generator
from fedbench.simulation.faults import NOT_FINITE, TOO_LARGE, WRONG_SHAPE, WRONG_TYPE, Faults, Guard, received
from fedbench.simulation.round_records import RoundRecords
from fedbench.testing.setups import cohort_of, same, setup_of, tiny_vit
from fedbench.types import Plan, Report, Uploads

pytestmark = pytest.mark.usefixtures("counted_once")

CAPACITIES = [4, 3, 2, 1]
REFUSED = {"nan": NOT_FINITE, "inf": NOT_FINITE, "wrong_shape": WRONG_SHAPE, "scaled": TOO_LARGE}
OWN = {"name": "inclusivefl", "own_last_layer": True, "aggregator": "weighted_mean"}  # one start for each client


def spoiling(kind, probability=1.0, **more):
    return Faults({"corrupted": {"kind": kind, "probability": probability, **more}}, seed=0)


class Only(Faults):
    """The same for some clients, always."""

    def __init__(self, clients, **how):
        super().__init__({"corrupted": {"probability": 1.0, **how}}, seed=0)
        self.clients = clients

    def kind_of(self, t, client):
        return super().kind_of(t, client) if client in self.clients else ""


def made(registry, ref, faults=None, guard=None, engine=sequential.train, **train):
    """A method whose uploads are received as those of a simulation are."""

    def receiving(model, start, plan, cohort, job):
        up = engine(model, start, plan, cohort, job)
        return received(up, start, plan, cohort, job.t, faults or Faults({}, 0), Guard(guard))

    setup = replace(setup_of(registry, tiny_vit(), CAPACITIES, **train), engine=receiving)
    return registry.make("method", ref if isinstance(ref, dict) else {"name": ref}, setup=setup)


def rounds(method, T=2, arrives=None):
    state, reports = method.init(generator(0)), []
    for t in range(T):
        cohort = cohort_of(CAPACITIES)
        cohort = cohort if arrives is None else replace(cohort, arrives=torch.tensor(arrives))
        state, report = method.round(state, t, cohort, generator(0, t))
        reports.append(report)
    return state, reports


# --- one message --------------------------------------------------------------------------------------------------

GIVEN = {"r/0/A": torch.tensor([[1.0, 2.0]]), "shared/head.bias": torch.tensor([0.0])}


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        ("r/0/A", torch.tensor([[4.0, 6.0]]), None),
        ("r/0/A", torch.tensor([[1.0, float("nan")]]), NOT_FINITE),
        ("shared/head.bias", torch.tensor([float("-inf")]), NOT_FINITE),
        ("r/0/A", torch.tensor([[1e30, -1e30]]), None),  # large, but a number
        ("r/0/A", torch.tensor([1.0, 2.0]), WRONG_SHAPE),
        ("shared/head.bias", torch.tensor(0.0), WRONG_SHAPE),
        ("shared/head.bias", torch.zeros(1, dtype=torch.float64), WRONG_TYPE),
        ("shared/head.bias", torch.zeros(1, dtype=torch.int64), WRONG_TYPE),
        ("shared/head.bias", torch.full((2,), float("nan")), WRONG_SHAPE),
    ],
)
def test_malformed_messages_are_refused(place, value, reason):
    assert Guard().refused({3: ({**GIVEN, place: value}, GIVEN), 4: (GIVEN, GIVEN)}) == ({3: reason} if reason else {})


def test_the_norm_is_that_of_the_whole_update():
    """(3, 4) in a layer and 12 in the head: 13."""
    sent = {"r/0/A": torch.tensor([[4.0, 6.0]]), "shared/head.bias": torch.tensor([12.0])}
    assert not Guard({"max_norm": 13.0}).refused({0: (sent, GIVEN)})
    assert Guard({"max_norm": 12.99}).refused({0: (GIVEN, GIVEN), 1: (sent, GIVEN)}) == {1: TOO_LARGE}
    assert not Guard({"max_norm": 1e-9}).refused({0: (GIVEN, GIVEN)})


def test_whole_numbers_have_no_part_in_the_norm():
    """A client's counts are no update, however large."""
    counts = {"shared/counts": torch.tensor([30, 40])}
    begun = {"shared/counts": torch.zeros(2, dtype=torch.int64)}
    guard = Guard({"max_norm": 1.0})
    assert not guard.refused({0: (counts, begun), 1: (GIVEN | counts, GIVEN | begun)})
    assert guard.refused({0: ({**counts, "r/0/A": torch.tensor([[1.0, 3.5]])}, GIVEN | begun)}) == {0: TOO_LARGE}


# --- a round ------------------------------------------------------------------------------------------------------


def uploads_of(M):
    """An invented round: every number of client n's upload is 10 n + its layer, or 10 n + 9 for the classifier."""
    N, L = M.shape
    r = [{"A": torch.stack([torch.full((2,), 10.0 * n + j) for n in M[:, j].nonzero().flatten()])} for j in range(L)]
    shared = {"head.weight": torch.stack([torch.full((3,), 10.0 * n + 9) for n in range(N)])}
    up = Uploads(r, shared, torch.ones(N) > 0, torch.zeros(N), torch.ones(N), torch.zeros(N))
    start = {"r": [{"A": torch.zeros(2)} for _ in range(L)], "shared": {"head.weight": torch.zeros(3)}}
    return up, start, Plan(M, [head_at_end(L_n) for L_n in M.sum(1).tolist()])


M = torch.tensor([[1, 1], [0, 1], [1, 1]]).bool()


def test_without_faults_the_uploads_are_those_of_the_engine():
    up, start, plan = uploads_of(M)
    cohort = cohort_of([2, 1, 2])
    assert received(up, start, plan, cohort, 0, Faults({}, 0), Guard()) is up
    assert received(up, start, plan, cohort, 0, spoiling("nan", probability=0.0), Guard({"max_norm": 1e9})) is up


def test_rows_reach_their_own_clients_and_the_given_ones_stay():
    up, start, plan = uploads_of(M)
    before = up.r[1]["A"].clone()
    taken = received(up, start, plan, cohort_of([2, 1, 2]), 0, Only({1}, kind="scaled", scale=-2.0), Guard())
    assert taken.arrived.all() and not taken.rejected
    assert taken.r[0] is not up.r[0] and torch.equal(taken.r[0]["A"], up.r[0]["A"])  # client 1 does not hold it
    assert taken.r[1]["A"][:, 0].tolist() == [1.0, -22.0, 21.0]
    assert taken.shared["head.weight"][:, 0].tolist() == [9.0, -38.0, 29.0]
    assert torch.equal(up.r[1]["A"], before) and torch.equal(taken.own.r[1]["A"], before)


def test_a_message_is_what_its_client_trained_of_what_it_holds():
    """Two layers held by all; client 1 does not train the first, and of the second its first coordinate alone."""
    up, start, plan = uploads_of(torch.ones(3, 2) > 0)
    trained = torch.tensor([[1, 1], [0, 1], [1, 1]]) > 0
    up.r[0]["A"] = up.r[0]["A"][[0, 2]]
    up.r[1]["A"][1, 1] = 7.0  # what it began with
    start["r"] = [{"A": torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])}, {"A": torch.full((3, 2), 7.0)}]
    up.coordinates = {"r/1/A": torch.tensor([[1, 1], [1, 0], [1, 1]]) > 0}
    given = (start, replace(plan, trained=trained), cohort_of([2, 1, 2]), 0)
    taken = received(up, *given, Only({1, 2}, kind="scaled", scale=-1.0), Guard())
    assert taken.r[0]["A"][:, 0].tolist() == [0.0, 2 - (20 - 2)]  # of client 2, which began with 2
    assert taken.r[1]["A"].tolist() == [[1.0, 1.0], [7 - (11 - 7), 7.0], [7 - (21 - 7)] * 2]
    noisy = received(up, *given, Only({1}, kind="noise", scale=1.0), Guard())
    assert noisy.r[1]["A"][1, 1] == 7.0 != noisy.r[1]["A"][1, 0]
    norm = math.hypot(11 - 7, *[19.0 - 9.0 + 9] * 3)  # one coordinate, and the classifier
    assert received(up, *given, Faults({}, 0), Guard({"max_norm": norm + 0.01})).arrived[1]
    refused = received(up, *given, Faults({}, 0), Guard({"max_norm": norm - 0.01}))
    assert refused.rejected[1] == TOO_LARGE and refused.r[1]["A"][1].isnan().all()


def test_a_refused_upload_leaves_no_number_behind():
    up, start, plan = uploads_of(M)
    taken = received(up, start, plan, cohort_of([2, 1, 2]), 0, Only({2}, kind="wrong_shape"), Guard())
    assert taken.arrived.tolist() == [True, True, False] and taken.rejected == {2: WRONG_SHAPE}
    assert taken.r[0]["A"].isnan().tolist() == [[False] * 2, [True] * 2]
    assert taken.shared["head.weight"][:, 0].isnan().tolist() == [False, False, True]
    assert up.arrived.all()


def test_what_is_lost_is_neither_spoilt_nor_refused():
    up, start, plan = uploads_of(M)
    up.arrived[:] = torch.tensor([False, True, False])
    up.r[0]["A"][:] = float("nan")  # of clients 0 and 2
    assert received(up, start, plan, cohort_of([2, 1, 2]), 0, Only({0}, kind="nan"), Guard()) is up


def test_a_client_is_measured_against_what_it_was_given_itself():
    """Where every client starts from values of its own, one row each."""
    up, start, plan = uploads_of(M)
    start = {"r": [{"A": up.r[0]["A"] + 1.0}, {"A": up.r[1]["A"].clone()}], "shared": dict(up.shared)}
    taken = received(up, start, plan, cohort_of([2, 1, 2]), 0, Only({2}, kind="scaled", scale=3.0), Guard())
    assert taken.r[0]["A"][:, 0].tolist() == [0.0, 18.0]  # 21 - 3
    assert torch.equal(taken.r[1]["A"], up.r[1]["A"])
    refused = received(up, start, plan, cohort_of([2, 1, 2]), 0, Faults({}, 0), Guard({"max_norm": 1.0})).rejected
    assert refused == {0: TOO_LARGE, 2: TOO_LARGE}


# --- whole methods ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ref", "kind"),
    [("depthfl", "nan"), (OWN, "wrong_shape"), ("fedra", "scaled")],
)
def test_a_refused_upload_is_a_lost_one(registry, ref, kind):
    guard = {"max_norm": 100.0} if kind == "scaled" else None
    state, reports = rounds(made(registry, ref, Only({1, 3}, kind=kind), guard))
    lost, _ = rounds(made(registry, ref), arrives=[True, False, True, False])
    assert same(state, lost)
    for report in reports:
        found = {report.cohort.ids[n]: reason for n, reason in report.uploads.rejected.items()}
        assert found == {n: REFUSED[kind] for n in (1, 3) if n in report.cohort.ids}


def test_feddyns_books_do_not_know_of_a_refused_upload(registry):
    ref, feddyn = {"name": "fedra", "aggregator": "norm_clipping"}, {"regularizer": {"feddyn": 0.5}}
    state, _ = rounds(made(registry, ref, Only({0}, kind="nan"), **feddyn))
    lost, _ = rounds(made(registry, ref, **feddyn), arrives=[False, True, True, True])
    assert same(state, lost) and "0" not in state["feddyn"]["g"]


def test_a_round_of_refused_uploads_changes_nothing(registry):
    method = made(registry, "inclusivefl", spoiling("inf"))
    start = method.init(generator(0))
    state, report = method.round(start, 0, cohort_of(CAPACITIES), generator(0, 0))
    assert same(state, start) and not report.uploads.arrived.any()


def test_both_engines_meet_the_same_faults(registry):
    ref, faults = {"name": "fedra", "aggregator": "coordinate_median"}, spoiling("noise", probability=0.5)
    one, slow = rounds(made(registry, ref, faults))
    two, quick = rounds(made(registry, ref, faults, engine=fast.train))
    spoilt = [[list(report.uploads.spoilt) for report in reports] for reports in (slow, quick)]
    assert spoilt[0] == spoilt[1] and any(spoilt[0])
    for a, b in zip(one["r"], two["r"], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def upload_rows(t, report, faults):
    config = {"seed": 0, "precision": "fp32", "train": {"rounds": 5}, "method": {}}
    config["evaluation"] = {"every": None, "metrics": [{"name": "accuracy"}]}
    return RoundRecords(config, None, SimpleNamespace(faults=faults)).uploads(t, report)


def test_rows_tell_what_was_spoilt_and_what_was_refused(registry):
    """Client 0 is spoilt and taken, for there is no limit; client 2 is lost before anybody could spoil its upload."""
    arrives = [True, True, False, True]
    faults = Only({0, 2}, kind="scaled", scale=10.0)
    _, (report,) = rounds(made(registry, "fedra", faults), T=1, arrives=arrives)
    assert upload_rows(4, report, faults) == [{"round": 5, "client": 0, "corrupted": "scaled", "rejected": ""}]
    _, (report,) = rounds(made(registry, "fedra", faults, {"max_norm": 1e-6}), T=1, arrives=arrives)
    assert upload_rows(0, report, faults) == [
        {"round": 1, "client": 0, "corrupted": "scaled", "rejected": TOO_LARGE},
        {"round": 1, "client": 1, "corrupted": "", "rejected": TOO_LARGE},
        {"round": 1, "client": 3, "corrupted": "", "rejected": TOO_LARGE},
    ]
    assert upload_rows(0, report, Faults({}, 0))[0] == {
        "round": 1, "client": 0, "corrupted": "", "rejected": TOO_LARGE
    }  # fmt: skip


def test_no_row_says_of_what_was_never_sent_that_it_was_spoilt():
    """A client that keeps all that it trains, and a method that hands on uploads which no fault has met."""
    up, start, plan, faults = *uploads_of(M), spoiling("nan")
    cohort = cohort_of([2, 1, 2])
    kept = received(up, start, replace(plan, kept=["*"]), cohort, 0, faults, Guard())
    for uploads in (kept, up):
        assert upload_rows(0, Report(plan, cohort, uploads, []), faults) == []
    met = Report(plan, cohort, received(up, start, plan, cohort, 0, faults, Guard()), [])
    assert [row["corrupted"] for row in upload_rows(0, met, faults)] == ["nan"] * 3


@pytest.mark.parametrize("kind", ["nan", "wrong_shape", "scaled", "noise"])
def test_what_clients_keep_is_neither_spoilt_nor_judged(kind):
    """The classifier is the client's own: however far it moves, and whatever happens on the way, it stays as it is."""
    up, start, plan = uploads_of(M)
    plan, cohort = replace(plan, kept=["head.*"]), cohort_of([2, 1, 2])
    assert received(up, start, plan, cohort, 0, Faults({}, 0), Guard({"max_norm": 42.0})) is up  # 20 and 21 in layers
    got = received(up, start, plan, cohort, 0, Only([1], kind=kind), Guard())
    if kind in ("nan", "wrong_shape"):
        assert list(got.rejected) == [1] and got.arrived.tolist() == [True, False, True]
    else:
        assert torch.equal(got.shared["head.weight"], up.shared["head.weight"])
        assert not torch.equal(got.r[1]["A"][1], up.r[1]["A"][1])
    everything = replace(plan, kept=["*"])
    assert received(up, start, everything, cohort, 0, Faults({}, 0), Guard({"max_norm": 1e-9})) is up


def test_what_the_server_trains_itself_is_neither_spoilt_nor_refused(registry):
    given = {"faults": spoiling("scaled"), "guard": {"max_norm": 1e-9}}
    (state, _), (expected, reports) = (rounds(made(registry, "pooled", **how)) for how in (given, {}))
    assert same(state, expected) and reports[0].cost[0].bytes_up > 0
