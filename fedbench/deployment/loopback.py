"""A cell on a federation of Flower: one that is started on this machine for it, or one that stands."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import socket
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NoReturn

import torch

from fedbench import machine
from fedbench.deployment.deployed import Deployed, Reply
from fedbench.deployment.door import got, put
from fedbench.deployment.examples import Examples
from fedbench.deployment.federation import Federation, free_port, start_node
from fedbench.deployment.node import Node
from fedbench.deployment.server import FlowerNodes, Patience
from fedbench.errors import UserError
from fedbench.processes import process_tree
from fedbench.simulation import worker
from fedbench.simulation.cell_job import CellJob
from fedbench.simulation.worker import Send, Stopped

KNOCKS = 120.0  # seconds that a ServerApp has to begin
MOST = 64  # nodes of one machine


def compute(text: str, send: Send) -> dict[str, Any]:
    """What runs in a worker process: computes the cell of a job on nodes. Its guard ends all that is started.

    Args:
        text: a `CellJob` as a JSON string, with the options of the executor under `flower`.
        send: takes the events of `fedbench.simulation.cell_job`.
    """
    torch.set_num_threads(1)
    machine.keep_memory()
    send({"event": "ready"})
    job, given, asked = CellJob.from_json(text), json.loads(text)["flower"], list[int]()
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    nodes = Loopback(job, given)
    try:
        end = worker.run(job, send, stopping=lambda: bool(asked), simulation=nodes.simulation)
    finally:
        nodes.close()
    return {key: end.get(key) for key in ("status", "reason", "seconds")}


class Loopback:
    """The nodes of a cell as processes of this machine, started when the cell has been built.

    given: the options of the executor.
    """

    name = "flower"

    def __init__(self, job: CellJob, given: Mapping[str, Any]) -> None:
        self.job, self.given, self.stack = job, given, ExitStack()
        self.trainers: list[int] = []

    def simulation(self, *args: Any, **more: Any) -> Deployed:
        """Of the cell, on these nodes."""
        return Deployed(*args, cell=self.job.manifest["id"], nodes=self, **more)

    def meet(self, cell: Deployed) -> None:
        """Deal the examples, start everything, and wait for the nodes."""
        clients = len(cell.federation.clients)
        if self.given["nodes"] not in (None, clients):
            raise UserError(f"--executor flower: nodes: {self.given['nodes']}, but the scenario has {clients} clients")
        if clients > MOST:
            raise UserError(f"--executor flower: {clients} clients; at most {MOST} nodes fit on one machine")
        folder = Path(tempfile.mkdtemp(prefix="fedbench-"))
        self.stack.callback(shutil.rmtree, folder, ignore_errors=True)
        self.federation = federation = self.stack.enter_context(Federation(folder))
        federation.create(clients, "127.0.0.1", free_port())
        doors = [folder / f"door{client}" for client in range(clients)]
        for client, door in enumerate(doors):
            examples = Examples(folder / "data" / str(client))
            cell.deal(client, examples)
            self.trainers.append(forked(functools.partial(serve, door, examples, self.job.plugins)))
        self.stack.callback(self._end_trainers)
        federation.start_link(lasting=False)
        for client in range(clients):
            self.start(client)
        self.nodes = self.stack.enter_context(connected(federation, Patience(**self.given["patience"])))
        self.nodes.meet(cell)

    def start(self, client: int) -> None:
        """Start the SuperNode of a client."""
        federation = self.federation
        address, door = f"127.0.0.1:{federation.facts['port']}", federation.folder / f"door{client}"
        start_node(federation, f"node{client}", address, federation.authority, federation.key(client), door)

    def exchange(self, messages: Mapping[int, bytes], t: int) -> Mapping[int, Reply]:
        """See `deployed.Nodes`."""
        try:
            return self.nodes.exchange(messages, t)
        except Stopped:
            self._print_logs()
            raise

    def _print_logs(self) -> None:
        """What the programs said last, for the cell's output."""
        for log in sorted((self.federation.folder / "logs").glob("*.log")):
            print(f"{log.name}:\n{log.read_text(errors='replace')[-1000:]}")

    def _end_trainers(self) -> None:
        for pid in self.trainers:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def close(self) -> None:
        """End all that was started."""
        self.stack.close()


class connected:
    """Within, the nodes of a federation by a ServerApp that is started for a cell."""

    def __init__(self, federation: Federation, patience: Patience) -> None:
        self.federation, self.patience, self.stack = federation, patience, ExitStack()

    def __enter__(self) -> FlowerNodes:
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="fedbench-")))
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(folder / "door"))
            listening.listen()
            listening.settimeout(KNOCKS)
            self.federation.submit(folder / "door")
            try:
                there = self.stack.enter_context(listening.accept()[0])
            except TimeoutError:
                raise Stopped(f"the SuperLink started no ServerApp within {KNOCKS:g} s") from None
        there.settimeout(None)
        return FlowerNodes(there, self.patience)

    def __exit__(self, *given: Any) -> None:
        self.stack.close()


def serve(door: Path, examples: Examples, plugins: Sequence[str]) -> NoReturn:
    """The life of a trainer: answers one message after the other."""
    torch.set_num_threads(1)
    node = Node(examples.folder, examples, plugins)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(door))
        listening.listen()
        while True:
            there, _ = listening.accept()
            with there, suppress(OSError):  # an app that was ended meanwhile
                _, (content,) = got(there)
                put(there, {}, [node.answer(content)])


def forked(work: Callable[[], Any]) -> int:
    """The id of a copy of this process that does this work, and ends with this process."""
    if pid := os.fork():
        return pid
    try:
        process_tree.end_with_parent()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        work()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)
