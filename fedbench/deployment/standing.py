"""A federation that stands: its SuperLink and its nodes as commands, their own data, and a cell on it."""

from __future__ import annotations

import functools
import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedbench.deployment import wire
from fedbench.deployment.deployed import Deployed
from fedbench.deployment.federation import Federation, Processes, last_line, start_node
from fedbench.deployment.loopback import OnFlower, connected, forked, serve
from fedbench.deployment.node import Examples
from fedbench.deployment.server import NAME, Patience
from fedbench.disk import cache_dir, hash_of_json, write_atomically
from fedbench.errors import UserError
from fedbench.simulation.simulation import Config
from fedbench.simulation.worker import Send, Stopped

SAID, ON_NODES, HASH = "nodes.json", "on_nodes", 12  # a file of the federation's folder, a partition, hex digits
AGAIN, POLL = 5.0, 0.5  # seconds until a program is started again, and between two looks


class Standing(OnFlower):
    """The nodes of a federation whose folder is the option `superlink`; they have examples of their own."""

    def simulation(self, config: Config, *args: Any, **more: Any) -> Deployed:
        """Of the cell. Raises UserError where the nodes have other examples than the cell was made for."""
        own = said(Path(self.given["superlink"]))
        if config["data"]["partition"] != partition_of(own):
            raise UserError("nodes have said other things of their examples since the run began; run it again")
        return super().simulation(config, *args, own=own, **more)

    def meet(self, cell: Deployed) -> None:
        """Wait for the nodes."""
        self.join(Federation(Path(self.given["superlink"])), len(cell.federation.clients))


def link(folder: str, tell: Send) -> None:
    """What runs in a worker process: a SuperLink, until it ends or is ended."""
    with Federation(Path(folder)) as federation:
        federation.start_link(lasting=True)
        facts = federation.facts
        tell({"event": "line", "line": f"The SuperLink listens at {facts['host']}:{facts['port']}."})
        while federation.running["superlink"].poll() is None:
            time.sleep(POLL)
        raise UserError(f"the SuperLink has ended: {last_line(federation.log('superlink'))}")


def node(given: Mapping[str, Any], tell: Send) -> None:
    """What runs in a worker process: a SuperNode and its trainer. What ends is started again."""
    folder = cache_dir() / "nodes" / Path(given["key"]).name
    examples = functools.partial(Examples, Path(given["data"]))
    with tempfile.TemporaryDirectory(prefix="fedbench-") as scratch, Processes(folder) as processes:
        door, trainer, started = Path(scratch) / "door", 0, 0.0
        while True:
            if not trainer or os.waitpid(trainer, os.WNOHANG)[0]:
                door.unlink(missing_ok=True)
                trainer = forked(functools.partial(serve, door, examples(), given["plugins"], folder))
            running = processes.running.get("node")
            if running is None or running.poll() is not None:
                if running is not None:
                    said = f"The SuperNode has ended: {last_line(processes.log('node'))}"
                    tell({"event": "line", "line": f"{said}; it is started again."})
                    processes.stop("node")
                    time.sleep(max(0.0, AGAIN - (time.monotonic() - started)))
                started = time.monotonic()
                files = Path(given["authority"]), Path(given["key"])
                start_node(processes, "node", given["superlink"], *files, door)
                tell({"event": "line", "line": f"The SuperNode is at work; its log is {processes.log('node')}."})
            time.sleep(POLL)


def described(folder: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """The partition of a suite whose examples are on nodes: asks those of a federation what they have, and keeps what
    they say in its folder. data: the `data` section of the suite. Raises UserError where one is not there or has none.
    """
    federation = Federation(Path(folder))
    clients = range(federation.facts["clients"])
    question = wire.packed({"kind": "describe", "data": dict(data)}, {})
    try:
        with connected(federation, Patience(least=1.0)) as nodes:
            nodes.meet(len(clients))
            replies = nodes.exchange(dict.fromkeys(clients, question), 0)
    except Stopped as error:
        raise UserError(f"{folder}: {error}") from error
    own = []
    for client in clients:
        facts, _ = wire.unpacked(replies[client].content or b"")
        if why := facts.get("refused") or facts.get("error"):
            raise UserError(f"{NAME}{client}: {why}")
        own.append({key: facts[key] for key in ("examples", "domain", "fingerprint")})
    write_atomically(Path(folder) / SAID, json.dumps(own, indent=1).encode())
    return partition_of(own)


def partition_of(own: list[dict[str, Any]]) -> dict[str, Any]:
    """The partition of a suite whose examples are on nodes that have said this."""
    return {"name": ON_NODES, "nodes": hash_of_json(own)[:HASH]}


def said(folder: Path) -> list[dict[str, Any]]:
    """What the nodes of a federation have said last, in the order of the clients."""
    found: list[dict[str, Any]] = json.loads((folder / SAID).read_text())
    return found
