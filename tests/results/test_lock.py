"""The lock of a cell: one holder, gone with its process, and a sentence where it cannot be written."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest

from fedbench.errors import UserError
from fedbench.results.lock import Held, cell_lock, lock_file, remove_locks, suite_lock

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


def is_free(folder):
    try:
        with cell_lock(folder):
            return True
    except Held:
        return False


def test_a_cell_has_one_holder(tmp_path, holder):
    with pytest.raises(Held), cell_lock(tmp_path / "s/cells/0123456789ab", 0.1):
        pass
    with cell_lock(tmp_path / "s/cells/0123456789ac"):
        pass


def test_the_lock_of_a_killed_holder_is_free(tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    with cell_lock(tmp_path / "s/cells/0123456789ab", 10.0):
        assert not is_free(tmp_path / "s/cells/0123456789ab")
    assert is_free(tmp_path / "s/cells/0123456789ab")


def test_a_lock_is_given_back_after_an_exception(tmp_path):
    with pytest.raises(ZeroDivisionError), cell_lock(tmp_path / "s/cells/0123456789ab"):
        raise ZeroDivisionError
    assert is_free(tmp_path / "s/cells/0123456789ab")


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "s").write_text("no folder")
    folder = tmp_path / "s/cells/0123456789ab"
    with pytest.raises(UserError, match=rf"{tmp_path}/s/\.cells\.lock: cannot be written"), cell_lock(folder):
        pass


def test_a_lock_file_is_deleted_unless_somebody_holds_it(tmp_path, holder):
    held, free = tmp_path / "s/cells/0123456789ab", tmp_path / "s/cells/0123456789ac"
    with cell_lock(free):
        pass
    remove_locks([held, free])
    assert lock_file(held).exists() and not lock_file(free).exists()
    with cell_lock(free):
        assert not is_free(free)


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


def test_of_two_on_a_suites_folder_the_second_is_told_of_the_first_in_one_line(tmp_path):
    with (
        suite_lock(tmp_path / "s", "fedbench run"),
        pytest.raises(UserError) as told,
        suite_lock(tmp_path / "s", "fedbench pack"),
    ):
        pass
    text = str(told.value)
    assert text.startswith(
        f"{tmp_path}/s: `fedbench run` (process {os.getpid()} on {platform.node()}) has been at work"
    )
    assert f"since {datetime.now().year}-" in text and "\n" not in text
    assert "`--shard I/N`" in text and "`fedbench merge`" in text and "crashed" not in text
    with suite_lock(tmp_path / "s", "fedbench run"):
        pass
    assert [path.name for path in (tmp_path / "s").iterdir()] == [".run.lock"]


def noted(folder, host):
    folder.mkdir()
    facts = {"what": "fedbench run", "process": 7, "host": host, "since": "2026-11-28 20:14:05+00:00"}
    (folder / ".run.json").write_text(json.dumps(facts))


def test_what_a_killed_process_noted_does_not_stand_in_the_way(tmp_path, capsys):
    noted(tmp_path / "s", platform.node())
    with suite_lock(tmp_path / "s", "fedbench run"):
        assert json.loads((tmp_path / "s/.run.json").read_text())["process"] == os.getpid()
    assert capsys.readouterr().err == ""


def test_a_note_of_another_machine_is_told_plainly(tmp_path, capsys):
    noted(tmp_path / "s", "node-7")
    with suite_lock(tmp_path / "s", "fedbench run"):
        pass
    told = capsys.readouterr().err
    assert f"{tmp_path}/s: `fedbench run` (process 7 on node-7) has been at work there since 2026-11-28" in told
    assert "locks do not reach from node-7 to this machine" in told


def test_where_another_machine_has_the_lock_it_may_have_crashed(tmp_path):
    with suite_lock(tmp_path / "s", "fedbench run"):
        (tmp_path / "s/.run.json").unlink()
        (tmp_path / "s").rename(tmp_path / "t")
        noted(tmp_path / "s", "node-7")
        (tmp_path / "t/.run.lock").rename(tmp_path / "s/.run.lock")
        with pytest.raises(UserError, match="if node-7 has crashed"), suite_lock(tmp_path / "s", "fedbench run"):
            pass


@pytest.mark.parametrize("note", ["", "[]", "{", '{"what": 1}', "\x00"])
def test_a_note_that_says_nothing_is_no_obstacle(tmp_path, note):
    with suite_lock(tmp_path / "s", "fedbench run"):
        (tmp_path / "s/.run.json").write_text(note)
        with pytest.raises(UserError, match="another process is at work"), suite_lock(tmp_path / "s", "x"):
            pass
    (tmp_path / "s/.run.json").write_text(note)
    with suite_lock(tmp_path / "s", "fedbench run"):
        pass
