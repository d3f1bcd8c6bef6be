"""Cells whose clients are SuperNodes of Flower on this machine. Needs the extra `flower`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

from fedbench import hookimpl
from fedbench.errors import UserError
from fedbench.options import Count, PathText, Positive, Range, Text, judged
from fedbench.runner.elsewhere import library
from fedbench.runner.local import Execute, Local, OnEvent
from fedbench.types import MIXED, Client

if TYPE_CHECKING:
    import numpy as np

CELL = "fedbench.deployment.cell:compute"
DEPLOYED = "FEDBENCH_ON_NODES"  # how many nodes have the examples of the suite that is run


@judged("--executor flower")
def on_flower(
    timeout: float | None = None,
    memory_limit: int | None = None,
    nodes: Count | None = None,
    start: Positive = 300.0,
    back: Positive = 60.0,
    answer: Positive = 600.0,
    least: Annotated[float, Range(0, 1)] = 0.5,
    superlink: Annotated[str, PathText("a federation's folder")] | None = None,
) -> Execute:
    """Run cells one after the other, each on a federation of Flower that is started on this machine with TLS and keys:
    every client is a SuperNode. `nodes` is how many (null: as many as the scenario has clients). The server waits
    `start` seconds for all nodes before the first round, `back` seconds, once, for one that is missing later, and
    `answer` seconds for the answers of a round. Where less than the share `least` of a round's nodes answer, the cell
    is interrupted, and the next run resumes it. `superlink` is the folder of a federation that stands, as `fedbench
    deploy run` gives it.
    """
    library("flwr", "flower")
    patience = {"start": start, "back": back, "answer": answer, "least": least}
    options = {"nodes": nodes, "superlink": superlink, "patience": patience}
    local = Local(timeout=timeout, memory_limit=memory_limit)
    local.cell = CELL

    def execute(jobs: Iterable[str], on_event: OnEvent) -> None:
        local((json.dumps({**json.loads(job), "flower": options}) for job in jobs), on_event)

    return execute


@judged("on_nodes")
def on_nodes(
    nodes: Annotated[str, Text("the hash of what nodes say of their examples")],
) -> Callable[..., list[Client]]:
    """The examples are on nodes, and the server's own for training are read by nobody. `fedbench deploy run` writes
    this partition, `nodes` being the hash of what nodes say of theirs: how many, of which domain, and a fingerprint.
    """

    def partition(y: np.ndarray, domain: np.ndarray, num_domains: int, generator: np.random.Generator) -> list[Client]:
        import numpy as np

        if not (clients := int(os.environ.get(DEPLOYED, 0))):
            raise UserError("the examples of this suite are on nodes: `fedbench deploy run` computes it")
        return [Client(n, MIXED, np.arange(n, len(y), clients)) for n in range(clients)]  # to look at, not to train on

    return partition


@hookimpl
def fedbench_register_partitions(register: Any) -> None:
    register("on_nodes", on_nodes)


@hookimpl
def fedbench_register_executors(register: Any) -> None:
    register("flower", on_flower, engine="sequential")
