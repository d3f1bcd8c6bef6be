"""What a cell does to itself stays in its cell: every way to die is one row, and nothing is left of it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import termios
import threading
import time
from contextlib import suppress
from multiprocessing import forkserver
from pathlib import Path

import psutil
import pytest
from command import MAIN, TINY, environment, fedbench, write_suite

from fedbench.results import content_hash, read_index
from fedbench.runs.executors.workers import start_server

DYING = Path(__file__).parents[1] / "dying_plugin.py"


def method(how: str, folder: Path) -> str:
    return f"{{name: {how}, extends: dying, how: {how}, folder: {folder}}}"


def run(folder: Path, *hows: str, words: tuple = ()) -> tuple[dict[str, dict], object, float]:
    """Run a good cell and one for each way: their manifests, how the run ended, and how long it took."""
    changes = {"rounds: 2": "rounds: 3", "suite: tiny": "suite: tiny\ntimeout: 600"}
    write_suite(folder, ", ".join(["fedra", *(method(how, folder) for how in hows)]), changes)
    began = time.monotonic()
    done = fedbench("run", "tiny.yaml", "--plugin", TINY, "--plugin", DYING, "--results", "r", *words, cwd=folder)
    return manifests(folder), done, time.monotonic() - began


def manifests(folder: Path) -> dict[str, dict]:
    found = (json.loads(file.read_text()) for file in (folder / "r/tiny").glob("*/manifest.json"))
    return {manifest["config"]["method"].get("how", "fedra"): manifest for manifest in found}


def folder_of(folder: Path, how: str) -> Path:
    (found,) = (folder / "r/tiny").glob(f"small-{how.replace('_', '-')}-0-*")
    return found


DIES = {
    "raises": ("RuntimeError: it broke", None, None),
    "leaves": ("SystemExit: 3", 1, None),
    "grows": ("out of memory: it took", None, "SIGKILL"),
    "asks_for_too_much": ("out of memory: RuntimeError", None, None),
    "crashes": ("the worker process was ended by SIGSEGV", None, "SIGSEGV"),
    "exits_0": ("the worker process ended with exit code 0 before it was done", 0, None),
    "exits_3": ("the worker process ended with exit code 3 before it was done", 3, None),
    "kills_itself": ("the worker process was ended by SIGKILL; the system does that", None, "SIGKILL"),
    "kills_its_supervisor": ("the process that watches over the cell was killed", None, "SIGKILL"),
    "kills_its_guard": ("the process that watches over the cell was killed", None, "SIGKILL"),
    "floods": ("RuntimeError: it is tired", None, None),
    "closes_its_pipe": ("the worker process ended with exit code 1 before it was done", 1, None),
    "cannot_write": ("cannot be written (File too large). Choose another folder", 1, None),
}
SURVIVES = ("fedra", "leaves_grandchildren", "writes_garbage")


@pytest.fixture(scope="module")
def dead(tmp_path_factory, own_cache):
    """One run of every way to die, each in its second round, and of ways to misbehave and live."""
    folder = tmp_path_factory.mktemp("dead")
    words = ("--jobs", 4, "--memory-limit", "600MB")
    found, done, _ = run(folder, *DIES, *SURVIVES[1:], words=words)
    return folder, found, done


def test_the_others_finish_and_the_exit_code_tells(dead):
    _, found, done = dead
    assert {how for how, manifest in found.items() if manifest["status"] == "finished"} == set(SURVIVES)
    assert done.exit_code == 1 and len(found) == len(DIES) + len(SURVIVES)
    assert "Traceback" not in done.output and "the first line" not in done.output


@pytest.mark.parametrize("how", DIES)
def test_every_way_to_die_is_one_row_with_its_reason_and_its_last_round(dead, how):
    manifest = dead[1][how]
    reason, exit_code, signal = DIES[how]
    assert manifest["status"] == "failed" and reason in manifest["reason"]
    assert (manifest.get("exit_code"), manifest.get("signal")) == (exit_code, signal)
    assert manifest["round"] == (3 if how == "cannot_write" else 1)
    assert manifest["seconds"] > 0


@pytest.mark.parametrize("how", ["raises", "leaves", "asks_for_too_much", "crashes", "floods"])
def test_where_it_died_is_in_the_manifest(dead, how):
    assert f"in {how}\n" in dead[1][how]["traceback"] + "\n"


def test_the_memory_that_was_taken_and_the_limit_are_told(dead):
    told = r"out of memory: it took (\d{3} MB|1\.\d+ GB), and --memory-limit is 600 MB"
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


def all_ended(folder: Path, file: str = "pids") -> bool:
    """Whether nothing runs any more of the pids that a method wrote down."""
    pids = [int(pid) for pid in (folder / file).read_text().split()]
    assert len(pids) == 3
    return not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids)


def test_garbage_on_every_pipe_harms_no_other_cell(tmp_path, own_cache):
    start_server()
    server = forkserver._forkserver._forkserver_pid
    found, done, _ = run(tmp_path, "writes_garbage", "takes_a_second", words=("--jobs", 3))
    assert done.exit_code == 0 and {cell["status"] for cell in found.values()} == {"finished"}
    start_server()
    assert forkserver._forkserver._forkserver_pid == server


def test_failed_cells_are_kept_until_they_are_to_be_retried(dead):
    folder, found, _ = dead
    words = ("--method", "fedra", "--method", "exits_0", "--method", "exits_3", "--json")
    words = ("run", "tiny.yaml", "--plugin", TINY, "--plugin", DYING, "--results", "r", *words)
    kept = fedbench(*words, cwd=folder)
    assert kept.exit_code == 1 and json.loads(kept.stdout)["ran"] == 0
    stopped = fedbench(*words, "--retry-failed", "--max-failures", 1, "--jobs", 1, cwd=folder)
    assert stopped.exit_code == 1 and json.loads(stopped.stdout)["ran"] == 2
    again = manifests(folder)
    assert [how for how in found if again[how] != found[how]] == ["exits_0"]


HANGS = (
    "hangs", "hangs_in_c", "stops_itself", "ignores_sigterm", "waits_for_a_thread", "waits_for_an_import",
    "writes_to_nobody", "leaves_grandchildren_and_hangs",
)  # fmt: skip


@pytest.fixture(scope="module")
def late(tmp_path_factory, own_cache):
    """One run of every way to hang, with a timeout on the command line, which wins over the suite's."""
    folder = tmp_path_factory.mktemp("late")
    run(folder, words=("--method", "fedra"))  # loads the server
    found, done, seconds = run(folder, *HANGS, words=("--jobs", len(HANGS), "--timeout", 4))
    return folder, found, done, seconds


