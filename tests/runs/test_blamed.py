"""A run among plugins that do wrong: each failure is its cell's own and names who is to blame; chance is noticed."""

from __future__ import annotations

import json

import pytest
from command import TINY, fedbench, write_suite

from fedbench.results.tables import read_rows

STRANGE = """
import numpy as np
import torch
from dataclasses import replace
from fedbench import UserError, hookimpl
from fedbench.families import aggregation
from fedbench.families.layerwise import layerwise
from fedbench.types import Client

def drawing():
    def aggregate(state, uploads, plan, cohort):
        np.random.rand()
        return aggregation.weighted_mean(state, uploads, plan, cohort)
    return aggregate

def halved():
    def aggregate(state, uploads, plan, cohort):
        new = aggregation.weighted_mean(state, uploads, plan, cohort)
        return {**new, "r": new["r"][:1]}
    return aggregate

def endless():
    def aggregate(state, uploads, plan, cohort):
        new = aggregation.weighted_mean(state, uploads, plan, cohort)
        return {**new, "r": [{name: value / 0 for name, value in r_j.items()} for r_j in new["r"]]}
    return aggregate

def leaving():
    def aggregate(state, uploads, plan, cohort):
        raise SystemExit(0)
    return aggregate

def unkept(setup):
    method = layerwise(setup)
    return replace(method, init=lambda generator: {**method.init(generator), "log": print})

def pairless(setup):
    return replace(layerwise(setup), round=lambda state, *given: state)

def deaf(capacities, num_layers, generator):
    torch.rand(1, generator=generator)
    return torch.arange(num_layers) < capacities[:, None]

def free(setup):
    def cost(capacity, t):
        raise UserError("no such price")
    return replace(layerwise(setup), cost=cost)

def lonely():
    def partition(y, domain, num_domains, generator):
        return [Client(0, 0, np.flatnonzero(domain == 0)), Client(1, 1, np.arange(0))]
    return partition

def shared():
    def partition(y, domain, num_domains, generator):
        return [Client(d, 0, np.flatnonzero(domain == 0)) for d in range(2)]
    return partition

def mutating():
    def metric(logits, y):
        logits.neg_()
        return 0.0
    return metric

def vector():
    return lambda logits, y: logits.sum(1)

@hookimpl
def fedbench_register_aggregators(register):
    register("drawing", drawing)
    register("halved", halved)
    register("endless", endless)
    register("leaving", leaving)

@hookimpl
def fedbench_register_allocations(register):
    register("deaf", deaf)

@hookimpl
def fedbench_register_methods(register):
    register("free", free)
    register("unkept", unkept)
    register("pairless", pairless)

@hookimpl
def fedbench_register_partitions(register):
    register("lonely", lonely)
    register("shared", shared)

@hookimpl
def fedbench_register_metrics(register):
    register("mutating", mutating)
    register("vector", vector)
"""
METHODS = (
    "fedra, {name: drawing, extends: fedra, aggregator: drawing}, {name: halved, extends: fedra, aggregator: halved}, "
    "{name: endless, extends: fedra, aggregator: endless}, {name: leaving, extends: fedra, aggregator: leaving}, "
    "{name: deaf, extends: fedra, allocation: deaf}, {name: deaf_too, extends: deaf, train: {max_steps: 2}}, "
    "free, unkept, pairless"
)
SCENARIOS = {
    "  small: {}\n": (
        "  small: {evaluation: {metrics: [mutating, accuracy]}}\n"
        "  plain: {}\n"
        "  lonely: {data: {partition: lonely}}\n"
        "  shared: {data: {partition: shared}}\n"
        "  vector: {evaluation: {metrics: [vector]}}\n"
    )
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory, own_cache):
    folder = tmp_path_factory.mktemp("blamed")
    (folder / "strange.py").write_text(STRANGE)
    write_suite(folder, METHODS, SCENARIOS)
    words = ("tiny.yaml", "--plugin", TINY, "--plugin", "strange.py", "--results", "r")
    done = fedbench("run", *words, "--scenario", "small", cwd=folder)
    others = ("--scenario", "plain", "--scenario", "lonely", "--scenario", "shared", "--scenario", "vector")
    assert fedbench("run", *words, *others, "--method", "fedra", cwd=folder).exit_code == 1
    entries = json.loads((folder / "r/tiny/index.json").read_text())["entries"]
    found = {f"{entry['scenario']}/{entry['method']}": folder / "r/tiny" / entry["cell"] for entry in entries}
    return done, {name: (place, json.loads((place / "manifest.json").read_text())) for name, place in found.items()}


def test_the_failures_are_the_cells_own_and_say_how_to_look_into_them(ended):
    done, cells = ended
    reasons = {name: manifest["reason"] for name, (_, manifest) in cells.items() if manifest["status"] == "failed"}
    for name, reason in reasons.items():
        assert reason.endswith("fedbench plugins check strange.py"), (name, reason)
    own = {f"small/{name}" for name in ("halved", "endless", "leaving", "unkept", "pairless")}
    assert set(reasons) == {*own, "lonely/fedra", "shared/fedra", "vector/fedra"}
    assert "not finite; perhaps the aggregator 'endless' of strange.py" in reasons["small/endless"]
    assert "SystemExit: 0 (strange.py:" in reasons["small/leaving"]
    assert "cannot be saved: /log is a" in reasons["small/unkept"] and "the method 'unkept'" in reasons["small/unkept"]
    assert "a round returns (state, Report), not dict (strange.py:" in reasons["small/pairless"]
    halved = reasons["small/halved"]
    assert "for each of 2 layers" in halved and "(strange.py:17); the aggregator 'halved' of strange.py: " in halved
    assert cells["small/free"][1]["status"] == "finished"  # a price is asked for by plans alone
    assert "clients [1] no training images" in reasons["lonely/fedra"]
    assert "image 0 is dealt 2 times" in reasons["shared/fedra"]
    assert "a metric returns one number, not a Tensor of shape" in reasons["vector/fedra"]
    assert done.exit_code == 1


def test_what_may_spoil_results_is_a_warning_that_names_who_does_it(ended):
    done, cells = ended
    warned = {name: manifest["warnings"] for name, (_, manifest) in cells.items() if manifest.get("warnings")}
    assert set(warned) == {"small/drawing", "small/deaf", "small/deaf_too"}
    (drawing,), (deaf,) = warned["small/drawing"], warned["small/deaf"]
    assert drawing.startswith("the aggregator 'drawing' of strange.py draws from a global generator (of NumPy)")
    assert "'deaf' of strange.py gives the same M for 16 seeds, though it takes a generator" in deaf
    assert drawing in done.stdout + done.stderr
    assert warned["small/deaf_too"] == [deaf] and (done.stdout + done.stderr).count(deaf) == 1


def test_a_metric_that_changes_its_logits_changes_no_other(ended):
    _, cells = ended

    def accuracy(name):
        return [row["value"] for row in read_rows(cells[name][0], "eval") if row["metric"] == "accuracy"]

    assert accuracy("small/fedra") == accuracy("plain/fedra")
