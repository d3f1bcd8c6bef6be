"""Parameters of which every client has its own: those that it keeps, and those that it draws in every round."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, cast

import torch
from torch import Tensor

from fedbench.errors import UserError
from fedbench.method import Method, Predict, State, Store
from fedbench.models.backbone import HEAD, Blocks
from fedbench.models.globalmodel import GlobalModel
from fedbench.models.param_paths import holders, mapped, matches, name_of, places, trainers
from fedbench.seeding import generator
from fedbench.types import Cohort, Exit, Plan, Size, Uploads
from fedbench.words import suggestion

Names = Sequence[str] | Callable[[Blocks], Sequence[str]]  # patterns of tensors' names, or what tells them of a model


def known(model: Blocks, option: str, given: Names) -> tuple[str, ...]:
    """The patterns that an option gives, each of which fits the name of a tensor that clients may train.

    Raises UserError.
    """
    patterns = tuple(given(model) if callable(given) else given)
    everywhere = places({"r": [model.r(j) for j in range(model.num_layers)], "shared": model.shared()})
    names = sorted({name_of(place) for place, _ in everywhere})
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UserError(
                f"{option}: no tensor has a name that fits {pattern!r}{suggestion(pattern, names, '')}; a pattern fits "
                f"whole names, here {', '.join(names)}"
            )
    return patterns


@dataclass(frozen=True)
class PersonalParams:
    """Which tensors clients train and keep, and where.

    None of them are sent. A state has their keys in the store as `clients`, by client.
    """

    store: Store
    keeps: tuple[str, ...]
    device: str

    def kept(self, place: str) -> bool:
        """Whether a client keeps what stands there."""
        return matches(place, self.keeps)

    def read(self, state: State, cohort: Cohort) -> list[dict[str, Tensor]]:
        """What each client of the cohort keeps, by place: read once a round."""
        return [self._of(state, client) for client in cohort.ids]

    def given(self, start: State, own: Sequence[Mapping[str, Tensor]], plan: Plan) -> State:
        """Return what clients start from, with a row for each client where it keeps a tensor.

        At first that is the server's tensor. `own` is what they keep.
        """

        def rows(place: str, value: Tensor) -> Tensor:
            if not self.kept(place):
                return value
            held = holders(plan, place)
            return torch.stack([own[n].get(place, value) for n in held]) if held else value

        return {**start, **mapped(rows, start)}

    def taken(
        self,
        own: Sequence[Mapping[str, Tensor]],
        state: State,
        plan: Plan,
        cohort: Cohort,
        uploads: Uploads,
        books: State,
    ) -> tuple[Plan, Uploads, State]:
        """Return what the server sees of plan and uploads, and the keys of what the arrived clients have stored.

        `own` is what they kept before.
        """
        came = {"r": uploads.r, "shared": uploads.shared}
        stacked = {place: rows for place, rows in places(came) if self.kept(place)}
        clients = dict(state["clients"])
        for n, client in enumerate(cohort.ids):
            if uploads.arrived[n]:
                new = {p: rows[i] for p, rows in stacked.items() for i, k in enumerate(trainers(plan, p)) if k == n}
                clients[str(client)] = self.store.put({**own[n], **new})
        left = mapped(lambda place, rows: rows[:0] if self.kept(place) else rows, came)
        parts = {place: mask for place, mask in uploads.coordinates.items() if not self.kept(place)}
        seen = replace(uploads, **left, coordinates=parts)
        return replace(plan, frozen=(*plan.frozen, *self.keeps)), seen, {**books, "clients": clients}

    def of(self, state: State, client: int) -> State:
        """The state with the tensors that a client kept in place of the server's."""
        own = self._of(state, client)
        return {**state, **mapped(lambda place, value: own.get(place, value), state)}

    def _of(self, state: State, client: int) -> dict[str, Tensor]:
        key: Any = state["clients"].get(str(client))
        return {} if key is None else self.store.get(key, self.device)


@dataclass(frozen=True)
class FreshParams:
    """Tensors that every client draws in each round, from (seed, round, client), by their patterns."""

    model: Blocks
    names: tuple[str, ...]
    seed: int

    def given(self, start: State, plan: Plan, cohort: Cohort, t: int) -> State:
        """What clients start from, with a row drawn by each of those that hold such a tensor."""
        drawn = [place for place, _ in places(start) if matches(place, self.names)]
        if not drawn:
            return start
        held = {place: set(holders(plan, place)) for place in drawn}
        rows: dict[str, list[Tensor]] = {place: [] for place in drawn}
        for n, client in enumerate(cohort.ids):
            self.model.draw(generator(self.seed, t, client, "adapters"))
            trained = self.model.trained()
            for place in drawn:
                if n in held[place]:
                    rows[place].append(trained[place].detach().clone())
        stacked = {place: torch.stack(own) for place, own in rows.items() if own}
        return {**start, **mapped(lambda place, value: stacked.get(place, value), start)}


Aggregate = Callable[[State, Uploads, Plan, Cohort], State]
DEPTHS = "depths"  # in a state's memory, by client: how many layers it last held


def remembering(aggregate: Aggregate) -> Aggregate:
    """The same, which also notes how deep the models are that have come back."""

    @functools.wraps(aggregate)
    def remembered(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        depths, M = dict(state["memory"].get(DEPTHS, {})), plan.M.sum(1).tolist()
        depths |= {str(client): M[n] for n, client in enumerate(cohort.ids) if uploads.arrived[n]}
        new = aggregate(state, uploads, plan, cohort)
        return {**new, "memory": {**new["memory"], DEPTHS: depths}}

    return remembered


def answering(made: Method) -> Method:
    """Return the same, for clients whose model has its first layers, as many as it last held, and the head behind them.

    A client that never came back answers with all layers.
    """
    whole, small = (cast(Callable[..., GlobalModel], answer) for answer in (made.predictor, made.at))

    def of_own_depth(model: GlobalModel, state: State, client: int | None) -> GlobalModel:
        depth = min(len(model.layers), state["memory"].get(DEPTHS, {}).get(str(client), len(model.layers)))
        return replace(model, layers=range(depth), exits=[Exit(depth, HEAD)])

    def predictor(state: State, client: int | None = None) -> Predict:
        return of_own_depth(whole(state, client), state, client)

    def at(state: State, size: Size, client: int | None = None) -> Predict:
        return of_own_depth(small(state, size, client), state, client)

    return replace(made, predictor=predictor, at=at)
