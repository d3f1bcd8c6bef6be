"""A run among faulty plugins: each failure is its cell's own, and says which component to check."""

from __future__ import annotations

import re

import pytest
from command import TINY, fedbench, write_suite

from fedbench.results import read_index, read_manifest, read_rows
from fedbench.results.store import cell_folders

STRANGE = """
import os
import numpy as np
import torch
from dataclasses import replace
from fedbench import hookimpl
from fedbench.families import aggregation
from fedbench.families.layerwise import layerwise
from fedbench.types import Client

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

def free(setup):
    def cost(capacity, t):
        os._exit(7)
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
    register("halved", halved)
    register("endless", endless)
    register("leaving", leaving)

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
    "fedra, {name: halved, extends: fedra, aggregator: halved}, {name: endless, extends: fedra, aggregator: endless}, "
    "{name: leaving, extends: fedra, aggregator: leaving}, free, unkept, pairless"
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
CHECK = "; to check it: fedbench plugins check strange.py"


@pytest.fixture(scope="module")
def cells(tmp_path_factory, own_cache):
    """The folder and the manifest of every cell, by scenario and method."""
    folder = tmp_path_factory.mktemp("faulty")
    (folder / "strange.py").write_text(STRANGE)
    write_suite(folder, METHODS, SCENARIOS)
    words = ("tiny.yaml", "--plugin", TINY, "--plugin", "strange.py", "--results", "r")
    assert fedbench("run", *words, "--scenario", "small", cwd=folder).exit_code == 1
    others = ("--scenario", "plain", "--scenario", "lonely", "--scenario", "shared", "--scenario", "vector")
    assert fedbench("run", *words, *others, "--method", "fedra", cwd=folder).exit_code == 1
    index, places = read_index(folder / "r/tiny"), cell_folders(folder / "r/tiny")
    found = {f"{entry.scenario}/{entry.method}": places(entry.cell) for entry in index.entries}
    return {name: (place, read_manifest(place)) for name, place in found.items()}


def test_the_failures_are_the_cells_own_and_say_how_to_check_the_component(cells):
    reasons = {name: manifest["reason"] for name, (_, manifest) in cells.items() if manifest["status"] == "failed"}
    own = {f"small/{name}" for name in ("halved", "endless", "leaving", "unkept", "pairless")}
    assert set(reasons) == {*own, "lonely/fedra", "shared/fedra", "vector/fedra"}
    for name in set(reasons) - {"small/endless", "lonely/fedra"}:
        assert reasons[name].endswith(CHECK), (name, reasons[name])
    assert reasons["small/endless"].endswith("not finite")  # whoever made it so
    assert re.search(r"SystemExit: 0 \(strange.py:\d+\), in the aggregator 'leaving'", reasons["small/leaving"])
    assert "cannot be saved: /log is a" in reasons["small/unkept"] and "the method 'unkept'" in reasons["small/unkept"]
    pairless = r"the method 'pairless' of strange.py \(strange.py:\d+\): a round returns \(state, Report\), not dict"
    assert re.match(pairless, reasons["small/pairless"])
    halved = reasons["small/halved"]
    assert "for each of 2 layers" in halved and halved.startswith("the aggregator 'halved' of strange.py (strange.py:")
    assert cells["small/free"][1]["status"] == "finished"  # a price is asked for by plans alone
    assert "clients [1] no training examples" in reasons["lonely/fedra"]
    assert "image 0 is dealt 2 times" in reasons["shared/fedra"]
    assert "a metric returns one number, not Tensor" in reasons["vector/fedra"]


def test_a_metric_that_changes_its_logits_changes_no_other(cells):
    def accuracy(name):
        return [row["value"] for row in read_rows(cells[name][0], "eval") if row["metric"] == "accuracy"]

    assert accuracy("small/fedra") == accuracy("plain/fedra")
