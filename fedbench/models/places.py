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
    shared = {}
    for place, value in flat.items():
        kind, _, name = place.partition("/")
        if kind == "r":
            j, _, name = name.partition("/")
            r[int(j)][name] = value
        else:
            shared[name] = value
    return {"r": r, "shared": shared}


def holders(plan: Plan, place: str, group: Sequence[int] | None = None) -> list[int]:
    """The clients, of a group or of all, that hold what stands at `place`: `r/<layer>/<name>` or `shared/<name>`."""
    kind, _, rest = place.partition("/")
    held = plan.M[:, int(rest.split("/")[0])] if kind == "r" else shared_holders(plan, rest)
    return _of_group(held, group)


def trainers(plan: Plan, place: str, group: Sequence[int] | None = None) -> list[int]:
    """The clients, of a group or of all, that train what stands at `place`, and whose rows uploads have."""
    return _of_group(trained_by(plan, place), group)


def trained_by(plan: Plan, place: str) -> Tensor:
    """(N,) bool: who trains what stands at `place`, in whole or in part."""
    kind, _, rest = place.partition("/")
    if kind == "shared":
        held = shared_holders(plan, rest)
        return torch.zeros_like(held) if _is_frozen(plan, rest) else held
    layer, _, name = rest.partition("/")
    trains = plan.trains[:, int(layer)]
    return torch.zeros_like(trains) if _is_frozen(plan, name) else trains


def trained_layers(plan: Plan, r: Sequence[Mapping[str, Any]]) -> Tensor:
    """(N, L) bool: the layers of which each client trains an adapter. r: the adapters of every layer by name, as in
    `Uploads`; a layer without any is trained by nobody."""
    moving = torch.tensor([any(not _is_frozen(plan, name) for name in r_j) for r_j in r], dtype=torch.bool)
    return plan.trains & moving


def name_of(place: str) -> str:
    """What the tensor that stands there is called, which those of equal layers share: `attn.proj.lora_A`."""
    return place.split("/", 2)[-1] if place.startswith("r/") else place.removeprefix("shared/")


def matches(place: str, patterns: Iterable[str]) -> bool:
    """Whether the name of the tensor that stands there matches one of the patterns, as `fnmatch` reads them."""
    return any(fnmatchcase(name_of(place), pattern) for pattern in patterns)


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


def _is_frozen(plan: Plan, name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in plan.frozen)


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
