"""Who of a federation is there, how long the server waits, and when it goes on without somebody."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedbench.deployment.deployed import Reply
from fedbench.deployment.door import got, put
from fedbench.simulation.worker import Stopped
from fedbench.words import shortened

POLL, LOOK = 0.1, 5.0  # seconds between two looks for answers, and for who is there
NAME = "client-"  # of a registered key: its owner cannot claim another number
GONE = "its node is not there"


@dataclass(frozen=True)
class Patience:
    """How long the server waits.

    Attributes:
        start: seconds for all nodes before the first round.
        back: seconds, once, for one that is missing later.
        answer: seconds for the answers of a round.
        least: the share of a round's nodes that must answer, or the cell is interrupted.
    """

    start: float = 300.0
    back: float = 60.0
    answer: float = 600.0
    least: float = 0.5


class FlowerNodes:
    """The nodes of a federation of Flower. there: the door of the ServerApp that looks after its messages."""

    name = "flower"

    def __init__(self, there: socket.socket, patience: Patience) -> None:
        self.there, self.patience = there, patience
        self.node_of: dict[int, int] = {}  # by client
        self.missed = set[int]()  # clients that were waited for in vain

    def meet(self, clients: int) -> None:
        """Wait until the nodes of all clients are there. Raises Stopped where they do not come in time."""
        if missing := self._wait(range(clients), self.patience.start):
            who = shortened([str(client) for client in sorted(missing)], 5)
            raise Stopped(f"no node for client {who} within {self.patience.start:g} s; the next run tries again")

    def exchange(self, messages: Mapping[int, bytes], t: int, others: Sequence[bool] = ()) -> dict[int, Reply]:
        """Send each client its message, and wait for the answers.

        Args:
            messages: By client.
            t: The round, from 0.
            others: Of the round's other nodes, which are asked nothing now, whether each has answered.

        Raises:
            Stopped: Where too few of the round's nodes have answered, or where the SuperLink is gone.
        """
        absent = self._wait(set(messages) - self.missed, self.patience.back)
        self.missed |= absent
        self._look()
        replies = {client: Reply(lost=GONE) for client in messages if client not in self.node_of}
        sent = {client: content for client, content in messages.items() if client in self.node_of}
        replies |= self._answers(sent) if sent else {}
        arrived = [*others, *(reply.content is not None for reply in replies.values())]
        if sum(arrived) < max(1, math.ceil(self.patience.least * len(arrived))) and messages:
            why = "; ".join(dict.fromkeys(reply.lost for reply in replies.values() if reply.lost))
            share = f"{sum(arrived)} of {len(arrived)}"
            raise Stopped(f"{share} nodes answered in round {t + 1} ({why}); the next run resumes the cell")
        return replies

    def _answers(self, messages: Mapping[int, bytes]) -> dict[int, Reply]:
        nodes, began = [self.node_of[client] for client in messages], time.monotonic()
        asked = {"do": "send", "to": nodes, "seconds": self.patience.answer}
        ids = self._ask(asked, list(messages.values()))[0]["ids"]
        waiting = {id: client for id, client in zip(ids, messages, strict=True) if id}
        replies = {client: Reply(lost="the SuperLink took no message") for client in messages}
        looked = began
        while waiting and time.monotonic() - began < self.patience.answer:
            facts, contents = self._ask({"do": "receive", "ids": list(waiting)})
            for (id, error), content in zip(facts["came"], contents, strict=True):
                if (client := waiting.pop(id, None)) is not None:
                    took = time.monotonic() - began
                    replies[client] = Reply(lost=f"its app failed: {error}") if error else Reply(content, "", took)
            if time.monotonic() - looked > LOOK:
                self._look()
                looked = time.monotonic()
                for id, client in list(waiting.items()):
                    if client not in self.node_of:  # Flower misses a node that has died after a minute
                        replies[waiting.pop(id)] = Reply(lost=GONE)
            time.sleep(POLL)
        return replies | {client: Reply(lost="no answer in time") for client in waiting.values()}

    def _wait(self, clients: Collection[int], seconds: float) -> set[int]:
        """Those of these clients whose nodes have not come after so many seconds."""
        until = time.monotonic() + seconds
        while missing := set(clients) - self._look():
            if time.monotonic() > until:
                return missing
            time.sleep(POLL)
        return set()

    def _look(self) -> set[int]:
        """The clients whose nodes are there."""
        found = self._ask({"do": "look"})[0]["nodes"]
        named = ((id, name.removeprefix(NAME)) for id, name in found if name.startswith(NAME))
        self.node_of = {int(number): id for id, number in named if number.isdecimal()}
        self.missed -= self.node_of.keys()
        return set(self.node_of)

    def _ask(self, asked: dict[str, Any], contents: Collection[bytes] = ()) -> tuple[dict[str, Any], list[bytes]]:
        try:
            put(self.there, asked, list(contents))
            return got(self.there)
        except OSError as error:
            raise Stopped(
                f"the ServerApp or the SuperLink has ended ({error}); the next run resumes the cell"
            ) from error
