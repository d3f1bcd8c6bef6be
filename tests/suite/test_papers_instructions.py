"""The suites of FLoRA and FedSA-LoRA on instructions, against their released code and the numbers that are printed."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from made_up import KnownFacts

from fedbench.cli import main
from fedbench.registry.registry import Registry
from fedbench.suite import load
from fedbench_plugins.backbones.text_models import MOST

PAPERS = Path(__file__).parents[2] / "suites/papers"
GSM8K, MMLU = PAPERS / "fedsa_lora/gsm8k.yaml", PAPERS / "flora/mmlu.yaml"


class OfInstructions(KnownFacts):
    def domains(self, data):
        return ("all",)


@pytest.fixture(scope="module")
def catalogue():
    return Registry().catalogue


@pytest.mark.parametrize("path", [GSM8K, MMLU], ids=lambda path: path.stem)
@pytest.mark.parametrize("data", [None, "embedded"])
def test_a_suite_loads_on_its_own_data_and_on_the_embedded_ones(path, data, catalogue):
    found = load(path, catalogue, facts=OfInstructions(), data=data)
    lines = path.read_text().splitlines()
    assert lines[0] == f"# fedbench run suites/papers/{path.parent.name}/{path.name}" and max(map(len, lines)) <= 120
    where = ("micro_llama", "phrases6") if data else ("hf", "instructions")
    assert {(cell.backbone, cell.dataset) for cell in found.points()} == {where}


def test_three_clients_share_word_problems(catalogue):
    found = load(GSM8K, catalogue, facts=OfInstructions())
    assert found.methods == ("lora", "ffa_lora", "fedsa_lora", "zero_round")
    for cell in found.points():
        config, train = cell.config, cell.config["train"]
        assert config["data"]["partition"] == {"name": "iid", "clients": 3}
        assert (config["adapter"]["rank"], config["adapter"]["alpha"], config["adapter"]["dropout"]) == (8, 16, 0.05)
        assert (train["rounds"], train["max_steps"], train["batch_size"]) == (100, 30, 1)
        plain = {"name": "sgd", "lr": 0.005, "momentum": 0.0, "weight_decay": 0.0}
        assert {key: train["optimizer"][key] for key in plain} == plain and train["clip"] is None
        assert config["data"]["max_length"] <= MOST
    assert {row["score"] for row in found.expected} == {"number_match"}
    printed = {row["method"]: row["value_percent"] for row in found.expected}
    assert printed == {"lora": 46.24, "ffa_lora": 46.32, "fedsa_lora": 46.63}


def test_ten_clients_have_one_rank_or_those_of_the_code(catalogue):
    found = load(MMLU, catalogue, facts=OfInstructions())
    for cell in found.points():
        config, train = cell.config, cell.config["train"]
        adapter = config["adapter"]
        assert adapter["alpha"] == 2 * adapter["rank"] == (32 if cell.scenario == "equal_ranks" else 128)
        assert config["data"]["partition"] == {"name": "iid", "clients": 10}
        assert (train["rounds"], train["local_epochs"], train["batch_size"], train["micro_batch"]) == (3, 1, 128, 16)
        assert config["data"]["max_length"] <= MOST
    assert not found.expected


def test_answers_of_word_problems_are_run_tested_and_set_beside_the_printed_ones(tmp_path):
    """The suite on problems of our own, with the embedded decoder."""
    data = tmp_path / "data"
    data.mkdir()
    for name, count in (("train", 12), ("test", 6)):
        rows = [{"question": f"the red cat number {n}", "answer": f"the blue cat {n}"} for n in range(count)]
        (data / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    small = {
        "backbone": "micro_llama",
        "adapter.targets": "[q_proj, v_proj]",
        "data.root": data,
        "data.max_length": 16,
        "precision": "fp32",
        "train.rounds": 1,
        "train.max_steps": 1,
        "evaluation.every": 1,
    }
    sets = [part for key, value in small.items() for part in ("--set", f"{key}={value}")]
    results = str(tmp_path / "results")

    def said(*words, code=0):
        done = CliRunner().invoke(main, words, env={"COLUMNS": "160"})
        assert done.exit_code == code, done.output
        return done.output

    said("run", str(GSM8K), *sets, "--results", results, "--jobs", "1")
    shown = said("compare", "paper", results, "--metric", "number_match")
    assert "not comparable" in shown and "46.63" in shown and "46.24" in shown and "by number_match" not in shown
    measured = csv.DictReader(
        said("compare", "paper", results, "--metric", "number_match", "--format", "csv").splitlines()
    )
    found = {row["method"]: row["measured_percent"] for row in measured}
    assert {float(value) for value in found.values()} == {0.0} and len(found) == 4, (
        "the embedded decoder knows no digit"
    )
    assert "in percent, and nll is not" in said("compare", "paper", results, "--metric", "nll", code=2)
