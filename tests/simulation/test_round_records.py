"""What is recorded of a cell: all that was planned, computed, sent and refused, under the columns of the schema."""

import copy
import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fedbench.errors import NotApplicable, UserError
from fedbench.registry.facts import CachedFacts
from fedbench.results.columns import COLUMNS
from fedbench.results.tables import to_table
from fedbench.runner.estimate import Costs
from fedbench.seeding import generator
from fedbench.simulation.checkpoint import Progress
from fedbench.simulation.evaluation import Score
from fedbench.simulation.faults import Faults
from fedbench.simulation.federated_data import EvalSplit
from fedbench.simulation.federation import Federation
from fedbench.simulation.privacy import epsilon
from fedbench.simulation.round_records import RoundRecords
from fedbench.simulation.simulation import Simulation, source_of
from fedbench.suite.setting_layers import EACH_EPOCH
from fedbench_plugins.methods import ditto

# Methods that train by other means than an engine. Capacities mean nothing to them, and every client meets all layers:
# two layers tell as much as three, and scenarios that differ in capacities alone nothing more.
ALONE = {
    *("fedavg", "ditto", "fedrod", "fedv", "fedvz", "festa", "heterofl", "fedrolex", "fjord", "majority"),
    "splitlora",
}

# Layers of theirs are trained by means of their own, or kept, and one process computes them; capacities count.
IN_ONE_PROCESS = {"reefl", "local_only", "fedsa_lora", "zero_round", "pooled"}

# What a client trains is drawn, or follows what was learnt: a plan knows the compute of one draw, and all else exactly.
DRAWN = {"fed_hello"}

# What is added to frozen weights depends on who arrives: a plan leaves out its bytes, and knows all else exactly.
ADDS = {"fedex_lora", "flora"}

# One of each way to count what is computed and sent; the others count as one of these, and are slow.
COUNTED = ("depthfl", "fed_hello", "flora", "hetlora", "ditto", "fedv", "fjord", "reefl", "local_only", "zero_round")

# Whose depths are told by every scenario; of the others one tells as much.
FIRST = {"fedra", "inclusivefl", "depthfl", "alllarge", "allsmall", "head_only", "exclusive"}
TWO_LAYERS = {"name": "vit_tiny_patch16_224", "pretrained": False, "img_size": 32, "embed_dim": 24, "depth": 2}


def test_every_table_is_made_by_a_method_of_its_name():
    assert all(callable(getattr(RoundRecords, kind)) for kind in COLUMNS if kind != "wire")  # which is measured


def test_a_table_with_a_row_for_each_of_a_crowd_is_refused(cells):
    config = {**cells["skew", "fedra"], "evaluation": {**cells["skew", "fedra"]["evaluation"], "sizes": True}}
    RoundRecords(config, None, SimpleNamespace(faults=None, clients=range(100_000)))
    with pytest.raises(UserError, match=r"evaluation.sizes: .* of at most 100,000 clients, not of 100,001"):
        RoundRecords(config, None, SimpleNamespace(faults=None, clients=range(100_001)))


def test_a_score_is_a_row_with_its_share(registry, cells):
    ledger = RoundRecords(cells["skew", "fedra"], None, SimpleNamespace(faults=None))
    scores = [
        Score(EvalSplit("even", np.arange(2)), "accuracy", 0.5),
        Score(EvalSplit("odd", np.arange(5), 4), "n/last", 5.0),
    ]
    assert [tuple(row.values()) for row in ledger.eval(3, scores)] == [
        (3, "test", "even", -1, "accuracy", 0.5, 2),
        (3, "test", "odd", 4, "n/last", 5.0, 5),
    ]
    assert all(row.keys() == COLUMNS["eval"].keys() for row in ledger.eval(3, scores))


