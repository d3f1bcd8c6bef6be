"""What clients can run: which size each takes, and what a cell writes of it."""

from types import SimpleNamespace

import numpy as np
import pytest

from fedbench.engine.process_group import together
from fedbench.method import Method
from fedbench.results.tables import to_table
from fedbench.simulation.checkpoint import Progress
from fedbench.simulation.evaluation import Deployment, Score, Scored, offered_by
from fedbench.simulation.federated_data import EvalSplit
from fedbench.simulation.federation import Sizes
from fedbench.simulation.simulation import Simulation
from fedbench.types import MIXED, Client, Clients, Device, Scenario, Size

L = 4
CLIENTS = Clients.of([Client(i, i, np.arange(1)) for i in range(3)])
NOTHING = dict.fromkeys(("init", "round", "predictor", "cost"))


def federation(devices=None, fitted=None, **given):
    """Three clients with these capacities, ranks or widths, or with devices of these memories."""
    kinds = {"capacities": "capacity", "ranks": "rank", "widths": "width"}
    sizes = {k: Sizes(kinds[k], {"by_client": given[k]}, CLIENTS, 0) if k in given else None for k in kinds}
    ranges = {k: one and one.ranges for k, one in sizes.items()}
    scenario = Scenario(CLIENTS, ranges["capacities"], L, 2, ranges["ranks"], ranges["widths"])
    owned = devices and [Device("d", memory, 1.0, 1.0, 1.0, 1.0) for memory in devices]
    return SimpleNamespace(clients=CLIENTS, devices=owned, fitted=fitted, scenario=scenario, num_layers=L, **sizes)


def method(sizes, running=None, at=len):
    return Method(**NOTHING, sizes=sizes, running=running, at=at)


def taken(method, federation):
    deployment = Deployment(method, federation, 0)
    return [one and one.size for one in map(deployment.taken_by, range(3))]


DEPTHS = [Size(d) for d in range(1, L + 1)]


def test_a_client_runs_as_many_layers_as_it_can_hold():
    assert taken(method(DEPTHS, lambda size: 1), federation(capacities=[4, 2, 1])) == [Size(4), Size(2), Size(1)]


def test_a_model_that_is_too_deep_is_run_by_nobody_who_cannot_hold_it():
    def full(size):
        return 1 if size.capacity == L else None

    assert taken(method(DEPTHS, full), federation(capacities=[4, 3, 1])) == [Size(4), None, None]


def test_ranks_go_by_themselves_where_the_scenario_gives_them():
    sizes, given = [Size(L, rank=r) for r in (1, 2, 4)], federation(capacities=[1, 1, 1], ranks=[4, 3, 1])
    assert taken(method(sizes), given) == [Size(L, rank=4), Size(L, rank=3), Size(L, rank=1)]  # 3: the scenario's own
    assert taken(method(sizes), federation(capacities=[4, 2, 1])) == [Size(4), Size(2), Size(1)]


def test_widths_go_as_in_training():
    sizes = [Size(L, width=g) for g in (0.25, 0.5, 1.0)]
    by_width = federation(capacities=[4, 4, 4], widths=[1.0, 0.6, 0.1])
    assert taken(method(sizes), by_width) == [Size(L, width=1.0), Size(L, width=0.5), None]
    by_share_of_weights = taken(method(sizes), federation(capacities=[4, 2, 1]))  # g^2 <= L_n / L
    assert by_share_of_weights == [Size(L, width=g) for g in (1.0, 0.5, 0.5)]


def test_a_device_runs_what_its_memory_holds_whatever_it_trains():
    given = federation(devices=[100, 39, 9], fitted=[Size(1), None, None], capacities=[1, 1, 1])
    assert taken(method(DEPTHS, lambda size: 10 * size.capacity), given) == [Size(4), Size(3), None]


def test_where_nobody_knows_what_a_model_takes_a_device_runs_what_it_trains():
    given = federation(devices=[100, 39, 9], fitted=[Size(4), Size(2), None], capacities=[1, 1, 1])
    assert taken(method(DEPTHS), given) == [Size(4), Size(2), None]


def test_one_model_alone_is_the_largest_size_and_the_servers_help_is_no_model():
    one, helped = method(DEPTHS, lambda size: 1, at=None), method(None, lambda size: None, at=None)
    scenario = federation(capacities=[4, 2, 1]).scenario
    assert offered_by(one, scenario) == offered_by(helped, scenario) == [Size(L)]
    (found,) = Deployment(helped, federation(capacities=[4, 2, 1]), 0).sizes
    assert not found.alone and found.memory is None
    assert taken(helped, federation(capacities=[4, 2, 1])) == [None] * 3


def test_what_a_client_scores_is_on_its_own_images_or_on_its_domains():
    def shares(*told):
        return [Score(EvalSplit(domain, np.arange(1), client), "accuracy", value) for domain, client, value in told]

    domains = Scored(shares(("a", -1, 0.2), ("b", -1, 0.6)), ("a", "b"))
    clients = Scored(shares(("a", 0, 0.2), ("a", 1, 0.6)), ("a", "b"))
    mixed = Client(2, MIXED, np.arange(1))
    assert domains.of(CLIENTS[1]) == {"accuracy": 0.6} and domains.of(mixed) == {"accuracy": pytest.approx(0.4)}
    assert clients.of(CLIENTS[1]) == {"accuracy": 0.6} and clients.of(mixed) == {}


def tables(config, registry, engine="cohort", team=1):
    config = {**config, "engine": engine, "evaluation": {**config["evaluation"], "sizes": True}}
    simulation, progress = Simulation(config, registry), Progress()

    def work(member):
        simulation.run(team=member, progress=progress)
        return progress.tables

    return together(team, work)


def test_a_cell_has_a_row_for_every_size_and_client_and_all_tell_the_same(registry, cells):
    """The cohort engine alone and in company to the bit, the sequential one up to the last bits of logits."""
    config = {**cells["skew", "fedra"], "train": {**cells["skew", "fedra"]["train"], "rounds": 1}}
    one, two, slow = (tables(config, registry, *how) for how in (("cohort", 1), ("cohort", 2), ("sequential", 1)))
    for kind in ("sizes", "deployed"):
        assert one[kind] == two[kind]
        assert [{**row, "value": 0} for row in one[kind]] == [{**row, "value": 0} for row in slow[kind]]
        assert sum(a["value"] != b["value"] for a, b in zip(one[kind], slow[kind], strict=True)) <= 1
        to_table(kind, one[kind])
    assert [(row["client"], row["capacity"]) for row in one["deployed"]] == list(enumerate([3, 2, 2, 1, 1, 1]))
    assert [row["capacity"] for row in one["sizes"][::6]] == [1, 2, 3]
    last = [row["value"] for row in one["eval"] if row["round"] == 1]
    assert [row["value"] for row in one["sizes"] if row["capacity"] == 3] == last  # the global model itself


def test_without_the_key_a_cell_is_as_it_was(registry, cells):
    simulation, progress = Simulation(cells["skew", "fedra"], registry), Progress()
    assert "sizes" not in simulation.config["evaluation"]
    simulation.rounds = 1
    simulation.run(progress=progress)
    assert progress.tables["sizes"] == progress.tables["deployed"] == []
