"""From configurations back to suites: files that are read, and refused, like anybody's."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ruamel.yaml import YAML

from fedbench.reproduction.told import Told
from fedbench.suite import Point, Suite
from fedbench.types import SIZES

OF_POINTS = ("method", "seed", "profile")  # of a configuration, what no scenario says
MOST_SCENARIOS = 50  # of one suite: more go into another file, far below what a suite may hold
MOST_METHODS = 80

Key = tuple[str, str, int]  # scenario, method, seed of a point of a recovered suite


@dataclass
class Recovered:
    """A suite in the making: its scenarios and methods as JSON, by name, and which of its points were told.

    Both keep the names they had; what says something else under a name that is taken gets a number behind it.
    """

    name: str
    profile: str
    scenarios: dict[str, str] = field(default_factory=dict)
    methods: dict[str, str] = field(default_factory=dict)
    cells: dict[Key, list[Told]] = field(default_factory=dict)

    def takes(self, cell: Told) -> bool:
        """Enter a cell; False where there is no more room."""
        sized = tuple(SIZES) if "devices" in cell.config else ()  # these come of those, and a suite may say one
        settings = {key: value for key, value in cell.config.items() if key not in (*OF_POINTS, *sized)}
        given = cell.config["method"]
        method = {**given, **({"extends": given["name"]} if given["name"] != cell.method else {})}
        scenario = _entered(self.scenarios, cell.scenario, settings, MOST_SCENARIOS)
        label = _entered(self.methods, cell.method, method, MOST_METHODS)
        if scenario and label:
            self.cells.setdefault((scenario, label, cell.seed), []).append(cell)
        return bool(scenario and label)

    def text(self) -> str:
        """The suite as YAML."""
        methods = [{**json.loads(options), "name": label} for label, options in self.methods.items()]
        for method, options in zip(methods, self.methods.values(), strict=True):
            registered = json.loads(options)["name"]
            if method["name"] != registered:
                method["extends"] = registered
        tree = {
            "suite": self.name,
            "description": "Recovered by `fedbench reproduce` from the configurations of cells.",
            "profile": self.profile,
            "seeds": sorted({seed for _, _, seed in self.cells}),
            "scenarios": {name: json.loads(settings) for name, settings in self.scenarios.items()},
            "methods": methods,
        }
        yaml, out = YAML(), io.StringIO()
        yaml.width = 110
        yaml.representer.ignore_aliases = lambda _: True
        yaml.dump(tree, out)
        return out.getvalue()

    def points(self, suite: Suite) -> tuple[list[tuple[Told, Point]], list[tuple[Told, str]]]:
        """Of the suite, once it is read, the points that were told, under their own names; and those that this fedbench
        reads otherwise, with the keys of the configuration that are not the same."""
        found, otherwise = [], []
        for point in suite.points():
            for cell in self.cells.get((point.scenario, point.method, point.seed), ()):
                if keys := _differing(cell.config, point.config):
                    otherwise.append((cell, ", ".join(keys)))
                else:
                    own = replace(point, scenario=cell.scenario, variant=cell.variant, method=cell.method)
                    found.append((cell, own))
        return found, otherwise


def recovered(cells: Iterable[Told]) -> list[Recovered]:
    """The suites that hold these cells: one for each name and profile, or several where there is much."""
    found: list[Recovered] = []
    for cell in cells:
        place = (cell.suite, cell.config["profile"])
        if not any(one.takes(cell) for one in found if (one.name, one.profile) == place):
            found.append(Recovered(*place))
            found[-1].takes(cell)
    return found


def _entered(known: dict[str, str], name: str, content: Mapping[str, Any], most: int) -> str:
    """Under which name it stands, entered where it did not; "" where there is no more room."""
    text, number, free = json.dumps(content, sort_keys=True), 1, name
    while free in known and known[free] != text:
        number += 1
        free = f"{name}.{number}"
    if free not in known and len(known) >= most:
        return ""
    known[free] = text
    return free


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return [key for key in {**one, **other} if _text(one.get(key)) != _text(other.get(key))]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
