"""The run's side of cells elsewhere, with a cluster that computes nothing and loses what it is told to."""

from __future__ import annotations

import errno
import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedbench.cell.order import Order
from fedbench.errors import UserError
from fedbench.results import read_manifest
from fedbench.results.claims import Claims, is_held, is_to_end
from fedbench.results.identity import identity
from fedbench.runs.executors import dispatch
from fedbench.runs.executors.dispatch import Dispatch, Lost, changes
from fedbench_plugins.executors import ray

FINISHED = {"status": "finished", "reason": None, "seconds": 1.0}


def numbered(number: int) -> dict:
    """What the manifest of a cell begins with."""
    parts = {"config": {"number": number}, "fingerprints": {}, "versions": {}}
    return {"id": identity(*parts.values()), **parts}


NOISE = b'\x00\xff\n[1]\n{"event": "round"}\n{"event": "round", "round": "two"}\n{"event": "ended"}\n{"torn'


class Script:
    """A cluster of two places. Each errand of a cell ends by the next of its `ends`: an answer or an error, after the
    rounds before it; at the last of them, `("hang",)`, it does not end until it is cancelled. Once `lost` errands are
    out, the places are gone for `gone` looks, and nobody may wait for ever."""

    def __init__(self, lost: int = -1, gone: int = 0, **ends) -> None:
        self.ends, self.errands, self.cancelled = ends, [], []
        self.lost, self.gone, self.looks = lost, gone, 0

    def room(self, busy: int) -> int:
        away = len(self.errands) == self.lost and self.looks <= self.gone
        return (0 if away else 2) - busy

    def submit(self, errands):
        given = [json.loads(errand) for errand in errands]
        self.errands += [{**errand, "job": Order.from_json(errand["job"])} for errand in given]
        return [len(self.errands) - len(errands) + i for i in range(len(errands))]

    def _end(self, task):
        errand = self.errands[task]
        name = errand["job"].folder.name.partition("-")[0]
        number = sum(other["job"].folder == errand["job"].folder for other in self.errands[:task])
        return errand, self.ends[name][number]

    def ended(self, tasks):
        done = []
        if len(self.errands) == self.lost:
            self.looks += 1
            if self.looks > 20:
                raise UserError("no machine has room")
        for task in tasks:
            errand, (*rounds, end) = self._end(task)
            lines = [{"event": "started"}, *({"event": "round", "round": t} for t in rounds if t)]
            if rounds and not Path(errand["events"]).exists():
                Path(errand["events"]).write_bytes(
                    b"".join(json.dumps(line).encode() + b"\n" for line in lines) + NOISE
                )
            if end != "hang" or task in self.cancelled or is_to_end(errand["job"].claim):
                done.append(task)
        return done

    def answer(self, task):
        _, (*_, end) = self._end(task)
        if end == "hang":
            raise Lost("it was cancelled")
        if isinstance(end, BaseException):
            raise end
        return json.dumps(end)

    def cancel(self, task):
        self.cancelled.append(task)


@pytest.fixture
def cells(tmp_path):
    """A function that runs cells of these names on a scripted cluster and returns what was told."""
    with Claims(tmp_path) as claims:

        def run(script: Script, going=lambda event: True, attempts: int = 3) -> list[tuple]:
            told = []

            def on_event(event: dict) -> bool:
                told.append((Path(event["folder"]).name.partition("-")[0], event["event"], event.get("status")))
                return going(event)

            def jobs():
                for number, name in enumerate(script.ends):
                    manifest = numbered(number)
                    id = manifest["id"]
                    folder = tmp_path / f"{name}-{id}"
                    yield Order(folder, manifest, "auto", [], claim=claims.take(id)).to_json()

            run.told = told
            Dispatch(script, {"timeout": 5}, changes(0.0, 2), attempts, on_event).run(jobs())
            return told

        yield run
    assert not list(tmp_path.glob(".*.events"))


