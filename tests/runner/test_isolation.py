"""What a cell does to itself stays in its cell: every way to die is one row, and nothing is left of it."""

from __future__ import annotations

import re

import pytest
from dying import all_ended, folder_of, run

from fedbench.processes.fork_server import server_pid, start_server

DIES = {
    "grows": ("out of memory: it took", None, "SIGKILL"),
    "asks_for_too_much": ("out of memory: RuntimeError", None, None),
    "kills_itself": ("the worker process was killed by SIGKILL; the system does that", None, "SIGKILL"),
    "kills_its_guard": ("the process that watches over it was killed", None, "SIGKILL"),
    "floods": ("RuntimeError: it is tired", None, None),
    "closes_its_pipe": ("the worker process ended with exit code 1", 1, None),
    "cannot_write": ("cannot be written (File too large). Choose another folder", 1, None),
}
SURVIVES = ("fedra", "leaves_grandchildren", "writes_garbage")


@pytest.fixture(scope="module")
def dead(tmp_path_factory, own_cache):
    """One run of every way to die, each in its second round, and of ways to misbehave and live."""
    folder = tmp_path_factory.mktemp("dead")
    words = ("--jobs", 4, "--memory-limit", "600MB")
    start_server()
    server = server_pid()
    found, done, _ = run(folder, *DIES, *SURVIVES[1:], words=words)
    start_server()
    assert server_pid() == server, "garbage on every pipe, and each of these ends, leave the server alone"
    return folder, found, done


def test_the_others_finish_and_the_exit_code_tells(dead):
    _, found, done = dead
    assert {how for how, manifest in found.items() if manifest["status"] == "finished"} == set(SURVIVES)
    assert done.exit_code == 1 and len(found) == len(DIES) + len(SURVIVES)
    assert "Traceback" not in done.output and "the first line" not in done.output


def test_every_way_to_die_is_one_row_with_its_reason_and_its_last_round(dead):
    for how, (reason, exit_code, signal) in DIES.items():
        manifest = dead[1][how]
        assert manifest["status"] == "failed" and reason in manifest["reason"], how
        assert (manifest.get("exit_code"), manifest.get("signal")) == (exit_code, signal), how
        assert manifest["round"] == (3 if how == "cannot_write" else 1), how
        assert manifest["seconds"] > 0, how


def test_where_it_died_is_in_the_manifest(dead):
    for how in ("asks_for_too_much", "floods"):
        assert f"in {how}\n" in dead[1][how]["traceback"] + "\n"


def test_the_memory_that_was_taken_and_the_limit_are_told(dead):
    told = r"out of memory: it took (\d{3} MB|1(\.\d+)? GB) of memory, and the limit is 600 MB"
    assert re.fullmatch(told, dead[1]["grows"]["reason"])


def test_what_a_cell_prints_is_kept_in_part(dead):
    folder, _, _ = dead
    text = (folder_of(folder, "floods") / "output.txt").read_text()
    assert text.startswith("the first line\n") and text.rstrip().endswith("the last line")
    assert "bytes left out" in text and len(text) < 2**17
    assert not (folder_of(folder, "fedra") / "output.txt").exists()


def test_no_process_and_no_temporary_file_is_left(dead):
    folder, _, _ = dead
    assert all_ended(folder) and all_ended(folder, "pids_of_the_unwatched")
    assert not list((folder / "r").rglob("*.tmp"))


@pytest.mark.slow  # a second server loads torch
def test_a_killed_server_costs_the_cells_of_that_moment_alone(tmp_path, own_cache):
    found, done, _ = run(tmp_path, "kills_its_server", "takes_a_second", words=("--jobs", 1))
    assert done.exit_code == 1 and "RuntimeError: it killed the server" in found["kills_its_server"]["reason"]
    assert found["fedra"]["status"] == found["takes_a_second"]["status"] == "finished"


OFTEN = ("hangs_in_c", "stops_itself", "leaves_grandchildren_and_hangs")
# None of these is harder to end.
RARELY = ("ignores_sigterm", "hangs", "waits_for_a_thread", "waits_for_an_import", "writes_to_nobody")


@pytest.mark.parametrize("hows", [OFTEN, pytest.param(RARELY, marks=pytest.mark.slow)])
def test_every_way_to_hang_ends_at_the_deadline_and_leaves_nothing(tmp_path, own_cache, hows):
    """One run of all of them, with a timeout on the command line, which wins over the suite's."""
    start_server()
    found, done, seconds = run(tmp_path, *hows, words=("--jobs", len(hows), "--timeout", 2))
    assert done.exit_code == 1
    for how in hows:
        manifest = found[how]
        assert (manifest["status"], manifest["reason"]) == ("timeout", "not done after 2 s"), how
        assert manifest["round"] == 1 and 2 <= manifest["seconds"] < 8, how
        assert manifest["signal"] in ("SIGTERM", "SIGKILL"), how
        assert how == "stops_itself" or f"in {how}\n" in manifest["traceback"], how
    assert hows == RARELY or all_ended(tmp_path)
    assert seconds < 2 + 5 + 10  # starting and the leaderboard
