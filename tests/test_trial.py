"""A cell from its configuration to its rows, on the smallest real path."""

import json
from pathlib import Path

import pytest
import torch

from fedbench.engine.team import together
from fedbench.facts import Facts
from fedbench.results.schema import COLUMNS
from fedbench.runner import load
from fedbench.trial import Diverged, Trial

SUITE = """
suite: small
defaults:
  backbone: {name: micro_vit, pretrained: false}
  adapter: {name: lora, rank: 2, alpha: 2, dropout: 0.1}
  data: {name: strokes6, classes: 3, train_per_class: 3, test_per_class: 1}
  train: {rounds: 2, max_steps: 2, batch_size: 4}
scenarios:
  skew: {capacities: [12, 4, 3, 2, 1, 1]}
  dynamic: {capacities: {uniform: [1, 12]}, participation: {count: 2}}
methods: [METHODS]
"""


@pytest.fixture(scope="module")
def cells(registry, tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "small.yaml"
    path.write_text(SUITE.replace("METHODS", ", ".join(registry.catalogue.components["method"])))
    return {(cell.scenario, cell.method): cell.config for cell in load(path, registry).cells()}


def test_what_is_planned_is_what_is_recorded(registry, cells):
    """The totals of `fedbench plan`, computed from shapes, equal the sums over the rows of a run exactly."""
    assert {method for _, method in cells} == registry.catalogue.components["method"].keys()
    for (scenario, method), config in cells.items():
        planned = Facts(registry).totals(f"test-{scenario}-{method}", config)
        if "not_applicable" in planned:
            continue
        evaluation, rounds = Trial(config, registry).run()
        recorded = {name: sum(row[name] for row in rounds) for name in ("flops", "bytes_down", "bytes_up")}
        recorded["images"] = sum(min(4 * row["steps"], row["examples"]) for row in rounds)
        recorded["client_rounds"] = len(rounds)
        recorded["evaluations"] = len({row["round"] for row in evaluation})
        recorded["tested"] = sum(row["examples"] for row in evaluation if row["metric"] == "accuracy")
        assert planned == recorded, (scenario, method)


def test_rows_have_the_columns_of_the_schema(registry, cells):
    evaluation, rounds = Trial(cells["skew", "depthfl"], registry).run()
    assert all(row.keys() == COLUMNS["eval"].keys() for row in evaluation)
    assert all(row.keys() == COLUMNS["rounds"].keys() for row in rounds)
    last = [row for row in evaluation if row["round"] == 2]
    assert {row["domain"] for row in last} == {"solid", "outline", "texture", "dim", "clutter", "sketch"}
    assert {row["metric"] for row in last} == {"accuracy", "accuracy/last"}
    assert [len(row["layers"]) for row in rounds[:6]] == [12, 4, 3, 2, 1, 1]
    json.dumps([evaluation, rounds])


def test_the_same_configuration_gives_the_same_rows(registry, cells):
    def rows():
        evaluation, rounds = Trial(cells["dynamic", "fedra"], registry).run()
        return evaluation, [{**row, "seconds": 0} for row in rounds]

    torch.manual_seed(123)  # the global generator must not matter
    first = rows()
    torch.manual_seed(456)
    assert rows() == first


def test_bf16_runs_and_stays_finite(registry, cells):
    evaluation, rounds = Trial({**cells["skew", "fedra"], "precision": "bf16"}, registry).run()
    assert all(0 <= row["value"] <= 1 for row in evaluation)
    assert rounds[0]["loss"] != Trial(cells["skew", "fedra"], registry).run()[1][0]["loss"]


@pytest.mark.parametrize("method", ["fedra", "depthfl"])
def test_both_engines_tell_the_same_story(registry, cells, method):
    """In float32, where sums in another order differ in the last bits: the same plan and costs, losses within 1e-4,
    and at most one test image in eighteen judged otherwise."""
    config = cells["skew", method]
    slow, fast = (Trial({**config, "engine": engine}, registry).run() for engine in ("sequential", "cohort"))
    for one, two in zip(slow[1], fast[1], strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)
        assert {**one, "seconds": 0, "loss": 0} == {**two, "seconds": 0, "loss": 0}
    for one, two in zip(slow[0], fast[0], strict=True):
        assert two["value"] == pytest.approx(one["value"], abs=0.34)  # three images a domain
        assert {**one, "value": 0} == {**two, "value": 0}
    assert sum(one["value"] != two["value"] for one, two in zip(slow[0], fast[0], strict=True)) <= 1


@pytest.mark.parametrize("key", [("skew", "depthfl"), ("dynamic", "fedra")])
def test_any_number_of_processes_gives_the_same_rows(registry, cells, key, monkeypatch):
    monkeypatch.setattr("fedbench.engine.cohort.ROWS", 100)  # so that there is something to share

    def rows(processes):
        trial = Trial(cells[key], registry)
        evaluation, rounds = together(processes, lambda team: trial.run(team=team))
        return evaluation, [{**row, "seconds": 0} for row in rounds]

    alone = rows(1)
    assert rows(2) == alone and rows(3) == alone


def test_a_loss_that_is_no_number_is_a_divergence(registry, cells):
    config = json.loads(json.dumps(cells["skew", "fedra"]))
    config["train"]["optimizer"]["lr"], config["train"]["clip"] = 1e30, None
    with pytest.raises(Diverged, match="the training loss of client 0 in round 1 is (nan|inf)"):
        Trial(config, registry).run()


def test_shipped_suites_load(registry):
    for path in sorted(Path("suites").glob("*.yaml")):
        assert load(path, registry).cells()
