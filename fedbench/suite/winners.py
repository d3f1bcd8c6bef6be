"""A suite after its tuning as a suite without one: for others to run, with what each method has chosen written down."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ruamel.yaml import YAML

from fedbench.data.sources import relative_root
from fedbench.registry.catalogue import OWN_SETTINGS, Catalogue
from fedbench.suite.assignments import KEYS
from fedbench.suite.node import Problems
from fedbench.suite.points import Group, Suite
from fedbench.suite.references import FollowsSeed
from fedbench.suite.resolve import load
from fedbench.suite.setting_layers import EACH_EPOCH
from fedbench.suite.yaml import read
from fedbench.types import SIZES

Plain = dict[str, Any]

WHOLE = {
    *SIZES,
    "devices",
    "fit",
    "participation",
    "regularizer",
    "proxy",
    "metrics",
}  # said as one thing, whatever lies beneath


def text_of(tuned: Suite, catalogue: Catalogue, folder: Path = Path()) -> str:
    """The text of a suite whose points are those of `tuned` (see `Suite.tuned`).

    folder: where it is to lie, to which the roots of its data are relative.
    """
    tuned = _listable(tuned)
    assert tuned.tuning is not None
    labels = {label for group in tuned.groups for label in group.methods}
    listed = read(tuned.path, Problems()).at("methods").plain()
    entries = [entry if isinstance(entry, dict) else {"name": entry} for entry in listed] + [*tuned.added.values()]
    base: Plain = {
        "suite": f"{tuned.name}_winners"[:80],
        **({"description": tuned.description} if tuned.description else {}),
        "profile": tuned.profile,
        "defaults": {},
        "scenarios": {},
        "methods": [_short(entry) for entry in entries if entry["name"] in labels],
        "seeds": list(tuned.seeds),
        **({"timeout": tuned.timeout} if tuned.timeout else {}),
    }
    settings = [_settings(group, tuned.base, folder) for group in tuned.groups]
    base["defaults"] = _common(settings)
    names = _names(tuned.groups)
    for name, own in zip(names, settings, strict=True):
        base["scenarios"][name] = _beyond(own, base["defaults"])
    without = {group.scenario: group for group in _read(_dumped(base), catalogue).groups}
    for name, group in zip(names, tuned.groups, strict=True):
        words = {label: _words(group, without[name], label) for label in group.methods}
        if said := {label: word for label, word in words.items() if word}:
            base["scenarios"][name]["methods"] = said
    k, seeds = tuned.tuning.trials, ", ".join(map(str, tuned.tuning.seeds))
    again = f", the best two again on {', '.join(map(str, tuned.tuning.confirm))}" if tuned.tuning.confirm else ""
    return (
        f"# What {Path(tuned.path).name} chose: for each method the best of {k} candidates on validation examples.\n"
        f"# Candidates were tried on seed {seeds}{again}. Written by `fedbench tune`; this file tunes nothing.\n"
    ) + _dumped(base)


def _listable(tuned: Suite) -> Suite:
    """The suite with a name that a file may have for each row of the command line: `fedra-missing_layers-cover`."""
    names = {label: _name(label) for label in tuned.added}

    def named(by_label: Mapping[str, Any]) -> Plain:
        return {names.get(label, label): value for label, value in by_label.items()}

    groups = (replace(group, methods=named(group.methods), own=named(group.own)) for group in tuned.groups)
    added = {names[label]: {**entry, "name": names[label]} for label, entry in tuned.added.items()}
    return replace(tuned, groups=tuple(groups), added=added)


def _name(text: str) -> str:
    """What a suite can call a scenario or a method."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", text)[:80].strip("-")


def _read(text: str, catalogue: Catalogue) -> Suite:
    with TemporaryDirectory() as folder:
        (file := Path(folder) / "suite.yaml").write_text(text, encoding="utf-8")
        return load(file, catalogue)


def _short(entry: Mapping[str, Any]) -> Any:
    return entry["name"] if set(entry) == {"name"} else dict(entry)


def _settings(group: Group, base: Path, folder: Path) -> Plain:
    """As a suite in that folder says them; spelled as they were where that is where they were said."""
    found = {**group.settings, **({KEYS[group.assign]: True} if group.assign else {})}
    if "devices" in found:  # of which capacities come
        del found["capacities"]
    if found["train"]["max_steps"] == EACH_EPOCH:
        found["train"] = {**found["train"], "max_steps": "smallest"}
    if relative_root(found["data"]) and base.resolve() != folder.resolve():
        found["data"] = {**found["data"], "root": os.path.relpath(base / found["data"]["root"], folder)}
    return found


def _names(groups: Sequence[Group]) -> list[str]:
    """A scenario for each place of the sweep, which is part of its name where there are several."""
    scenarios = [group.scenario for group in groups]
    if len(set(scenarios)) == len(groups):
        return scenarios
    return [_name(f"{group.scenario}-{group.variant}") for group in groups]


def _common(all_of: Sequence[Plain]) -> Plain:
    """What all say, key by key; components of different names have nothing in common."""
    first, *others = all_of
    found: Plain = {}
    for key, value in first.items():
        theirs = [other.get(key) for other in others]
        if all(key in other and other[key] == value for other in others):
            found[key] = value
        elif key not in WHOLE and all(isinstance(each, dict) for each in (value, *theirs)):
            parts: list[Plain] = [value, *(each for each in theirs if each)]
            if len({part.get("name") for part in parts}) == 1 and len(parts) == len(all_of):
                found[key] = _common(parts)
    return found


def _beyond(full: Plain, below: Mapping[str, Any]) -> Plain:
    """What of `full` lies above `below`."""
    found: Plain = {}
    for key, value in full.items():
        if key in below and below[key] == value:
            continue
        under = below.get(key)
        mixes = isinstance(value, dict) and isinstance(under, dict) and key not in WHOLE
        if mixes and isinstance(under, dict) and value.get("name") == under.get("name"):
            found[key] = _beyond(value, under)
        else:
            found[key] = value
    return found


def _words(tuned: Group, without: Group, label: str) -> Plain:
    """What a scenario has to say of one method: its options, and its own settings."""
    own, theirs = (group.own.get(label, group.settings) for group in (tuned, without))
    options = _beyond(tuned.methods[label], without.methods[label])
    settings = _beyond({key: own[key] for key in OWN_SETTINGS}, {key: theirs[key] for key in OWN_SETTINGS})
    return {**options, **settings}


def _dumped(suite: Plain) -> str:
    yaml, out = YAML(typ="safe", pure=True), io.StringIO()
    yaml.default_flow_style, yaml.width = None, 120
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # which ruamel declares as None
    yaml.representer.add_representer(FollowsSeed, lambda writer, value: writer.represent_str(str(value)))
    yaml.dump(suite, out)
    return out.getvalue()
