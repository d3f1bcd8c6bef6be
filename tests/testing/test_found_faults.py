"""The contract kit against faulty plugins of every kind: each is found, with a sentence that says what to change."""

from __future__ import annotations

import re

import faulty_methods
import faulty_parts
import faulty_wholes
import pytest
from faults import plugin, why

OF_KIND = {
    "allocation": faulty_parts.ALLOCATIONS,
    "aggregator": faulty_parts.AGGREGATORS,
    "objective": faulty_parts.OBJECTIVES,
    "metric": faulty_parts.METRICS,
    "partition": faulty_parts.PARTITIONS,
    "adapter": faulty_wholes.ADAPTERS,
    "backbone": faulty_wholes.BACKBONES,
    "dataset": faulty_wholes.DATASETS,
    "method": faulty_methods.METHODS,
    "executor": faulty_wholes.EXECUTORS,
}
CASES = [(kind, fault) for kind, faults in OF_KIND.items() for fault in faults]


@pytest.mark.parametrize(("kind", "fault"), CASES, ids=[f"{kind}-{fault}" for kind, fault in CASES])
def test_a_fault_is_found_and_told(tmp_path, kind, fault, monkeypatch):
    body, told = OF_KIND[kind][fault]
    if "sleep" in body:
        monkeypatch.setattr("fedbench.testing.executors.PATIENCE", 2.0)
    said = why(tmp_path, plugin(kind, body))
    assert said.startswith(("BROKEN: ", "skipped: it needs")) and re.search(told, said), said


def test_the_sound_ones_that_the_faulty_are_made_of_pass(tmp_path):
    for kind, body in {**faulty_wholes.SOUND, "method": faulty_methods.SOUND}.items():
        assert why(tmp_path, plugin(kind, body)) == "ok: "


PAIRS = """
from fedbench.families.lowrank import came, with_pairs

def it(setup):
    def aggregate(state, uploads, plan, cohort):
        def factors(one):
            return one.A.mean(0), one.product() @ torch.linalg.pinv(one.A.mean(0)) / one.pair.scaling
        return with_pairs(state, uploads, plan, cohort, came(setup.backbone, uploads, plan, cohort), factors)
    return aggregate
"""
BY_NAME = """
from fedbench.families import aggregation

def it():
    def aggregate(state, uploads, plan, cohort):
        new = aggregation.weighted_mean(state, uploads, plan, cohort)
        for j, r_j in enumerate(new["r"]):
            for name in [name for name in r_j if name.endswith("lora_A") and (plan.M[:, j] & uploads.arrived).any()]:
                B = name.replace("lora_A", "lora_B")
                norm = r_j[name].norm()
                new["r"][j] = {**new["r"][j], name: r_j[name] / norm, B: r_j[B] * norm}
        return new
    return aggregate
"""


@pytest.mark.parametrize("body", [PAIRS, BY_NAME], ids=["of places", "by name"])
def test_an_aggregator_of_low_rank_pairs_passes(tmp_path, body):
    assert why(tmp_path, plugin("aggregator", body)) == "ok: "


def test_a_cache_is_no_memory(tmp_path):
    """A module may compute a table once, and may be asked twice."""
    body = "import functools\n\n@functools.cache\ndef row(n):\n    return torch.arange(n)\n\n"
    body += "def it(capacities, num_layers):\n    return row(num_layers) < capacities[:, None]"
    assert why(tmp_path, plugin("allocation", body)) == "ok: "
