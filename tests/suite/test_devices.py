"""Devices in a suite: written out with their numbers, told where they are wrong, absent where nothing has any."""

from __future__ import annotations

import pytest

from fedbench.devices.table import SHIPPED
from fedbench.disk import hash_of_json
from fedbench.errors import UserError

HEAD = """suite: s
defaults: {backbone: vit, data: {name: strokes6}}
"""


def one(suite_of, scenario: str, above: str = "", **options) -> dict:
    (point,) = suite_of(f"{HEAD}{above}scenarios: {{one: {{{scenario}}}}}\nmethods: [fedra]\n", **options).points()
    return point.config


def test_short_spellings_are_written_out_with_their_numbers(suite_of):
    config = one(suite_of, "devices: {laptop: 1, phone_low: 3}")
    assert config["devices"]["shares"] == {"laptop": 1.0, "phone_low": 3.0}
    assert config["fit"] == {"memory": True} and config["capacities"] == {"all": True}
    assert list(config["devices"]["known"]) == ["laptop", "phone_low", "server_gpu"]
    assert config["devices"]["known"]["laptop"]["memory"] == SHIPPED["laptop"].memory
    assert "source" not in str(config) and "device_scale" not in config
    assert one(suite_of, "devices: laptop")["devices"]["shares"] == {"laptop": 1.0}
    listed = one(suite_of, "devices: {by_domain: [laptop, phone_low]}", facts=None)
    assert listed["devices"]["by_domain"] == ["laptop", "phone_low"]


def test_a_suite_has_devices_of_its_own_and_scales_all(suite_of):
    own = "devices: {mine: {extends: laptop, memory: 1000}, laptop: {watts: null}}\n"
    config = one(suite_of, "devices: {mine: 1, laptop: 1}, device_scale: {memory: 0.5, network: 2}", own)
    mine, laptop = (config["devices"]["known"][name] for name in ("mine", "laptop"))
    assert mine["memory"] == 500 and mine["flops"] == SHIPPED["laptop"].flops and mine["watts"] == 20
    assert laptop["memory"] == SHIPPED["laptop"].memory // 2 and "watts" not in laptop
    assert laptop["up"] == 2 * SHIPPED["laptop"].up


def test_a_message_that_takes_no_time_is_not_said_so_that_such_cells_are_what_they_were(suite_of):
    plain = one(suite_of, "devices: mine", "devices: {mine: {extends: laptop}}\n")
    assert one(suite_of, "devices: mine", "devices: {mine: {extends: laptop, message: 0}}\n") == plain
    slow = one(suite_of, "devices: mine", "devices: {mine: {extends: laptop, message: 0.2}}\n")
    assert slow["devices"]["known"]["mine"]["message"] == 0.2 and "message" not in plain["devices"]["known"]["mine"]


def test_batches_are_computed_in_as_few_parts_as_fit_where_a_device_must_hold_them(suite_of):
    """And nothing is said where they are computed as a whole, so that such cells are what they were."""

    def micro_batch(scenario: str, *sets: str):
        return one(suite_of, scenario, sets=sets)["train"].get("micro_batch")

    assert micro_batch("devices: laptop") == micro_batch("devices: laptop, train: {micro_batch: auto}") == "auto"
    assert micro_batch("devices: laptop", "train.micro_batch=4") == micro_batch("", "train.micro_batch=4") == 4
    whole = [
        one(suite_of, scenario)
        for scenario in ("", "train: {micro_batch: auto}", "train: {micro_batch: 128}", "train: {checkpointing: false}")
    ]
    assert all(config == whole[0] and "micro_batch" not in config["train"] for config in whole)
    for scenario in ("devices: laptop, fit: {seconds: 9}", "devices: laptop, train: {micro_batch: null}"):
        assert micro_batch(scenario) is None
    assert one(suite_of, "train: {checkpointing: true}")["train"]["checkpointing"] is True
    for wrong in ("abc", "null"):
        with pytest.raises(UserError, match=r"batch_size: expected a whole number"):
            one(suite_of, f"train: {{batch_size: {wrong}, micro_batch: 4}}")


