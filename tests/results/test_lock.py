"""The lock of a cell: one holder, gone with its process, and a sentence where it cannot be written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from fedbench.errors import UserError
from fedbench.results.lock import Held, cell_lock, is_held, lock_file, remove_locks

HOLD = """
import sys, time
from pathlib import Path
from fedbench.results.lock import cell_lock
with cell_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that has the lock of the cell `tmp_path/s/cells/0123456789ab`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "s/cells/0123456789ab")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_cell_has_one_holder(tmp_path, holder):
    assert is_held(tmp_path / "s/cells/0123456789ab")
    with pytest.raises(Held), cell_lock(tmp_path / "s/cells/0123456789ab", 0.1):
        pass
    assert not is_held(tmp_path / "s/cells/0123456789ac")
    with cell_lock(tmp_path / "s/cells/0123456789ac"):
        pass


def test_the_lock_of_a_killed_holder_is_free(tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    with cell_lock(tmp_path / "s/cells/0123456789ab", 10.0):
        assert is_held(tmp_path / "s/cells/0123456789ab")
    assert not is_held(tmp_path / "s/cells/0123456789ab")


def test_a_lock_is_given_back_after_an_exception(tmp_path):
    with pytest.raises(ZeroDivisionError), cell_lock(tmp_path / "s/cells/0123456789ab"):
        raise ZeroDivisionError
    assert not is_held(tmp_path / "s/cells/0123456789ab")


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "s").write_text("no folder")
    folder = tmp_path / "s/cells/0123456789ab"
    assert not is_held(folder)
    with pytest.raises(UserError, match=rf"{tmp_path}/s/\.cells\.lock: cannot be written"), cell_lock(folder):
        pass


def test_a_lock_file_is_deleted_unless_somebody_holds_it(tmp_path, holder):
    held, free = tmp_path / "s/cells/0123456789ab", tmp_path / "s/cells/0123456789ac"
    with cell_lock(free):
        pass
    remove_locks([held, free])
    assert lock_file(held).exists() and not lock_file(free).exists()
    with cell_lock(free):
        assert is_held(free)


def test_of_many_that_lock_and_delete_one_holds_at_a_time(tmp_path):
    folder, inside, most = tmp_path / "s/cells/0123456789ab", [], []

    def work(_):
        for _ in range(20):
            with cell_lock(folder, 60.0):
                inside.append(1)
                most.append(len(inside))
                inside.pop()
            remove_locks([folder])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert set(most) == {1} and len(most) == 80
