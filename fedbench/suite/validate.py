"""Validation of a layer of a suite: short spellings written out, faults reported, wrong parts taken out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

from pydantic import ValidationError

from fedbench.registry.catalogue import Catalogue
from fedbench.schema import Fault, KeyPath, adapter, explained, keys_of, schema_of
from fedbench.suite import client_keys, keys
from fedbench.suite.keys import Settings, StragglerKeys
from fedbench.suite.values import A_NAME
from fedbench.suite.yaml import INVALID, Node, Problems
from fedbench.types import SIZES
from fedbench.words import nearest, shortened, shown, suggestion

# Where components are named whose options may be looked for elsewhere: kind -> dotted path.
PLACES = {
    "adapter": "adapter",
    "dataset": "data",
    "partition": "data.partition",
    "backbone": "backbone",
    "method": "methods",
}
WITHOUT_HOME = (*SIZES, "participation", "proxy", "devices", "fit", "device_scale")  # whose keys mean nothing elsewhere
MOST_NAMED = 3  # components that are named


@cache
def schema(shape: Any) -> dict[str, Any]:
    """The JSON Schema of a typed dictionary of `keys`."""
    return schema_of(shape)


@cache
def homes() -> list[str]:
    """Every dotted key of the settings."""
    found: list[str] = []
    paths: list[tuple[str, ...]] = [()]
    for path in paths:  # which grows meanwhile
        keys = [(*path, key) for key in keys_of(schema(Settings), path)]
        found += [".".join(key) for key in keys if key[-1] != "name" or key[0] == "train"]
        paths += [key for key in keys if key[-1] not in WITHOUT_HOME]
    return found


def belongs(key: str, catalogue: Catalogue | None, known: Iterable[str] = ()) -> str:
    """`; it belongs to adapter (an option of lora)`: nothing where no place is known for the key, or it is one of
    `known`, which is what there is in its own place."""
    if key in known:
        return ""
    home = next((home for home in homes() if home.split(".")[-1] == key), None)
    places = [] if home is None else [home.rpartition(".")[0] or "the settings, under defaults or a scenario"]
    for kind, place in PLACES.items() if catalogue else ():
        having = (
            [name for name, found in catalogue.components[kind].items() if key in found.options] if catalogue else []
        )
        if having:
            places.append(f"{place} (an option of {shortened(having, MOST_NAMED)})")
    return f"; it belongs to {' or '.join(places)}" if places else ""


def near_home(key: str) -> str:
    """`; did you mean "train.local_epochs"?`, where a key of the settings is near, wherever it stands."""
    places = {home.split(".")[-1]: home for home in reversed(homes())}
    near = nearest(key, places) if len(key) > 2 else []  # of two letters, every other name has one
    return f"; did you mean {shown(places[near[0]])}?" if near else ""


MOST = 500  # faults of a layer that are looked into; nobody reads more, and each costs a copy of its mapping

# What every cell needs and no default gives.
NEEDED = ("backbone", "data")

# What these mappings must say where a suite has them; no default does.
WHOLE = {
    ("faults", "stragglers"): tuple(StragglerKeys.__annotations__),
    ("faults", "corrupted"): ("probability", "kind"),
    ("privacy",): ("clip", "noise"),
}

# Where settings name components: dotted path -> kind. A list stands for each of its items.
COMPONENTS = {"backbone": "backbone", "adapter": "adapter", "data": "dataset", "data.partition": "partition"}


def settings(node: Node, problems: Problems, catalogue: Catalogue | None = None) -> Node:
    """Partial settings, written out and checked. catalogue: knows where keys belong that stand in the wrong place."""
    return _reported_once(_validated(_written_out(node), keys.Settings, problems, "", catalogue), problems)


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
    node = _validated(node, keys.SuiteKeys, problems, "", catalogue)
    for path in (("defaults",), *_names(node, "scenarios"), *_names(node, "overlays")):
        _change(node, path, lambda layer: _reported_once(layer, problems))
    return node


def _reported_once(layer: Node, problems: Problems) -> Node:
    """The layer; devices and sizes together are reported."""
    devices = layer.get("devices") if layer.is_mapping else None
    for key in SIZES if devices is not None and devices.value is not None else ():
        if (given := layer.get(key)) is not None and given.value is not None:
            problems.add(given.named, f"{key}: devices are given here, and sizes come of them; say one of the two")
    return layer


def expected_file(node: Node, problems: Problems) -> Node:
    """Which rows of which file `expected` means, checked."""
    return _validated(node, keys.ExpectedFileKeys, problems, "expected")


def shaped(node: Node, shape: Any, problems: Problems, where: str) -> Node:
    """A file of another kind, such as `the entry`, checked as a suite is."""
    return _validated(node, shape, problems, where)


def _names(node: Node, *section: str | int) -> list[KeyPath]:
    part = node.get(*section)
    return [(*section, name) for name in part.value] if part and part.is_mapping else []


def _written_out(node: Node) -> Node:
    """Settings spelled in full: `vit` as {name: vit}, lists of capacities, ranks, widths and devices as {by_client:
    ...}, `all` as {all: true}, and everybody's rank or width as {uniform: [it, it]}."""
    for dotted in COMPONENTS:
        node = _change(node, tuple(dotted.split(".")), _named)
    node = _change(node, ("evaluation", "metrics"), _named_items)
    for key, spell in _SPELLINGS.items():
        node = _change(node, (key,), spell)
    return node


