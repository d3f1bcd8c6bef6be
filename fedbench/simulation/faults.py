"""What goes wrong in a round: clients that are lost, clients that are slow, and uploads that are spoilt."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedbench.seeding import generator, numpy_generator

Message = dict[str, Tensor]  # what one client sends: every tensor it trained, by its place, `r/3/attn.proj.lora_A`
SCALES = {"scaled": 1e6, "noise": 1.0}  # unless the suite says otherwise


@dataclass(frozen=True)
class Fate:
    """What becomes of a client in a round: the steps that it does, and whether its work arrives.

    slowdown: so many times longer than usual that it computes · late: whether it was still at work when the server
    stopped waiting for it.
    """

    steps: int
    arrives: bool = True
    slowdown: float = 1.0
    late: bool = False


class Faults:
    """The faults of one cell. Every draw is a function of (seed, round, client), so all methods meet the same ones.

    settings: the `faults` of a suite, resolved; nothing goes wrong where they are empty.
    """

    def __init__(self, settings: Mapping[str, Any], seed: int) -> None:
        self.dropout, self.stragglers, self.seed = settings.get("dropout", 0.0), settings.get("stragglers"), seed
        self.spoiling: Mapping[str, Any] = settings.get("corrupted") or {}

    def fate(self, t: int, client: int, steps: int) -> Fate:
        """Of a client of round t that would usually take `steps` steps.

        A client that is both too slow and lost has done the fewer steps of the two, and is lost.
        """
        slow = self._in_time(t, client, steps)
        draw = numpy_generator(self.seed, t, client, "faults/dropout") if self.dropout else None
        if draw is not None and draw.random() < self.dropout:
            until = int(draw.integers(steps))
            return Fate(min(slow.steps, until), False, slow.slowdown, slow.late and until >= slow.steps)
        return slow

    @property
    def deadline(self) -> float:
        """How long the server waits for a straggler, in times what the client usually needs."""
        return self.stragglers["deadline"] if self.stragglers else math.inf

    def _in_time(self, t: int, client: int, steps: int) -> Fate:
        """The same for slow clients alone: whole steps done by the deadline."""
        how = self.stragglers
        if how is None:
            return Fate(steps)
        draw = numpy_generator(self.seed, t, client, "faults/stragglers")
        if draw.random() >= how["probability"]:
            return Fate(steps)
        slowdown = how["slowdown"]
        if isinstance(slowdown, list):
            slowdown = draw.uniform(*slowdown)
        if slowdown <= how["deadline"]:
            return Fate(steps, slowdown=slowdown)
        done = math.floor(steps * how["deadline"] / slowdown + 1e-9)  # 3 x 1.2 / 3.6 is one step, also in binary
        return Fate(done, how["late"] == "partial" and done > 0, slowdown, late=True)

    def kind_of(self, t: int, client: int) -> str:
        """How what this client sends in round t is spoilt on its way; empty where it arrives as it was sent."""
        if not self.spoiling:
            return ""
        draw = numpy_generator(self.seed, t, client, "faults/corrupted")
        return self.spoiling["kind"] if draw.random() < self.spoiling["probability"] else ""

    def corrupted(self, t: int, client: int, sent: Message, given: Message) -> Message:
        """What arrives in place of `sent`; given: what the client started from, in the same places.

        nan, inf: no other number · wrong_shape: every tensor twice, stacked · scaled: `scale` times the update (Sun et
        al., 2019, arXiv 1911.07963, call it boosted) · noise: in place of each tensor's update Gaussian numbers,
        their deviation `scale` times its root mean square. But for wrong_shape, tensors of whole numbers or truth
        values are the same objects as before.
        """
        kind = self.spoiling["kind"]
        if kind == "wrong_shape":
            return {place: torch.stack([value, value]) for place, value in sent.items()}
        real = {place: value for place, value in sent.items() if value.is_floating_point()}
        return {**sent, **self._moved(kind, t, client, real, given)}

    def _moved(self, kind: str, t: int, client: int, sent: Message, given: Message) -> Message:
        """The same of tensors of floating-point numbers, each of its own shape."""
        if kind in ("nan", "inf"):
            return {place: torch.full_like(value, float(kind)) for place, value in sent.items()}
        scale = self.spoiling.get("scale", SCALES[kind])
        update = {place: sent[place] - given[place] for place in sorted(sent)}
        if kind == "noise":
            draw = generator(self.seed, t, client, "faults/corrupted/noise")
            update = {place: _noise_like(value, draw) for place, value in update.items()}
        return {place: given[place] + scale * value for place, value in update.items()}


def _noise_like(value: Tensor, draw: torch.Generator) -> Tensor:
    """Gaussian numbers of the same shape and, in expectation, the same mean square."""
    noise = torch.randn(value.shape, generator=draw, dtype=torch.float64, device="cpu")  # the same on any device
    return (value.double().square().mean().sqrt() * noise.to(value.device)).to(value.dtype)