def test_errands_carry_the_job_and_the_limits_as_plain_json(cells):
    script = Script(a=[(1, FINISHED)])
    assert cells(script) == [("a", "started", None), ("a", "round", None), ("a", "ended", "finished")]
    (errand,) = script.errands
    assert errand["limits"] == {"timeout": 5} and errand["environment"]["OMP_NUM_THREADS"]
    assert errand["job"].processes == 2 and errand["job"].device == "cpu"


def test_a_cell_that_is_lost_goes_on_under_a_new_attempt(cells):
    script = Script(a=[(1, Lost("the node died")), (1, 2, FINISHED)], b=[(1, FINISHED)])
    told = cells(script)
    assert [event for name, event, _ in told if name == "a"] == ["started", "round", "lost", "round", "round", "ended"]
    first, second = (e["job"].claim for e in script.errands if "/a-" in str(e["job"].folder))
    assert first["token"] == second["token"] and first["attempt"] != second["attempt"]


def test_a_cell_that_is_preempted_or_ends_without_a_result_is_lost_too(cells):
    script = Script(a=[(1, {**FINISHED, "status": "interrupted"}), (2, {**FINISHED, "status": "running"}), (FINISHED,)])
    assert [event for _, event, _ in cells(script)].count("lost") == 2


def test_losses_without_getting_further_end_as_failed_and_who_is_left_holds_no_claim(cells, tmp_path):
    script = Script(a=[(4, Lost("one")), (4, Lost("two")), (4, Lost("the node died"))])
    assert cells(script)[-1] == ("a", "ended", "failed")
    (folder,) = tmp_path.glob("a-*")
    manifest = read_manifest(folder)
    assert manifest["status"] == "failed" and manifest["reason"].endswith("because the node died")
    assert "3 times in a row" in manifest["reason"] and len(script.errands) == 3
    assert not is_held(script.errands[-1]["job"].claim)


def test_a_cell_that_gets_further_each_time_is_not_given_up(cells):
    ends = [(t, Lost("preempted")) for t in range(1, 9)]
    assert cells(Script(a=[*ends, (9, FINISHED)]))[-1] == ("a", "ended", "finished")


LOSSES = {"a": [(1, Lost("x")), (FINISHED,)], "b": [(1, Lost("x")), (FINISHED,)], "c": [(FINISHED,)]}


def test_cells_whose_machines_are_all_gone_wait_for_others(cells):
    script = Script(lost=2, gone=5, **LOSSES)
    told = cells(script)
    assert script.looks == 6 and len(script.errands) == 5
    assert {name for name, event, status in told if status == "finished"} == {"a", "b", "c"}


def test_cells_that_nothing_has_room_for_yet_wait(cells):
    script = Script(lost=0, gone=5, a=[(FINISHED,)])
    assert cells(script)[-1] == ("a", "ended", "finished") and script.looks == 6


def test_the_wait_for_another_machine_has_an_end(cells):
    with pytest.raises(UserError, match="no machine has room"):
        cells(Script(lost=2, gone=100, **LOSSES))


def test_rays_nodes_are_waited_for_without_a_task_and_not_for_ever(monkeypatch):
    monkeypatch.setattr("fedbench_plugins.executors.ray.POLL", 0.0)
    nodes = object.__new__(ray._Cluster)
    nodes.ray, nodes.needs, nodes.last = SimpleNamespace(nodes=list), {"CPU": 1}, time.monotonic()
    assert nodes.ended([]) == []
    nodes.last -= ray.ROOM
    with pytest.raises(UserError, match="no node of the Ray cluster has room"):
        nodes.ended([])


def test_a_lost_cell_is_not_waited_for_once_nothing_more_is_to_start(cells):
    ends = {"a": [(1, Lost("x")), (FINISHED,)], "b": [({**FINISHED, "status": "failed"},)]}
    told = cells(Script(lost=2, gone=100, **ends), going=lambda event: event.get("status") != "failed")
    assert told[-2:] == [("b", "ended", "failed"), ("a", "ended", "interrupted")]


def test_force_begins_anew_once_and_goes_on_after_a_loss(cells, tmp_path):
    with Claims(tmp_path) as claims:
        script = Script(a=[(1, Lost("x")), (FINISHED,)])
        order = Order(tmp_path / "a-0123", {}, "auto", [], claim=claims.take("0123"), fresh=True)
        Dispatch(script, {}, {}, 3, lambda event: True).run(iter([order.to_json()]))
    assert [errand["job"].fresh for errand in script.errands] == [True, False]