def _all(node: Node) -> Node:
    return _wrap(node, "all", replace(node, value=True)) if node.value == "all" else node


def _listed(node: Node) -> Node:
    return _wrap(node, "by_client", node) if isinstance(node.value, list) else node


def _everybodys(node: Node, right: bool) -> Node:
    """One number, if it is right, as the span from itself to itself; a list as {by_client: ...}."""
    return _wrap(node, "uniform", replace(node, value=[node, node])) if right else _listed(node)


def _devices(node: Node) -> Node:
    """A list as {by_client: ...}, one name as everybody's, names with numbers as {shares: ...}."""
    if isinstance(node.value, str):
        return _wrap(node, "shares", _wrap(node, node.value, replace(node, value=1.0)))
    if not node.is_mapping or not node.value or node.value.keys() & client_keys.DevicesKeys.__annotations__.keys():
        return _listed(node)
    return _wrap(node, "shares", node)


def _fit(node: Node) -> Node:
    """`memory` as {memory: true}."""
    return _wrap(node, "memory", replace(node, value=True)) if node.value == "memory" else node


_SPELLINGS: dict[str, Callable[[Node], Node]] = {
    "capacities": lambda node: _listed(_all(node)),
    "ranks": lambda node: _everybodys(node, type(node.value) is int and node.value >= 1),
    "widths": lambda node: _everybodys(node, type(node.value) in (int, float) and 0 < node.value <= 1),
    "devices": _devices,
    "fit": _fit,
    "participation": _all,
}


def _change(node: Node, path: KeyPath, change: Callable[[Node], Node]) -> Node:
    part = node.get(*path)
    return node.put(path, change(part)) if part else node


def _wrap(node: Node, key: str, part: Node) -> Node:
    return Node({key: replace(part, mark=node.mark, key=node.mark)}, node.mark, node.key)


def _named(node: Node) -> Node:
    return _wrap(node, "name", node) if isinstance(node.value, str) else node


def _named_items(node: Node) -> Node:
    return replace(node, value=[_named(item) for item in node.value]) if isinstance(node.value, list) else node


def _validated(node: Node, shape: Any, problems: Problems, where: str, catalogue: Catalogue | None = None) -> Node:
    plain = node.plain()
    try:
        adapter(shape).validate_python(plain)
    except ValidationError as error:
        for fault in explained(error, schema(shape), plain, MOST):
            node = _report(node, fault, shape, problems, where, catalogue)
        if error.error_count() > MOST:  # what is wrong with the others stands in the tree yet
            problems.raise_any()
    return node


def _report(node: Node, fault: Fault, shape: Any, problems: Problems, where: str, catalogue: Catalogue | None) -> Node:
    """Tell a fault where it belongs, and take the wrong part out of the tree."""
    path, at = fault.path, node.at(*fault.path)
    if fault.kind == "extra_forbidden":
        problems.add(at.named, _unknown(path, shape, where, catalogue))
        node = node.put(path, None)
        meant = nearest(str(path[-1]), NEEDED)
        if meant and meant[0] in keys_of(schema(shape), path[:-1]) and node.get(*path[:-1], meant[0]) is None:
            node = node.put((*path[:-1], meant[0]), Node(INVALID, at.mark, at.key))  # or it is reported as missing too
        return node
    if fault.kind == "missing":
        problems.add(at.named, f"{_title(path, where)} {fault.message}")
        return node
    if fault.of_key:
        problems.add(at.named, f"expected {A_NAME}, got {shown(path[-1])}")
        return node
    if at.is_valid:  # the YAML reader has reported the others
        message = fault.message
        if at.value is None and at.mark == at.key:
            message = message.replace("got null", "got nothing; what belongs to it is indented further than it is")
        problems.add(at.mark, f"{_title(path, where)}: {message}")
    return node.put(path, replace(at, value=INVALID))


def _title(path: KeyPath, where: str) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    return " ".join(part for part in (where, text) if part) or "a suite"


def _unknown(path: KeyPath, shape: Any, where: str, catalogue: Catalogue | None) -> str:
    """`unknown key "roundz" in train; did you mean "rounds"?`"""
    key, known = str(path[-1]), keys_of(schema(shape), path[:-1])
    title = _title(path[:-1], where)
    message = f"unknown key {shown(key)}" + (f" in {title}" if title != _title((), "") else "")
    near = suggestion(key, known, "")
    return message + (belongs(key, catalogue, known) or near or near_home(key) or suggestion(key, known))
