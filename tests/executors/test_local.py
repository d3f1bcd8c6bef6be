"""The executor `local`: what it leaves alone, and that nothing of a worker outlives its cell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import psutil
from command import MAIN, TINY, environment, run, write_suite

from fedbench.executors.local import _no_script, _reason, _start_server


def test_what_a_worker_started_ends_with_its_cell(tmp_path):
    flag = tmp_path / "x"
    write_suite(tmp_path, f"{{name: spawns, extends: odd, how: spawn, until: {flag}}}")
    assert run("--timeout", 2, cwd=tmp_path).exit_code == 1
    pid = int((tmp_path / "x.pid").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_worker_whose_run_was_killed_leaves_its_cell_to_the_next_run(tmp_path):
    write_suite(tmp_path, "fedra", {"rounds: 2": "rounds: 100000"})
    words = [*MAIN, "run", "tiny.yaml", "--plugin", str(TINY), "--results", "r"]
    process = subprocess.Popen(
        words, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        until = time.monotonic() + 90
        while not list((tmp_path / "r").glob("tiny/*/manifest.json")):
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.1)
        started = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        process.communicate()
    gone, alive = psutil.wait_procs(started, timeout=30)
    assert not alive
    (manifest,) = (tmp_path / "r").glob("tiny/*/manifest.json")
    assert json.loads(manifest.read_text())["status"] == "running"


def test_starting_the_server_leaves_the_environment_and_the_script_alone():
    before, script = dict(os.environ), sys.modules["__main__"]
    _start_server()
    with _no_script():
        assert sys.modules["__main__"] is not script
    assert dict(os.environ) == before and sys.modules["__main__"] is script


def test_reasons_name_signals_codes_and_deadlines():
    assert _reason(3, None) == "the worker process ended with exit code 3 before it was done"
    assert _reason(-signal.SIGSEGV, None) == "the worker process was ended by SIGSEGV"
    assert _reason(-signal.SIGKILL, None).endswith("SIGKILL; the system does that when memory runs out")
    assert _reason(-signal.SIGTERM, 1.5) == "not done after 1.5 seconds"
