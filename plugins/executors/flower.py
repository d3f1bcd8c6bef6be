"""Cells whose clients are SuperNodes of Flower on this machine. Needs the extra `flower`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any

from fedbench import hookimpl
from fedbench.options import Count, Positive, Range, judged
from fedbench.runner.elsewhere import library
from fedbench.runner.local import Execute, Local, OnEvent

CELL = "fedbench.deployment.loopback:compute"


@judged("--executor flower")
def on_flower(
    timeout: float | None = None,
    memory_limit: int | None = None,
    nodes: Count | None = None,
    start: Positive = 120.0,
    answer: Positive = 600.0,
    least: Annotated[float, Range(0, 1)] = 0.5,
) -> Execute:
    """Run cells one after the other, each on a federation of Flower that is started on this machine with TLS and keys:
    every client is a SuperNode. `nodes` is how many (null: as many as the scenario has clients). The server waits
    `start` seconds for all nodes before the first round, and once for one that is missing later; `answer` seconds for
    the answers of a round. Where less than the share `least` of a round's nodes answer, the cell is interrupted, and
    the next run resumes it.
    """
    library("flwr", "flower")
    options = {"nodes": nodes, "patience": {"start": start, "answer": answer, "least": least}}
    local = Local(timeout=timeout, memory_limit=memory_limit, cell=CELL)

    def execute(jobs: Iterable[str], on_event: OnEvent) -> None:
        local((json.dumps({**json.loads(job), "flower": options}) for job in jobs), on_event)

    return execute


@hookimpl
def fedbench_register_executors(register: Any) -> None:
    register("flower", on_flower)
