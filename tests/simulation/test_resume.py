"""A cell that is broken off and taken up again ends as one that was not, to the bit, whatever its method."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from command import TINY
from every_method import METHODS, ROUNDS, changed, tiny_cells
from kills import moved, order_of, said

from fedbench.engine.process_group import together
from fedbench.errors import NotApplicable
from fedbench.registry.registry import Registry
from fedbench.simulation import worker
from fedbench.simulation.checkpoint import Checkpoints, Progress
from fedbench.simulation.simulation import Simulation
from fedbench.simulation.state import ClientStore, file_bytes

REMEMBERING = Path(__file__).parents[1] / "remembering_plugin.py"


@pytest.fixture(scope="module")
def cells(plugins, tmp_path_factory):
    return tiny_cells(tmp_path_factory.mktemp("suite"), plugins)


class Broken(Exception):
    """The cell was broken off."""


def uninterrupted(config, plugins):
    progress = Progress()
    Simulation(config, plugins).run(progress=progress)
    return outcome(progress)


def broken_off_after_every_round(config, plugins, folder):
    """The same by one simulation a round, each of which starts from what the last one wrote."""

    def on_round(t, rows):
        checkpoints.write(progress)
        raise Broken

    for t in range(ROUNDS):
        checkpoints = Checkpoints(folder, "0" * 12, "cpu")
        progress, refused = checkpoints.latest()
        assert (progress.round, refused) == (t, [])
        simulation = Simulation(config, plugins, store=checkpoints.store)
        with pytest.raises(Broken):
            simulation.run(on_round, progress=progress)
    return outcome(Checkpoints(folder, "0" * 12, "cpu").latest()[0])


def outcome(progress):
    rounds = [{**row, "seconds": 0} for row in progress.tables["rounds"]]
    tables = json.dumps({**progress.tables, "rounds": rounds}, default=bytes.hex, sort_keys=True)
    return tables, file_bytes(progress.state)


# One method of every kind of state: layers with scores, ranks with frozen additions, clients' own, both sides of a cut.
EACH_STATE = ("fed_hello", "flora", "fedrod", "fedv")
IN_EVERY_SUITE = {
    *((method, "rough", "cohort") for method in EACH_STATE),
    ("fedra", "rough", "sequential"),
}
CASES = [("plain", "cohort"), ("rough", "cohort"), ("rough", "sequential")]


@pytest.mark.parametrize(
    ("method", "scenario", "engine"),
    [
        pytest.param(*case, marks=() if case in IN_EVERY_SUITE else pytest.mark.slow)
        for case in ((method, *rest) for method in METHODS for rest in CASES)
    ],
)
def test_a_cell_that_is_taken_up_after_every_round_ends_with_the_same_bits(
    cells, plugins, tmp_path, method, scenario, engine
):
    config = changed(cells[scenario, method], scenario, engine)
    try:
        whole = uninterrupted(config, plugins)
    except NotApplicable:
        pytest.skip("the method has no meaning in this scenario")
    assert broken_off_after_every_round(config, plugins, tmp_path) == whole


def test_a_cell_whose_images_change_by_chance_ends_with_the_same_bits_too(cells, plugins, tmp_path):
    config = cells["plain", "fedra"]
    changed = {**config, "data": {**config["data"], "augment": ["crop", "flip"]}}
    whole = uninterrupted(changed, plugins)
    assert broken_off_after_every_round(changed, plugins, tmp_path) == whole != uninterrupted(config, plugins)


@pytest.mark.parametrize(
    "method",
    ["fedra", *(pytest.param(name, marks=pytest.mark.slow) for name in ("flora", "heterofl", "fedavg", "fedv"))],
)
def test_a_cell_on_devices_ends_with_the_same_bits_too(cells, plugins, tmp_path, method):
    config = cells["dealt", method]
    whole = uninterrupted(config, plugins)
    assert broken_off_after_every_round(config, plugins, tmp_path) == whole
    assert len(json.loads(whole[0])["clock"]) == ROUNDS


def test_every_registered_method_is_tried(registry):
    assert set(METHODS) == registry.catalogue.components["method"].keys()


class Killed(BaseException):
    """The process came to its end."""


def remembering(folder, slow=""):
    """The order of a cell whose method trains by the engine and keeps tensors of clients in the store."""
    changes = {"small: {}": "small: {evaluation: {by: client, every: 4}}"}
    method = f"{{name: remembering, slow: {slow!r}}}"
    return order_of(folder, method, 4, changes=changes, plugins=[TINY, REMEMBERING])


def test_two_processes_that_share_a_store_go_on_from_the_newest_checkpoint(own_cache, tmp_path, monkeypatch):
    monkeypatch.setattr("fedbench.engine.microbatching.ROWS", 4)
    order, events = remembering(tmp_path / "one"), []
    assert worker.run(order)["status"] == "finished"
    again = moved(order, tmp_path / "two")

    def send(event):
        if event["round"] == 3:  # before its checkpoint, and when the other process has done what it does after a round
            time.sleep(0.5)
            raise Killed

    with pytest.raises(Killed):
        worker.run(again, send, 2)
    worker.run(again, events.append, 2)
    told = [(event["event"], event.get("round", event.get("reasons"))) for event in events]
    assert told == [("resumed", 2), ("round", 3), ("round", 4)]
    assert said(again.folder) == said(order.folder)


@pytest.mark.slow
@pytest.mark.parametrize("slow", ["first", "others"])
def test_no_process_deletes_what_another_has_yet_to_read(own_cache, tmp_path, slow):
    """Where no checkpoint protects it."""
    order = remembering(tmp_path, slow)

    def state(processes):
        store = ClientStore(tmp_path / f"clients of {processes}")
        simulation = Simulation(order.manifest["config"], Registry(order.plugins), store=store)
        assert simulation.processes == 2
        together(processes, lambda team: simulation.run(team=team))
        store.settle()
        assert {file.stem for file in store.folder.iterdir()} == set(simulation.state["clients"].values())
        return file_bytes(simulation.state)

    assert state(2) == state(1)
