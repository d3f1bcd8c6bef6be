"""What a client is charged on its device: for as few parts of a batch as fit there."""

from __future__ import annotations

from command import TINY, fedbench, write_suite

import fedbench as api

BOX = {
    "\nscenarios:": "\ndevices: {box: {extends: laptop, memory: 5600}}\nscenarios:",
    "  capacities: [2, 1]\n": "",
    "  small: {}": "  small: {devices: [box, box]}",
}


def trained(tmp_path, name, *sets):
    file = write_suite(tmp_path, "fedra", BOX)
    given = [word for one in sets for word in ("--set", one)]
    results = tmp_path / name
    done = fedbench("run", file, "--plugin", TINY, "--results", results, *given, cwd=tmp_path)
    assert done.exit_code == 0, done.output
    return api.load(results).rounds


def test_a_client_is_charged_for_the_parts_that_fit_and_a_whole_batch_without(tmp_path):
    parts = trained(tmp_path, "parts")
    needed = parts["memory_bytes"] + parts["workspace_bytes"].fillna(0)
    assert (needed <= 5600).all() and (parts["steps"] == 1).all()
    whole = trained(tmp_path, "whole", "fit={bytes: 1.0e9}")
    assert (whole["memory_bytes"] > 5600).all()  # where memory is no limit, batches are computed as a whole