def test_a_cell_that_another_run_has_taken_is_left_to_it(cells, tmp_path):
    def steal(event: dict) -> bool:
        if event["event"] == "lost":
            (file,) = tmp_path.glob(".*.claim")
            file.write_text(json.dumps({"token": "another"}))
        return True

    script = Script(a=[(1, Lost("x")), (FINISHED,)])
    assert cells(script, steal)[-1] == ("a", "ended", "taken") and len(script.errands) == 1


def full_for(monkeypatch, number: int, times: int) -> None:
    """The disk is full when the claim of the cell of this number is handed out for so many times."""
    hand_out, handed = dispatch.handed_out, []

    def handed_out(claim):
        handed.append(Path(claim["file"]).name)
        if handed[-1] == f".{numbered(number)['id']}.claim" and handed.count(handed[-1]) == times:
            raise UserError("no space left")
        return hand_out(claim)

    monkeypatch.setattr(dispatch, "handed_out", handed_out)


@pytest.mark.parametrize("times", [1, 2])
def test_a_cell_whose_attempt_cannot_be_written_down_fails_alone(cells, monkeypatch, times):
    full_for(monkeypatch, 1, times)
    script = Script(a=[(FINISHED,)], b=[(1, Lost("x")), (FINISHED,)], c=[(FINISHED,)])
    told = cells(script)
    assert {name: status for name, event, status in told if event == "ended"} == {
        "a": "finished",
        "b": "failed",
        "c": "finished",
    }
    assert len(script.errands) == 1 + times


def test_a_cell_that_is_given_up_on_a_full_disk_fails_alone(cells, monkeypatch):
    full_for(monkeypatch, 0, 2)
    script = Script(a=[(Lost("x"),)], b=[(FINISHED,)])
    told = cells(script, attempts=1)
    assert {name: status for name, event, status in told if event == "ended"} == {"a": "failed", "b": "finished"}


def test_events_that_cannot_be_deleted_end_no_run(cells, monkeypatch):
    """On a disk that is read-only by now."""

    unlink = Path.unlink

    def read_only(path: Path, **how) -> None:
        if path.suffix == ".events":
            raise OSError(errno.EROFS, "Read-only file system")
        unlink(path, **how)

    with monkeypatch.context() as patch:
        patch.setattr("fedbench.runs.executors.dispatch.Path.unlink", read_only)
        told = cells(Script(a=[(1, FINISHED)], b=[(1, FINISHED)]))
    assert [status for _, what, status in told if what == "ended"] == ["finished", "finished"]


def test_a_machine_that_refuses_ends_the_run_and_other_cells_are_asked_to_end(cells):
    script = Script(a=[({"refused": "far: other versions"},)], b=[(1, "hang")])
    with pytest.raises(UserError, match="far: other versions"):
        cells(script)
    assert is_to_end(script.errands[1]["job"].claim)


def test_after_too_many_failures_what_has_not_begun_is_cancelled(cells):
    script = Script(a=[({**FINISHED, "status": "failed"},)], b=[("hang",)], c=[(FINISHED,)])
    told = cells(script, going=lambda event: event.get("status") != "failed")
    assert told[-1] == ("a", "ended", "failed") and script.cancelled == [1] and len(script.errands) == 2


def test_a_run_that_is_interrupted_waits_for_cells_to_end_and_cancels_those_that_do_not(cells, monkeypatch):
    monkeypatch.setattr(dispatch, "ENDING", 0.2)
    monkeypatch.setattr("test_dispatch.is_to_end", lambda claim: False)

    def interrupt(event: dict) -> bool:
        if event["event"] == "round":
            raise KeyboardInterrupt
        return True

    script = Script(a=[(1, "hang")], b=[("hang",)])
    with pytest.raises(KeyboardInterrupt):
        cells(script, interrupt)
    assert sorted(script.cancelled) == [0, 1]
    assert cells.told[-1][1] == "stopping"
