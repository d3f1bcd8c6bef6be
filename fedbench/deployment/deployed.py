"""A cell whose clients are nodes: a simulation of which the training alone happens elsewhere."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from fedbench.deployment import wire
from fedbench.deployment.node import Examples, part_of
from fedbench.engine.process_group import ALONE, ProcessGroup
from fedbench.errors import UserError
from fedbench.models.backbone import Blocks, in_layers
from fedbench.models.lowrank import FROZEN, load_additions
from fedbench.registry.registry import Registry, dataset_of
from fedbench.results.columns import MEASURED
from fedbench.simulation.checkpoint import Progress
from fedbench.simulation.faults import NOT_FINITE
from fedbench.simulation.provenance import versions_of
from fedbench.simulation.round_records import Rows
from fedbench.simulation.simulation import Config, Simulation, source_of
from fedbench.types import GLOBAL, MIXED, Clients, Cohort, Images, Job, Plan, Splits, Texts, Uploads

TIMES = ("node_seconds", "train_seconds", "cpu_seconds")  # as a node measures them
FORGETS = "its node lacks the cell, which it was sent again"


@dataclass(frozen=True)
class Reply:
    """What came of a message.

    Attributes:
        content: the answer, None where there is none.
        lost: why.
        seconds: to the answer.
    """

    content: bytes | None = None
    lost: str = ""
    seconds: float = 0.0


class Nodes(Protocol):
    """Those that a federation has, by the number of the client that each is."""

    name: str

    def meet(self, cell: Deployed) -> None:
        """Wait for the nodes of all clients of a cell. Raises where they do not come."""

    def exchange(self, messages: Mapping[int, bytes], t: int, others: Sequence[bool] = ()) -> Mapping[int, Reply]:
        """Send a message to each of some nodes, and wait for their answers.

        others: of the round's other nodes, which have been asked before, whether each has answered. Raises where too
        few nodes of the round have answered.
        """


class Deployed(Simulation):
    """A simulation whose clients train on nodes, with the numbers of the sequential engine.

    Attributes:
        cell: the id that nodes know it by.
        nodes: where its clients are.
        own: what they have said of examples of their own, where they have such.

    Raises UserError for a method whose clients no node can be.
    """

    def __init__(
        self,
        config: Config,
        registry: Registry,
        *args: Any,
        cell: str,
        nodes: Nodes,
        own: Sequence[Mapping[str, Any]] = (),
        **more: Any,
    ) -> None:
        if config["engine"] != "sequential":
            raise UserError(
                f"nodes train by the sequential engine, not by {config['engine']!r}: add --engine sequential"
            )
        if own:
            more = {**more, **of_nodes(config, registry, own)}
        super().__init__(config, registry, *args, **more)
        self.registry, self.cell, self.nodes, self.deployed = registry, cell, nodes, nodes.name
        if self.method.alone:
            raise self._refused(_why(self.component.family, self.method.personal))
        self.hashes: dict[str, tuple[int, str]] = {}  # of frozen weights: the tensor's version, and its hash then
        self.known: dict[int, set[str]] = {}  # by client, whose node knows the cell: the hashes of what it has
        self.rows: Rows = []

    def _refused(self, why: str) -> UserError:
        return UserError(f"the method {self.config['method']['name']!r} cannot be deployed: {why}")

    def run(
        self,
        on_round: Callable[[int, Rows], None] = lambda t, rows: None,
        team: ProcessGroup = ALONE,
        progress: Progress | None = None,
    ) -> tuple[Rows, Rows]:
        """See `Simulation.run`. The nodes of all clients must be there when it begins."""
        progress = progress or Progress()
        self.rows = progress.tables["wire"]
        self.nodes.meet(self)
        return super().run(on_round, team, progress)

    @functools.cached_property
    def about(self) -> dict[str, Any]:
        """What every node may know of the cell: its configuration, and the sizes and domains of all clients."""
        clients = self.federation.clients
        return {
            "config": dict(self.config),
            "versions": versions_of(self.config, self.registry),
            "sizes": clients.sizes.tolist(),
            "domains": clients.domains.tolist(),
            "domain_names": list(self.dataset.domains),
            "classes": list(self.dataset.classes),
            "task": self.dataset.task,
        }

    def deal(self, client: int, examples: Examples) -> None:
        """Put the examples of a client into its node's folder."""
        examples.deal(self.cell, part_of(self.train.labelled, self.federation.clients[client].indices))

    def _train(self, model: Blocks, start: dict[str, Any], plan: Plan, cohort: Cohort, job: Job) -> Uploads:
        """As the engine, on nodes."""
        own: Any = job.objective.keywords["objective"] if model.predicts_tokens else job.objective  # type: ignore[attr-defined]
        objective = next((ref for made, ref in self.references if made is own), None)
        if objective is None:
            raise self._refused("its objective is a function of its own, and no component that a node can make")
        if plan.kept or GLOBAL in cohort.ids:
            raise self._refused(_why("", bool(plan.kept)))
        if job.forward is not None:
            raise self._refused("its clients train by forward passes alone, by a rule that no node can make")
        if job.layers is not None:
            raise self._refused("its clients run other layers in each batch, by a rule that no node can make")
        load_additions(model, start.get(FROZEN))
        inbox = wire.Inbox(model, start, plan, cohort, job)

        def message(n: int) -> Sent:
            facts, tensors = wire.task_of(model, start, plan, cohort, job, n)
            return self._message(facts | {"objective": objective}, tensors)

        outbox = {client: message(n) for n, client in enumerate(cohort.ids)}
        replies = self._exchanged(outbox, job.t)
        if forgot := [client for client, reply in replies.items() if reply.facts.get("lacks")]:
            for client in forgot:  # its node began again, or lost its disk: once more, with everything
                self.known.pop(client, None)
                outbox[client] = message(cohort.ids.index(client)).after(outbox[client])
            others = [reply.size > 0 for client, reply in replies.items() if client not in forgot]
            replies |= self._exchanged({client: outbox[client] for client in forgot}, job.t, others)
        idle = {client for client, steps in zip(cohort.ids, cohort.steps.tolist(), strict=True) if not steps}
        sound = {client for client, reply in replies.items() if reply.is_finite(has_loss=client not in idle)}
        trained = sound - idle  # where none is left, it is the method that diverges
        for n, client in enumerate(cohort.ids):
            sent, reply = outbox[client], replies[client]
            outcome = reply.lost or (FORGETS if reply.facts.get("lacks") else "")
            if not outcome and trained and client not in sound:
                outcome = NOT_FINITE
            if not outcome:
                try:
                    inbox.put(n, reply.tensors, reply.facts["train_seconds"])
                    self.known.setdefault(client, set()).update(sent.hashes)
                except wire.Malformed as error:
                    outcome = f"malformed: {error}"
            self.rows.append({"round": job.t + 1, "client": client, **_row(sent, reply, outcome)})
        return self._receive(inbox.uploads(), start, plan, cohort, job.t)

    def _message(self, facts: wire.Facts, tensors: dict[str, Tensor]) -> Sent:
        """What the node of a client is sent: what it lacks of the frozen weights too, or all of them where the suite
        has none kept."""
        client, weights = facts["client"], wire.frozen_weights(in_layers(self.model), facts["layers"])
        facts |= {"kind": "train", "cell": self.cell}
        if client not in self.known:
            facts["about"] = {**self.about, "client": client}
        hashes = {}
        if self.records.kept.weights:
            hashes = facts["hashes"] = {name: self._hash(name, value) for name, value in weights.items()}
        known = self.known.get(client, ())
        tensors |= {wire.FROZEN + name: w for name, w in weights.items() if hashes.get(name, "") not in known}
        content = wire.packed(facts, tensors)
        return Sent(content, len(content), wire.payload(tensors), frozenset(hashes.values()))

    def _hash(self, name: str, value: Tensor) -> str:
        version, found = self.hashes.get(name, (-1, ""))
        if version != value._version:  # what was added to it changes it
            version, found = self.hashes[name] = value._version, wire.content_hash(name, value)
        return found

    def _exchanged(self, outbox: Mapping[int, Sent], t: int, others: Sequence[bool] = ()) -> dict[int, Answer]:
        """What nodes answer, see `Nodes.exchange`. Raises UserError where one refuses the cell."""
        replies = self.nodes.exchange({client: sent.content for client, sent in outbox.items()}, t, others)
        answers = {client: Answer.of(replies.get(client, Reply(lost="no answer"))) for client in outbox}
        for client, answer in answers.items():
            if why := answer.facts.get("refused"):
                raise UserError(f"the node of client {client} cannot compute this cell: {why}")
        return answers


