"""A layer of a suite against the models: short spellings written out, faults told plainly, wrong parts taken out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from fedbench.registry.catalogue import Catalogue
from fedbench.suite import keys
from fedbench.suite.belonging import belongs, near_home
from fedbench.suite.devices import Devices
from fedbench.suite.faults import Stragglers
from fedbench.suite.node import INVALID, Node, Path
from fedbench.suite.problems import Problems
from fedbench.suite.shapes import keys_of
from fedbench.types import SIZES
from fedbench.words import nearest, shown, suggestion

MOST = 500  # faults of a layer that are looked into; nobody reads more, and each costs a copy of its mapping

# What every cell needs and no default gives.
NEEDED = ("backbone", "data")

# What these mappings must say where a suite has them; no default does.
WHOLE = {
    ("faults", "stragglers"): tuple(Stragglers.__annotations__),
    ("faults", "corrupted"): ("probability", "kind"),
}

# Where settings name components: dotted path -> kind. A list stands for each of its items.
COMPONENTS = {"backbone": "backbone", "adapter": "adapter", "data": "dataset", "data.partition": "partition"}

_A_NAME = "letters, digits, and _ - . + after the first, at most 80 of them"
_REFERENCE = "a name, or {name: ..., option: value}"
_EXPECTED = {
    "backbone": _REFERENCE,
    "adapter": _REFERENCE,
    "data": _REFERENCE,
    "partition": _REFERENCE,
    "proxy": "{images: ...}, {fraction: ...} or null",
    "metrics": "a list of names",
    "capacities": "all, a list with a depth for each client, {by_domain: [...]} or {uniform: [lowest, highest]}",
    "ranks": "a number from 1, a list with a rank for each client, {by_domain: [...]}, {uniform: [lowest, highest]} "
    "or null",
    "widths": "a number above 0 and at most 1, a list with a width for each client, {by_domain: [...]}, {uniform: "
    "[lowest, highest]} or null",
    "devices": "a list with a device for each client, {device: share}, {by_domain: [...]}, one device or null",
    "fit": "memory, {seconds: ...}, {bytes: ...}, or several of them",
    "participation": "all, {fraction: ...}, {count: ...} or {per_domain: ...}",
    "guard": "{max_norm: ...} or null",
    "regularizer": "{feddyn: ...}, {fedprox: ...} or null",
    "methods": "a list of names, or of {name: ..., extends: ..., option: value}",
    "sweep": "a mapping from dotted keys to lists of points",
    "expected": "a list of numbers, or {file: ..., paper: ..., table: ...}",
}
_TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a text",
    "list_type": "a list",
    "dict_type": "a mapping (key: value)",
}
_BOUNDS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "of at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "of at most"),
}


@cache
def adapter(shape: Any) -> TypeAdapter:
    """pydantic's validator of a model, built when first asked for."""
    return TypeAdapter(shape)


def settings(node: Node, problems: Problems, catalogue: Catalogue | None = None) -> Node:
    """Partial settings, written out and checked. catalogue: knows where keys belong that stand in the wrong place."""
    return _told_once(_validated(_written_out(node), keys.Settings, problems, "", catalogue), problems)


def suite_file(node: Node, problems: Problems, catalogue: Catalogue | None = None) -> Node:
    """A whole suite, written out and checked. catalogue: as `settings` has it."""
    for path in (("defaults",), *_names(node, "scenarios"), *_names(node, "overlays")):
        node = _change(node, path, _written_out)
    for scenario in _names(node, "scenarios"):
        for path in _names(node, *scenario, "methods"):
            node = _change(node, (*path, "adapter"), _named)
    methods = node.get("methods")
    if methods and isinstance(methods.value, list):
        listed = [_change(_named(method), ("adapter",), _named) for method in methods.value]
        node = node.put(("methods",), replace(methods, value=listed))
    node = _validated(node, keys.SuiteFile, problems, "", catalogue)
    for path in (("defaults",), *_names(node, "scenarios"), *_names(node, "overlays")):
        _change(node, path, lambda layer: _told_once(layer, problems))
    return node


def _told_once(layer: Node, problems: Problems) -> Node:
    """The layer; where it gives its clients devices and sizes too, that is told."""
    devices = layer.get("devices") if layer.is_mapping else None
    for key in SIZES if devices is not None and devices.value is not None else ():
        if (given := layer.get(key)) is not None and given.value is not None:
            problems.add(given.named, f"{key}: devices are given here, and sizes come of them; say one of the two")
    return layer


def expected_file(node: Node, problems: Problems) -> Node:
    """Which rows of which file `expected` means, checked."""
    return _validated(node, keys.ExpectedFile, problems, "expected")


def _names(node: Node, *section: str | int) -> list[Path]:
    part = node.get(*section)
    return [(*section, name) for name in part.value] if part and part.is_mapping else []


def _written_out(node: Node) -> Node:
    """Settings spelled in full: `vit` as {name: vit}, lists of capacities, ranks and widths as {by_client:
    ...}, `all` as {all: true}, and everybody's rank or width as {uniform: [it, it]}."""
    for dotted in COMPONENTS:
        node = _change(node, tuple(dotted.split(".")), _named)
    node = _change(node, ("evaluation", "metrics"), _named_items)
    for key in SIZES:
        node = _change(node, (key,), lambda n: _wrap(n, "by_client", n) if isinstance(n.value, list) else n)
    node = _change(node, ("ranks",), lambda n: _everybodys(n) if type(n.value) is int and n.value >= 1 else n)
    node = _change(node, ("widths",), lambda n: _everybodys(n) if _is_width(n.value) else n)
    node = _change(_change(node, ("devices",), _devices), ("fit",), _fit)
    everyone = Node(True, node.mark)
    for path in (("capacities",), ("participation",)):
        node = _change(node, path, lambda n: _wrap(n, "all", everyone) if n.value == "all" else n)
    return node


