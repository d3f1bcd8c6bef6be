"""Between the clients and the server: what each client sends is one message, which a fault may spoil and which is
checked before anything is averaged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from fedbench.cell.faults import Faults, Message
from fedbench.models.places import Values, mapped, matches, places, started, trainers
from fedbench.types import Cohort, Plan, Uploads

NOT_FINITE = "not finite"  # why an upload is refused
WRONG_SHAPE, WRONG_TYPE, TOO_LARGE = "wrong shape", "wrong type", "too large"

Later = list[Tensor] | None


class Guard:
    """The server's check of every upload: malformed ones are refused always, those above a norm where it is told to.

    settings: `train.guard` of a suite, resolved, or None. `max_norm` is the norm thresholding of Sun et al. (2019,
    arXiv 1911.07963, Section 4): an update w_n - w_start of a larger norm over all its tensors is ignored.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self.max_norm = (settings or {}).get("max_norm", math.inf)

    @property
    def asks_norms(self) -> bool:
        """Whether it refuses messages that are well formed."""
        return self.max_norm < math.inf

    def refused(self, messages: Mapping[int, tuple[Message, Message]], later: Later = None) -> dict[int, str]:
        """Why messages cannot be taken, of those that cannot. Waits for a GPU once, or twice where it asks for norms.

        messages: by client what is sent, and what it started from, which is what it should look like · later: where
        given, what only waiting can tell is put there instead.
        """
        found = {n: why for n, (sent, given) in messages.items() if (why := _misshapen(sent, given))}
        asked = {n: one for n, one in messages.items() if n not in found and one[0]}
        if not asked:
            return found
        finite = torch.stack([get_total_norm(list(sent.values()), math.inf) for sent, _ in asked.values()]).isfinite()
        if later is not None and not self.asks_norms:
            later.append(finite)
            return found
        fine = dict(zip(asked, finite.tolist(), strict=True))
        found |= {n: NOT_FINITE for n in asked if not fine[n]}
        if self.asks_norms and any(fine.values()):
            norms = torch.stack([_moved(*asked[n]) for n in asked if fine[n]]).tolist()
            moved = zip((n for n in asked if fine[n]), norms, strict=True)
            found |= {n: TOO_LARGE for n, norm in moved if norm > self.max_norm}
        return found


def _misshapen(sent: Message, given: Message) -> str | None:
    if any(value.shape != given[place].shape for place, value in sent.items()):
        return WRONG_SHAPE
    return WRONG_TYPE if any(value.dtype != given[place].dtype for place, value in sent.items()) else None


def _moved(sent: Message, given: Message) -> Tensor:
    """The norm of an update."""
    return get_total_norm([value.double() - given[place].double() for place, value in sent.items()])


@torch.no_grad()
def received(
    uploads: Uploads,
    start: Values,
    plan: Plan,
    cohort: Cohort,
    t: int,
    faults: Faults,
    guard: Guard,
    later: Later = None,
) -> Uploads:
    """What the server has of a round's uploads: those that were spoilt on their way as they arrive, and those that
    the guard refuses as not arrived, with the reason under `rejected`.

    start: what the clients started from, see `fedbench.engine`. A message holds what its client has trained, of a
    tensor trained in part those coordinates, and nothing of what clients keep. A refused upload's rows hold NaN. Where
    all is well the uploads are returned as they are. later: where given, whether numbers are finite need not be asked
    now, which waits for a GPU: what tells it is put there, bool, and they are taken as if they were.
    """
    stacked, begun = dict(places({"r": uploads.r, "shared": uploads.shared})), dict(places(start))
    sent = _messages(stacked, uploads, plan)
    given = _messages(
        {place: started(begun[place], plan, place, rows.dim() - 1) for place, rows in stacked.items()}, uploads, plan
    )
    came: list[int] = uploads.arrived.nonzero().flatten().tolist()
    spoilt = {n for n in came if faults.kind_of(t, cohort.ids[n])}
    for n in spoilt:
        sent[n] = faults.corrupted(t, cohort.ids[n], sent[n], given[n])
    whole = guard.refused({n: (sent[n], given[n]) for n in came if n not in spoilt}, later)
    rejected = dict(sorted((whole | guard.refused({n: (sent[n], given[n]) for n in spoilt})).items()))
    if not spoilt and not rejected:
        return uploads

    def rows_of(place: str, rows: Tensor) -> Tensor:
        rows, within = rows.clone(), uploads.coordinates.get(place)
        for row, n in enumerate(trainers(plan, place)):
            if n in rejected:
                rows[row] = math.nan
            elif n in spoilt and place in sent[n]:
                if within is None:
                    rows[row] = sent[n][place]
                else:
                    rows[row][within[row].expand_as(rows[row])] = sent[n][place]
        return rows

    arrived = uploads.arrived.clone()
    arrived[list(rejected)] = False
    taken = mapped(rows_of, {"r": uploads.r, "shared": uploads.shared})
    return replace(uploads, **taken, arrived=arrived, rejected=rejected)


def _messages(rows: Mapping[str, Tensor], uploads: Uploads, plan: Plan) -> list[Message]:
    """For every client what it sends, by place. rows: by place, (n, ...) of those who train the tensor."""
    messages: list[Message] = [{} for _ in range(len(plan.M))]
    for place, value in rows.items():
        if matches(place, plan.kept):
            continue
        within = uploads.coordinates.get(place)
        for row, n in enumerate(trainers(plan, place)):
            own = value[row] if within is None else value[row][within[row].expand_as(value[row])]
            if own.numel():
                messages[n][place] = own
    return messages
