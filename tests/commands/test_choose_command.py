"""fedbench choose: a matrix of methods and devices, with the accuracy of given results."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import patch

import pytest
from command import TINY, fedbench

RESULTS = Path(__file__).parents[2] / "results/reference/devices"
TINY_MODEL = ("choose", "--backbone", "tiny", "--plugin", TINY, "--set", "data=dots")


def test_two_devices_stand_next_to_each_other_and_one_method_is_recommended(tmp_path):
    given = (*TINY_MODEL, "--devices", "phone_high, microcontroller", "--method", "fedra", "--method", "fedavg")
    shown = " ".join(fedbench(*given, cwd=tmp_path).output.split())
    assert "with tiny" in shown and "method phone_high microcontroller" in shown
    assert "batches of 128 in as few micro-batches as fit, in fp32, by SGD with momentum 0.9" in shown
    assert "Recommended: fed" in shown and "says nothing of accuracy" in shown
    rows = json.loads(fedbench(*given, "--format", "json", cwd=tmp_path).output)["rows"]
    assert {(row["method"], row["device"]) for row in rows} == {
        (method, device) for method in ("fedra", "fedavg") for device in ("phone_high", "microcontroller")
    }
    assert all(row["memory_bytes"] <= {"phone_high": 3e9, "microcontroller": 288e3}[row["device"]] for row in rows)
    by_device = {row["device"]: row["micro_batch"] for row in rows}
    assert by_device["phone_high"] == 128 > by_device["microcontroller"]
    with patch("fedbench.runner.estimate.Asking", side_effect=LookupError("asked again")):
        assert " ".join(fedbench(*given, cwd=tmp_path).output.split()) == shown, "answers are kept"
        with pytest.raises(LookupError):
            fedbench(*given, "--images", 7, cwd=tmp_path)


def test_results_give_the_accuracy_at_that_size(tmp_path):
    given = ("--devices", "laptop", "--method", "fedra", "--accuracy", RESULTS)
    of_micro = ("choose", "--backbone", "micro_vit", *given, "--scenario", "whole_batches", "--format", "json")
    (row,) = json.loads(fedbench(*of_micro, cwd=tmp_path).output)["rows"]
    assert row["size"] == "12 layers" and 0.8 < row["accuracy"] < 0.95
    other = " ".join(fedbench(*TINY_MODEL, *given, "--scenario", "whole_batches", cwd=tmp_path).output.split())
    assert "accuracies are those of micro_vit, not of tiny" in other
    several = fedbench(*TINY_MODEL, *given, cwd=tmp_path)
    assert several.exit_code == 2 and "results of hurried, whole_batches; say which with --scenario" in several.output
    wrong = fedbench(*TINY_MODEL, *given, "--scenario", "whole", cwd=tmp_path)
    assert wrong.exit_code == 2 and "whole_batches" in wrong.output


def test_an_unknown_device_is_refused_by_name(tmp_path):
    done = fedbench("choose", "--backbone", "micro_vit", "--devices", "phone_hihg", cwd=tmp_path)
    assert done.exit_code == 2 and 'no device is called "phone_hihg"' in done.output and "phone_high" in done.output