@pytest.mark.parametrize("local", [False, True])
def test_uploads_that_carry_noise_of_their_own_count_also_where_they_were_refused(cells, local):
    """Or came too late: nothing arrives, and who has dropped out has sent nothing."""
    faults, rounds = Faults({"dropout": 0.5}, 0), range(6)
    config = {**cells["skew", "fedra"], "privacy": {"clip": 1.0, "noise": 2.0, "local": local}}
    records = RoundRecords(config, None, SimpleNamespace(faults=faults, steps=lambda client: 3))
    rows = [{"round": t + 1, "client": n, "arrived": False} for t in rounds for n in (0, 1)]
    (found,) = records.privacy(5, rows[-2:], rows)
    most = max(sum(faults.fate(t, n, 3).arrives for t in rounds) for n in (0, 1))
    assert 0 < most < 6 and found["epsilon"] == (epsilon(2 * math.sqrt(most) / 2.0, 1e-5) if local else 0.0)


def test_layers_held_and_trained_and_the_rank_are_told_apart(registry, cells):
    simulation = Simulation(cells["skew", "fedra"], registry)
    state, cohort = simulation.method.init(generator(0)), simulation.federation.cohort(0)
    _, report = simulation.method.round(state, 0, cohort, generator(0, 0))
    (row, *_) = simulation.records.rounds(0, report)
    assert row["trained_layers"] == row["layers"] == [0, 1, 2] and row["rank"] is None
    trained, terms = report.plan.M.clone(), report.plan.M[..., None].expand(-1, -1, 2).clone()
    trained[0, :1], terms[1, :, 1] = False, False
    told = replace(report, plan=replace(report.plan, trained=trained, terms=terms))
    rows = simulation.records.rounds(0, told)
    assert rows[0]["layers"] == row["layers"] and rows[0]["trained_layers"] == [1, 2]
    assert [row["rank"] for row in rows] == [2, 1, 2, 2, 2, 2]
    to_table("rounds", rows)
    frozen = replace(report, plan=replace(report.plan, frozen=["*"]))
    assert [row["trained_layers"] for row in simulation.records.rounds(0, frozen)] == [[]] * 6


def test_what_is_planned_is_what_is_recorded(registry, cells):
    """The totals of `fedbench plan`, computed from shapes, equal the sums over the rows of a run exactly.

    With two layers: one method is tried in every other scenario, some with clients that are lost or late.
    """
    assert {method for _, method in cells} == registry.catalogue.components["method"].keys()
    some = {}
    for (scenario, method), config in cells.items():
        if method == "depthfl" and scenario in ("own", "spoilt") or scenario == "faulty" and method in COUNTED:
            some[scenario, method] = {**config, "backbone": TWO_LAYERS, "capacities": {"uniform": [1, 2]}}
    recorded_as_planned(registry, some)


@pytest.mark.slow
def test_it_is_so_under_every_method_in_every_scenario(registry, cells):
    few = ("skew", "dynamic")
    recorded_as_planned(
        registry, {key: config for key, config in cells.items() if key[1] in FIRST or key[0] not in few}
    )


def recorded_as_planned(registry, cells):
    costs, sources = Costs(CachedFacts(registry, in_place=True)), {}
    for (scenario, method), config in cells.items():
        if method in ALONE:
            config = {**config, "backbone": TWO_LAYERS, "capacities": {"all": True}}
        try:
            planned = costs.totals(config)
            planned.pop("fewest_holders", None)  # of a draw beforehand, which no table has
        except NotApplicable:
            continue
        depth = config["backbone"]["depth"]
        if depth not in sources:
            sources[depth] = source_of(config, registry)
        source = replace(sources[depth], model=copy.deepcopy(sources[depth].model))
        simulation, progress = Simulation(config, registry, source=source), Progress()
        evaluation, rounds = simulation.run(progress=progress)
        assert simulation.method.alone == (method in ALONE | IN_ONE_PROCESS), method
        size = config["train"]["batch_size"]
        recorded = {name: sum(row[name] for row in rounds) for name in ("flops", "bytes_down", "bytes_up")}
        recorded["images"] = sum(min(size * row["steps"], row["examples"]) for row in rounds)
        recorded["client_rounds"] = len(rounds)
        recorded["evaluations"] = len({row["round"] for row in evaluation})
        recorded["tested"] = sum(row["examples"] for row in evaluation if row["metric"] == "accuracy")
        for row in progress.tables["uploads"]:  # whose refusal nobody could foresee
            price = simulation.method.cost(1, row["round"] - 1)
            recorded["bytes_down"] += sum(sent.down_after for sent in price.sent) if row["rejected"] else 0
        if method in DRAWN:
            assert 0.8 < planned.pop("flops") / recorded.pop("flops") < 1.25, (scenario, method)
        if method in ADDS:
            sent = sum(row["bytes_down"] for row in progress.tables["exchange"] if row["what"] == "additions")
            alone = method == "fedex_lora" and scenario == "spoilt"  # one client arrives: its product needs no addition
            assert (sent == 0) == alone, (scenario, method)
        assert planned == recorded, (scenario, method)


