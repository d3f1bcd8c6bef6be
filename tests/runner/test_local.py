"""The executor `local`: what it leaves alone, and that nothing of a worker outlives its cell."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import kills
import psutil
import pytest
from command import MAIN, TINY, environment, write_suite, written
from supervised import server_without_torch

from fedbench.errors import Interrupted
from fedbench.results import read_manifest
from fedbench.runner.local import Local
from fedbench.simulation.checkpoint import Checkpoints


@pytest.mark.slow
def test_a_worker_whose_run_was_killed_leaves_its_cell_to_the_next_run(tmp_path):
    """Though the worker hangs, and so never finds that nobody listens; and what it started ends with it."""
    write_suite(tmp_path, f"{{name: spawns, extends: odd, how: spawn, until: {tmp_path / 'x'}}}")
    words = [*MAIN, "run", "tiny.yaml", "--plugin", str(TINY), "--results", "r"]
    process = subprocess.Popen(
        words, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        until = time.monotonic() + 90
        while not (tmp_path / "x.pid").exists():
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.1)
        started = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        process.communicate()
    assert int((tmp_path / "x.pid").read_text()) in {one.pid for one in started}
    began = time.monotonic()
    gone, alive = psutil.wait_procs(started, timeout=10)
    assert not alive
    print(f"gone {time.monotonic() - began:.2f} s after the run was killed")
    assert [one["status"] for one in written(tmp_path / "r")] == ["running"]


def order_of(folder, method):
    """The order of a cell whose rounds go on for a long time, with a checkpoint after each."""
    return replace(kills.order_of(folder, method, 1_000_000), checkpoint_every=1e9)


def in_a_thread(execute, order):
    """Have a thread execute one job: the thread, what it was told, and how it ended, as they come in."""
    events, ends = [], []

    def work():
        try:
            execute([order.to_json()], lambda event: events.append(event) or True)
        except KeyboardInterrupt as error:
            ends.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, events, ends


def wait_for(true, seconds=60):
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_beside_the_main_thread_it_is_stopped_by_a_call(tmp_path, own_cache):
    before = signal.getsignal(signal.SIGTERM)
    execute, order = Local(), order_of(tmp_path, "chained")
    thread, events, ends = in_a_thread(execute, order)
    wait_for(lambda: any(event["event"] == "round" for event in events))
    execute.stop()
    thread.join(30)
    assert [end.exit_code for end in ends] == [143] and signal.getsignal(signal.SIGTERM) is before
    told = [event["event"] for event in events]
    assert told[:2] == ["started", "ready"] and told[-1] == "ended" and "stopping" in told
    manifest = read_manifest(order.folder)
    assert events[-1]["status"] == manifest["status"] == "interrupted"
    assert manifest["reason"].startswith(f"interrupted after round {manifest['round']} of 1000000")
    progress, _ = Checkpoints(order.folder, manifest["id"], "cpu").latest()
    assert progress.round == manifest["round"]


def test_a_second_call_ends_it_at_once(tmp_path, own_cache):
    order = kills.order_of(tmp_path, "{name: hangs, extends: odd, how: hang}", 3)
    execute = Local()
    thread, events, ends = in_a_thread(execute, order)
    wait_for(lambda: read_manifest(order.folder))
    began = time.monotonic()
    execute.stop()
    execute.stop()
    thread.join(30)
    assert time.monotonic() - began < 5 and len(ends) == 1
    assert (events[-1]["event"], events[-1]["status"]) == ("ended", "interrupted")
    assert read_manifest(order.folder)["status"] == "running"


def test_a_cell_that_kills_the_server_costs_itself_alone(tmp_path, own_cache, monkeypatch):
    """These cells train nothing, and so their server loads no torch."""
    monkeypatch.setattr(Local, "cell", "supervised:cell")
    order, events = kills.order_of(tmp_path, "chained", 1), []
    jobs = [kills.moved(order, tmp_path / name).to_json() for name in ("before", "kills", "after")]
    with server_without_torch():
        Local()(jobs, lambda event: events.append(event) or True)
    ends = [(event["status"], event["reason"] or "") for event in events if event["event"] == "ended"]
    assert [status for status, _ in ends] == ["finished", "failed", "finished"]
    assert "RuntimeError: it killed the server" in ends[1][1]


def test_one_that_was_stopped_starts_nothing(tmp_path, own_cache):
    execute, events = Local(), []
    execute.stop()
    with pytest.raises(Interrupted):
        execute([order_of(tmp_path, "chained").to_json()], events.append)
    assert events == []


def test_an_answer_of_no_starts_no_more_cells_and_lets_the_others_end(tmp_path, own_cache):
    jobs, events = [kills.order_of(tmp_path / name, "chained", 2).to_json() for name in "ab"], []
    Local()(jobs, lambda event: events.append(event))
    assert [event["event"] for event in events] == ["started", "ready", "round", "round", "ended"]
    assert events[-1]["status"] == "finished"


ONE_JOB = """
import json, sys
from fedbench.errors import Interrupted
from fedbench.runner.local import Local

def tell(event):
    print(json.dumps(event), flush=True)
    return True

try:
    Local(workers=1)([sys.argv[1]], tell)
except Interrupted as interrupted:
    sys.exit(interrupted.exit_code)
"""


@pytest.mark.slow
def test_one_job_in_another_process_is_ended_by_sigterm(tmp_path, own_cache):
    """As an executor for many machines uses it."""
    order = order_of(tmp_path, "chained")
    process = subprocess.Popen([sys.executable, "-c", ONE_JOB, order.to_json()], stdout=subprocess.PIPE, text=True)
    events = []
    with process:
        for line in process.stdout:
            events.append(json.loads(line))
            if events[-1]["event"] == "round" and events[-1]["round"] == 1:
                process.send_signal(signal.SIGTERM)
    assert process.returncode == 143 and events[-1]["status"] == "interrupted"
    assert {event["folder"] for event in events} == {str(order.folder)}
    assert read_manifest(order.folder)["status"] == "interrupted"
