"""A run that is ended by Ctrl-C, and the one that goes on from there."""

from __future__ import annotations

import fcntl
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
from pathlib import Path

import dying
import psutil
import pytest
from command import MAIN, TINY, environment, fedbench, write_suite

from fedbench.results import content_hash


def interrupted(folder: Path, *hows: str, signals: tuple[int, ...], words: tuple = ()) -> tuple[dict, object, float]:
    """Run cells and, once all are in their second round, send this process signals, a moment apart: what
    `run` returns, the seconds being those since the first signal."""
    sent = []

    def send():
        until = time.monotonic() + 60
        while not all((folder / f"in_{how}").exists() for how in hows) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.2)
        for number in signals:
            sent.append(time.monotonic())
            os.kill(os.getpid(), number)
            time.sleep(0.3)

    sender = threading.Thread(target=send)
    sender.start()
    found, done, _ = dying.run(folder, *hows, words=("--jobs", len(hows) + 1, "--checkpoint", 0, *words))
    seconds = time.monotonic() - sent[0]
    sender.join()
    return found, done, seconds


def servers(process: subprocess.Popen) -> list[psutil.Process]:
    """The server of workers that a run has started, if it has by now."""
    with suppress(psutil.Error):
        return [p for p in psutil.Process(process.pid).children() if "forkserver" in " ".join(p.cmdline())]
    return []


def while_torch_loads(folder: Path, do) -> tuple[int, str]:
    """The exit code and stderr of a run as a terminal starts it, but for what it says as it prepares; `do` gets its
    process while the server of workers loads torch."""
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
    return process.returncode, told.strip().removeprefix("Preparing tiny.yaml ...").strip()  # where a second went by


@pytest.mark.slow
def test_ctrl_c_while_the_first_worker_loads_torch(tmp_path, own_cache, hears_signals):
    """It reaches every process of the terminal's, the server of workers too, which must not end of it."""
    code, told = while_torch_loads(tmp_path, lambda run: os.killpg(run.pid, signal.SIGINT))
    assert code == 130 and "Traceback" not in told
    assert told.startswith("Interrupted. What is finished is kept; this runs the rest:")


@pytest.mark.slow
def test_a_server_that_is_killed_while_it_loads_torch_is_started_again(tmp_path, own_cache):
    code, _ = while_torch_loads(tmp_path, lambda run: [server.kill() for server in servers(run)])
    assert code == 0


def test_a_second_ctrl_c_ends_a_run_at_once(tmp_path, own_cache, hears_signals):
    hows = ("ignores_sigterm", "leaves_grandchildren_and_hangs")
    found, done, seconds = interrupted(tmp_path, *hows, signals=(signal.SIGINT, signal.SIGINT))
    assert done.exit_code == 130 and seconds < 5
    assert all(found[how]["status"] in ("running", "interrupted") for how in hows)
    assert "stopped" in done.stdout
    assert dying.all_ended(tmp_path)
    assert not list((tmp_path / "r").rglob("*.tmp"))


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
    ],
)
def test_a_run_that_is_asked_to_end_finishes_its_rounds_and_the_printed_command_goes_on_from_there(
    tmp_path, own_cache, hears_signals, number, code
):
    words = ("--force", "--max-failures", 9)
    found, done, _ = interrupted(tmp_path, "takes_a_second", signals=(number,), words=words)
    assert done.exit_code == code
    cell = found["takes_a_second"]
    assert (cell["status"], cell["round"]) == ("interrupted", 2)
    assert cell["reason"] == "interrupted after round 2 of 3; the next run resumes it"
    assert "Finishing the current round, for at most 10 s; Ctrl-C again stops at once." in done.stdout
    assert "Interrupted. What is finished is kept; this runs the rest:\n  fedbench run tiny.yaml " in done.stderr
    assert "`fedbench compare r` shows what is there so far" in done.stderr
    assert "Traceback" not in done.output
    words = shlex.split(done.stderr.partition("this runs the rest:\n")[2].splitlines()[0])
    assert words[:3] == ["fedbench", "run", "tiny.yaml"] and words[-2:] == ["--max-failures", "9"]
    assert "--force" not in words, "it would begin anew"
    (tmp_path / "in_takes_a_second").unlink()
    again = fedbench(*words[1:], cwd=tmp_path)
    assert again.exit_code == 0 and "takes_a_second · seed 0 resumes after round 2 of 3" in again.stdout
    assert not (tmp_path / "in_takes_a_second").exists(), "it began anew"
    (tmp_path / "fine").touch()
    assert fedbench(*words[1:], "--results", "undisturbed", cwd=tmp_path).exit_code == 0
    assert content_hash(tmp_path / "r") == content_hash(tmp_path / "undisturbed")


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell in the background lets what it starts ignore Ctrl-C


def terminal_run(folder: Path, hows: tuple[str, ...], when: str, press: bytes) -> tuple[str, int]:
    """Run cells on a terminal of 80 columns and, once `when` is in its second round, press keys a second apart: the
    lines that stay on the screen, and the exit code."""
    write_suite(folder, ", ".join(dying.method(how, folder) for how in hows), {"rounds: 2": "rounds: 3"})
    words = ("run", "tiny.yaml", "--plugin", TINY, "--plugin", dying.DYING, "--results", "r", "--jobs", 2)
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
    assert "FAILED  small · crashes · seed 0" in seen and "the worker process was killed by SIGSEGV" in seen
    first = seen.index("Finishing the current round, for at most 10 s; Ctrl-C again stops at once.")
    stopped = seen.index("stopped small · ignores_sigterm · seed 0")
    told = seen.index("Interrupted. What is finished is kept; this runs the rest:\n  fedbench run tiny.yaml --plugin ")
    assert first < stopped < told
    assert "--results r --jobs 2" in seen.replace("\n", "") and "Traceback" not in seen
