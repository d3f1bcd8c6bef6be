"""A --plugin file for tests: methods that die, hang or misbehave in their second round, each in its own way."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from itertools import repeat
from pathlib import Path

import psutil

from fedbench import hookimpl

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def raises(folder):
    raise RuntimeError("it broke")


def grows(folder):
    hoard = []
    while len(hoard) < 50:  # 1.7 GB, where nobody stops it
        hoard.append(bytearray(b"x") * 2**25)
        time.sleep(0.01)


def asks_for_too_much(folder):
    import torch

    torch.empty(2**50)


def crashes(folder):
    ctypes.string_at(0)


def kills_itself(folder):
    os.kill(os.getpid(), signal.SIGKILL)


def kills_its_guard(folder):
    leaves_grandchildren(folder, "pids_of_the_unwatched")
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


def kills_its_server(folder):
    os.kill(psutil.Process(os.getppid()).ppid(), signal.SIGKILL)
    raise RuntimeError("it killed the server")


def hangs(folder):
    time.sleep(600)


def hangs_in_c(folder):
    deque(repeat(0), maxlen=0)  # keeps the GIL, and looks at no signal


def stops_itself(folder):
    os.kill(os.getpid(), signal.SIGSTOP)


def ignores_sigterm(folder):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def takes_a_second(folder):
    time.sleep(1)


def waits_for_a_thread(folder):
    lock = threading.Lock()
    lock.acquire()
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join()


def waits_for_an_import(folder):
    """That another thread has begun, and never gets to the end of."""
    (folder / "endless.py").write_text("import time\ntime.sleep(600)\n")
    sys.path.insert(0, str(folder))
    threading.Thread(target=__import__, args=("endless",)).start()
    time.sleep(0.2)
    __import__("endless")


def writes_to_nobody(folder):
    _, pipe = os.pipe()
    while True:
        os.write(pipe, b"x" * 2**20)


def fills_the_disk(folder):
    with (folder / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)


def makes_read_only(folder):
    # On top of what is there: a mount with a file open for writing, such as a lock, cannot be made read-only itself.
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)


def leaves_grandchildren(folder, file="pids"):
    """One in its group, one in a session of its own, and one that its parent has left."""
    pids = [subprocess.Popen(SLEEP).pid, subprocess.Popen(SLEEP, start_new_session=True).pid]
    orphan = f"import subprocess; print(subprocess.Popen({SLEEP!r}, start_new_session=True, stdout=2).pid)"
    pids.append(int(subprocess.run([sys.executable, "-c", orphan], stdout=subprocess.PIPE).stdout))
    (folder / file).write_text(" ".join(map(str, pids)))


def leaves_grandchildren_and_hangs(folder):
    leaves_grandchildren(folder)
    time.sleep(600)


def floods(folder):
    print("the first line")
    for _ in range(2000):
        print("x" * 10_000)
    print("the last line")
    raise RuntimeError("it is tired")


def closes_its_pipe(folder):
    os.closerange(3, 256)


def writes_garbage(folder):
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the folder that is listed, for one
            if int(name) > 2 and "pipe" in os.readlink(f"/proc/self/fd/{name}"):
                os.write(int(name), b'\x00garbage\n{"event": "ended"}\n[1]\n{"event": 7' + b"y" * 3000 + b"\n")


def cannot_write(folder):
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def dying(setup, how: str = "raises", folder: str = "."):
    """FedRA whose second round does `how` first, as long as there is no file `fine` in the folder."""
    from fedbench.families.layerwise import layerwise

    method = layerwise(setup)

    def round(state, t, cohort, generator):
        if t == 1 and not Path(folder, "fine").exists():
            Path(folder, f"in_{how}").touch()
            globals()[how](Path(folder))
        return method.round(state, t, cohort, generator)

    return replace(method, round=round)


@hookimpl
def fedbench_register_methods(register):
    register("dying", dying)
