"""Coded messages: what of a round's tensors arrives at clients, and at the server, by `train.downloads` and
`train.uploads`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedbench.models.backbone import Blocks
from fedbench.models.codec import Codec, Draw, codec_of
from fedbench.models.lowrank import Terms
from fedbench.models.param_paths import Values, at_classifier, holders, mapped, matches, places, started, trainers
from fedbench.seeding import generator
from fedbench.types import GLOBAL, Cohort, Job, Plan, Uploads


def through_codecs(
    engine: Callable[..., Uploads], model: Blocks, start: dict[str, Any], plan: Plan, cohort: Cohort, job: Job
) -> Uploads:
    """What comes of a round whose messages are coded as the job says: the engine's own uploads where they are not."""
    down, up, begun = codec_of(job.downloads), codec_of(job.uploads), start
    if down:
        begun = coded_down(down, model, start, plan, cohort, job.t, job.seed)
    uploads = engine(model, begun, plan, cohort, job)
    return coded_up(up, uploads, start, begun, plan, cohort, job.t, job.seed) if down or up else uploads


@torch.no_grad()
def coded_down(
    codec: Codec, model: Blocks, start: dict[str, Any], plan: Plan, cohort: Cohort, t: int, seed: int
) -> dict[str, Any]:
    """What clients start from: of each tensor that they are sent, a row for each that holds it.

    Frozen weights and additions to them are sent as they are, and so is all that a client draws or keeps itself.
    """
    given = {place: value for place, value in places(start) if goes_down(codec, plan, place, value)}
    dims = {place: parameter.dim() for place, parameter in model.trained().items()}
    terms, held = Terms(model, plan), {place: holders(plan, place) for place in given}
    rows: dict[str, list[Tensor]] = {place: [] for place in given}
    for n, client in enumerate(cohort.ids):
        own = {}
        for place, value in given.items():
            if n in held[place]:
                dim = dims.get(place, value.dim())
                row = value[held[place].index(n)] if value.dim() > dim else value
                mask = terms.held(place, [n], dim)
                own[place] = (row, ... if mask is None else mask[0].expand_as(row))
        message = {place: row[at] for place, (row, at) in own.items()}
        if client != GLOBAL:  # the server sends itself nothing
            message = codec.decoded(message, draw_down(seed, t))
        for place, (row, at) in own.items():
            whole = row.clone()
            whole[at] = message[place]
            rows[place].append(whole)

    def arrived(place: str, value: Tensor) -> Tensor:
        return torch.stack(rows[place]) if rows.get(place) else value

    return {**start, **mapped(arrived, start)}


def goes_down(codec: Codec, plan: Plan, place: str, value: Tensor) -> bool:
    """Whether what a client is sent of the tensor there is coded: not what it draws or keeps itself."""
    stays = matches(place, (*plan.fixed, *plan.fresh, *plan.kept)) or not value.is_floating_point()
    return not stays and not (codec.spares_classifiers and at_classifier(place))


def draw_down(seed: int, t: int) -> Draw:
    """What rounds what clients are sent in a round, each tensor in the same way for all of them."""
    return lambda place: generator(seed, t, use=f"downloads/{place}")


def draw_up(seed: int, t: int, client: int) -> Draw:
    """What rounds a client's updates in a round."""
    return lambda place: generator(seed, t, client, f"uploads/{place}")


@torch.no_grad()
def coded_up(
    codec: Codec | None, uploads: Uploads, start: Values, begun: Values, plan: Plan, cohort: Cohort, t: int, seed: int
) -> Uploads:
    """What the server has of uploads: its own tensors and the update w_n - w_begun of each client, as it arrives.

    Args:
        codec: None where updates are sent as they are, to a server that has coded what it sent down.
        uploads: As the clients have trained.
        start: What the server sent.
        begun: What of that arrived, and clients began with.
        plan: Who holds and trains what; what clients keep is left as it is.
        cohort: The clients of the round.
        t: The round.
        seed: The cell's seed.
    """
    stacked = {place: rows for place, rows in places({"r": uploads.r, "shared": uploads.shared}) if len(rows)}
    sent = {p: rows for p, rows in stacked.items() if rows.is_floating_point() and not matches(p, plan.kept)}
    senders, before, after = {place: trainers(plan, place) for place in sent}, dict(places(begun)), dict(places(start))
    if any(len(rows) != len(senders[p]) or p not in before or p not in after for p, rows in sent.items()):
        return uploads  # malformed; `received` says how
    new = {}
    first = {place: started(before[place], plan, place, rows.dim() - 1) for place, rows in sent.items()}
    for place, rows in sent.items():
        new[place] = started(after[place], plan, place, rows.dim() - 1).clone()
    for n, client in enumerate(cohort.ids):
        own = {}
        for place, rows in sent.items():
            if n in senders[place]:
                i, within = senders[place].index(n), uploads.coordinates.get(place)
                own[place] = (i, ... if within is None else within[i].expand_as(rows[i]))
        if client == GLOBAL:
            for place, (i, _) in own.items():
                new[place][i] = sent[place][i]
            continue
        message = {place: (sent[place][i] - first[place][i])[at] for place, (i, at) in own.items()}
        if codec is not None:
            message = codec.decoded(message, draw_up(seed, t, client))
        for place, (i, at) in own.items():
            new[place][i][at] += message[place]

    def arrived(place: str, rows: Tensor) -> Tensor:
        return new.get(place, rows)

    return replace(uploads, **mapped(arrived, {"r": uploads.r, "shared": uploads.shared}))
