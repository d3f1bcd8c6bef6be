"""The supervisor: whatever a function does in its process, the caller learns how it ended, and nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
import supervised

from fedbench.errors import UserError
from fedbench.processes import fork_server, guard, supervisor
from fedbench.processes.supervisor import Child, ChildFailed, call, wait


@pytest.fixture(scope="module", autouse=True)
def light():
    """Nothing here needs torch."""
    with supervised.server_without_torch():
        yield


def called(name: str, argument=None, timeout=60.0, **options):
    return call(f"supervised:{name}", argument, timeout=timeout, **options)


def failure(name: str, argument=None, **options) -> ChildFailed:
    with pytest.raises(ChildFailed) as caught:
        called(name, argument, **options)
    return caught.value


def to_its_end(child: Child, seconds: float = 30.0) -> list[str]:
    """The names of its events."""
    until, heard = time.monotonic() + seconds, []
    while time.monotonic() < until:
        wait([child])
        ended = child.ended
        heard += [event["event"] for event in child.heard()]
        if ended:
            return heard
    raise AssertionError("it does not end")


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def all_gone(pids, seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if all(map(is_gone, pids)):
            return True
        time.sleep(0.02)
    return False


def test_result_and_events():
    heard = []
    assert called("double", [1, "a"], on_event=heard.append) == [1, "a", 1, "a"]
    assert heard == [{"event": "thinking", "of": [1, "a"]}]


def test_large_result():
    assert len(called("large", 3_000_000)) == 3_000_000


def test_environment_and_folder_of_the_caller(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDBENCH_OF_A_TEST", "1")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    found = called("facts")
    assert found["environment"] == {**fork_server.ENVIRONMENT, **os.environ}
    assert found["folder"] == str(tmp_path)
    assert found["session"] not in (os.getsid(0), found["pid"])  # the guard's
    assert "OMP_NUM_THREADS" not in os.environ


def test_user_error_is_raised_again():
    with pytest.raises(UserError, match="^no such thing$") as caught:
        called("refuse")
    assert caught.value.option == "width"


def test_exception():
    error = failure("fail")
    assert error.reason.startswith("raised KeyError: 'nothing' (") and "supervised.py:" in error.reason
    assert error.traceback.startswith("Traceback (most recent call last):")


@pytest.mark.parametrize(
    ("name", "argument", "reason"),
    [
        ("leave", 0, "ended with exit code 0"),
        ("exit_politely", 7, "raised SystemExit: 7"),
        ("crash", None, "was killed by SIGSEGV"),
        ("kill_guard", None, "ended because the process that watches over it was killed"),
        ("no_such_function", None, "raised AttributeError: "),
    ],
)
def test_ends_by_itself(name, argument, reason):
    error = failure(name, argument)
    assert error.reason.startswith(reason) and not error.late


def test_stack_of_a_crash():
    error = failure("crash")
    assert "Segmentation fault" in error.traceback and "in crash" in error.traceback


@pytest.mark.parametrize("name", ["hold_the_gil", "stop_guard"])
def test_out_of_time(name, monkeypatch):
    monkeypatch.setattr(supervisor, "LAST", 0.5)
    if name == "stop_guard":  # of this process, which waits for a guard that does not do its work
        monkeypatch.setattr(guard, "TO_END", 0.5)
    began = time.monotonic()
    error = failure(name, timeout=0.5)
    assert time.monotonic() - began < 10
    if name == "stop_guard":
        assert error.reason == "ended because the process that watches over it was killed"
    else:
        assert error.reason == "was not done after 0.5 s" and error.late
        assert f"in {name}" in error.traceback


def test_out_of_memory():
    """Two children, each of which alone keeps below the limit."""
    error = failure("children_that_eat", 2 * 10**8, memory_limit=3 * 10**8)
    assert error.reason.startswith("took ") and error.reason.endswith(" of memory, and the limit is 300 MB")


@pytest.mark.parametrize("then", ["", "kill"])
def test_children_are_ended(then, tmp_path):
    pids = tmp_path / "pids"
    argument = {"pids": str(pids), "then": then}
    if then:
        failure("leave_children", argument, timeout=1.0)
    else:
        called("leave_children", argument)
    left = json.loads(pids.read_text())
    assert len(left) == 2 and all(map(is_gone, left))


def test_asked_to_end():
    child = Child("supervised:end_when_asked", None)
    while not child.heard():
        wait([child])
    child.stop(30.0)
    child.stop(0.1)  # the first word stands
    to_its_end(child)
    assert child.result() == "ended" and child.end.code == 0
    child.close()


def test_asked_and_killed():
    child = Child("supervised:ignore_signals", None)
    while not child.heard():
        wait([child])
    child.stop(0.3)
    to_its_end(child)
    assert child.end.code == -signal.SIGKILL and not child.end.late
    child.close()


def test_several_from_one_loop():
    children = [Child("supervised:double", number) for number in range(3)]
    running = list(children)
    while running:
        for child in wait(running):
            ended = child.ended
            child.heard()
            if ended:
                running.remove(child)
    assert [child.result() for child in children] == [0, 2, 4]
    for child in children:
        child.close()


def test_output_is_kept_in_bounds():
    child = Child("supervised:print_much", 4000)
    to_its_end(child)
    child.close()
    output = child.end.output
    assert output.startswith("the beginning\n") and output.endswith("the end\n")
    assert "bytes left out ..." in output and len(output) < 2.1 * 2**15


def test_nonsense_is_passed_over():
    child = Child("supervised:tell_nonsense", None)
    assert to_its_end(child) == ["sense"]
    child.close()


def test_threads_may_end(tmp_path):
    child = Child("supervised:slow_thread", str(tmp_path / "sent"))
    to_its_end(child)
    child.close()
    assert (tmp_path / "sent").read_text() == "sent" and child.end.code == 0


def test_server_that_was_killed_is_started_again():
    called("double", 1)
    os.kill(fork_server.server_pid(), signal.SIGKILL)
    assert called("double", 1) == 2


def test_a_server_that_ends_again_and_again_is_told_of(monkeypatch):
    starts = []

    def ends():
        starts.append(True)
        raise EOFError

    monkeypatch.setattr(supervisor, "start_server", ends)
    with pytest.raises(UserError, match="no worker process can be started: their server ended before"):
        called("double", 1)
    assert len(starts) == 2


def test_nothing_is_left_of_a_killed_caller(tmp_path):
    pids = tmp_path / "pids"
    script = (
        "from fedbench.processes import fork_server\n"
        "from fedbench.processes.supervisor import call\n"
        "fork_server.PRELOAD = 'light_server'\n"
        f"call('supervised:leave_children', {dict(pids=str(pids), then='hang')}, timeout=None)\n"
    )
    path = os.pathsep.join([os.path.dirname(supervised.__file__), *sys.path])
    caller = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path})
    while not (pids.exists() and pids.read_text()):
        assert caller.poll() is None
        time.sleep(0.05)
    below = [one.pid for one in psutil.Process(caller.pid).children(recursive=True)]
    caller.kill()
    caller.wait()
    assert len(below) >= 5 and all_gone([*below, *json.loads(pids.read_text())])