def test_jitter_is_part_of_what_a_cell_is_where_there_is_any(suite_of):
    plain = one(suite_of, "devices: laptop")
    assert one(suite_of, "devices: laptop, device_jitter: 0.3")["devices"] == {**plain["devices"], "jitter": 0.3}
    for none in ("devices: laptop, device_jitter: 0", "devices: laptop, device_jitter: null"):
        assert hash_of_json(one(suite_of, none)) == hash_of_json(plain)
    assert hash_of_json(one(suite_of, "device_jitter: 0.3")) == hash_of_json(one(suite_of, ""))


def test_the_server_waits_for_the_fastest_only_where_there_are_devices(suite_of, faults_of):
    assert one(suite_of, "devices: laptop, wait_for: 3")["devices"]["wait_for"] == 3
    assert hash_of_json(one(suite_of, "wait_for: null")) == hash_of_json(one(suite_of, ""))
    (told,) = faults_of(f"{HEAD}scenarios: {{one: {{wait_for: 3}}}}\nmethods: [fedra]\n")
    assert "who is fastest is not known without devices" in told


def test_sizes_above_devices_take_them_back_and_devices_take_sizes_back(suite_of):
    sets = ["capacities=[1,2,3,4,4,4]"]
    config = one(suite_of, "devices: laptop, fit: {bytes: 10}", sets=sets, facts=None)
    plain = one(suite_of, "capacities: [1,2,3,4,4,4]", facts=None)
    assert config == plain and not {"devices", "fit"} & plain.keys()
    over = one(suite_of, "ranks: 2, widths: 0.5, capacities: [1, 1]", sets=["devices=laptop"], facts=None)
    assert "ranks" not in over and "widths" not in over and over["capacities"] == {"all": True}
    assert hash_of_json(one(suite_of, "devices: null")) == hash_of_json(one(suite_of, ""))


def test_devices_rotate_with_the_seed(suite_of):
    text = f"{HEAD}scenarios: {{one: {{rotate_capacities: true, devices: {{by_domain: [laptop, phone_low]}}}}}}\n"
    points = suite_of(f"{text}methods: [fedra]\nseeds: [0, 1]\n", facts=None).points()
    assert [point.config["devices"]["by_domain"][0] for point in points] == ["laptop", "phone_low"]


def test_every_fault_is_told_at_once_where_it_stands(faults_of):
    text = """suite: s
devices:
  mine: {extends: laptopp}
  jetson: {memory: 3}
  other: {memory: -1, flpos: 3}
defaults: {backbone: vit, data: {name: strokes6}}
scenarios:
  a: {devices: [lapto, mine], capacities: all}
  b: {devices: {by_client: [laptop], by_domain: [laptop]}, fit: {secnds: 3}}
  c: {devices: 3, fit: often}
methods: [fedra]
"""
    found = faults_of(text, facts=None)
    for place, told in {
        "3:19": 'no device that fedbench ships is called "laptopp"; did you mean "laptop"?',
        "4:3": 'the device "jetson" needs "flops", "flops_bf16", "down", "up"; or let it extend a shipped one',
        "5:19": "devices.other.memory: expected a number above 0, got -1",
        "5:23": 'unknown key "flpos" in devices.other; did you mean "flops"?',
        "8:17": 'no device is called "lapto"; did you mean "laptop"?',
        "8:31": "capacities: devices are given here, and sizes come of them; say one of the two",
        "9:16": "expected one of by_client, by_domain, shares, got 2 of them",
        "9:66": 'unknown key "secnds" in scenarios.b.fit; did you mean "seconds"?',
        "10:16": "scenarios.c.devices: expected one device, a list with a device for each client",
        "10:24": 'scenarios.c.fit: expected "memory", or a mapping {memory, seconds, bytes}, got "often"',
    }.items():
        assert any(line.startswith(f"s.yaml:{place}: ") and told in line for line in found), (place, found)
