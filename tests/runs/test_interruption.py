"""A run that is ended by Ctrl-C, and the one that goes on from there."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import psutil
from command import MAIN, TINY, environment, run, write_suite


def test_an_interrupted_run_kills_its_workers_and_a_second_one_completes_it(tmp_path):
    flag = tmp_path / "fine"
    write_suite(tmp_path, f"allsmall, {{name: hangs, extends: odd, how: hang, until: {flag}}}")
    words = [*MAIN, "run", "tiny.yaml", "--plugin", str(TINY), "--results", "r", "--jobs", "2"]
    process = subprocess.Popen(
        words, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A shell lets what it starts in the background ignore Ctrl-C, and these tests may have been started so.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        _wait_until(lambda: _statuses(tmp_path) == {"finished", "running"}, process)
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Interrupted" in err and "Traceback" not in out + err
    psutil.wait_procs(started, timeout=10)
    assert not [child for child in started if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert not list((tmp_path / "r").rglob("*.tmp"))

    flag.touch()
    done = run("--json", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["ran"] == 1


def _statuses(folder: Path) -> set[str]:
    return {json.loads(file.read_text())["status"] for file in (folder / "r" / "tiny").glob("*/manifest.json")}


def _wait_until(true, process, seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "the run did not get there"
        time.sleep(0.1)
