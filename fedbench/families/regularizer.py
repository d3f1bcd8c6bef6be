"""Regularisers that pull clients towards the global model, tensor by tensor, whatever layers a client holds.

FedDyn is Acar et al., ICLR 2021, arXiv 2111.04263, Algorithm 1; FedProx is Li et al., MLSys 2020, arXiv 1812.06127.

Under FedDyn alone the state has an entry `feddyn`: `g`, the g_n of every client that has returned anything, by its
id, and the server's `h`. Both map a place, `r/<layer>/<name>` or `shared/<name>`, to a tensor of the parameter's shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedbench.errors import NotApplicable
from fedbench.method import Setup, State
from fedbench.models.param_paths import Values, mapped, places, started, trainers
from fedbench.types import Plan, Pull, Uploads

Setting = Mapping[str, float] | None  # {"feddyn": a}, {"fedprox": mu} or None


def first_books(regularizer: Setting) -> State:
    """What the first state holds besides the model: under FedDyn empty books, otherwise nothing."""
    return {"feddyn": {"g": {}, "h": {}}} if regularizer and "feddyn" in regularizer else {}


def refuse_feddyn(setup: Setup, why: str) -> None:
    """Raises NotApplicable under FedDyn. why: what it cannot do for the method."""
    if "feddyn" in (setup.train.get("regularizer") or {}):
        raise NotApplicable(f"FedDyn {why}")


def refuse_books(setup: Setup) -> None:
    """For methods that train whole models. Raises NotApplicable under FedDyn."""
    refuse_feddyn(setup, "would keep as much as a whole model for every client in the server's state")


def pull_of(regularizer: Setting, state: State, plan: Plan, ids: Sequence[int]) -> Pull | None:
    """The term that this round's clients, `ids` (N,), add to their losses; FedDyn's linear part are their g_n."""
    if not regularizer:
        return None
    if "fedprox" in regularizer:
        return Pull(regularizer["fedprox"])
    g = state["feddyn"]["g"]

    def rows(place: str, value: Tensor) -> Tensor:
        """This tensor's g_n of everyone who trains it, 0 at first: (n, ...)."""
        train = trainers(plan, place)
        stacked = value.new_zeros(len(train), *value.shape)
        for row, n in enumerate(train):
            own = g.get(str(ids[n]), {})
            if place in own:
                stacked[row] = own[place]
        return stacked

    return Pull(regularizer["feddyn"], mapped(rows, state))


def server_step(
    regularizer: Setting, registered: int, state: State, start: Values, uploads: Uploads, plan: Plan, ids: Sequence[int]
) -> tuple[Uploads, State]:
    """What the aggregator is given, and the state's new books.

    Under FedDyn it is given w_n - h / a for w_n: a weighted mean of these is FedDyn's mean - h / a, and what an
    aggregator leaves alone keeps its value.

    Args:
        regularizer: As `train.regularizer` has it.
        registered: How many clients there are in all (FedDyn's m).
        state: Before the round.
        start: What the clients started from.
        uploads: What came back.
        plan: Who holds and trains what.
        ids: Of the cohort's clients, in order.
    """
    if not regularizer or "feddyn" not in regularizer:
        return uploads, {}
    a, came = regularizer["feddyn"], {"r": uploads.r, "shared": uploads.shared}
    books = _booked(state["feddyn"], a, registered, dict(places(start)), uploads, plan, ids)
    h = books["h"]

    def less(place: str, rows: Tensor) -> Tensor:
        if place not in h:
            return rows
        within = uploads.coordinates.get(place)
        return rows - h[place] / a if within is None else torch.where(within, rows - h[place] / a, rows)

    return replace(uploads, **mapped(less, came)), {"feddyn": books}


def _booked(
    before: Mapping[str, Any],
    a: float,
    registered: int,
    start: Mapping[str, Tensor],
    uploads: Uploads,
    plan: Plan,
    ids: Sequence[int],
) -> dict[str, Any]:
    """Update FedDyn's terms: g_n <- g_n - a (w_n - w_start), h <- h - a / m * sum_n (w_n - w_start).

    The client goes by what it has trained, the server by what has arrived.
    """
    g, h = dict(before["g"]), dict(before["h"])  # what others returned in earlier rounds stays theirs, uncopied
    entered: set[str] = set()
    came, sent = (dict(places({"r": one.r, "shared": one.shared})) for one in (uploads, uploads.own))
    for place, rows in came.items():
        begun = started(start[place], plan, place, rows.dim() - 1)
        changes = a * (rows - begun)  # (n, ...)
        owns = changes if sent[place] is rows else a * (sent[place] - begun)
        for n, change, own in zip(trainers(plan, place), changes, owns, strict=True):
            if uploads.arrived[n]:
                if (client := str(ids[n])) not in entered:
                    g[client] = dict(g.get(client, {}))
                    entered.add(client)
                kept = g[client]
                kept[place] = kept.get(place, 0.0) - own
                h[place] = h.get(place, 0.0) - change / registered
    return {"g": g, "h": h}


def towards(weights: Mapping[str, Tensor], start: Mapping[str, Tensor], strength: float) -> Tensor:
    """Return strength / 2 ||w - w_start||^2 over all tensors, for losses that autograd differentiates."""
    return strength / 2 * torch.stack([_distance(w, start[name]) for name, w in weights.items()]).sum()


class _Distance(torch.autograd.Function):
    """||w - w_start||^2.

    What autograd would keep for the gradient, w - w_start, is a copy of the model; here it is made again, a tensor at a
    time.
    """

    @staticmethod
    def forward(ctx: Any, w: Tensor, start: Tensor) -> Tensor:
        ctx.save_for_backward(w, start)
        return ((w - start) ** 2).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        w, start = ctx.saved_tensors
        return (w - start).mul_(2).mul_(gradients[0]), None


def _distance(w: Tensor, start: Tensor) -> Tensor:
    squared: Tensor = _Distance.apply(w, start)
    return squared
