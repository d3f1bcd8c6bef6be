"""Functions for tests of the supervisor, which are called in separate processes."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path
from unittest.mock import patch

import psutil

from fedbench.errors import UserError
from fedbench.processes import fork_server
from fedbench.results import write_manifest

PRELOADED = "supervised:preloaded"
FOREVER = [sys.executable, "-c", "import time; time.sleep(3600)"]


@contextmanager
def server_without_torch() -> Iterator[None]:
    """Within, the server that guards are forked from is another, without torch, which starts at once."""
    server = forkserver._forkserver
    names = ("_forkserver_address", "_forkserver_alive_fd", "_forkserver_pid")
    before = {name: getattr(server, name) for name in names}
    vars(server).update(dict.fromkeys(names))
    path = os.pathsep.join([os.path.dirname(__file__), *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        with patch.object(fork_server, "PRELOAD", "light_server"), patch.dict(os.environ, PYTHONPATH=path):
            yield
    finally:
        server._stop()
        vars(server).update(before)


def double(argument, tell):
    tell({"event": "thinking", "of": argument})
    return argument * 2


def preloaded(argument, tell):
    """Of the server that has forked this process: whether it has imported a module, and what it has set for garbage."""
    return {
        "imported": argument in sys.modules,
        "collecting": gc.isenabled(),
        "left out": gc.get_freeze_count() > 0,
    }


def cell(argument, tell):
    """A cell that is done at once; in a folder `kills` it kills the server that its guard was forked from instead."""
    job = json.loads(argument)
    if "kills" in Path(job["folder"]).parts:
        os.kill(psutil.Process(os.getppid()).ppid(), signal.SIGKILL)
        raise RuntimeError("it killed the server")
    write_manifest(Path(job["folder"]), {**job["manifest"], "status": "finished", "reason": None, "seconds": 0.0})
    return {"status": "finished"}


def facts(argument, tell):
    return {"environment": dict(os.environ), "folder": os.getcwd(), "session": os.getsid(0), "pid": os.getpid()}


def large(argument, tell):
    return "x" * argument


def refuse(argument, tell):
    raise UserError("no such thing", option="width")


def fail(argument, tell):
    return {}["nothing"]


def leave(argument, tell):
    os._exit(argument)


def exit_politely(argument, tell):
    sys.exit(argument)


def crash(argument, tell):
    os.kill(os.getpid(), signal.SIGSEGV)


def sleep(argument, tell):
    time.sleep(argument)


def hold_the_gil(argument, tell):
    re.match(r"(a+)+$", "a" * 64 + "b")


def ignore_signals(argument, tell):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    tell({"event": "ready"})
    time.sleep(3600)


def end_when_asked(argument, tell):
    asked = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    tell({"event": "ready"})
    while not asked:
        time.sleep(0.01)
    return "ended"


def children_that_eat(argument, tell):
    for _ in range(2):
        subprocess.Popen([sys.executable, "-c", f"import time; held = bytearray(b'x') * {argument}; time.sleep(3600)"])
    time.sleep(3600)


def leave_children(argument, tell):
    """One in its own session too; their pids go into a file."""
    left = [subprocess.Popen(FOREVER), subprocess.Popen(FOREVER, start_new_session=True)]
    Path(argument["pids"]).write_text(json.dumps([one.pid for one in left]))
    tell({"event": "left"})
    if argument.get("then") == "kill":
        os.kill(os.getppid(), signal.SIGKILL)
    if argument.get("then"):
        time.sleep(3600)


def kill_guard(argument, tell):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(3600)


def stop_guard(argument, tell):
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(3600)


def print_much(argument, tell):
    print("the beginning")
    for _ in range(argument):
        print("x" * 1023)
    print("the end", file=sys.stderr)


def tell_nonsense(argument, tell):
    fd = tell.__closure__[0].cell_contents.fileno()
    os.write(fd, b'\xff\x00 nothing\n[1]\n"event"\n{"event": 7}\n' + b"[" * 100_000 + b"\n")
    tell({"event": "sense"})


def slow_thread(argument, tell):
    threading.Thread(target=lambda: (time.sleep(0.2), Path(argument).write_text("sent"))).start()
