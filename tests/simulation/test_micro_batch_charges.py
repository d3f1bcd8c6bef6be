"""What a client is charged on its device: for as few parts of a batch as fit there."""

from __future__ import annotations

from command import write_suite

from fedbench.runner.runner import load
from fedbench.simulation.simulation import Simulation

BOX = {
    "\nscenarios:": "\ndevices: {box: {extends: laptop, memory: 5600}}\nscenarios:",
    "  capacities: [2, 1]\n": "",
    "  small: {}": "  small: {devices: [box, box]}",
}


def trained(tmp_path, plugins, *sets):
    """The rows of rounds.parquet."""
    (cell,) = load(write_suite(tmp_path, "fedra", BOX), plugins, sets=sets).points()
    _, rows = Simulation(cell.config, plugins).run()
    assert rows
    return rows


def test_a_client_is_charged_for_the_parts_that_fit_and_a_whole_batch_without(tmp_path, plugins):
    for row in trained(tmp_path, plugins):
        assert row["memory_bytes"] + (row["workspace_bytes"] or 0) <= 5600 and row["steps"] == 1
    for row in trained(tmp_path, plugins, "fit={bytes: 1.0e9}"):
        assert row["memory_bytes"] > 5600  # where memory is no limit, batches are computed as a whole
