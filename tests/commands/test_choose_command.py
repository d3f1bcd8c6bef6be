"""fedbench choose: a matrix of methods and devices, with the accuracy of given results."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import patch

import pytest
from command import TINY, fedbench

RESULTS = Path(__file__).parents[2] / "results/reference/devices"
TINY_MODEL = ("choose", "--backbone", "tiny", "--plugin", TINY, "--set", "data=dots")


def test_two_devices_stand_next_to_each_other_and_nothing_is_recommended_without_accuracies(tmp_path):
    given = (*TINY_MODEL, "--devices", "phone_high, microcontroller", "--method", "fedra", "--method", "fedavg")
    shown = " ".join(fedbench(*given, cwd=tmp_path).output.split())
    assert "with tiny" in shown and "method phone_high microcontroller" in shown
    assert "batches of 128 in as few micro-batches as fit, in fp32, by SGD with momentum 0.9" in shown
    assert "No recommendation: what fits says nothing of accuracy" in shown
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
    assert other.count("accuracies are those of micro_vit, not of tiny") == 2  # a note, and why nothing is recommended
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "devices").symlink_to(RESULTS)
    several = fedbench(*TINY_MODEL, *given[:-1], "devices", cwd=tmp_path)  # by the name of their suite
    assert (
        several.exit_code == 2 and "results of 'hurried', 'whole_batches'; say which with --scenario" in several.output
    )
    swept = fedbench(*TINY_MODEL, *given[:-1], RESULTS.parent / "fedv_figure2_epochs", cwd=tmp_path)
    assert swept.exit_code == 2 and "say which with --variant 'train.local_epochs=1" in " ".join(swept.output.split())
    wrong = fedbench(*TINY_MODEL, *given, "--scenario", "whole", cwd=tmp_path)
    assert wrong.exit_code == 2 and "whole_batches" in wrong.output


def test_an_unknown_device_is_refused_by_name(tmp_path):
    done = fedbench("choose", "--backbone", "micro_vit", "--devices", "phone_hihg", cwd=tmp_path)
    assert done.exit_code == 2 and 'no device is called "phone_hihg"' in done.output and "phone_high" in done.output


def test_devices_have_clients_and_a_round_an_end(tmp_path):
    given = (*TINY_MODEL, "--method", "fedra", "--format", "json")
    rows = json.loads(fedbench(*given, "--devices", "phone_high:4,laptop,phone_high", cwd=tmp_path).output)["rows"]
    assert [(row["device"], row["clients"]) for row in rows] == [("phone_high", 5), ("laptop", 1)]
    quick = fedbench(*given[:-2], "--devices", "phone_low", "--round", "0.001s", cwd=tmp_path)
    assert "rounds of 0.001" in " ".join(quick.output.split()) and "no method fits any of these" in quick.output
    long = fedbench(*given, "--devices", "phone_low", "--round", "1h 30min", cwd=tmp_path)
    assert json.loads(long.output)["rows"][0]["size"] is not None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--devices", "phone_low:x"), "after the colon stands how many clients have one, such as phone_low:4"),
        (("--devices", "phone_low:0"), "such as phone_low:4"),
        (("--devices", "phone_low", "--round", "soon"), "--round: 'soon' is not a length of time"),
    ],
)
def test_counts_and_times_that_are_none_are_refused(words, said, tmp_path):
    done = fedbench("choose", "--backbone", "micro_vit", *words, cwd=tmp_path)
    assert done.exit_code == 2 and said in " ".join(done.output.split())
