"""The suite in InclusiveFL's setting, against what its released code says."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up import KnownFacts

from fedbench.registry.registry import Registry
from fedbench.suite import load

SUITE = Path(__file__).parents[2] / "suites/papers/inclusivefl/glue.yaml"
PAIRS = {"mrpc", "qqp", "mnli", "qnli", "rte"}


class OfGlue(KnownFacts):
    def domains(self, data):
        return ("all",)


@pytest.fixture(scope="module")
def catalogue():
    return Registry().catalogue


def test_a_third_of_a_thousand_clients_each_holds_4_8_and_12_layers(catalogue):
    found = load(SUITE, catalogue, facts=OfGlue())
    lines = SUITE.read_text().splitlines()
    assert lines[0] == "# fedbench run suites/papers/inclusivefl/glue.yaml" and max(map(len, lines)) <= 120
    assert set(found.scenarios) == {*PAIRS, "cola", "sst2"} and not found.expected
    for cell in found.points():
        data, train = cell.config["data"], cell.config["train"]
        assert (data["path"], data["config"], data["max_length"]) == ("nyu-mll/glue", cell.scenario, 128)
        assert isinstance(data["text"], list) == (cell.scenario in PAIRS)
        assert data["test"] == ("validation_matched" if cell.scenario == "mnli" else "validation")
        assert data["partition"] == {"name": "iid", "clients": 1000} and cell.config["participation"] == {"count": 20}
        assert cell.config["capacities"] == {"cycle": [4, 8, 12]} and cell.config["adapter"] == {"name": "full"}
        assert (train["rounds"], train["batch_size"], train["optimizer"]["lr"]) == (1000, 64, 5e-5)


def test_on_embedded_texts_all_tasks_are_one(catalogue):
    found = load(SUITE, catalogue, facts=KnownFacts(), data="embedded")
    configs = {str({key: cell.config[key] for key in ("data", "train", "backbone")}) for cell in found.points()}
    assert len(configs) == 1 and {(cell.backbone, cell.dataset) for cell in found.points()} == {
        ("micro_bert", "phrases6")
    }
