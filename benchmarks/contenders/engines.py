"""fedbench's own two engines, each with what it is given in a cell."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import torch
from safetensors.torch import load, save
from work import ALPHA, CLASSES, CLIP, RANK, SGD, Continuations, Update, Work

from fedbench.engine import cohort as together
from fedbench.engine import sequential as one_by_one
from fedbench.engine.process_group import ProcessGroup
from fedbench.engine.process_group import together as in_a_team
from fedbench.families.layerwise import head_at_end
from fedbench.machine import cores, keep_memory
from fedbench.models.backbone import Blocks
from fedbench.models.tokens import over_tokens
from fedbench.types import Cohort, Job, Plan, Uploads
from fedbench_plugins.objectives import cross_entropy

from . import layers_held, torch_threads


@contextmanager
def sequential(work: Work) -> Iterator[Callable[[], list[Update]]]:
    """Yields one round client after client in this process, with as many torch threads as cores."""
    of_a_round = _of_a_round(work)
    with torch_threads(cores()):
        yield lambda: _updates(work, one_by_one.train(*of_a_round))


@contextmanager
def cohort(work: Work, precision: str = "fp32", processes: int | None = None) -> Iterator[Callable[[], list[Update]]]:
    """Yields one round of client groups in as many processes as cores, one thread each, as a run gives to a cell."""
    here, there = multiprocessing.Pipe()
    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=_serve, args=(here, there, work, precision, processes or cores()))
    process.start()
    there.close()

    def run() -> list[Update]:
        here.send_bytes(b"round")
        flat = load(here.recv_bytes())
        updates: list[Update] = [{} for _ in work.depths]
        for name, tensor in flat.items():
            n, _, name = name.partition("|")
            updates[int(n)][name] = tensor
        return updates

    try:
        run()  # the processes are there and warm
        yield run
    finally:
        here.close()
        process.join()


def _serve(theirs: Connection, requests: Connection, work: Work, precision: str, processes: int) -> None:
    """The first of the processes: a round for each request, until nobody asks any more."""
    theirs.close()  # a copy of the asker's end, which would keep the pipe open when it is gone
    torch.set_num_threads(1)
    keep_memory()
    of_a_round = _of_a_round(work)

    def serve(team: ProcessGroup) -> None:
        while True:
            if team.rank == 0:
                try:
                    requests.recv_bytes()
                except EOFError:
                    return
            team.share([1] * team.size, lambda i: {})  # all begin together
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                up = together.train(*of_a_round, team=team)
            if team.rank == 0:
                updates = enumerate(_updates(work, up))
                requests.send_bytes(save({f"{n}|{name}": t for n, own in updates for name, t in own.items()}))

    in_a_team(processes, serve)


def _of_a_round(work: Work) -> tuple[Blocks, dict[str, Any], Plan, Cohort, Job]:
    """What `engine.train` is called with; model and images are kept from round to round."""
    from fedbench_plugins.adapters.lora import lora

    model, objective = Blocks(work.backbone()), cross_entropy
    if isinstance(work, Continuations):
        model.predict_tokens()
        objective = over_tokens(cross_entropy)
    else:
        model.add_classifier("head", CLASSES)
    lora(RANK, ALPHA)(model)
    start, M, N = work.start(), work.M(), len(work.depths)
    r = [_named(start, f"blocks.{j}.") for j in range(work.layers)]
    data = [list(work.batches(n)) for n in range(N)]
    numbers = [torch.tensor(values) for values in (work.depths, [work.images] * N, [len(own) for own in data])]
    return (
        model.eval(),
        {"r": r, "shared": {f"head.{name}": value for name, value in _named(start, "head.").items()}},
        Plan(M, [head_at_end(depth) for depth in work.depths]),
        Cohort(range(N), *numbers, lambda n: iter(data[n])),
        Job(0, 0, {"name": "sgd", **SGD}, CLIP, objective),
    )


def _named(values: Update, prefix: str) -> Update:
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


def _updates(work: Work, up: Uploads) -> list[Update]:
    """What the server has received, client by client."""
    held, M = layers_held(work), work.M()
    updates: list[Update] = []
    for n, layers in enumerate(held):
        row = {j: int(M[:n, j].sum()) for j in layers}
        own = {f"blocks.{j}.{name}": rows[row[j]] for j in layers for name, rows in up.r[j].items()}
        updates.append(own | {name: rows[n] for name, rows in up.shared.items()})
    return updates
