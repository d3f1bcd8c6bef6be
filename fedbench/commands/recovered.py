"""Suites that `reproduce` recovers from the configurations of cells, and where their data are."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from fedbench.data.sources import relative_root
from fedbench.errors import UserError
from fedbench.results.diff import CellSummary
from fedbench.suite import Point, Suite
from fedbench.types import SIZES
from fedbench.words import counted, shortened, visible

OF_POINTS = ("method", "seed", "profile")  # of a configuration, what no scenario says
MOST_SCENARIOS = 50  # of one suite: more go into another file, far below what a suite may hold
MOST_METHODS = 80


@dataclass
class Recovered:
    """A suite in the making. Names are kept; content that differs under a name that is taken gets a number behind it.

    Attributes:
        scenarios: By name, as JSON.
        methods: By name, as JSON.
        cells: By (scenario, method, seed) of the recovered suite, the cells that it stands for.
    """

    name: str
    profile: str
    scenarios: dict[str, str] = field(default_factory=dict)
    methods: dict[str, str] = field(default_factory=dict)
    cells: dict[tuple[str, str, int], list[CellSummary]] = field(default_factory=dict)

    def takes(self, cell: CellSummary) -> bool:
        """Enter a cell; False where there is no more room."""
        config = cell.manifest["config"]
        sized = tuple(SIZES) if "devices" in config else ()  # these follow from those, and a suite may have one
        settings = {key: value for key, value in config.items() if key not in (*OF_POINTS, *sized)}
        method = config["method"]
        method = {
            **method,
            "name": cell.method,
            **({"extends": method["name"]} if method["name"] != cell.method else {}),
        }
        scenario = _entered(self.scenarios, cell.scenario, settings, MOST_SCENARIOS)
        label = _entered(self.methods, cell.method, method, MOST_METHODS)
        if scenario and label:
            self.cells.setdefault((scenario, label, cell.seed), []).append(cell)
        return bool(scenario and label)

    def text(self) -> str:
        """The suite as YAML."""

        methods = []
        for label, text in self.methods.items():
            method = json.loads(text)
            extends = {"extends": method.get("extends", method["name"])} if label != method["name"] else {}
            methods.append({**method, "name": label, **extends})
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

    def points(self, suite: Suite) -> Iterator[tuple[CellSummary, Point, list[str]]]:
        """Each cell with its point of the suite, once it is read, and the keys that this fedbench reads otherwise."""
        for point in suite.points():
            for cell in self.cells.get((point.scenario, point.method, point.seed), ()):
                own = replace(point, scenario=cell.scenario, variant=cell.variant, method=cell.method)
                yield cell, own, _differing(cell.manifest["config"], point.config)


def recovered(cells: Iterable[CellSummary]) -> list[Recovered]:
    """The suites that hold these cells: one for each name and profile, or several where there is much."""
    found: list[Recovered] = []
    for cell in cells:
        place = (cell.suite, cell.manifest["config"]["profile"])
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
    texts = [{key: json.dumps(value, sort_keys=True) for key, value in config.items()} for config in (one, other)]
    return [key for key in {**one, **other} if texts[0].get(key) != texts[1].get(key)]


def places(cells: Sequence[CellSummary], given: Sequence[str] = ()) -> dict[str, str]:
    """The whole path of each root that these cells name.

    The root is part of a cell's identity and stays as it is; where it lies depends on this machine. A results folder
    says where a relative one was. A page may be anybody's: only what lies in the current folder is read, unless --root
    says so.

    Args:
        cells: The cells.
        given: `DIR` of the only root, or `THERE=DIR`, as on the command line.

    Raises:
        UserError: A root is not here, or only --root may say where it is.
    """

    named: dict[str, list[CellSummary]] = {}
    for cell in cells:
        data = cell.manifest["config"]["data"]  # of a page, and not read yet
        if isinstance(data, Mapping) and isinstance(root := data.get("root"), str) and root:
            named.setdefault(root, []).append(cell)
    set_by_user = _roots(given, named)
    found, faults = {}, []
    for root, those in named.items():
        try:
            found[root] = set_by_user[root] if root in set_by_user else _place(root, those)
        except UserError as error:
            faults.append(str(error))
    if faults:
        raise UserError("\n".join(faults))
    return found


def _roots(given: Sequence[str], named: Mapping[str, object]) -> dict[str, str]:
    """By root, what --root sets. Raises: UserError."""
    found: dict[str, str] = {}
    for text in given:
        there = next((root for root in named if text.startswith(f"{root}=")), None)
        if there is None and len(named) != 1:
            roots = f"{counted(len(named), 'root')}: {shortened(list(map(visible, named)))}" if named else "no root"
            raise UserError(f"--root {text}: say THERE=DIR; SOURCE names {roots}")
        here = text if there is None else text.removeprefix(f"{there}=")
        place = os.path.join(os.getcwd(), os.path.expanduser(here))
        if not os.path.exists(place):
            raise UserError(f"--root {text}: {place} does not exist")
        found[there or next(iter(named))] = place
    return found


def _place(root: str, cells: Sequence[CellSummary]) -> str:
    """Where a root is that --root does not set. Raises: UserError."""

    way = f"say where the data are: --root {visible(root)}=DIR"
    relative = relative_root({"root": root}) is not None
    if any(cell.root is None for cell in cells) and (not relative or ".." in Path(root).parts):
        raise UserError(f"SOURCE names data in {visible(root)}, which a page is not followed to; {way}")
    there = {cell.root for cell in cells if relative and cell.root and os.path.exists(cell.root)}
    if len(there) > 1:
        both = " and ".join(sorted(there)[:2])
        raise UserError(f"SOURCE means several folders by {visible(root)}, such as {both}; {way}")
    place = next(iter(there), os.path.join(os.getcwd(), os.path.expanduser(root)))
    if not os.path.exists(place):
        raise UserError(f"SOURCE names data in {visible(root)}, and {visible(place)} does not exist; {way}")
    return place
