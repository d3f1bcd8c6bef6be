"""A short probe of a real cell."""

from __future__ import annotations

import multiprocessing
import tempfile
import time

import pytest
from priced import totals_of

from fedbench.cell import timing as probing
from fedbench.cell.ledger import Ledger
from fedbench.cell.timing import longest_share, probe
from fedbench.cell.trial import Trial
from fedbench.errors import NotApplicable
from fedbench.registry.assets import Assets
from fedbench.runs.estimate.rates import Rates
from fedbench.runs.runner import load

SUITE = """
suite: small
defaults:
  backbone: {name: micro_vit}
  adapter: {name: lora, rank: 2, alpha: 2, dropout: 0.0}
  data: {name: strokes6, classes: 3, train_per_class: 8, test_per_class: 4}
  train: {rounds: 4, max_steps: 4, batch_size: 6}
scenarios:
  skew: {capacities: [12, 4, 3, 2, 1, 1]}
methods: [fedra, exclusive, fedv, head_only]
"""


@pytest.fixture(scope="module")
def cells(registry, tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "small.yaml"
    path.write_text(SUITE)
    return {cell.method: cell.config for cell in load(path, registry).points()}


@pytest.fixture
def totals(registry, cells):
    return lambda config: totals_of(Assets(registry), str(config["method"]["name"]), config)


@pytest.mark.parametrize("method", ["fedra", "exclusive", "head_only"])
def test_an_estimate_is_near_what_the_cell_takes(registry, cells, totals, method):
    """Within a factor 4 in processor time, which a busy machine disturbs least; tests/benchmarks/estimates.py says
    how near it is."""
    config = cells[method]
    rates = Rates(**probe(config, registry, "cpu", totals(config)))
    began = time.process_time()
    Trial(config, registry).run()
    taken = time.process_time() - began
    assert taken / 4 < rates.seconds(config["train"]["rounds"], totals(config)) < 4 * taken


def test_features_that_are_kept_are_paid_once(registry, cells, totals):
    """By who trains nothing in the layers, however often images are tested and trained on."""
    head, layers = (probe(cells[name], registry, "cpu", totals(cells[name])) for name in ("head_only", "fedra"))
    assert head["per_image"] < layers["per_image"] / 5
    once, often = ({**totals(cells["head_only"]), "tested": tested} for tested in (100, 10_000))
    rates = Rates(**head)
    assert rates.seconds(4, often) < 2 * rates.seconds(4, once)


def test_a_probe_needs_no_weights(registry, cells, totals):
    """No file of that name is read, only looked for."""
    config = cells["fedra"] | {"backbone": {"name": "vit_tiny_patch16_224", "pretrained": True, "img_size": 32}}
    assert probe(config, registry, "cpu", totals(cells["fedra"]))["per_flop"] > 0


def test_a_forked_probe_leaves_no_files_of_clients(registry, cells, totals, tmp_path, monkeypatch):
    """Such a process ends without its finalizers."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    given = (cells["fedv"], registry, "cpu", totals(cells["fedv"]))
    one = multiprocessing.get_context("fork").Process(target=probe, args=given)
    one.start()
    one.join(120)
    assert one.exitcode == 0 and list(tmp_path.iterdir()) == []


def test_a_probe_meets_no_faults(registry, cells, totals, monkeypatch):
    """Rates are kept for cells with and without faults, and a round that everybody is lost from has no steps."""
    steps = []
    monkeypatch.setattr(
        probing, "_round", lambda trial, state, cohort, most: (1.0, steps.extend(cohort.steps.tolist()) or len(steps))
    )
    config = cells["fedra"] | {"faults": {"dropout": 0.99}}
    probe(config, registry, "cpu", totals(cells["fedra"]))
    assert set(steps) == {4}


def test_what_a_probe_cannot_afford_is_tried_smaller(registry, cells, totals, monkeypatch):
    seen = []
    monkeypatch.setattr(probing, "STEP_FLOPS", {"cpu": 2e7})
    original = Ledger.rounds
    monkeypatch.setattr(Ledger, "rounds", lambda *given: seen.append(original(*given)) or seen[-1])
    assert probe(cells["fedra"], registry, "cpu", totals(cells["fedra"]))["per_flop"] > 0
    for rows in seen:
        assert 0 < sum(row["flops"] for row in rows) / max(row["steps"] for row in rows) <= 2e7
        assert max(row["capacity"] for row in rows) < 12


def test_one_client_is_always_tried(registry, cells, totals, monkeypatch):
    monkeypatch.setattr(probing, "STEP_FLOPS", {"cpu": 1.0})
    assert probe(cells["exclusive"], registry, "cpu", totals(cells["exclusive"]))["per_flop"] > 0


def test_processes_share_a_round_by_groups(registry, cells, monkeypatch):
    trial = Trial(cells["fedra"], registry)
    work = [trial.method.cost(L_n, 0).flops_per_image for L_n in (12, 4, 3, 2, 1, 1)]
    assert longest_share(trial, 6, 1) == 1
    assert longest_share(trial, 6, 2) == 1  # all clients fit into one group
    monkeypatch.setattr(probing, "ROWS", 1)
    assert longest_share(trial, 6, 6) == work[0] / sum(work)


def test_a_cell_that_is_not_applicable_is_not_probed(registry, cells, totals):
    config = cells["exclusive"] | {"capacities": {"by_client": [4] * 6}}
    with pytest.raises(NotApplicable):
        probe(config, registry, "cpu", totals(cells["exclusive"]))