@dataclass(frozen=True)
class Sent:
    """A message to a node.

    Attributes:
        size: bytes of it, and of one before it that the node could not use.
        payload: bytes of the tensors of these.
        hashes: of the frozen weights that its node has then.
    """

    content: bytes
    size: int
    payload: int
    hashes: frozenset[str]

    def after(self, first: Sent) -> Sent:
        """The same, sent after another one."""
        return replace(self, size=self.size + first.size, payload=self.payload + first.payload)


@dataclass(frozen=True)
class Answer:
    """What came back.

    Attributes:
        lost: why nothing did that can be used.
        size: bytes of the message.
    """

    facts: wire.Facts
    tensors: wire.Tensors
    lost: str
    size: int
    seconds: float

    @classmethod
    def of(cls, reply: Reply) -> Answer:
        """A reply that was read."""
        if reply.content is None:
            return cls({}, {}, reply.lost, 0, reply.seconds)
        try:
            facts, tensors = wire.unpacked(reply.content)
            if odd := [name for name, value in tensors.items() if value.dtype not in wire.TYPES]:
                raise wire.Malformed(f"{odd[0]} has the type {tensors[odd[0]].dtype}")
            times = {name: float(facts.get(name, 0.0)) for name in TIMES}
        except (wire.Malformed, TypeError, ValueError) as error:
            return cls({}, {}, f"malformed: {error}", len(reply.content), reply.seconds)
        lost = f"its node failed: {facts['error']}" if "error" in facts else ""
        return cls({**facts, **times}, tensors, lost, len(reply.content), reply.seconds)

    def is_finite(self, has_loss: bool) -> bool:
        """Whether it has tensors, and numbers alone in them. has_loss: whether the loss must be one too."""
        own = [value for name, value in self.tensors.items() if has_loss or name != "loss"]
        return bool(self.tensors) and all(bool(value.isfinite().all()) for value in own if value.numel())


