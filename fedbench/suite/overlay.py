"""How layers of settings lie on each other: by key, the upper wins, and a component of another name starts afresh."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce

from fedbench.suite.keys import Data
from fedbench.suite.node import INVALID, Mark, Node
from fedbench.suite.validate import COMPONENTS
from fedbench.types import SIZES

# Components that may stand inside a method's options: dotted path -> kind.
NESTED = {"allocation": "allocation", "aggregator": "aggregator", "objective": "objective"}

# Mappings that say one thing: replaced, never mixed.
_WHOLE = (*SIZES, "devices", "fit", "device_scale", "participation", "train.regularizer", "data.proxy")

# Where an upper layer says the one, the other is forgotten; without a value `at` and sizes say nothing. Where devices
# are given, sizes come of them, whatever lies beneath.
_INSTEAD = {"evaluation.every": "at", "evaluation.at": "every", **dict.fromkeys(SIZES, "devices")}
_NEEDS_A_VALUE = ("at", *SIZES)

# What stands beside a data set's name but is not an option of that data set.
BESIDE = {"data": frozenset(Data.__annotations__) - {"name"}}


def merge(under: Node, over: Node, components: Mapping[str, str] = COMPONENTS, path: str = "") -> Node:
    """`over` laid upon `under`. Mappings mix, everything else is replaced; marks stay with their values."""
    if under.value is INVALID and over.is_mapping:
        return under
    if not (under.is_mapping and over.is_mapping) or path in _WHOLE:
        return over
    below = under.value
    if path in components and _renamed(under, over):
        below = {key: node for key, node in below.items() if key in BESIDE.get(path, ())}
    parts = dict(below)
    for key, node in over.value.items():
        inner = f"{path}.{key}" if path else key
        parts[key] = merge(parts[key], node, components, inner) if key in parts else node
        other = _INSTEAD.get(inner)
        said = key not in _NEEDS_A_VALUE or node.value is not None
        if other in parts and other not in over.value and said:
            parts[other] = replace(parts[other], value=None)
    return replace(over, value=parts)


def _renamed(under: Node, over: Node) -> bool:
    old, new = under.get("name"), over.get("name")
    return old is not None and new is not None and old.value != new.value


def stack(layers: Iterable[Node], components: Mapping[str, str] = COMPONENTS) -> Node:
    """Layers from the bottom to the top as one."""
    return reduce(lambda under, over: merge(under, over, components), layers)


def written_out(options: Node) -> Node:
    """A method's options with `allocation: random` as {name: random}."""
    parts = dict(options.value)
    for key in NESTED.keys() & parts.keys():
        part = parts[key]
        if isinstance(part.value, str):
            parts[key] = replace(part, value={"name": replace(part, key=part.mark)})
    return replace(options, value=parts)


def nest(dotted: str, node: Node, key: Mark) -> Node:
    """`train.rounds`: 3 as {train: {rounds: 3}}; `key` is where the dotted key stands."""
    node = replace(node, key=key)
    for step in reversed(dotted.split(".")):
        node = Node({step: node}, key, key)
    return node


def sets_anew(layer: Node, dotted: str) -> bool:
    """Whether a layer replaces what stands at a dotted key, so that whatever lies under it there cannot matter."""
    node, path = layer, ""
    for key in dotted.split("."):
        if not node.is_mapping or path in _WHOLE:
            return True
        if key not in node.value:
            return False
        node, path = node.value[key], f"{path}.{key}".lstrip(".")
    return not node.is_mapping or "name" in node.value or dotted in _WHOLE
