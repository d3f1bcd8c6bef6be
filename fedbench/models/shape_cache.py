"""What is found of models that are equal in shape, found once in a process: a plan meets them in many cells."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from torch import nn

from fedbench.seeding import global_generator

Found = TypeVar("Found")
Parameters = tuple[tuple[str, Hashable, bool], ...]

_found: dict[Hashable, Any] = {}


def once(origin: str | None, parameters: Parameters, key: Hashable, find: Callable[[], Found]) -> Found:
    """What find() gives, kept for models of this origin (see `Body`) with these parameters; computed again where the
    origin is not known. key: what else it depends on."""
    if origin is None:
        return find()
    whole_key = (origin, parameters, key)
    if whole_key not in _found:
        _found[whole_key] = find()
    found: Found = _found[whole_key]
    return found


def attaching(attach: Callable[[Any], None], ref: Mapping[str, Any], seed: int) -> Callable[[Any], None]:
    """attach(model), after which the model's origin names the adapter as well: what it costs without does not depend on
    that. seed: the cell's; what a module's constructor draws of frozen tensors from torch's generator follows from it.
    """

    def attached(model: Any) -> None:
        with global_generator(seed, use="adapter"):
            attach(model)
        model.origin = f"{model.origin} {json.dumps(ref, sort_keys=True)}"

    return attached


def parameters_of(model: nn.Module) -> Parameters:
    """All parameters by name, with their shapes, and whether they are trained."""
    return tuple((name, p.shape, p.requires_grad) for name, p in model.named_parameters())


def identity(function: Callable[..., Any]) -> Hashable:
    """Equal for one function with the same options."""
    if isinstance(function, functools.partial):
        return function.func, repr(function.args), repr(sorted(function.keywords.items()))
    return function