@pytest.mark.parametrize("how", HANGS)
def test_every_way_to_hang_ends_at_the_deadline(late, how):
    manifest = late[1][how]
    assert (manifest["status"], manifest["reason"]) == ("timeout", "not done after 4 seconds")
    assert manifest["round"] == 1 and 4 <= manifest["seconds"] < 9
    assert manifest["signal"] in ("SIGTERM", "SIGKILL")


@pytest.mark.parametrize("how", [how for how in HANGS if how != "stops_itself"])
def test_where_it_hung_is_in_the_manifest(late, how):
    assert f"in {how}\n" in late[1][how]["traceback"]


def test_nothing_is_left_five_seconds_after_the_deadline(late):
    folder, found, done, seconds = late
    print(f"the last row {max(found[how]['seconds'] for how in HANGS) - 4:.1f} s after its deadline")
    assert done.exit_code == 1
    assert all_ended(folder)
    assert seconds < 4 + 5 + 10  # starting and the leaderboard


def interrupted(folder: Path, *hows: str, signals: tuple[int, ...], words: tuple = ()) -> tuple[dict, object, float]:
    """Run cells and, once all are in their second round, send this process signals, half a second apart: what
    `run` returns, the seconds being those since the first signal."""
    sent = []

    def send():
        until = time.monotonic() + 60
        while not all((folder / f"in_{how}").exists() for how in hows) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.5)
        for number in signals:
            sent.append(time.monotonic())
            os.kill(os.getpid(), number)
            time.sleep(0.5)

    sender = threading.Thread(target=send)
    sender.start()
    found, done, _ = run(folder, *hows, words=("--jobs", len(hows) + 1, "--checkpoint", 0, *words))
    seconds = time.monotonic() - sent[0]
    sender.join()
    return found, done, seconds


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_run_that_is_asked_to_end_lets_its_cells_finish_their_round(tmp_path, own_cache, hears_signals, number, code):
    found, done, _ = interrupted(tmp_path, "takes_a_second", signals=(number,))
    assert done.exit_code == code
    cell = found["takes_a_second"]
    assert (cell["status"], cell["round"]) == ("interrupted", 2)
    assert cell["reason"] == "interrupted after round 2 of 3; the next run goes on"
    assert "Finishing the current round, for at most 10 s; Ctrl-C again stops at once." in done.stdout
    assert "Interrupted. What is finished is kept; this runs the rest:\n  fedbench run tiny.yaml " in done.stderr
    assert "Traceback" not in done.output


