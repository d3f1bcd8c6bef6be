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


class Guard:
    """The server's check of every upload: malformed ones are refused always, those above a norm where it is told to.

    settings: `train.guard` of a suite, resolved, or None. `max_norm` is the norm thresholding of Sun et al. (2019,
    arXiv 1911.07963, Section 4): an update w_n - w_start of a larger norm over all its tensors is ignored.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self.max_norm = (settings or {}).get("max_norm", math.inf)

    def refuses(self, sent: Message, given: Message) -> str | None:
        """Why a message cannot be taken, or None. given: what its client started from, and what it should look
        like."""
        if any(value.shape != given[place].shape for place, value in sent.items()):
            return WRONG_SHAPE
        if any(value.dtype != given[place].dtype for place, value in sent.items()):
            return WRONG_TYPE
        if not get_total_norm(list(sent.values()), math.inf).isfinite():
            return NOT_FINITE
        if self.max_norm < math.inf:
            update = [value.double() - given[place].double() for place, value in sent.items()]
            if get_total_norm(update) > self.max_norm:
                return TOO_LARGE
        return None


@torch.no_grad()
def received(
    uploads: Uploads, start: Values, plan: Plan, cohort: Cohort, t: int, faults: Faults, guard: Guard
) -> Uploads:
    """What the server has of a round's uploads: those that were spoilt on their way as they arrive, and those that
    the guard refuses as not arrived, with the reason under `rejected`.

    start: what the clients started from, see `fedbench.engine`. A message holds what its client has trained, of a
    tensor trained in part those coordinates, and nothing of what clients keep. A refused upload's rows hold NaN. Where
    all is well the uploads are returned as they are.
    """
    stacked, begun = dict(places({"r": uploads.r, "shared": uploads.shared})), dict(places(start))
    sent = _messages(stacked, uploads, plan)
    given = _messages(
        {place: started(begun[place], plan, place, rows.dim() - 1) for place, rows in stacked.items()}, uploads, plan
    )
    spoilt, rejected = set(), {}
    for n in uploads.arrived.nonzero().flatten().tolist():
        if faults.kind_of(t, cohort.ids[n]):
            sent[n] = faults.corrupted(t, cohort.ids[n], sent[n], given[n])
            spoilt.add(n)
        if reason := guard.refuses(sent[n], given[n]):
            rejected[n] = reason
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