def test_ditto_takes_and_pays_for_the_steps_of_its_own_models(registry, cells, monkeypatch):
    """With three local epochs of five steps that max_steps cuts to twelve, and stragglers that do a part of them."""
    real, trained = ditto.fit, []

    def counted(setup, loss_of, *others):
        images = []
        loss = real(setup, lambda x, y: images.append(len(y)) or loss_of(x, y), *others)
        trained.append(images)
        return loss

    monkeypatch.setattr(ditto, "fit", counted)
    config = {**copy.deepcopy(cells["faulty", "ditto"]), "backbone": TWO_LAYERS, "capacities": {"all": True}}
    config["train"] |= {"local_epochs": 3, "max_steps": 12}
    assert Simulation(config, registry).method.cost(1, 0).personal_epochs == 3  # as many as of the global model
    config["method"]["personal_epochs"] = 2
    simulation = Simulation(config, registry)
    _, rounds = simulation.run()
    per_image = simulation.method.cost(1, 0).flops_per_image
    taken = list(zip(trained[::2], trained[1::2], strict=True))
    assert [row["flops"] for row in rounds] == [per_image * sum(map(sum, both)) for both in taken]
    assert [row["steps"] for row in rounds] == [len(usual) for usual, _ in taken]
    assert all(bool(usual) == bool(own) for usual, own in taken) and len({len(own) for _, own in taken}) > 2
    assert simulation.records.totals(simulation.method, sum(simulation.evaluation.sizes))["flops"] == sum(
        row["flops"] for row in rounds
    )