def servers(process: subprocess.Popen) -> list[psutil.Process]:
    """The server of workers that a run has started, if it has by now."""
    with suppress(psutil.Error):
        return [p for p in psutil.Process(process.pid).children() if "forkserver" in " ".join(p.cmdline())]
    return []


def while_torch_loads(folder: Path, do) -> tuple[int, str]:
    """The exit code and stderr of a run as a terminal starts it; `do` gets its process while the server of workers
    loads torch."""
    write_suite(folder)
    words = ("run", "tiny.yaml", "--plugin", TINY, "--results", "r")
    process = subprocess.Popen(
        [*MAIN, *map(str, words)], cwd=folder, env=environment(), start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    while not servers(process) and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.3)
    do(process)
    _, told = process.communicate(timeout=60)
    return process.returncode, told.strip()


def test_ctrl_c_while_the_first_worker_loads_torch(tmp_path, own_cache, hears_signals):
    """It reaches every process of the terminal's, the server of workers too, which must not end of it."""
    code, told = while_torch_loads(tmp_path, lambda run: os.killpg(run.pid, signal.SIGINT))
    assert code == 130 and "Traceback" not in told
    assert told.startswith("Interrupted. What is finished is kept; this runs the rest:")


def test_a_server_that_is_killed_while_it_loads_torch_is_told_of(tmp_path, own_cache):
    code, told = while_torch_loads(tmp_path, lambda run: [server.kill() for server in servers(run)])
    assert code == 2 and told.startswith("Error: no worker process can be started")


def test_a_second_ctrl_c_ends_a_run_at_once_and_leaves_it_to_be_resumed(tmp_path, own_cache, hears_signals):
    hows = ("ignores_sigterm", "leaves_grandchildren_and_hangs")
    found, done, seconds = interrupted(tmp_path, *hows, signals=(signal.SIGINT, signal.SIGINT))
    print(f"two presses, half a second apart, and the end {seconds:.1f} s after the first")
    assert done.exit_code == 130 and seconds < 5
    assert all(found[how]["status"] in ("running", "interrupted") for how in hows)
    assert "stopped" in done.stdout
    assert all_ended(tmp_path)
    assert not list((tmp_path / "r").rglob("*.tmp"))
    (tmp_path / "fine").touch()
    words = ("run", "tiny.yaml", "--plugin", TINY, "--plugin", DYING)
    assert [fedbench(*words, "--results", r, cwd=tmp_path).exit_code for r in ("r", "undisturbed")] == [0, 0]
    assert content_hash(tmp_path / "r") == content_hash(tmp_path / "undisturbed")


