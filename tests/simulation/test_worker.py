"""A cell in its worker: where it goes on from, what it is ended by, and what it tells."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest
from command import NOTING, TINY
from kills import heard, listens, moved, order_of, said, started

from fedbench.results import read_manifest
from fedbench.simulation import worker
from fedbench.simulation.checkpoint import CHECKPOINT, EVERY, Checkpoints
from fedbench.simulation.state import TENSORS

ROUNDS = 4


@pytest.fixture(scope="module")
def whole(tmp_path_factory, own_cache):
    """A cell that nobody disturbs: its order, and what it says."""
    order = replace(order_of(tmp_path_factory.mktemp("whole"), "chained", ROUNDS), checkpoint_every=1e9)
    worker.run(order)
    return order, said(order.folder)


@pytest.fixture
def order(whole, tmp_path):
    """The same cell, yet to be computed."""
    return replace(moved(whole[0], tmp_path), checkpoint_every=0)


def interrupted(order, t):
    """The manifest of a run that is asked to end in round t."""
    events = []
    return worker.run(order, events.append, stopping=lambda: sum(e["event"] == "round" for e in events) == t)


def test_a_cell_that_is_asked_to_end_goes_on_from_there(whole, order):
    order = replace(order, checkpoint_every=1e9)
    manifest = interrupted(order, 2)
    assert read_manifest(order.folder).items() >= manifest.items()
    assert (manifest["status"], manifest["reason"]) == (
        "interrupted",
        "interrupted after round 2 of 4; the next run resumes it",
    )
    events = []
    worker.run(order, events.append)
    assert [(event["event"], event["round"]) for event in events] == [("resumed", 2), ("round", 3), ("round", 4)]
    assert said(order.folder) == whole[1]


def test_one_that_is_asked_to_end_in_its_last_round_is_finished(whole, order):
    assert interrupted(order, ROUNDS)["status"] == "finished"
    assert said(order.folder) == whole[1]


@pytest.mark.parametrize(("method", "processes"), [pytest.param("chained", 1, marks=pytest.mark.slow), ("fedra", 2)])
def test_sigterm_ends_a_worker_after_its_round(own_cache, tmp_path, method, processes):
    order = replace(order_of(tmp_path, method, 1_000_000, processes), checkpoint_every=1e9)
    with started(order) as child:
        assert heard(child)[0]["event"] == "round"
        child.stop(30.0)
        until = time.monotonic() + 30
        while listens(child, until - time.monotonic()):
            pass
        assert child.ended and child.end.code == 0
        assert child.result()["status"] == "interrupted"
    manifest = read_manifest(order.folder)
    assert manifest["status"] == "interrupted"
    progress, refused = Checkpoints(order.folder, order.manifest["id"], "cpu").latest()
    assert f"after round {progress.round} of" in manifest["reason"] and not refused


def test_a_short_cell_writes_no_checkpoint(order, monkeypatch):
    monkeypatch.setattr(Checkpoints, "write", lambda *given: pytest.fail("it wrote one"))
    assert worker.run(replace(order, checkpoint_every=EVERY))["status"] == "finished"


def test_a_fresh_start_leaves_the_checkpoint_unused(whole, order):
    interrupted(order, 3)
    events = []
    worker.run(replace(order, fresh=True), events.append)
    assert len(events) == ROUNDS and said(order.folder) == whole[1]


def test_seconds_are_counted_over_interruptions(order):
    interrupted(order, 2)
    checkpoints = Checkpoints(order.folder, order.manifest["id"], "cpu")
    progress, _ = checkpoints.latest()
    assert 0 < progress.seconds < 60
    progress.seconds = 1000.0
    checkpoints.write(progress)
    assert 1000 < worker.run(order)["seconds"] < 1060


def test_trackers_are_told_of_every_round_once(order, tmp_path):
    plugin = tmp_path / NOTING.name
    plugin.write_text(NOTING.read_text())
    order = replace(order, plugins=[str(TINY), str(plugin)])
    interrupted(order, 2)
    worker.run(order)
    assert (tmp_path / "notes.txt").read_text().splitlines() == [
        "cell_started chained",
        "round_finished 1 2",
        "round_finished 2 2",
        "cell_finished interrupted 0",
        "cell_started chained",
        "round_finished 3 2",
        "round_finished 4 2",
        "cell_finished finished 8",  # every round, two domains
    ]


def test_a_torn_checkpoint_is_told_and_the_one_before_it_used(whole, order):
    interrupted(order, 3)
    newest = order.folder / CHECKPOINT / "a"  # the first is in a, the third too
    (newest / TENSORS).write_bytes(b"")
    events = []
    manifest = worker.run(order, events.append)
    (line,) = manifest["torn"]
    assert events[0] == {"event": "torn", "reasons": [line]} and str(newest) in line
    assert [event["round"] for event in events[1:]] == [2, 3, 4]
    for kept in order.folder.glob(".torn-*"):
        kept.rename(order.folder.parent.parent / "seen")
    assert said(order.folder) == whole[1]  # `torn` is no part of what a cell says


def test_what_a_killed_run_left_half_written_is_cleared(whole, order):
    folder = order.folder
    folder.mkdir(parents=True)
    (folder / ".eval.parquet.0123456789abcdef.tmp").write_bytes(b"half")
    worker.run(order)
    assert said(order.folder) == whole[1]


def test_the_manifest_describes_the_files(order):
    files = worker.run(order)["files"]
    for name, facts in files.items():
        assert (order.folder / name).stat().st_size == facts["size"]
    tables = [f"{kind}.parquet" for kind in ("answers", "eval", "exchange", "layers", "rounds")]
    assert sorted(files) == [*tables, "state.json", "state.safetensors"]
    json.dumps(files)
