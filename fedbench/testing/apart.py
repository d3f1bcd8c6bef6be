"""Checks in a process of its own with a deadline: whatever a plugin does there, something is said of it."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedbench.errors import UserError
from fedbench.testing.verdict import BROKEN, Verdict

DEADLINE = 300.0  # seconds that the check of one component may take
_PLACE = re.compile(r'File "(.+)", line (\d+)')


class Apart:
    """The processes that check one order; when one of them dies, the next takes up what is left.

    printed: what they wrote to stdout and stderr, beside the verdicts.
    """

    def __init__(
        self, names: Sequence[str], plugins: Sequence[str], options: Mapping[str, Any], deadline: float = DEADLINE
    ) -> None:
        """The arguments of `verdicts.verdicts` · deadline: seconds that each check may take. Raises UserError for a
        file that is not there."""
        for name in names:
            if name.endswith(".py") and not os.path.isfile(name):
                raise UserError(f"{name}: there is no such file")
        self.order = {"names": list(names), "plugins": list(plugins), "options": dict(options)}
        self.deadline, self.printed = deadline, ""

    def verdicts(self) -> Iterator[Verdict]:
        """One for each component, in turn. Raises UserError where nothing of a name is there."""
        done: list[str] = []
        while True:
            death = None
            for one in self._of_one_process(done):
                if one.what not in done:
                    yield one
                done.append(one.what)
                death = one if one.why.startswith(GONE) else None
            if death is None or death.what.startswith("plugin "):
                return

    def _of_one_process(self, done: Sequence[str]) -> Iterator[Verdict]:
        with tempfile.TemporaryDirectory() as folder:
            trace, said = Path(folder) / "trace", Path(folder) / "said"
            trace.touch()
            ours, theirs = os.pipe()
            order = json.dumps({**self.order, "done": list(done), "tell": theirs, "trace": str(trace)})
            with said.open("wb") as out:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "fedbench.testing.judge", order],
                    stdin=subprocess.DEVNULL, stdout=out, stderr=out, pass_fds=[theirs], start_new_session=True,
                )  # fmt: skip
            os.close(theirs)
            try:
                yield from self._heard(process, ours, trace)
            finally:
                _end(process)
                os.close(ours)
                self.printed += said.read_text("utf-8", "replace")

    def _heard(self, process: subprocess.Popen[bytes], pipe: int, trace: Path) -> Iterator[Verdict]:
        at, rest, due = "", b"", time.monotonic() + max(DEADLINE, self.deadline)  # torch takes its time to import
        while True:
            ready, _, _ = select.select([pipe], [], [], max(0.0, due - time.monotonic()))
            if not ready:
                yield Verdict(BROKEN, _what(at), self._late(process, at, trace))
                return
            data = os.read(pipe, 65536)
            if not data:
                yield Verdict(BROKEN, _what(at), _death(process, at, trace))
                return
            due = time.monotonic() + self.deadline
            *lines, rest = (rest + data).split(b"\n")
            for message in map(json.loads, lines):
                at = message.get("at", at)
                if "refused" in message:
                    raise UserError(message["refused"])
                if "verdict" in message:
                    yield Verdict(*message["verdict"])
                if "ended" in message:
                    return

    def _late(self, process: subprocess.Popen[bytes], at: str, trace: Path) -> str:
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.3)
        return (
            f"{GONE} gave no answer in {self.deadline:g} seconds, {_doing(at)}{_place(trace)}: does it loop, or wait "
            "for something? If it only takes long, give --deadline more"
        )


GONE = "the process"


def _death(process: subprocess.Popen[bytes], at: str, trace: Path) -> str:
    code = process.wait()
    if code >= 0:
        return (
            f"{GONE} ended with exit code {code} {_doing(at)}: a plugin must not end it (sys.exit, os._exit), but raise"
        )
    name = signal.Signals(-code).name
    return f"{GONE} was ended by {name} {_doing(at)}{_place(trace)}: something in it crashes"


def _doing(at: str) -> str:
    if at.startswith("loading "):
        return f"while {at}"
    return f"while the {at} was checked" if at else "before anything was checked"


def _what(at: str) -> str:
    """What a verdict is of: a component, or the plugin that was loaded."""
    return f"plugin {Path(at.removeprefix('loading ')).name}" if at.startswith("loading ") or not at else at


def _place(trace: Path) -> str:
    """The innermost place in nobody's package, of the calls that were told last."""
    found = _PLACE.findall(trace.read_text("utf-8", "replace"))
    own = [(file, line) for file, line in found if "site-packages" not in file and not file.startswith(sys.base_prefix)]
    return f" ({Path(own[0][0]).name}:{own[0][1]})" if own else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """The process and whatever it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
