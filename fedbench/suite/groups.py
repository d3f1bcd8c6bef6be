"""Checked settings as a configuration holds them: equal cells look equal, and nothing says that nothing happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedbench.suite import profiles, validate
from fedbench.suite.keys import Settings
from fedbench.suite.node import Node
from fedbench.suite.points import Group
from fedbench.types import SIZES


def group_of(
    scenario: str, variant: str, settings: Node, methods: Mapping[str, Node], own: Mapping[str, Node]
) -> Group:
    """The points of a scenario at one place of the sweep. own: the settings of methods that have their own."""
    plain, rotate = _plain(settings)
    theirs = {label: _plain(node)[0] for label, node in own.items()}
    nodes = {label: (method, own.get(label, settings)) for label, method in methods.items()}
    options = {label: method.plain() for label, method in methods.items()}
    return Group(scenario, variant, plain, options, rotate, theirs, nodes)


def _plain(settings: Node) -> tuple[dict[str, Any], bool]:
    """The settings once more through the model, which turns 1 into 1.0 where it must; and whether they rotate."""
    plain = validate.adapter(Settings).validate_python(settings.plain())
    rotate: bool = plain.pop("rotate_capacities")
    plain["engine"] = profiles.ENGINES[plain["engine"]]
    if plain["train"]["max_steps"] == "smallest" and plain["train"]["local_epochs"] > 1:
        plain["train"]["max_steps"] = profiles.EACH_EPOCH
    _leave_out_nothing(plain)
    return plain, rotate


def _leave_out_nothing(plain: dict[str, Any]) -> None:
    """Take out what says that nothing is to happen: the cell is the same as one without the key."""
    for key in SIZES:
        if plain.get(key) is None:
            plain.pop(key, None)
    if plain["data"].get("proxy") is None:
        plain["data"].pop("proxy", None)
    for key in ("regularizer", "guard"):
        if plain["train"].get(key) is None:
            plain["train"].pop(key, None)
    for key, nothing in (("by", "domain"), ("at", None), ("validation", None), ("sizes", False)):
        if plain["evaluation"].get(key) == nothing:
            plain["evaluation"].pop(key, None)
    faults = plain.get("faults", {})
    if not faults.get("dropout"):
        faults.pop("dropout", None)
    for key in ("stragglers", "corrupted"):
        if not (faults.get(key) or {}).get("probability"):
            faults.pop(key, None)
    if not faults:
        plain.pop("faults", None)