def test_the_command_that_is_printed_goes_on_from_the_checkpoint(tmp_path, own_cache, hears_signals):
    found, done, _ = interrupted(tmp_path, "takes_a_second", signals=(signal.SIGINT,), words=("--force", "--quiet"))
    assert found["takes_a_second"]["round"] == 2
    words = shlex.split(done.stderr.partition("this runs the rest:\n")[2].splitlines()[0])
    assert words[:3] == ["fedbench", "run", "tiny.yaml"] and words[-1] == "--quiet"
    assert "--force" not in words, "it would begin anew"
    (tmp_path / "in_takes_a_second").unlink()
    again = fedbench(*words[1:-1], cwd=tmp_path)
    assert again.exit_code == 0 and "takes_a_second · seed 0 goes on after round 2 of 3" in again.stdout
    assert not (tmp_path / "in_takes_a_second").exists(), "it began anew"
    (tmp_path / "fine").touch()
    assert fedbench(*words[1:], "--results", "undisturbed", cwd=tmp_path).exit_code == 0
    assert content_hash(tmp_path / "r") == content_hash(tmp_path / "undisturbed")


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 8 MiB, on which results and nothing else are to lie."""
    folder = tmp_path / "r"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8M", "none", folder], capture_output=True).returncode:
        pytest.skip("mounting takes root")
    yield tmp_path
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_disk_that_runs_full_costs_the_cells_that_find_it_so_and_no_more(small_disk, own_cache):
    write_suite(small_disk, f"fedra, {method('fills_the_disk', small_disk / 'r')}, allsmall")
    words = ("run", "tiny.yaml", "--plugin", TINY, "--plugin", DYING, "--results", "r", "--jobs", 1)
    done = fedbench(*words, cwd=small_disk)
    assert done.exit_code == 1
    assert "tiny: only 8.0 MiB free" in done.stderr and "--results DIR" in done.stderr
    assert "Traceback" not in done.output
    assert done.output.count("cannot be written (No space left on device)") >= 2
    assert "2 cells failed" in done.stdout and len(read_index(small_disk / "r/tiny").entries) == 3
    assert not list((small_disk / "r").rglob("*.tmp"))

    refused = fedbench(*words, "--retry-failed", cwd=small_disk)
    assert refused.exit_code == 2 and "only 0.0 MiB free" in refused.stderr
    (small_disk / "r/filler").unlink()
    (small_disk / "r/in_fills_the_disk").unlink()
    again = fedbench(*words, "--retry-failed", "--method", "allsmall", "--json", cwd=small_disk)
    assert again.exit_code == 0 and json.loads(again.stdout)["ran"] == 1


def test_a_folder_that_becomes_read_only_costs_the_cells_that_find_it_so(small_disk, own_cache):
    """As a disk does that has found itself broken."""
    write_suite(small_disk, f"fedra, {method('makes_read_only', small_disk / 'r')}, allsmall")
    words = ("run", "tiny.yaml", "--plugin", TINY, "--plugin", DYING, "--results", "r", "--jobs", 1)
    done = fedbench(*words, cwd=small_disk)
    assert done.exit_code == 1 and "2 cells failed" in done.stdout and "Traceback" not in done.output
    assert "cannot be written (Read-only file system)" in done.stdout
    refused = fedbench(*words, "--retry-failed", cwd=small_disk)
    assert refused.exit_code == 2 and "cannot be written (Read-only file system)" in refused.stderr


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell in the background lets what it starts ignore Ctrl-C


def terminal_run(folder: Path, hows: tuple[str, ...], when: str, press: bytes) -> tuple[str, int]:
    """Run cells on a terminal of 80 columns and, once `when` is in its second round, press keys a second apart: the
    lines that stay on the screen, and the exit code."""
    write_suite(folder, ", ".join(method(how, folder) for how in hows), {"rounds: 2": "rounds: 3"})
    words = ("run", "tiny.yaml", "--plugin", TINY, "--plugin", DYING, "--results", "r", "--jobs", 2)
    screen, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    env = {name: value for name, value in environment().items() if name != "COLUMNS"} | {"TERM": "xterm"}
    process = subprocess.Popen(
        [*MAIN, *map(str, words)], cwd=folder, env=env, stdin=terminal, stdout=terminal, stderr=terminal,
        start_new_session=True, preexec_fn=_take_terminal,
    )  # fmt: skip
    os.close(terminal)
    seen, keys, pressed = b"", list(press), 0.0
    with suppress(OSError):  # the terminal's other end is closed
        while True:
            if select.select([screen], [], [], 0.1)[0]:
                seen += os.read(screen, 2**16)
            if keys and (folder / f"in_{when}").exists() and time.monotonic() > pressed + 1:
                pressed = time.monotonic()
                os.write(screen, bytes([keys.pop(0)]))
    os.close(screen)
    code = process.wait(timeout=10)
    last = [line.rpartition("\x1b[2K")[2] for line in seen.decode().replace("\r", "").split("\n")]
    return "\n".join(re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", line).rstrip() for line in last), code


@pytest.mark.slow
def test_what_a_person_sees_who_presses_ctrl_c_twice(tmp_path, own_cache):
    seen, code = terminal_run(tmp_path, ("raises", "crashes", "ignores_sigterm"), "ignores_sigterm", b"\x03\x03")
    assert code == 130
    assert "FAILED  small · raises · seed 0" in seen and "RuntimeError: it broke" in seen
    assert "FAILED  small · crashes · seed 0" in seen and "the worker process was ended by SIGSEGV" in seen
    first = seen.index("Finishing the current round, for at most 10 s; Ctrl-C again stops at once.")
    stopped = seen.index("stopped small · ignores_sigterm · seed 0")
    told = seen.index("Interrupted. What is finished is kept; this runs the rest:\n  fedbench run tiny.yaml --plugin ")
    assert first < stopped < told
    assert "--results r --jobs 2" in seen.replace("\n", "") and "Traceback" not in seen


TALKS = """
from fedbench import hookimpl

@hookimpl
def fedbench_cell_finished(manifest):
    raise OSError("no server")
"""


def test_a_tracker_that_breaks_in_a_worker_is_heard_of(tmp_path, own_cache):
    (tmp_path / "tracker.py").write_text(TALKS)
    write_suite(tmp_path, "fedra")
    done = fedbench("run", "tiny.yaml", "--plugin", TINY, "--plugin", "tracker.py", "--results", "r", cwd=tmp_path)
    assert done.exit_code == 0 and "1 finished cell printed something: r/tiny/*/output.txt" in done.stdout
    assert (
        "fedbench_cell_finished broke: OSError: no server" in (folder_of(tmp_path, "fedra") / "output.txt").read_text()
    )
