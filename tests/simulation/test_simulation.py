"""A cell from its configuration to its rows, on the smallest real path."""

import copy
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedbench.engine import cohort
from fedbench.engine.process_group import together
from fedbench.errors import UserError
from fedbench.families import wholemodel
from fedbench.families.split import participant
from fedbench.models.optimizer import make_optimizer
from fedbench.seeding import generator
from fedbench.simulation.checkpoint import Progress
from fedbench.simulation.simulation import Simulation
from fedbench.testing.setups import same
from fedbench.types import Images, Splits

SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0}


def test_the_same_configuration_gives_the_same_rows(registry, cells):
    def rows():
        evaluation, rounds = Simulation(cells["dynamic", "fedra"], registry).run()
        return evaluation, [{**row, "seconds": 0} for row in rounds]

    torch.manual_seed(123)  # the global generator must not matter
    first = rows()
    torch.manual_seed(456)
    assert rows() == first


def test_adapters_are_folded_into_weights_in_fp32_alone(registry, cells):
    """In bf16 W + s B A would lose what is small beside W, which training and the sequential engine keep."""
    for precision, engine, folds in (("fp32", "cohort", 1), ("fp32", "sequential", 0), ("bf16", "cohort", 0)):
        simulation = Simulation({**cells["skew", "fedra"], "precision": precision, "engine": engine}, registry)
        simulation.method.predictor(simulation.method.init(generator(0)))
        with torch.no_grad():
            told = {module.is_folded() for module in simulation.model.modules() if hasattr(module, "is_folded")}
        assert told == {bool(folds)}


def test_ranks_above_the_adapters_are_refused_when_the_cell_is_built(registry, cells):
    given = {**cells["skew", "fedra"], "ranks": {"uniform": [1, 2]}}
    assert Simulation(given, registry, "meta").federation.scenario.ranks.tolist() == [[1, 2]] * 6
    with pytest.raises(UserError, match="ranks: 3 is above 2, the largest rank of the adapters"):
        Simulation({**given, "ranks": {"uniform": [1, 3]}}, registry, "meta")


def test_proxy_images_are_the_servers_alone_and_prepared_as_clients_are(registry, cells):
    config = cells["skew", "fedra"]
    held = Simulation({**config, "data": {**config["data"], "proxy": {"images": 18}}}, registry)
    x, y = held._proxy()
    assert x.shape == (18, 3, 32, 32) and sorted(y.tolist()) == [0] * 6 + [1] * 6 + [2] * 6
    trained = {int(i) for client in held.federation.clients for i in client.indices}
    assert not trained & set(held.proxy.tolist()) and len(trained) == len(held.train.images) - 18
    assert torch.equal(x, held.train(held.proxy)[0]) and Simulation(config, registry)._proxy() is None
    shapes = Simulation({**config, "data": {**config["data"], "proxy": {"fraction": 0.5}}}, registry, "meta")._proxy()
    assert shapes[0].shape == (27, 3, 32, 32) and shapes[0].is_meta
    with pytest.raises(UserError, match="data.proxy: 99 of the 54 training examples"):
        Simulation({**config, "data": {**config["data"], "proxy": {"images": 99}}}, registry)


def test_images_that_are_normalised_already_and_no_splits_are_refused(registry, cells):
    """They would be normalised a second time, and train to something nonetheless."""
    config = cells["skew", "fedra"]
    whole = Simulation(config, registry).dataset
    splits = whole.load()
    normalised = replace(splits.test, x=(splits.test.x / 127.5 - 1).astype(np.float32))
    for loads, told in (
        (lambda: replace(splits, test=normalised), r"test.x looks normalised already: \d+% of its values are below"),
        (lambda: (splits.train, splits.test), r"`load` must return fedbench.types.Splits\(train, test\), not tuple"),
        (splits, "`load` must be a function that returns Splits, not Splits"),
    ):
        with pytest.raises(UserError, match=f"cannot be used: {told}"):
            Simulation(config, registry, dataset=replace(whole, load=loads))


