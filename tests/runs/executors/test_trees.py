"""Trees of processes, tried in a process of their own: it adopts and ends whatever is below it."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

LINUX = pytest.mark.skipif(not psutil.LINUX, reason="Linux alone hands orphans to another process than the first")


def told_by(script: str) -> list[int]:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


ORPHAN = """
import os, subprocess, sys, psutil
from fedbench.runs.executors import trees

trees.adopt_orphans()
sleep = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"]
parent = f"import subprocess; print(subprocess.Popen({sleep!r}, start_new_session=True, stdout=2).pid)"
pid = int(subprocess.run([sys.executable, "-c", parent], stdout=subprocess.PIPE).stdout)
assert psutil.Process(pid).ppid() == os.getpid()
trees.end_descendants()
print(pid, int(psutil.pid_exists(pid)))
"""


@LINUX
def test_an_orphan_in_a_session_of_its_own_is_adopted_and_ended():
    pid, left = told_by(ORPHAN)
    assert pid > 1 and not left


WEIGHED = """
import os, time
from fedbench.runs.executors import trees

shared = bytearray(b"x") * 100_000_000
for _ in range(3):
    if os.fork() == 0:
        own = bytearray(b"x") * 30_000_000
        time.sleep(600)
time.sleep(0.5)
print(trees.memory(), trees.memory(at_least=10**12))
trees.end_descendants()
print(trees.memory())
"""


@LINUX
def test_pages_that_several_share_count_in_parts():
    exact, quick, after = told_by(WEIGHED)
    assert 90e6 < exact < 90e6 + 100e6 + 60e6
    assert quick > 390e6
    assert after == 0


CHILD = """
import os, signal, time
from fedbench.runs.executors import trees

read, write = os.pipe()
if (child := os.fork()) == 0:
    if os.fork() == 0:
        trees.end_with_parent()
        os.write(write, str(os.getpid()).encode())
        time.sleep(600)
    time.sleep(600)
trees.adopt_orphans()
grandchild = int(os.read(read, 100))
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
pid, status = os.waitpid(grandchild, 0)
print(os.waitstatus_to_exitcode(status))
"""


@LINUX
def test_a_process_ends_with_its_parent():
    assert told_by(CHILD) == [-9]
