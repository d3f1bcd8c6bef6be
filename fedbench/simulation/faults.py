"""Faults of a round: lost and slow clients, spoilt uploads, and what of them the server takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from fedbench.errors import UserError
from fedbench.models.param_paths import Values, mapped, matches, of_classifier, places, started, trainers
from fedbench.seeding import generator, numpy_generator
from fedbench.types import GLOBAL, Cohort, Plan, Uploads

Message = dict[str, Tensor]  # what one client sends: every tensor it trained, by its place, `r/3/attn.proj.lora_A`
SCALES = {"scaled": 1e6, "noise": 1.0}  # unless the suite says otherwise
NOT_FINITE = "not finite"  # why an upload is refused
WRONG_SHAPE, WRONG_TYPE, TOO_LARGE = "wrong shape", "wrong type", "too large"


@dataclass(frozen=True)
class Fate:
    """What becomes of a client in a round: the steps that it does, and whether its work arrives.

    Attributes:
        slowdown: so many times longer than usual that it computes.
        late: whether it was still at work when the server stopped waiting for it.
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

        By kind:

        - nan, inf: no other number.
        - wrong_shape: every tensor twice, stacked.
        - scaled: `scale` times the update (Sun et al., 2019, arXiv 1911.07963, call it boosted).
        - noise: in place of each tensor's update Gaussian numbers, their deviation `scale` times its root mean square.

        But for wrong_shape, tensors of whole numbers or truth values are the same objects as before.
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