def test_a_domain_without_test_images_is_refused_where_domains_are_scored(registry, cells):
    """Its score, and with it every mean over domains, would be no number."""
    config = cells["skew", "fedra"]
    whole = Simulation(config, registry).dataset
    splits = whole.load()
    some = splits.test.domain != 1
    test = Images(splits.test.x[some], splits.test.y[some], splits.test.domain[some])
    lacking = replace(whole, load=lambda: Splits(splits.train, test))
    with pytest.raises(UserError, match=f"cannot be used: the domain {whole.domains[1]!r} has no test image"):
        Simulation(config, registry, dataset=lacking)
    by_client = {**config, "evaluation": {**config["evaluation"], "by": "client"}}
    assert all(len(share.indices) for share in Simulation(by_client, registry, dataset=lacking).evaluation.splits)


@pytest.mark.parametrize("key", [("faulty", "depthfl"), ("own", "head_only")])
def test_both_engines_tell_the_same_story(registry, cells, key):
    """In float32, where sums in another order differ in the last bits: the same plan and costs, losses within 1e-4,
    and at most one test image in eighteen judged otherwise."""
    config = cells[key]
    slow, fast = (Simulation({**config, "engine": engine}, registry).run() for engine in ("sequential", "cohort"))
    for one, two in zip(slow[1], fast[1], strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-4, nan_ok=True)
        assert {**one, "seconds": 0, "loss": 0} == {**two, "seconds": 0, "loss": 0}
    for one, two in zip(slow[0], fast[0], strict=True):
        assert two["value"] == pytest.approx(one["value"], abs=0.34)  # three images a domain
        assert {**one, "value": 0} == {**two, "value": 0}
    assert sum(one["value"] != two["value"] for one, two in zip(slow[0], fast[0], strict=True)) <= 1


@pytest.mark.parametrize("method", ["head_only", "fedra"])
def test_where_classifiers_alone_are_trained_every_image_goes_through_the_model_once(registry, cells, method):
    simulation = Simulation(cells["skew", method], registry)
    seen, first = [], simulation.model.blocks[0]
    # copies of the model, whose costs are counted, have the hook too
    first.register_forward_hook(lambda block, inputs, out: seen.append(len(out)) if block is first else None)
    simulation.run()
    images = len(simulation.train.images) + len(simulation.federated.test.images)
    assert (sum(seen) == images) == (method == "head_only")


def test_a_model_with_a_forward_pass_of_its_own_is_trained_client_by_client_under_either_engine(registry, cells):
    config = {**cells["skew", "reefl"], "capacities": {"by_client": [1] * 6}}
    slow, fast = (Simulation({**config, "engine": engine}, registry) for engine in ("sequential", "cohort"))
    assert fast.processes == 1
    for simulation in (slow, fast):
        simulation.rounds = 1
        simulation.run()
    assert same(slow.state, fast.state)


def test_with_nobody_back_the_model_stays_and_no_loss_is_a_divergence(registry, cells):
    """Everybody is far too slow, and lost after steps whose loss is no number."""
    config = copy.deepcopy(cells["faulty", "depthfl"])
    config["train"]["optimizer"]["lr"], config["train"]["clip"], config["train"]["max_steps"] = 1e30, None, 4
    config["faults"] = {"stragglers": {"probability": 1.0, "slowdown": 2.0, "deadline": 1.0, "late": "lost"}}
    evaluation, rounds = Simulation(config, registry).run()
    assert not any(row["arrived"] for row in rounds) and {row["steps"] for row in rounds} == {2}
    assert any(not math.isfinite(row["loss"]) for row in rounds)
    values = [[row["value"] for row in evaluation if row["round"] == t] for t in (1, 2)]
    assert values[0] == values[1]


def test_clients_are_scored_on_test_images_of_their_own(registry, cells):
    """The model is the same, so that the correct answers are, whoever they are counted for."""
    config = cells["own", "fedra"]
    simulation = Simulation(config, registry)
    by_client, rounds = simulation.run()
    by_domain, _ = Simulation({**config, "evaluation": {**config["evaluation"], "by": "domain"}}, registry).run()
    assert {row["domain"] for row in by_client} == {row["domain"] for row in rounds} == {"mixed"}
    assert {row["client"] for row in by_client} <= set(range(5)) and {row["client"] for row in by_domain} == {-1}
    covered = sum(row["examples"] for row in by_client if row["round"] == 2)
    assert covered == sum(row["examples"] for row in by_domain if row["round"] == 2) == 18
    correct = [
        sum(row["value"] * row["examples"] for row in rows if row["round"] == 2) for rows in (by_client, by_domain)
    ]
    assert correct[0] == pytest.approx(correct[1])


