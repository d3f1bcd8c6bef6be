"""Copies of models, module by module: what `copy.deepcopy` and `Module.to` give, in a fraction of their time."""

from __future__ import annotations

import copy
import functools
import itertools
from collections import OrderedDict
from typing import Any, TypeVar, cast

import torch
from torch import nn

Copied = TypeVar("Copied")
Model = TypeVar("Model", bound=nn.Module)

_ATOMS = {type(None), bool, int, float, str}


def copied(value: Copied, memo: dict[int, Any] | None = None) -> Copied:
    """A copy of a model, or of what stands in one. memo: what stands in for some of its parts, by their `id`, as for
    `copy.deepcopy`, which is left all that is neither a plain module nor a plain dictionary: tensors, and classes
    that say themselves how they are copied."""
    return value if type(value) in _ATOMS else cast(Copied, _copied(value, {} if memo is None else memo))


def moved(model: Model, device: torch.device | str) -> Model:
    """The model itself, on that device; one that is there already is not walked through layer by layer."""
    there = torch.device(device)
    tensors = itertools.chain(model.parameters(), model.buffers())
    return model if all(one.device == there for one in tensors) else model.to(there)


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    """What is no atom itself: atoms are let by where they are met, since most of a model is names and numbers."""
    key = id(value)
    if key in memo:
        return memo[key]
    kind: Any = type(value)
    if kind is dict or kind is OrderedDict:
        made: Any = kind()
        memo[key] = made  # first, for it may stand in itself
        for name, part in value.items():
            made[name if type(name) in _ATOMS else _copied(name, memo)] = (
                part if type(part) in _ATOMS else _copied(part, memo)
            )
        return made
    if kind in (set, tuple) and all(type(part) in _ATOMS for part in value):
        return memo.setdefault(key, kind(value))
    if isinstance(value, nn.Module) and _is_plain(kind):
        made = object.__new__(kind)
        memo[key] = made
        vars(made).update(
            (name, part if type(part) in _ATOMS else _copied(part, memo)) for name, part in vars(value).items()
        )
        return made
    return copy.deepcopy(value, memo)


@functools.cache
def _is_plain(kind: type) -> bool:
    """Whether instances are what their `__dict__` holds, and no method of theirs copies them."""
    own = {name for base in kind.__mro__ if base not in (object, nn.Module) for name in vars(base)}
    return not own & {
        "__deepcopy__",
        "__getnewargs__",
        "__getnewargs_ex__",
        "__getstate__",
        "__new__",
        "__reduce__",
        "__reduce_ex__",
        "__setstate__",
        "__slots__",
    }
