"""A run among faulty plugins: each failure is its cell's own, and says which component to check."""

from __future__ import annotations

import re

from command import manifests, run, write_suite

STRANGE = """
import os
from dataclasses import replace
from fedbench import hookimpl
from fedbench.families import aggregation
from fedbench.families.layerwise import layerwise

def halved():
    def aggregate(state, uploads, plan, cohort):
        new = aggregation.weighted_mean(state, uploads, plan, cohort)
        return {**new, "r": new["r"][:1]}
    return aggregate

def leaving():
    def aggregate(state, uploads, plan, cohort):
        raise SystemExit(0)
    return aggregate

def pairless(setup):
    return replace(layerwise(setup), round=lambda state, *given: state)

def free(setup):
    def cost(capacity, t):
        os._exit(7)
    return replace(layerwise(setup), cost=cost)

@hookimpl
def fedbench_register_aggregators(register):
    register("halved", halved)
    register("leaving", leaving)

@hookimpl
def fedbench_register_methods(register):
    register("free", free)
    register("pairless", pairless)
"""
METHODS = (
    "fedra, {name: halved, extends: fedra, aggregator: halved}, "
    "{name: leaving, extends: fedra, aggregator: leaving}, free, pairless"
)
CHECK = "; to check it: fedbench plugins check strange.py"


def test_the_failures_are_the_cells_own_and_say_how_to_check_the_component(tmp_path, own_cache):
    (tmp_path / "strange.py").write_text(STRANGE)
    write_suite(tmp_path, METHODS)
    assert run("--plugin", "strange.py", cwd=tmp_path).exit_code == 1
    found = {name.removesuffix("/0"): manifest for name, manifest in manifests(tmp_path / "r").items()}
    reasons = {name: manifest["reason"] for name, manifest in found.items() if manifest["status"] == "failed"}
    assert set(reasons) == {"halved", "leaving", "pairless"}
    for name in reasons:
        assert reasons[name].endswith(CHECK), (name, reasons[name])
    assert re.search(r"SystemExit: 0 \(strange.py:\d+\), in the aggregator 'leaving'", reasons["leaving"])
    pairless = r"the method 'pairless' of strange.py \(strange.py:\d+\): a round returns \(state, Report\), not dict"
    assert re.match(pairless, reasons["pairless"])
    halved = reasons["halved"]
    assert "for each of 2 layers" in halved and halved.startswith("the aggregator 'halved' of strange.py (strange.py:")
    assert found["free"]["status"] == "finished"  # a price is asked for by plans alone
