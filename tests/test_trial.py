"""A cell from its configuration to its rows, on the smallest real path."""

import json
from pathlib import Path

import pytest
import torch

from fedbench.facts import Facts
from fedbench.results.schema import COLUMNS
from fedbench.runner import load
from fedbench.trial import Diverged, Trial, evaluated_rounds

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
methods: [fedra, depthfl, exclusive, allsmall]
"""


@pytest.fixture(scope="module")
def cells(registry, tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "small.yaml"
    path.write_text(SUITE)
    return {(cell.scenario, cell.method): cell.config for cell in load(path, registry).cells()}


@pytest.mark.parametrize("key", [("skew", "fedra"), ("skew", "depthfl"), ("skew", "exclusive"), ("dynamic", "fedra")])
def test_what_is_planned_is_what_is_recorded(registry, cells, key):
    """The totals of `fedbench plan`, computed from shapes, equal the sums over rounds.parquet exactly."""
    planned = Facts(registry).totals(f"test-{'-'.join(key)}", cells[key])
    _, rounds = Trial(cells[key], registry).run()
    recorded = {name: sum(row[name] for row in rounds) for name in ("flops", "bytes_down", "bytes_up")}
    assert planned.pop("client_rounds") == len(rounds)
    assert planned.pop("images") > 0
    assert planned == recorded


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


def test_both_engines_tell_the_same_story(registry, cells):
    """In float32, where sums in another order differ in the last bits: the same plan and costs, losses within 1e-4."""
    _, slow = Trial(cells["skew", "fedra"], registry).run()
    _, fast = Trial({**cells["skew", "fedra"], "engine": "cohort"}, registry).run()
    for one, two in zip(slow, fast, strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)
        assert {**one, "seconds": 0, "loss": 0} == {**two, "seconds": 0, "loss": 0}


def test_a_loss_that_is_no_number_is_a_divergence(registry, cells):
    config = json.loads(json.dumps(cells["skew", "fedra"]))
    config["train"]["optimizer"]["lr"], config["train"]["clip"] = 1e30, None
    with pytest.raises(Diverged, match="the training loss of client 0 in round 1 is (nan|inf)"):
        Trial(config, registry).run()


@pytest.mark.parametrize(
    ("rounds", "every", "expected"),
    [(12, None, {2, 4, 6, 8, 10, 12}), (3, None, {1, 2, 3}), (10, 4, {2, 6, 10}), (5, 100, {5})],
)
def test_evaluation_is_spread_and_always_includes_the_last_round(rounds, every, expected):
    assert evaluated_rounds(rounds, every) == expected


def test_shipped_suites_load(registry):
    for path in sorted(Path("suites").glob("*.yaml")):
        assert load(path, registry).cells()
