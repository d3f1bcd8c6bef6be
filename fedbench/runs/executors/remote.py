"""What runs on another machine: one cell, by the executor `local` there; one JSON string comes, one goes back."""

from __future__ import annotations

import json
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedbench.cell.events import PASSED_ON
from fedbench.cell.order import Order
from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.results import read_manifest
from fedbench.results.claims import Claim, is_to_end
from fedbench.runs.executors.environment import environment
from fedbench.runs.executors.local import Local, local
from fedbench.runs.plan import versions_of

APPEARS = 10.0  # seconds in which a file of the run must be seen here
LISTEN = 1.0  # seconds between two looks at whether the cell is to end
TELL = 0.5  # seconds between two rounds that are told
ANSWER = "fedbench answers: "


def cell(errand: str) -> str:
    """Compute one cell on this machine, and answer `status`, `reason` and `seconds`, or `refused` with the reason.

    errand: a JSON object with the `job`, the `limits` that `local` takes, the file for `events`, which are appended as
    lines of JSON, and the `environment` to work in. SIGINT, SIGTERM, SIGUSR2 and whoever sent the errand (see
    `claims.ask_to_end`) let the cell end after its round. The folder of the results is the same file system's on both
    machines; where it is not, or where versions differ, the errand is refused.
    """
    given = json.loads(errand)
    order, end = Order.from_json(given["job"]), dict[str, Any]()
    with environment(given["environment"]):
        if reason := _refusal(order):
            return json.dumps({"refused": f"{platform.node()}: {reason}"})
        tell = _teller(Path(given["events"]))

        def on_event(event: dict[str, Any]) -> bool:
            if event["event"] == "ended":
                end.update({key: event.get(key) for key in ("status", "reason", "seconds")})
            elif event["event"] in PASSED_ON:
                tell(event)
            return True

        execute = local(workers=1, **given["limits"])
        with suppress(KeyboardInterrupt), _stopping(execute, order.claim or {}):
            execute([given["job"]], on_event)
    return json.dumps(end or _left(order))


def printed(errand: str) -> None:
    """`cell`, whose answer is the last line on stdout: for schedulers that keep what is printed."""
    print(f"\n{ANSWER}{cell(errand)}", flush=True)


def answer_in(text: str) -> str | None:
    """The answer among what `printed` has printed."""
    lines = [line for line in text.splitlines() if line.startswith(ANSWER)]
    return lines[-1].removeprefix(ANSWER) if lines else None


def _refusal(order: Order) -> str | None:
    """Why an order cannot be computed here, if so."""
    claim, until = order.claim or {}, time.monotonic() + APPEARS
    while not Path(claim["file"]).is_file():
        if time.monotonic() > until:
            return (
                f"the results folder is not the one of the run: no {claim['file']} here. "
                "All machines must see it under one path; where they share nothing, use --shard and merge."
            )
        time.sleep(0.1)
    manifest = order.manifest
    try:
        here = versions_of(manifest["config"], Registry(order.plugins))
    except UserError as error:
        return str(error)
    apart = [
        f"{name} is {here.get(name)}, not {was}" for name, was in manifest["versions"].items() if here.get(name) != was
    ]
    return f"other versions than where the run was started: {', '.join(apart)}" if apart else None


def _left(order: Order) -> dict[str, Any]:
    """What stands on disk of a cell that was asked to end."""
    manifest = read_manifest(order.folder) or {"status": "running"}
    return {key: manifest.get(key) for key in ("status", "reason", "seconds")}


def _teller(file: Path) -> Callable[[dict[str, Any]], None]:
    """Appends events to a file, opened anew for each so that other machines see it; of rounds not every one."""
    last = -TELL

    def tell(event: dict[str, Any]) -> None:
        nonlocal last
        if event["event"] == "round":
            if time.monotonic() < last + TELL:
                return
            last = time.monotonic()
        with suppress(OSError), open(file, "a") as lines:  # a full disk: the cell goes on untold
            lines.write(json.dumps(event) + "\n")

    return tell


@contextmanager
def _stopping(execute: Local, claim: Claim) -> Iterator[None]:
    """Within, the run's wish and SIGUSR2, by which Slurm says that time is over, stop an execution as SIGTERM does."""
    done = threading.Event()

    def stop(*_: Any) -> None:
        if not execute.asked:  # twice would be: at once
            execute.stop()

    def listen() -> None:
        while not done.wait(LISTEN):
            if is_to_end(claim):
                stop()
                break

    before = signal.signal(signal.SIGUSR2, stop)
    listener = threading.Thread(target=listen, name="fedbench end", daemon=True)
    listener.start()
    try:
        yield
    finally:
        done.set()
        listener.join()
        signal.signal(signal.SIGUSR2, before or signal.SIG_DFL)