def test_smallest_is_trained_and_paid_for_epoch_by_epoch_also_by_those_who_do_a_part(registry, cells, monkeypatch):
    """Two clients a domain, of very unequal size: an epoch is at most one batch more than the smallest has."""
    real, seen = Federation.in_order, {}

    def noted(self, t, client):
        mine = []
        seen.setdefault((t + 1, client), []).append(mine)  # one that looks at the first batch alone begins anew
        for batch in real(self, t, client):
            mine.append(len(batch))
            yield batch

    monkeypatch.setattr(Federation, "in_order", noted)
    config = copy.deepcopy(cells["faulty", "fedra"])
    config["data"]["partition"] = {"name": "dirichlet", "alpha": 0.5, "clients_per_domain": 2, "min_examples": 2}
    config["data"]["partition"]["balanced"] = False
    config["train"] |= {"local_epochs": 3, "max_steps": EACH_EPOCH, "batch_size": 2}
    config |= {"backbone": TWO_LAYERS, "capacities": {"uniform": [1, 2]}}
    simulation = Simulation(config, registry)
    _, rounds = simulation.run()
    smallest = min(-(-len(client) // 2) for client in simulation.federation.clients)
    steps, flops = [], []
    for row in rounds:
        whole = [2] * (row["examples"] // 2) + [1] * (row["examples"] % 2)
        usual = 3 * whole[: smallest + 1]
        images = sum(usual[: row["steps"]])
        assert max(seen.get((row["round"], row["client"]), [[]]), key=len)[: row["steps"]] == usual[: row["steps"]]
        steps.append((row["steps"], len(usual)))
        flops.append(simulation.method.cost(row["capacity"], row["round"] - 1).flops_per_image * images)
    assert [row["flops"] for row in rounds] == flops
    assert len({usual for _, usual in steps}) > 1 and any(done < usual for done, usual in steps)
    assert simulation.records.totals(simulation.method, sum(simulation.evaluation.sizes))["flops"] == sum(flops)


def test_what_crosses_adds_up_to_the_bytes_of_the_rounds(registry, cells):
    progress = Progress()
    simulation = Simulation({**cells["skew", "depthfl"], "faults": {"dropout": 0.5}}, registry)
    simulation.run(progress=progress)
    exchange = progress.tables["exchange"]
    to_table("exchange", exchange)
    assert [row["what"] for row in exchange if row["round"] == 1] == ["backbone", "adapters", "classifiers"]
    for t in range(1, simulation.rounds + 1):
        for name in ("bytes_down", "bytes_up"):
            by_kind, by_client = (
                sum(row[name] for row in progress.tables[kind] if row["round"] == t) for kind in ("exchange", "rounds")
            )
            assert by_kind == by_client > 0
    assert not progress.tables["server"]


def test_rows_have_the_columns_of_the_schema(registry, cells):
    evaluation, rounds = Simulation(cells["skew", "depthfl"], registry).run()
    assert all(row.keys() == COLUMNS["eval"].keys() for row in evaluation)
    assert all(row.keys() == COLUMNS["rounds"].keys() for row in rounds)
    last = [row for row in evaluation if row["round"] == 2]
    assert {row["domain"] for row in last} == {"solid", "outline", "texture", "dim", "clutter", "sketch"}
    assert {row["metric"] for row in last} == {"accuracy", "accuracy/last"}
    assert [len(row["layers"]) for row in rounds[:6]] == [3, 2, 2, 1, 1, 1]
    json.dumps([evaluation, rounds])


def test_layers_are_recorded_in_every_round(registry, cells):
    _, rounds = Simulation(cells["skew", "fedra"], registry).run(progress=(progress := Progress()))
    layers = progress.tables["layers"]
    assert all(row.keys() == COLUMNS["layers"].keys() for row in layers)
    assert [(row["round"], row["layer"]) for row in layers] == [(t, j) for t in (1, 2) for j in range(3)]
    for row in layers:
        held = [r for r in rounds if r["round"] == row["round"] and row["layer"] in r["layers"] and r["arrived"]]
        assert row["holders"] == len(held)
        assert (row["update_norm"] > 0) == bool(held)


def test_layers_are_weighed_as_the_aggregator_weighs(registry, cells):
    def errors(weights):
        config = json.loads(json.dumps(cells["dynamic", "fedra"]))
        unequal = {"name": "dirichlet", "alpha": 0.5, "clients_per_domain": 2, "balanced": False, "min_examples": 1}
        config["data"]["partition"], config["participation"], config["train"]["rounds"] = unequal, {"all": True}, 1
        config["method"]["aggregator"]["weights"] = weights
        Simulation(config, registry).run(progress=(progress := Progress()))
        return [row["aggregation_error"] for row in progress.tables["layers"] if row["holders"] > 1]

    assert all(one != other for one, other in zip(errors("examples"), errors("uniform"), strict=True))


@pytest.mark.parametrize(("weights", "known"), [("sparsity", False), ("examples", True)])
def test_nothing_is_told_of_products_that_a_method_weighs_in_words_of_its_own(registry, cells, weights, known):
    config = json.loads(json.dumps(cells["skew", "hetlora"]))
    assert config["method"]["weights"] == "sparsity"
    config["method"]["weights"], config["train"]["rounds"] = weights, 1
    Simulation(config, registry).run(progress=(progress := Progress()))
    layers = progress.tables["layers"]
    assert any(row["holders"] > 1 for row in layers)
    assert all(math.isnan(row["aggregation_error"]) is not known for row in layers if row["holders"])


def test_of_clients_that_send_gradients_layers_have_the_change_of_the_model_alone(registry, cells):
    Simulation(cells["skew", "fwdllm"], registry).run(progress=(progress := Progress()))
    unknown = ("client_update_norm", "aggregation_error", "product_norm")
    layers = progress.tables["layers"]
    assert layers and all(math.isfinite(row["update_norm"]) for row in layers)
    assert all(math.isnan(row[name]) for row in layers for name in unknown)