def _row(sent: Sent, answer: Answer, outcome: str) -> dict[str, Any]:
    """The columns of wire.parquet but for round and client."""
    row: dict[str, Any] = dict.fromkeys(MEASURED)
    if answer.size:
        row |= {"bytes_up": wire.payload(answer.tensors), "message_up": answer.size, "round_trip": answer.seconds}
        row |= {name: answer.facts.get(name) for name in TIMES}
    return {"outcome": outcome or "arrived", "bytes_down": sent.payload, "message_down": sent.size, **row}


def _why(family: str, personal: bool) -> str:
    """Why clients of a method cannot be nodes."""
    if family in ("Whole models", "Width", "Split learning"):
        kind = "trains with its server batch by batch" if family == "Split learning" else "trains whole models"
        return f"it {kind}, by other means than the engine"
    kept = "its clients keep tensors of their own from one round to the next"
    return kept if personal else "it trains by other means than the engine, or no client by itself"


def of_nodes(config: Config, registry: Registry, own: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a simulation is given whose examples nodes have: the server's data set without those for training, and the
    clients as they have said.

    Raises UserError where the suite asks for what the server would need their examples for.
    """
    if config.get("privacy"):
        raise UserError("privacy: its noise follows from the suite's seed, which nodes know; it is for simulations")
    for key in ("validation", "by"):
        if config["evaluation"].get(key) not in (None, "domain"):
            raise UserError(f"evaluation.{key}: examples of clients are on their nodes, and the server tests its own")
    source = source_of(config, registry)
    dataset = dataset_of(config["data"], registry, source.image_size)
    sizes = np.array([one["examples"] for one in own], dtype=np.int64)
    names = list(dataset.domains)
    domains = np.array([names.index(one["domain"]) if one["domain"] in names else MIXED for one in own])

    def load() -> Splits:
        test, n = dataset.load().test, np.arange(sizes.sum())  # any class and domain: nobody reads them
        y, domain = n % len(dataset.classes), n // len(dataset.classes) % len(names)
        blank = Texts.blank(y, domain, 1) if isinstance(test, Texts) else Images.blank(y, domain, test.x.shape[-1])
        return Splits(blank, test)

    clients = Clients(domains, sizes, np.arange(sizes.sum()))
    return {"source": source, "dataset": replace(dataset, load=load), "clients": clients}
