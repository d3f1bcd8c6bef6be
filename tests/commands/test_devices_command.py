"""fedbench devices: the table of devices, and which size of each method fits where."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from command import TINY, fedbench, write_suite

from fedbench.commands.devices import MEASURE
from fedbench.deployment import measuring
from fedbench.devices.table import SHIPPED
from fedbench.processes import supervisor

OWN = {
    "\nscenarios:": "\ndevices: {pin: {extends: laptop, memory: 10}, box: {extends: laptop, memory: 8000}}\nscenarios:",
    "  capacities: [2, 1]\n": "",
    "  small: {}": "  small: {devices: [box, pin], fit: {memory: true, seconds: 60}}\n  plain: {}",
}


def test_every_shipped_device_is_listed_with_its_source_in_80_columns(tmp_path):
    done = fedbench("devices", cwd=tmp_path, columns=80)
    assert done.exit_code == 0 and max(map(len, done.output.splitlines())) <= 80
    assert all(f"\n{name} " in done.output and f"\n {name}: " in done.output for name in SHIPPED)
    rows = json.loads(fedbench("devices", "--format", "json", cwd=tmp_path).output)["rows"]
    assert [row["name"] for row in rows] == list(SHIPPED) and all(row["source"] for row in rows)


def test_one_device_is_shown_by_its_name(tmp_path):
    (row,) = json.loads(fedbench("devices", "phone_high", "--format", "json", cwd=tmp_path).output)["rows"]
    assert (row["name"], row["memory"]) == ("phone_high", SHIPPED["phone_high"].memory)


def test_what_is_neither_a_device_nor_a_suite_has_the_nearest_of_both(tmp_path):
    for name, near in (("phone", "phone_low, phone_high?"), ("quikstart", "quickstart?")):
        done = fedbench("devices", name, cwd=tmp_path)
        assert done.exit_code == 2 and done.stderr.rstrip().endswith(f"did you mean {near}")


def test_a_suite_is_shown_on_its_own_devices_and_otherwise_on_all(tmp_path):
    file = write_suite(tmp_path, "fedra, alllarge, inclusivefl", OWN)
    done = fedbench("devices", file, "--plugin", TINY, "--images", 8, "--format", "csv", cwd=tmp_path)
    rows = list(csv.DictReader(io.StringIO(done.output)))
    small = {(row["method"], row["device"]): row for row in rows if row["scenario"] == "small"}
    assert {device for _, device in small} == {"box", "pin"}
    assert small["fedra", "box"]["size"] == "1 layer" and small["fedra", "pin"]["size"] == ""
    assert 10 < int(small["fedra", "pin"]["least_memory"]) <= 8000
    assert small["alllarge", "pin"]["size"] == "2 layers"  # a ceiling
    box = small["fedra", "box"]
    parts = [float(box[f"{part}_seconds"]) for part in ("down", "compute", "up", "server")]
    assert sum(parts) == float(box["seconds"]) and int(box["memory_bytes"]) <= 8000
    assert float(box["down_seconds"]) == int(box["bytes_down"]) / SHIPPED["laptop"].down
    assert {row["device"] for row in rows if row["scenario"] == "plain"} == set(SHIPPED)
    shown = fedbench("devices", file, "--plugin", TINY, "--scenario", "small", cwd=tmp_path, columns=80).output
    assert "\nfedra, inclusivefl · the smallest size needs" in shown and "\nalllarge · a ceiling" in shown
    said = " ".join(shown.split())
    assert "fits the device's memory and rounds of 1 min 00 s" in said
    assert "Clients train on batches of 2 in as few micro-batches as fit, in fp32, by SGD." in said
    assert int(small["fedra", "box"]["micro_batch"]) <= 2


def test_bytes_are_those_of_a_round_and_its_seconds_whoever_computes_along(tmp_path):
    """Every step of split learning sends features and gradients; and a step is no more than `max_steps` of them."""
    split = write_suite(tmp_path, "fedv, fedra", OWN)
    given = ("devices", split, "--plugin", TINY, "--set", "train.max_steps=2", "--set", "train.batch_size=4")
    rows = json.loads(fedbench(*given, "--scenario", "plain", "--format", "json", cwd=tmp_path).output)["rows"]
    assert {row["method"] for row in rows} == {"fedv", "fedra"} and {row["images"] for row in rows} == {8}
    for row in rows:
        if row["size"]:
            device = SHIPPED[row["device"]]
            assert (row["bytes_down"], row["bytes_up"]) == (
                pytest.approx(row["down_seconds"] * device.down),
                pytest.approx(row["up_seconds"] * device.up),
            )
    shown = fedbench(*given, "--scenario", "plain", cwd=tmp_path, columns=80).output
    assert "of 500 training examples, which trains on 8 in it" in " ".join(shown.split())


def test_a_backbone_needs_no_suite_and_no_data(tmp_path):
    given = ("--backbone", "tiny", "--plugin", TINY, "--set", "train.batch_size=2", "--set", "data=dots")
    done = fedbench("devices", *given, "--method", "fedra", "--method", "fedavg", cwd=tmp_path)
    assert "fedra" in done.output and "one size" in done.output and "server_gpu" in done.output
    both = fedbench("devices", "x.yaml", "--backbone", "tiny", cwd=tmp_path)
    assert both.exit_code == 2 and "a suite or --backbone, not both" in both.output


def test_the_table_of_the_page_is_the_one_that_is_printed(tmp_path):
    printed = fedbench("devices", "--format", "markdown", cwd=tmp_path).output.splitlines()
    page = (Path(__file__).parents[2] / "docs/devices.md").read_text().splitlines()
    table = [line for line in printed if line.startswith("|")]
    assert len(table) == len(SHIPPED) + 2 and not set(table) - set(page)


def test_where_no_method_is_applicable_the_reasons_are_told(tmp_path):
    done = fedbench("devices", "--backbone", "micro_cnn", "--method", "fedra", cwd=tmp_path)
    assert done.exit_code == 0 and "cannot be cut into layers" in " ".join(done.output.split())


MEASURED = {
    "numbers": {"memory": 8e9, "flops": 1.2345e10, "flops_bf16": 3e9, "down": 1e7, "up": 1e6, "message": 0.4321},
    "flops": {"fp32": {"fedra": 1.2e10, "head_only": 1.3e10}, "bf16": {"fedra": 2e9, "head_only": 5e9}},
}


def test_a_measured_machine_is_a_device_that_a_suite_takes(tmp_path, monkeypatch):
    call = supervisor.call

    def answered(function, given, **how):
        return MEASURED if function == MEASURE else call(function, given, **how)

    monkeypatch.setattr(supervisor, "call", answered)
    done = fedbench("devices", "--measure", "--backbone", "micro_mixer", cwd=tmp_path)
    assert done.exit_code == 0 and "measured with micro_mixer on one core" in done.stdout
    assert "fp32: fedra 12.0 GFLOPs/s, head_only 13.0 GFLOPs/s" in done.stdout
    own = {"\nscenarios:": f"\n{done.stdout}\nscenarios:", "  capacities: [2, 1]\n": ""}
    file = write_suite(tmp_path, "fedra", own | {"  small: {}": "  small: {devices: this_machine}"})
    shown = fedbench("devices", file, "--plugin", TINY, "--format", "csv", cwd=tmp_path)
    assert shown.exit_code == 0 and "this_machine" in shown.stdout
    assert fedbench("devices", "laptop", "--measure", cwd=tmp_path).exit_code == 2


def test_a_machine_is_measured_by_short_trainings_in_both_precisions(monkeypatch):
    monkeypatch.setattr(measuring, "find_spec", lambda name: None)
    lines = []
    tiny = {"name": "vit_tiny_patch16_224", "pretrained": False, "img_size": 32, "embed_dim": 48, "depth": 4}
    found = measuring.measured_device({"backbone": json.dumps(tiny), "steps": 1, "batch": 2}, lines.append)
    assert {precision: set(own) for precision, own in found["flops"].items()} == {
        "fp32": {"fedra", "head_only"},
        "bf16": {"fedra", "head_only"},
    }
    numbers = found["numbers"]
    assert numbers.keys() == {"memory", "flops", "flops_bf16", "down", "up"} and all(numbers.values())
    low, high = sorted(found["flops"]["fp32"].values())
    assert low <= numbers["flops"] <= high
    assert "flwr is not installed" in lines[-1]["line"]
