"""What keys a suite may hold and where, asked of its typed dictionaries."""

from __future__ import annotations

import types
import typing
from functools import cache
from typing import Annotated, Any

from typing_extensions import get_type_hints, is_typeddict

from fedbench.suite.keys import Settings
from fedbench.suite.node import Path
from fedbench.types import SIZES


@cache
def homes() -> list[str]:
    """Every dotted key of the settings."""
    found: list[str] = []
    open_paths: list[tuple[tuple[str, ...], Any]] = [((), Settings)]
    while open_paths:
        path, shape = open_paths.pop(0)
        for key in keys_of(shape):
            found.append(".".join((*path, key)))
            inner = inside(shape, key)
            if is_typeddict(inner) and key not in (*SIZES, "participation", "proxy", "devices", "fit", "device_scale"):
                open_paths.append(((*path, key), inner))
    return [key for key in found if not key.endswith(".name") or key.startswith("train")]


def keys_of(shape: Any, path: Path = ()) -> list[str]:
    """The keys of the mapping at a path of `shape`; none where there is no mapping."""
    for step in path:
        shape = inside(shape, step)
    return list(_hints(shape)) if is_typeddict(shape) else []


@cache
def _hints(shape: Any) -> dict[str, Any]:
    return get_type_hints(shape)


def inside(shape: Any, step: str | int) -> Any:
    """The type of a mapping's value or a list's item."""
    if is_typeddict(shape):
        shape = _hints(shape).get(str(step), Any)
    else:
        arguments = typing.get_args(shape)
        shape = arguments[-1] if arguments else Any
    while typing.get_origin(shape) is Annotated:
        shape = typing.get_args(shape)[0]
    if typing.get_origin(shape) in (typing.Union, types.UnionType):  # a mapping or null
        shape = next(filter(is_typeddict, typing.get_args(shape)), shape)
    return shape
