"""The nodes of a cell on a federation of Flower that is started on this machine for it."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import socket
import tempfile
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NoReturn

import torch

from fedbench.deployment.deployed import Deployed, Reply
from fedbench.deployment.door import got, put
from fedbench.deployment.federation import Federation, free_port, start_node
from fedbench.deployment.node import Examples, Node
from fedbench.deployment.server import FlowerNodes, Patience
from fedbench.errors import UserError
from fedbench.processes import process_tree
from fedbench.simulation.cell_job import CellJob
from fedbench.simulation.worker import Stopped

KNOCKS = 120.0  # seconds that a ServerApp has to begin
MOST = 64  # nodes of one machine


class OnFlower(ABC):
    """The nodes of a cell in some federation of Flower, which are met when the cell has been built.

    Args:
        job: of the cell; None where there is none, and nodes are asked for something else.
        given: the options of the executor.
    """

    name = "flower"
    nodes: FlowerNodes

    def __init__(self, job: CellJob | None, given: Mapping[str, Any]) -> None:
        self.job, self.given, self.stack = job, given, ExitStack()

    def simulation(self, *args: Any, **more: Any) -> Deployed:
        """Of the cell, on these nodes."""
        assert self.job is not None
        return Deployed(*args, cell=self.job.manifest["id"], nodes=self, **more)

    @abstractmethod
    def meet(self, cell: Deployed) -> None:
        """See `deployed.Nodes`."""

    def join(self, federation: Federation, clients: int) -> None:
        """Start a relay there, and wait for the nodes of so many clients."""
        self.nodes = self.stack.enter_context(connected(federation, Patience(**self.given["patience"])))
        self.nodes.meet(clients)

    def exchange(self, messages: Mapping[int, bytes], t: int, others: Sequence[bool] = ()) -> Mapping[int, Reply]:
        """See `deployed.Nodes`."""
        return self.nodes.exchange(messages, t, others)

    def close(self) -> None:
        """End all that was started."""
        self.stack.close()


class Loopback(OnFlower):
    """The same as processes of this machine, which end with the cell."""

    def meet(self, cell: Deployed) -> None:
        """Deal the examples, start everything, and wait for the nodes."""
        clients = len(cell.federation.clients)
        if self.given["nodes"] not in (None, clients):
            raise UserError(f"--executor flower: nodes: {self.given['nodes']}, but the scenario has {clients} clients")
        if clients > MOST:
            raise UserError(f"--executor flower: {clients} clients; at most {MOST} nodes fit on one machine")
        self.begin(clients, cell.deal)

    def begin(self, clients: int, deal: Callable[[int, Examples], None] = lambda client, examples: None) -> None:
        """Start everything, and wait for the nodes. deal: puts the examples of a client into its node's folder."""
        plugins = self.job.plugins if self.job else ()
        folder = Path(tempfile.mkdtemp(prefix="fedbench-"))
        self.stack.callback(shutil.rmtree, folder, ignore_errors=True)
        self.federation = federation = self.stack.enter_context(Federation(folder))
        federation.create(clients, "127.0.0.1", free_port())
        for client in range(clients):
            examples = Examples(folder / "data" / str(client))
            deal(client, examples)
            trainer = functools.partial(serve, folder / f"door{client}", examples, plugins)
            self.stack.callback(end, forked(trainer))
        federation.start_link(lasting=False)
        for client in range(clients):
            self.start(client)
        self.join(federation, clients)

    def start(self, client: int) -> None:
        """Start the SuperNode of a client."""
        federation = self.federation
        address, door = f"127.0.0.1:{federation.facts['port']}", federation.folder / f"door{client}"
        start_node(federation, f"node{client}", address, federation.authority, federation.key(client), door)

    def exchange(self, messages: Mapping[int, bytes], t: int, others: Sequence[bool] = ()) -> Mapping[int, Reply]:
        """See `deployed.Nodes`. Where the cell is stopped, what Flower's programs said last is in its output."""
        try:
            return super().exchange(messages, t, others)
        except Stopped:
            for log in sorted((self.federation.folder / "logs").glob("*.log")):
                print(f"{log.name}:\n{log.read_text(errors='replace')[-1000:]}")
            raise


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


def serve(door: Path, examples: Examples, plugins: Sequence[str], folder: Path | None = None) -> NoReturn:
    """The life of a trainer: answers one message after the other. folder: where it keeps frozen weights."""
    torch.set_num_threads(1)
    node = Node(folder or examples.folder, examples, plugins)
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


def end(pid: int) -> None:
    """End such a copy."""
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