class Guard:
    """The server's check of every upload: malformed ones are refused always, those above a norm where one is set.

    settings: `train.guard` of a suite, resolved, or None. `max_norm` is the norm thresholding of Sun et al. (2019,
    arXiv 1911.07963, Section 4): an update w_n - w_start of a larger norm over all its tensors is ignored.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self.max_norm = (settings or {}).get("max_norm", math.inf)

    def refused(self, messages: Mapping[int, tuple[Message, Message]]) -> dict[int, str]:
        """Why messages cannot be taken, of those that cannot. Waits for a GPU once, or twice where it asks for norms.

        messages: by client what is sent, and what it started from, which is what it should look like.
        """
        found = {n: why for n, (sent, given) in messages.items() if (why := _misshapen(sent, given))}
        asked = {n: one for n, one in messages.items() if n not in found and one[0]}
        if not asked:
            return found
        finite = torch.stack([_largest(sent) for sent, _ in asked.values()]).isfinite()
        fine = dict(zip(asked, finite.tolist(), strict=True))
        found |= {n: NOT_FINITE for n in asked if not fine[n]}
        if self.max_norm < math.inf and any(fine.values()):
            norms = torch.stack([_update_norm(*asked[n]) for n in asked if fine[n]]).tolist()
            moved = zip((n for n in asked if fine[n]), norms, strict=True)
            found |= {n: TOO_LARGE for n, norm in moved if norm > self.max_norm}
        return found


def _misshapen(sent: Message, given: Message) -> str | None:
    if any(value.shape != given[place].shape for place, value in sent.items()):
        return WRONG_SHAPE
    return WRONG_TYPE if any(value.dtype != given[place].dtype for place, value in sent.items()) else None


def _largest(sent: Message) -> Tensor:
    """A scalar, the largest absolute number of a message; 0 where it has whole numbers alone, which are finite."""
    real = [value for value in sent.values() if value.is_floating_point()]
    return get_total_norm(real, math.inf) if real else next(iter(sent.values())).new_zeros((), dtype=torch.float32)


def _update_norm(sent: Message, given: Message) -> Tensor:
    """The norm of an update; whole numbers, such as counts, have no part in it."""
    real = [value.double() - given[place].double() for place, value in sent.items() if value.is_floating_point()]
    return get_total_norm(real) if real else next(iter(sent.values())).new_zeros((), dtype=torch.float64)


@torch.no_grad()
def received(
    uploads: Uploads, start: Values, plan: Plan, cohort: Cohort, t: int, faults: Faults, guard: Guard
) -> Uploads:
    """What the server has of a round's uploads: those that were spoilt on their way as they arrive, and those that
    the guard refuses as not arrived, with the reason under `rejected`.

    start: what the clients started from, see `fedbench.engine`. A message holds what its client has trained, of a
    tensor trained in part those coordinates, and nothing of what clients keep. A refused upload's rows hold NaN, or 0
    in tensors of whole numbers. Where all is well the uploads are returned as they are. Raises UserError where a tensor
    has not one row for each client that sends it.
    """
    stacked, begun = dict(places({"r": uploads.r, "shared": uploads.shared})), dict(places(start))
    senders = {place: trainers(plan, place) for place in stacked}
    _check_rows(stacked, begun, senders, len(plan.M))
    own = {place: started(begun[place], plan, place, rows.dim() - 1) for place, rows in stacked.items()}
    sent, given = (messages_of(rows, uploads, plan, senders) for rows in (stacked, own))
    came = [n for n in uploads.arrived.nonzero().flatten().tolist() if cohort.ids[n] != GLOBAL]  # the server sends none
    struck = [n for n in came if faults.kind_of(t, cohort.ids[n])]
    arriving = {n: faults.corrupted(t, cohort.ids[n], sent[n], given[n]) for n in struck}
    spoilt = {n for n, one in arriving.items() if any(value is not sent[n][place] for place, value in one.items())}
    sent = [arriving.get(n, one) for n, one in enumerate(sent)]
    whole = guard.refused({n: (sent[n], given[n]) for n in came if n not in spoilt})
    rejected = dict(sorted((whole | guard.refused({n: (sent[n], given[n]) for n in spoilt})).items()))
    if not spoilt and not rejected:
        return uploads

    def rows_of(place: str, rows: Tensor) -> Tensor:
        rows, within = rows.clone(), uploads.coordinates.get(place)
        for row, n in enumerate(senders[place]):
            if n in rejected:
                rows[row] = math.nan if rows.is_floating_point() else 0
            elif n in spoilt and place in sent[n]:
                at = ... if within is None else within[row].expand_as(rows[row])
                rows[row][at] = sent[n][place]
        return rows

    arrived = uploads.arrived.clone()
    arrived[list(rejected)] = False
    as_sent: Values = {"r": uploads.r, "shared": uploads.shared}
    taken, before = mapped(rows_of, as_sent), as_sent if spoilt else None
    return replace(uploads, **taken, arrived=arrived, rejected=rejected, spoilt=sorted(spoilt), sent=before)


def _check_rows(
    stacked: Mapping[str, Tensor], begun: Mapping[str, Tensor], senders: Mapping[str, Sequence[int]], N: int
) -> None:
    """Raises UserError where a tensor, by place, has not one row for each client that trains it, or where what these
    began with is not given."""
    for place, rows in stacked.items():
        due, found = len(senders[place]), len(rows) if rows.dim() else "no"
        if found != due:
            raise UserError(
                f"uploads: '{place}' has {found} rows, but by the plan {due} of {N} clients send it: {_why(place)}"
            )
        if place not in begun:
            known = ", ".join(begun) or "nothing"
            raise UserError(f"uploads: '{place}' is not among what clients started from ({known}): give it in `start`")


def _why(place: str) -> str:
    """Who sends what stands at `place`."""
    kind, _, name = place.partition("/")
    if kind == "r":
        return "those that train the layer (`Plan.trains`), unless `Plan.frozen` names the tensor"
    if of_classifier(name):
        one = name.rsplit(".", 1)[0]
        return f"those with an Exit of the classifier {one!r}; a name without a dot, or `model.<x>`, is everybody's"
    return "all that take part, unless `Plan.frozen` names the tensor"


def messages_of(
    rows: Mapping[str, Tensor], uploads: Uploads, plan: Plan, senders: Mapping[str, Sequence[int]]
) -> list[Message]:
    """For every client what it sends, by place. rows: by place, (n, ...) of those who train the tensor, `senders`."""
    messages: list[Message] = [{} for _ in range(len(plan.M))]
    for place, value in rows.items():
        if matches(place, plan.kept):
            continue
        within = uploads.coordinates.get(place)
        for row, n in enumerate(senders[place]):
            own = value[row] if within is None else value[row][within[row].expand_as(value[row])]
            if own.numel():
                messages[n][place] = own
    return messages
