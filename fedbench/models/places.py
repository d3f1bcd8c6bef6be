"""Where a trained tensor stands, `r/<layer>/<name>` or `shared/<name>`, and which clients of a round hold it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedbench.types import Plan

Values = Mapping[str, Any]  # {"r": [{name: tensor}] * L, "shared": {name: tensor}}


def places(values: Values) -> Iterator[tuple[str, Tensor]]:
    """Every tensor with its place, `r/<layer>/<name>` or `shared/<name>`."""
    for j, r_j in enumerate(values["r"]):
        yield from ((f"r/{j}/{name}", value) for name, value in r_j.items())
    yield from ((f"shared/{name}", value) for name, value in values["shared"].items())


def mapped(change: Callable[[str, Tensor], Tensor], values: Values) -> dict[str, Any]:
    """change(place, tensor) of every tensor, in the layout of `values`."""
    r = [{name: change(f"r/{j}/{name}", value) for name, value in r_j.items()} for j, r_j in enumerate(values["r"])]
    return {"r": r, "shared": {name: change(f"shared/{name}", value) for name, value in values["shared"].items()}}


def holders(plan: Plan, place: str, group: Sequence[int] | None = None) -> list[int]:
    """The clients, of a group or of all, that train what stands at `place`: `r/<layer>` or `shared/<name>`."""
    kind, _, rest = place.partition("/")
    held = plan.M[:, int(rest.split("/")[0])] if kind == "r" else shared_holders(plan, rest)
    return [n for n in (range(len(plan.M)) if group is None else group) if held[n]]


def shared_holders(plan: Plan, name: str) -> Tensor:
    """(N,) bool: who trains the shared tensor `name`."""
    return torch.tensor([holds({e.classifier for e in exits}, name) for exits in plan.exits], dtype=torch.bool)


def holds(classifiers: Iterable[str], name: str) -> bool:
    """Whether a client with these classifiers trains the shared tensor `name`: its classifiers', and all that is
    not one's."""
    return name.startswith("model.") or name.rsplit(".", 1)[0] in classifiers