def _is_width(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1


def _devices(node: Node) -> Node:
    """A list as {by_client: ...}, one name as everybody's, names with numbers as {shares: ...}."""
    if isinstance(node.value, list):
        return _wrap(node, "by_client", node)
    if isinstance(node.value, str):
        return _wrap(node, "shares", _wrap(node, node.value, replace(node, value=1.0)))
    if not node.is_mapping or not node.value or node.value.keys() & Devices.__annotations__.keys():
        return node
    return _wrap(node, "shares", node)


def _fit(node: Node) -> Node:
    """`memory` as {memory: true}."""
    return _wrap(node, "memory", replace(node, value=True)) if node.value == "memory" else node


def _change(node: Node, path: Path, change: Callable[[Node], Node]) -> Node:
    part = node.get(*path)
    return node.put(path, change(part)) if part else node


def _wrap(node: Node, key: str, part: Node) -> Node:
    return Node({key: replace(part, mark=node.mark, key=node.mark)}, node.mark, node.key)


def _everybodys(node: Node) -> Node:
    """One number as the span from itself to itself."""
    return _wrap(node, "uniform", replace(node, value=[node, node]))


def _named(node: Node) -> Node:
    return _wrap(node, "name", node) if isinstance(node.value, str) else node


def _named_items(node: Node) -> Node:
    return replace(node, value=[_named(item) for item in node.value]) if isinstance(node.value, list) else node


def _validated(node: Node, shape: Any, problems: Problems, where: str, catalogue: Catalogue | None = None) -> Node:
    try:
        adapter(shape).validate_python(node.plain())
    except ValidationError as found:
        missing: dict[Path, list[str]] = {}
        errors = found.errors(include_url=False)
        for error in errors[:MOST]:
            if error["type"] == "missing":
                missing.setdefault(error["loc"][:-1], []).append(str(error["loc"][-1]))
            else:
                node = _report(node, error, shape, problems, where, catalogue)
        for path, names in missing.items():
            problems.add(node.at(*path).named, f"{_title(path, where)} needs {', '.join(map(shown, names))}")
        if len(errors) > MOST:  # what is wrong with the others stands in the tree yet
            problems.raise_any()
    return node


def _report(
    node: Node, error: ErrorDetails, shape: Any, problems: Problems, where: str, catalogue: Catalogue | None
) -> Node:
    """Tell one of pydantic's errors where it belongs, and take the wrong part out of the tree."""
    path: Path = error["loc"]
    kind = error["type"]
    if path and path[-1] == "[key]":
        problems.add(node.at(*path[:-1]).named, f"expected {_A_NAME}, got {shown(path[-2])}")
        return node
    at = node.get(*path)
    if kind == "extra_forbidden":
        assert at is not None, path
        problems.add(at.named, _unknown(path, shape, where, catalogue))
        node = node.put(path, None)
        meant = nearest(str(path[-1]), NEEDED)
        if (
            meant and meant[0] in keys_of(shape, path[:-1]) and node.get(*path[:-1], meant[0]) is None
        ):  # or it would be told again as missing
            node = node.put((*path[:-1], meant[0]), Node(INVALID, at.mark, at.key))
        return node
    if at is None:
        problems.add(node.named, f"{_title(path, where)}: {error['msg']}")
        return node
    if at.is_valid:  # what the reader could not make sense of has been told by it
        problems.add(at.mark, f"{_title(path, where)}: {_wrong(error, path, at)}")
    return node.put(path, replace(at, value=INVALID))


def _title(path: Path, where: str, root: str = "a suite") -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    return " ".join(part for part in (where, text) if part) or root


def _wrong(error: ErrorDetails, path: Path, at: Node) -> str:
    """What was expected and what stands there."""
    kind, context, value = error["type"], error.get("ctx", {}), at.plain()
    last = next((step for step in reversed(path) if isinstance(step, str)), "")
    if kind == "plain":
        return str(error["msg"])
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        noun = "a whole number" if isinstance(value, int) and isinstance(context[key], int) else "a number"
        return f"expected {noun} {words} {context[key]:g}, got {shown(value)}"
    if kind == "literal_error":
        choices = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        near = suggestion(value, choices, "") if isinstance(value, str) else ""
        return f"expected {context['expected'].replace(chr(39), chr(34))}, got {shown(value)}{near}"
    if kind == "too_short":
        return "must not be empty"
    if kind in ("string_pattern_mismatch", "string_too_long"):
        return f"expected {_A_NAME}, got {shown(value)}"
    expected = _TYPES.get(kind)
    if kind in ("dict_type", "list_type") and path:
        item = isinstance(path[-1], int) and last in ("methods", "metrics")
        expected = _REFERENCE if item else _EXPECTED.get(str(path[-1]), expected)
    if expected is None:
        return f"{error['msg']}, got {shown(value)}"
    if value is None and at.mark == at.key:
        return f"expected {expected}, got nothing; what belongs to it is indented further than it is"
    hint = "; YAML 1.2 writes true and false" if kind == "bool_type" and isinstance(value, str) else ""
    return f"expected {expected}, got {shown(value)}{hint}"


def _unknown(path: Path, shape: Any, where: str, catalogue: Catalogue | None) -> str:
    """`unknown key "roundz" in train; did you mean "rounds"?`"""
    key, known = str(path[-1]), keys_of(shape, path[:-1])
    title = _title(path[:-1], where)
    told = f"unknown key {shown(key)}" + (f" in {title}" if title != _title((), "") else "")
    near = suggestion(key, known, "")
    return told + (belongs(key, catalogue, known) or near or near_home(key) or suggestion(key, known))
