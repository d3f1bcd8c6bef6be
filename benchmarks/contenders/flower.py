"""Flower: its simulation runtime on Ray, one actor a core with one torch thread each, a round when asked for."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Queue
from threading import Thread
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from work import CLIP, SGD, Continuations, Sentences, TextWork, Update, Work

from fedbench.machine import cores

from . import held, layers_held, logits, lora_vit, trained
from .texts import lora_bert, lora_llama, text_logits, token_logits

# Nothing is reported home, Ray does not warn that it is asked for no GPU, and its actors do not yield to the others.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",
}
LONGEST = 600.0  # seconds a round may take, so that a simulation without actors ends


@contextmanager
def flower(work: Work, actors: int | None = None) -> Iterator[Callable[[], list[Update]]]:
    """Yields one round of a running simulation; Ray starts before the first round and ends with the context.

    The simulation runs in a thread. Its server waits in a queue for the global tensors, sends each client those of
    its layers in a message, and gives back what the replies bring: by Flower's grid, scheduler and arrays, through
    Ray. Actors keep the frozen model and the images. Flower looks for new messages every 0.1 s; that pause cannot be
    set. The same pause before looking for replies can, and is 0.01 s here.
    """
    asked, answered, start = Queue(), Queue(), work.start()

    def simulate() -> None:
        try:
            _run(_server_app(work, asked, answered), work, actors or min(cores(), len(work.depths)))
        except BaseException as error:  # whatever it is, the caller waits for it
            answered.put(error)

    def answer():
        got = answered.get()
        if isinstance(got, BaseException):
            raise RuntimeError("Flower's simulation ended") from got
        return got

    def run() -> list[Update]:
        asked.put(start)
        return answer()

    with _own_environment():
        thread = Thread(target=simulate, name="flower")
        thread.start()
        try:
            answer()
            yield run
        finally:
            asked.put(None)
            thread.join()


@contextmanager
def _own_environment() -> Iterator[None]:
    """Undoes what Ray and Flower change: the process's environment (PYTHONPATH, for one) and Flower's logging."""
    logger = logging.getLogger("flwr")
    with mock.patch.dict(os.environ, QUIET):
        import flwr  # noqa: F401  sets its logger's level

        level = logger.level
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)


def _run(server_app, work: Work, actors: int) -> None:
    from flwr.simulation import run_simulation

    # A Ray of our own, whatever cluster there is, with room for messages rather than a third of the memory.
    ray = {"address": "local", "num_cpus": actors, "num_gpus": 0, "object_store_memory": 2**28, "log_to_driver": False}
    resources = {"num_cpus": 1, "num_gpus": 0.0}
    run_simulation(
        server_app,
        _client_app(),
        num_supernodes=len(work.depths),
        backend_config={"init_args": ray, "client_resources": resources},
    )


# The server's side, in a thread of this process.


def _server_app(work: Work, asked: Queue, answered: Queue):
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()
    def main(grid, context) -> None:
        grid.pull_interval = 0.01
        nodes = _nodes(grid, work)
        answered.put(None)
        while (values := asked.get()) is not None:
            answered.put(_round(grid, work, nodes, values))

    return app


def _nodes(grid, work: Work) -> list[int]:
    """The node of every client: Flower draws their numbers, and hands messages out in this order."""
    from flwr.app import RecordDict

    while len(nodes := list(grid.get_node_ids())) < len(work.depths):  # the server starts before its nodes
        time.sleep(grid.pull_interval)
    replies = _ask(grid, {node: RecordDict({"work": _record(work)}) for node in nodes}, "query")
    return sorted(replies, key=lambda node: replies[node]["client"]["n"])


def _round(grid, work: Work, nodes: list[int], values: Update) -> list[Update]:
    from flwr.app import ArrayRecord, ConfigRecord, RecordDict

    contents = {}
    for node, layers in zip(nodes, layers_held(work), strict=True):
        arrays = ArrayRecord(held(values, layers))
        contents[node] = RecordDict({"work": _record(work), "held": ConfigRecord({"layers": layers}), "arrays": arrays})
    replies = _ask(grid, contents, "train")
    return [dict(replies[node]["arrays"].to_torch_state_dict()) for node in nodes]


def _ask(grid, contents: dict, kind: str) -> dict:
    """Every node's answer."""
    from flwr.app import Message

    messages = [Message(content, node, kind) for node, content in contents.items()]
    replies = list(grid.send_and_receive(messages, timeout=LONGEST))
    if len(replies) < len(messages):
        raise TimeoutError(f"{len(replies)} of {len(messages)} clients answered within {LONGEST:g} s")
    for reply in replies:
        if reply.has_error():
            raise RuntimeError(reply.error.reason)
    return {reply.metadata.src_node_id: reply.content for reply in replies}


def _record(work: Work):
    from flwr.app import ConfigRecord

    return ConfigRecord({**dataclasses.asdict(work), "depths": list(work.depths), "kind": type(work).__name__})


# The clients' side, in Ray's actors, which import this module: what they keep is kept per process.


def _client_app():
    from flwr.clientapp import ClientApp

    app = ClientApp()
    app.query()(_say_who)
    app.train()(_train)
    return app


@functools.cache
def _kept(work: Work) -> tuple[nn.Module, list[list[tuple[Tensor, Tensor]]]]:
    """The frozen model, and every client's batches: any actor may get any client."""
    torch.set_num_threads(1)
    model = _brought(work)[0](work)
    return model, [list(work.batches(n)) for n in range(len(work.depths))]


def _brought(work: Work) -> tuple[Callable, Callable]:
    """What makes the model, and what gives its logits."""
    if isinstance(work, Continuations):
        return lora_llama, token_logits
    return (lora_bert, text_logits) if isinstance(work, TextWork) else (lora_vit, logits)


def _work(message) -> Work:
    record = dict(message.content["work"])
    kind = {kind.__name__: kind for kind in (Work, TextWork, Sentences, Continuations)}[record.pop("kind")]
    return kind(**{**record, "depths": tuple(record["depths"])})


def _say_who(message, context):
    from flwr.app import ConfigRecord, Message, RecordDict

    _kept(_work(message))
    return Message(RecordDict({"client": ConfigRecord({"n": context.node_config["partition-id"]})}), reply_to=message)


def _train(message, context):
    from flwr.app import ArrayRecord, Message, RecordDict

    work = _work(message)
    model, batches = _kept(work)
    answer = _brought(work)[1]
    layers = list(message.content["held"]["layers"])
    own = held(trained(model), layers)
    with torch.no_grad():
        for name, value in message.content["arrays"].to_torch_state_dict().items():
            own[name].copy_(value)
    optimizer = torch.optim.SGD(own.values(), **SGD)
    for x, y in batches[context.node_config["partition-id"]]:
        optimizer.zero_grad()
        F.cross_entropy(answer(model, x, layers).flatten(0, -2), y.flatten(), ignore_index=-1).backward()
        nn.utils.clip_grad_norm_(own.values(), CLIP)
        optimizer.step()
    return Message(RecordDict({"arrays": ArrayRecord(own)}), reply_to=message)
