"""Children: a command again in a process without network where the machine can, and the code of entries in it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedbench.board.entries import Entry, Package
from fedbench.errors import UserError
from fedbench.processes.signals import handled

INSIDE = "FEDBENCH_BOARD_ISOLATED"  # how this process is kept from the network, in words; set in children alone
OPEN = "with network: neither bwrap nor unshare works here"
OFF = ("--unshare-net", "--unshare-pid", "--proc", "/proc", "--die-with-parent")
WAYS = {"bwrap": ("bwrap", "--dev-bind", "/", "/", *OFF), "unshare": ("unshare", "--map-root-user", "--net")}


def isolation() -> tuple[Sequence[str], str]:
    """The words before a command that keep it from the network, and the same for people."""
    for name, words in WAYS.items():
        if shutil.which(name) and subprocess.run([*words, "true"], capture_output=True).returncode == 0:
            return words, f"without network, by {name}"
    return (), OPEN


def isolated() -> str:
    """How this process is kept from the network; "" where it is no child of `again`."""
    return os.environ.get(INSIDE, "")


def again(arguments: Sequence[str], code: Sequence[str] = ()) -> int:
    """Run a command of fedbench in a child without network where the machine can; returns its exit code.

    Args:
        arguments: behind `fedbench`.
        code: folders of packages that it finds before those that are installed.
    """
    words, how = isolation()
    path = os.pathsep.join([*code, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, INSIDE: how, **({"PYTHONPATH": path} if path else {})}
    child = subprocess.Popen([*words, sys.executable, "-P", "-m", "fedbench", *arguments], env=environment)
    with handled(lambda number, frame: None if number == signal.SIGINT else child.send_signal(number)):
        return child.wait()  # which a terminal tells of Ctrl-C itself


@contextmanager
def packages_of(entries: Iterable[Entry]) -> Iterator[list[str]]:
    """Folders with the packages of entries, which pip has fetched and compared with their hashes; inside alone.

    Raises:
        UserError: pip could not, or a package has another hash.
    """
    wanted = [entry.plugin for entry in entries if isinstance(entry.plugin, Package)]
    with tempfile.TemporaryDirectory(prefix="fedbench") as folder:
        lines = [f"{plugin.package} --hash=sha256:{plugin.sha256}\n" for plugin in wanted]
        (file := Path(folder) / "requirements.txt").write_text("".join(lines))
        target = str(Path(folder) / "packages")
        if wanted:
            pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "--only-binary=:all:"]
            done = subprocess.run([*pip, "--target", target, "-r", str(file)], capture_output=True, text=True)
            if done.returncode:
                names = ", ".join(plugin.package for plugin in wanted)
                raise UserError(f"{names}: pip refuses:\n{done.stderr.strip()}")
        yield [target] if wanted else []