@pytest.mark.parametrize(
    "key",
    [
        ("spoilt", "fedra"),
        *(pytest.param(key, marks=pytest.mark.slow) for key in (("faulty", "fedra"), ("own", "fedra"))),
    ],
)
def test_any_number_of_processes_gives_the_same_rows(registry, cells, key, monkeypatch):
    monkeypatch.setattr("fedbench.engine.microbatching.ROWS", 100)  # so that there is something to share

    def rows(processes):
        simulation, progress = Simulation(cells[key], registry), Progress()
        evaluation, rounds = together(processes, lambda team: simulation.run(team=team, progress=progress))
        rounds = [{**row, "seconds": 0, "loss": str(row["loss"])} for row in rounds]
        return evaluation, rounds, json.dumps(progress.tables["layers"])  # with NaN, equal as text

    alone = rows(1)
    assert rows(3) == alone


def test_with_scaled_uploads_a_median_learns_and_a_mean_does_not(registry, cells):
    """What is not refused is averaged. The seed has two of the six uploads a million times too large in round 2."""
    config = copy.deepcopy(cells["skew", "alllarge"])
    config["faults"] = {"corrupted": {"probability": 0.05, "kind": "scaled"}}

    def end(**aggregator):
        config["method"]["aggregator"] = aggregator
        simulation, progress = Simulation(config, registry), Progress()
        simulation.run(progress=progress)
        told = [(row["round"], row["client"], row["rejected"]) for row in progress.tables["uploads"]]
        assert told == [(2, 0, ""), (2, 3, "")]
        return max(float(value.abs().max()) for r_j in simulation.state["r"] for value in r_j.values())

    assert end(name="coordinate_median") < 1
    assert end(name="weighted_mean", weights="examples", outside_layers="always") > 100


def test_a_limit_of_the_norm_refuses_what_lies_above(registry, cells):
    config = copy.deepcopy(cells["skew", "fedra"])
    config["train"]["guard"] = {"max_norm": 1e-9}
    progress = Progress()
    evaluation, rounds = Simulation(config, registry).run(progress=progress)
    uploads = progress.tables["uploads"]
    assert not any(row["arrived"] for row in rounds) and all(row["bytes_up"] for row in rounds)
    assert {(row["corrupted"], row["rejected"]) for row in uploads} == {("", "too large")} and len(uploads) == 12


def test_a_state_that_cannot_be_kept_is_refused_after_the_first_round(registry, cells):
    simulation, ended = Simulation(cells["skew", "fedra"], registry), []

    def round(*given):
        state, report = method.round(*given)
        return {**state, "memory": {"seen": {1, 2}}}, report

    method = simulation.method
    simulation.method = replace(method, round=round)
    with pytest.raises(UserError, match="/memory/seen is a set"):
        simulation.run(lambda t, rows: ended.append(t))
    assert not ended and simulation.state is None


@pytest.mark.parametrize("name", ["fedra", "fedavg", "fedv", "pooled"])
def test_every_family_trains_at_the_rates_of_the_round(registry, cells, monkeypatch, name):
    seen = []

    def noted(parameters, options, *args, heads=(), **more):
        seen.append((options["lr"], options["head_lr"], len(heads)))
        return make_optimizer(parameters, options, *args, heads=heads, **more)

    for module in (cohort, participant, wholemodel):
        monkeypatch.setattr(module, "make_optimizer", noted)
    config = copy.deepcopy(cells["skew", name]) | {"engine": "cohort"}
    config["train"]["optimizer"] = {**SGD, "head_lr": 0.02, "schedule": "linear"}
    Simulation(config, registry).run()
    assert set(seen) == {(0.1, 0.02, seen[0][2]), (0.05, 0.01, seen[0][2])} and seen[0][2] >= 1


def test_a_schedule_of_a_whole_rate_changes_nothing(registry, cells):
    config = copy.deepcopy(cells["skew", "fedra"])
    config["evaluation"]["metrics"] = [{"name": "loss"}]
    plain, _ = Simulation(config, registry).run()
    lr = config["train"]["optimizer"]["lr"]
    for optimizer, is_same in (({"schedule": "constant", "head_lr": lr}, True), ({"schedule": "cosine"}, False)):
        other = {**config, "train": {**config["train"], "optimizer": {**config["train"]["optimizer"], **optimizer}}}
        assert (Simulation(other, registry).run()[0] == plain) == is_same
