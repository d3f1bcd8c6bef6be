"""Algorithm 2: what runs on a client, step by step, and what it sends."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fedbench.families.split.cut import Cut
from fedbench.families.split.server import Server, Values
from fedbench.method import Setup
from fedbench.models.backbone import HEAD
from fedbench.models.optimizer import make_optimizer
from fedbench.types import Cohort, Exit, Objective, Plan, Uploads


class Participant:
    """Client i, at position n of the cohort, during one round: w = (w_H^i, w_T^i), and K local steps."""

    def __init__(self, n: int, cohort: Cohort, w: Mapping[str, Tensor], cut: Cut, setup: Setup, t: int) -> None:
        self.i, self.K, self.t, self.cut, self.setup = cohort.ids[n], int(cohort.steps[n]), t, cut, setup
        self.cohort, self.batches = cohort.only([n]), cohort.batches(n)
        self.arrives, self.refused, self.spoilt = bool(cohort.arrives[n]), "", False
        self.begun = dict(w)
        self.w = {name: nn.Parameter(value.clone()) for name, value in w.items()}
        heads = [value for name, value in self.w.items() if name.startswith(f"{HEAD}.")]
        self.optimizer = make_optimizer(list(self.w.values()), setup.train["optimizer"], heads=heads)
        self.received: Values = {name: value.detach() for name, value in self.w.items()}
        self.losses: list[Tensor] = []
        self.seconds = 0.0

    def local_step(self, l_c: Objective, server: Server | None) -> Values:
        """Lines 6 to 13 of Algorithm 1; returns what `server`, where one is given, learns its gradient from."""
        began = time.perf_counter()
        cut, (x, y) = self.cut, next(self.batches)
        cut.wear(self.w)

        def tail(b: Tensor) -> Tensor:
            return l_c([cut.T(b)], y, self.t)

        trained = server.trained() if server else {}
        with self.setup.precision():
            for w in trained.values():
                w.requires_grad_(True)
            h = cut.H(x)
            loss = tail(cut.E(h))
            self.optimizer.zero_grad()
            loss.backward()
            answer = server.ask(h, tail, self.t, self.i) if server else {}
            self._update()
        for name, w in trained.items():
            answer[name] = torch.zeros_like(w) if w.grad is None else w.grad
            w.requires_grad_(False).grad = None
        self.losses.append(loss.detach())
        self.seconds += time.perf_counter() - began
        return answer

    def _update(self) -> None:
        """ClientUpdate: both parts step on their own gradients."""
        if self.setup.train["clip"] is not None:
            nn.utils.clip_grad_norm_(self.w.values(), self.setup.train["clip"])
        self.optimizer.step()

    @torch.no_grad()
    def upload(self, answer: Values, with_own: bool) -> Values | None:
        """What the server receives of it, through faults and guard; None where it is refused.

        Args:
            answer: What the server learns its gradient from, by name.
            with_own: Head and tail are sent too, and lie under `received` then.
        """
        own = {name: value.detach() for name, value in self.w.items()} if with_own else {}
        message, L = {**answer, **own}, self.cut.model.num_layers
        if not message:
            return {}
        nothing = {name: value.new_zeros(()).expand(value.shape) for name, value in answer.items()}
        start = {"r": [{}] * L, "shared": {**nothing, **{name: self.begun[name] for name in own}}}
        rows = {name: value[None] for name, value in message.items()}
        sent = Uploads.of(self.cohort, [{}] * L, rows, *torch.zeros(2, 1))  # losses and seconds: see `outcome`
        came = self.setup.receive(sent, start, plan_of(1, L), self.cohort, self.t)
        self.spoilt = self.spoilt or bool(came.spoilt)
        if came.rejected:
            self.refused = came.rejected[0]
            return None
        values = {name: row[0] for name, row in came.shared.items()}
        self.received |= {name: values[name] for name in own}
        return {name: values[name] for name in answer}

    @property
    def arrived(self) -> bool:
        """Whether the server has its round."""
        return self.arrives and not self.refused

    def outcome(self, with_own: bool) -> ClientOutcome:
        """with_own: head and tail were to be sent."""
        own = self.received if with_own else {}
        return ClientOutcome(self.arrived, self.refused, self.losses, self.seconds, own, self.spoilt)


@dataclass(frozen=True)
class ClientOutcome:
    """What the server and the records keep of a client's round.

    `refused` says why its upload was refused, if it was; `losses` has the loss of each step; `own` (w_H, w_T) as they
    were received, where they are sent; `spoilt` says whether a fault has changed any of its messages.
    """

    arrived: bool
    refused: str
    losses: list[Tensor]
    seconds: float
    own: Values
    spoilt: bool = False


def plan_of(N: int, L: int) -> Plan:
    """Nobody holds a layer's adapters; everybody has the one classifier, after all layers."""
    return Plan(torch.zeros(N, L, dtype=torch.bool, device="cpu"), [[Exit(L, HEAD)]] * N)


def uploads_of(done: list[ClientOutcome], cohort: Cohort, L: int) -> Uploads:
    """The round as the record and an aggregator see it: heads and tails where they were sent, else nothing.

    Waits for a GPU once.
    """
    names, every = done[0].own if done else {}, [loss for one in done for loss in one.losses]
    losses = iter(torch.stack(every).tolist() if every else [])
    means = [sum(next(losses) for _ in one.losses) / max(len(one.losses), 1) for one in done]
    up = Uploads.of(
        cohort,
        r=[{} for _ in range(L)],
        shared={name: torch.stack([one.own[name] for one in done]) for name in names},
        loss=torch.tensor(means, dtype=torch.float64),
        seconds=torch.tensor([one.seconds for one in done], dtype=torch.float64),
    )
    arrived = torch.tensor([one.arrived for one in done], dtype=torch.bool)
    rejected = {n: one.refused for n, one in enumerate(done) if one.refused}
    return replace(up, arrived=arrived, rejected=rejected, spoilt=[n for n, one in enumerate(done) if one.spoilt])
