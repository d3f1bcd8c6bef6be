"""Where a trained tensor stands, `r/<layer>/<name>` or `shared/<name>`, and which clients hold and train it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
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


def by_layer(flat: Mapping[str, Tensor], num_layers: int) -> dict[str, Any]:
    """Values by place in the layout `{"r": [{name: tensor}] * L, "shared": {name: tensor}}`."""
    r: list[dict[str, Tensor]] = [{} for _ in range(num_layers)]
    shared: dict[str, Tensor] = {}
    for place, value in flat.items():
        j = layer_of(place)
        (shared if j is None else r[j])[name_of(place)] = value
    return {"r": r, "shared": shared}


def holders(plan: Plan, place: str, group: Sequence[int] | None = None) -> list[int]:
    """The clients, of a group or of all, that hold what stands at `place`: `r/<layer>/<name>` or `shared/<name>`."""
    j = layer_of(place)
    held = shared_holders(plan, name_of(place)) if j is None else plan.M[:, j]
    return _of_group(held, group)


def trainers(plan: Plan, place: str, group: Sequence[int] | None = None) -> list[int]:
    """The clients, of a group or of all, that train what stands at `place`, and whose rows uploads have."""
    return _of_group(trained_by(plan, place), group)


def trained_by(plan: Plan, place: str) -> Tensor:
    """(N,) bool: who trains what stands at `place`, in whole or in part."""
    j, name = layer_of(place), name_of(place)
    trains = shared_holders(plan, name) if j is None else plan.trains[:, j]
    return torch.zeros_like(trains) if named_by(name, plan.frozen) else trains


def trained_layers(plan: Plan, r: Sequence[Mapping[str, Any]]) -> Tensor:
    """(N, L) bool: the layers of which each client trains an adapter. r: the adapters of every layer by name, as in
    `Uploads`; a layer without any is trained by nobody."""
    moving = torch.tensor([any(not named_by(name, plan.frozen) for name in r_j) for r_j in r], dtype=torch.bool)
    return plan.trains & moving


def at_classifier(place: str) -> bool:
    """Whether the tensor there is a classifier's, see `of_classifier`."""
    return layer_of(place) is None and of_classifier(name_of(place))


def layer_of(place: str) -> int | None:
    """The layer, from 0, that the tensor there stands in; None where it is shared."""
    kind, _, rest = place.partition("/")
    return int(rest.partition("/")[0]) if kind == "r" else None


def name_of(place: str) -> str:
    """What the tensor that stands there is called, which those of equal layers share: `attn.proj.lora_A`."""
    return place.split("/", 2)[-1] if place.startswith("r/") else place.removeprefix("shared/")


def matches(place: str, patterns: Iterable[str]) -> bool:
    """Whether the name of the tensor that stands there matches one of the patterns, as `fnmatch` reads them."""
    return named_by(name_of(place), patterns)


def named_by(name: str, patterns: Iterable[str]) -> bool:
    """Whether a tensor's name matches one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def started(value: Tensor, plan: Plan, place: str, dim: int) -> Tensor:
    """(n, ...): what those who train the tensor of `dim` axes at `place` began with, of what the server gave: one value
    for everybody, or a row for each that holds it."""
    train = trainers(plan, place)
    if value.dim() == dim:
        return value.expand(len(train), *value.shape)
    held = holders(plan, place)
    return value if held == train else value[[held.index(n) for n in train]]


def _of_group(chosen: Tensor, group: Sequence[int] | None) -> list[int]:
    return [n for n in (range(len(chosen)) if group is None else group) if chosen[n]]


def shared_holders(plan: Plan, name: str) -> Tensor:
    """(N,) bool: who holds the shared tensor `name`."""
    return torch.tensor([holds({e.classifier for e in exits}, name) for exits in plan.exits], dtype=torch.bool)


def holds(classifiers: Iterable[str], name: str) -> bool:
    """Whether a client with these classifiers holds the shared tensor `name`: its classifiers', and all that is
    not one's."""
    return not of_classifier(name) or name.rsplit(".", 1)[0] in classifiers


def of_classifier(name: str) -> bool:
    """Whether a shared tensor is some classifier's, `<classifier>.<x>`; those of the model, `model.<...>`, and those
    without a dot are everybody's."""
    return "." in name and not name.startswith("model.")
