"""Workers started from other programs: forked and daemonic processes, pools, and a process that was forked by hand."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

import pytest
from command import TINY, environment, write_suite
from supervised import server_without_torch

from fedbench.processes import fork_server, supervisor

RUN = """
import multiprocessing, os, sys
import fedbench

def once(place):
    found = fedbench.run("tiny.yaml", plugins=[sys.argv[1]], results=place, quiet=True, jobs=1, device="cpu")
    (row,) = found.leaderboard().to_dict("records")
    return row["method"], row["mean"]

if __name__ == "__main__":
    here = once("parent")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(once, ["one", "two"]) == [here, here]
    print("the same", here)
"""


def answer(number: int) -> list[int]:
    """What a worker of the process that calls this gives."""
    return supervisor.call("answers:doubled", number, timeout=120)


@pytest.fixture(autouse=True)
def answering(tmp_path, monkeypatch):
    (tmp_path / "answers.py").write_text("def doubled(number, tell):\n    return [number, 2 * number]\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(TINY.parent), *sys.path]))
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.slow
def test_a_suite_runs_in_the_forked_daemonic_workers_of_a_pool(tmp_path):
    write_suite(tmp_path, "allsmall")
    (tmp_path / "program.py").write_text(RUN)
    words = [sys.executable, "program.py", str(TINY)]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "the same ('allsmall'" in done.stdout
    for place in ("parent", "one", "two"):
        assert (tmp_path / place / "tiny" / "index.json").is_file()


SERVICE = """
import signal, sys, threading
import fedbench

def once():
    ONCE

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
thread = threading.Thread(target=once)
thread.start()
thread.join()
"""


CALL = """
    from fedbench.processes import fork_server, supervisor
    fork_server.PRELOAD = "light_server"
    open("answer", "w").write(str(supervisor.call("answers:doubled", 3, timeout=60)[1]))
"""
SUITE = """
    found = fedbench.run("tiny.yaml", plugins=[sys.argv[1]], results="r", jobs=1, device="cpu")
    open("answer", "w").write(found.leaderboard()["method"][0])
"""


@pytest.mark.parametrize(("once", "answer"), [(CALL, "6"), pytest.param(SUITE, "allsmall", marks=pytest.mark.slow)])
def test_in_a_thread_of_a_service_that_ignores_its_children_and_has_no_streams(tmp_path, once, answer):
    write_suite(tmp_path, "allsmall")
    (tmp_path / "service.py").write_text(SERVICE.replace("    ONCE\n", once))
    words = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "service.py", str(TINY)]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), timeout=300)
    assert done.returncode == 0 and (tmp_path / "answer").read_text() == answer


def test_in_a_process_that_was_forked_with_a_server_at_work():
    with server_without_torch():
        fork_server.start_server()
        parents = fork_server.server_pid()
        read, write = os.pipe()
        if (pid := os.fork()) == 0:
            code = 1
            try:
                code = 0 if answer(3) == [3, 6] and fork_server.server_pid() != parents else 2
            finally:
                os.write(write, bytes([code]))
                os._exit(code)
        assert os.read(read, 1) == b"\0"
        os.waitpid(pid, 0)
        assert answer(4) == [4, 8] and fork_server.server_pid() == parents, "the parent keeps its own"


@pytest.mark.slow
def test_in_a_daemonic_process_that_was_spawned():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(answer, [5]) == [[5, 10]]


def test_in_an_executor_of_forked_processes():
    with server_without_torch(), ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as executor:
        assert executor.submit(answer, 6).result() == [6, 12]


def test_a_daemonic_process_stays_one(monkeypatch):
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    with fork_server.may_have_children():
        assert not multiprocessing.current_process().daemon
    assert multiprocessing.current_process().daemon
