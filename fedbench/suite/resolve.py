"""A suite file and the command line -> a Suite: layers laid on each other, every scenario and sweep point checked."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedbench.errors import UserError
from fedbench.registry.catalogue import OWN_SETTINGS, Catalogue
from fedbench.suite import expected, profiles, validate
from fedbench.suite.groups import group_of
from fedbench.suite.limits import Facts, Limits
from fedbench.suite.methods import PREFIX, Methods
from fedbench.suite.node import INVALID, Mark, Node
from fedbench.suite.overlay import nest, sets_anew, stack
from fedbench.suite.points import Suite
from fedbench.suite.problems import Problems
from fedbench.suite.references import References
from fedbench.suite.yaml import parse_value, read
from fedbench.words import shown, suggestion

MAX_CELLS = 20_000


def load(
    path: str | Path,
    catalogue: Catalogue,
    *,
    sets: Sequence[str] = (),
    profile: str | None = None,
    data: str | None = None,
    facts: Facts | None = None,
) -> Suite:
    """Read a suite. Raises UserError with everything that is wrong in it.

    The last word holds; from the bottom to the top: the defaults of components and of fedbench, the profile, the
    suite's `defaults`, the scenario, the sweep point, the overlay `data`, a method's own settings, `sets`. An overlay
    lies above the suite because it moves a whole suite elsewhere, say from photographs to the embedded data: backbone,
    image size, rounds and learning rate go together; a method's own settings lie above it because they are what tells
    that method from the others. A sweep over something that the overlay or a `--set` replaces is not swept.

    sets: `dotted.key=value`, also `methods.NAME.option=value` · profile: instead of the suite's · data: an
    overlay of the suite, a built-in one, or the name of a data set · facts: without them capacities are not
    compared to anything.
    """
    return _Resolver(path, catalogue, profile, data).suite(sets, facts)


@dataclass(frozen=True)
class _Choice:
    """One value for one dotted key, of a sweep or a `--set`: a layer of settings, everybody's or those of the method
    `label`, or options of that method."""

    text: str
    layer: Node | None = None
    label: str | None = None
    options: Node | None = None


class _Resolver:
    def __init__(self, path: str | Path, catalogue: Catalogue, profile: str | None, data: str | None) -> None:
        self.path, self.catalogue, self.data = path, catalogue, data
        self.problems = Problems()
        tree = expected.written_out(read(path, self.problems), path, self.problems)
        self.tree = validate.suite_file(tree, self.problems)
        if not self.tree.is_mapping:
            self.problems.raise_any()
        own = self._plain("profile", "paper")
        self.profile = profile or (own if own in profiles.PROFILES else "paper")
        if self.profile not in profiles.PROFILES:
            raise UserError(
                f"--profile {shown(self.profile)}: no such profile{suggestion(self.profile, profiles.PROFILES)}"
            )
        self.called = [f"data={data}"] if data else []
        self.called += [f"profile={profile}"] if profile and profile != own else []
        self.references = References(catalogue, self.profile, self.problems)
        self.methods = Methods(self.tree.get("methods"), self.references)

    def _plain(self, key: str, default: Any) -> Any:
        node = self.tree.get(key)
        return default if node is None or not node.is_valid else node.plain()

    def suite(self, sets: Sequence[str], facts: Facts | None) -> Suite:
        self.overlay = self._overlay()
        self.sets = self._sets(sets)
        self.axes = self._axes()
        self._check_unused_overlays()
        self._check_size()
        limits = Limits(facts, self.problems, () if self.data else self._overlays())
        found = []
        for scenario, variant, settings, methods, own in self._points():
            for one in (settings, *own.values()):
                limits.check(one)
            found.append((scenario, variant, settings, methods, own))
        numbers = self._expected()
        self.problems.raise_any()
        return Suite(
            name=self._plain("suite", ""),
            path=str(self.path),
            description=self._plain("description", ""),
            profile=self.profile,
            seeds=tuple(self._plain("seeds", [0])),
            scenarios=tuple(self.tree.at("scenarios").value),
            methods=tuple(self.methods.entries),
            timeout=self._plain("timeout", None),
            expected=numbers,
            groups=tuple(group_of(*point) for point in found),
        )

    def _expected(self) -> tuple[dict[str, Any], ...]:
        scenarios = self.tree.get("scenarios")
        names = list(scenarios.value) if scenarios is not None and scenarios.is_mapping else []
        return expected.check(self.tree.get("expected"), names, self.methods.entries, self.points, self.problems)

    def _overlay(self) -> Node | None:
        if self.data is None:
            return None
        own = self.tree.get("overlays", self.data)
        if own is not None:
            return own
        if self.data in profiles.OVERLAYS:
            mark = Mark(f"overlay {self.data}")
            return validate.settings(Node.of(profiles.OVERLAYS[self.data], mark), self.problems)
        mark = Mark(f"--data {self.data}")
        if self.data not in self.catalogue.components["dataset"]:
            near = suggestion(self.data, [*self._overlays(), *self.catalogue.components["dataset"]])
            self.problems.add(mark, f"neither an overlay nor a data set{near}")
            return None
        return Node.of({"data": {"name": self.data}}, mark)

    def _overlays(self) -> list[str]:
        """The names of fedbench's overlays and of the suite's."""
        own = self.tree.get("overlays")
        return list(dict.fromkeys([*profiles.OVERLAYS, *(own.value if own and own.is_mapping else ())]))

    def _sets(self, sets: Sequence[str]) -> dict[str, _Choice]:
        chosen: dict[str, _Choice] = {}
        for text in sets:
            dotted, equals, value = text.partition("=")
            mark = Mark(f"--set {text}")
            if not equals or not value.strip():
                self.problems.add(
                    mark, "expected dotted.key=value, for example train.rounds=3; nothing is written null"
                )
                continue
            try:
                node = parse_value(value, mark)
            except UserError as error:
                self.problems.add(mark, str(error).removeprefix(f"{mark}: "))
                continue
            chosen.pop(dotted.strip(), None)
            chosen[dotted.strip()] = self._choice(dotted.strip(), node, mark)
        return chosen

    def _choice(self, dotted: str, value: Node, key: Mark) -> _Choice:
        text = f"{dotted}={_text(value.plain())}"
        label: str | None = None
        if dotted.startswith(PREFIX):
            if (found := self.methods.split(dotted, key)) is None:
                return _Choice(text)
            label, dotted = found
            if dotted.split(".")[0] not in OWN_SETTINGS:
                return _Choice(text, label=label, options=self.methods.override(dotted, value, key))
        layer = validate.settings(nest(dotted, value, key), self.problems)
        return _Choice(text, self.methods.checked(layer) if label else layer, label)

    def _axes(self) -> list[list[_Choice]]:
        """The sweep, without the axes that overlay or command line have replaced."""
        axes: list[list[_Choice]] = []
        self.points: list[str] = []
        sweep = self.tree.get("sweep")
        for dotted, points in sweep.value.items() if sweep is not None and sweep.is_mapping else ():
            if not isinstance(points.value, list):
                continue
            axis = [self._choice(dotted, point, points.named) for point in points.value]
            self._check_distinct(axis, points.value)
            self.points += [choice.text for choice in axis]
            if dotted not in self.sets and not self._replaced(dotted, axis[0]):
                axes.append(axis)
        return axes

    def _replaced(self, dotted: str, swept: _Choice) -> bool:
        """Whether overlay or command line say anew what an axis sweeps; no overlay reaches a method's own settings."""
        above = [choice.layer for choice in self.sets.values() if choice.label in (None, swept.label)]
        key = dotted.removeprefix(f"{PREFIX}{swept.label}.")
        return any(layer and sets_anew(layer, key) for layer in (*above, None if swept.label else self.overlay))

    def _check_distinct(self, axis: list[_Choice], points: list[Node]) -> None:
        seen: set[str] = set()
        for choice, point in zip(axis, points, strict=True):
            if choice.text in seen:
                self.problems.add(point.mark, f"the sweep point {shown(choice.text)} is listed twice")
            seen.add(choice.text)

    def _check_unused_overlays(self) -> None:
        overlays = self.tree.get("overlays")
        for name, layer in overlays.value.items() if overlays is not None and overlays.is_mapping else ():
            if name != self.data:
                self.references.loose(layer)

    def _check_size(self) -> None:
        points = math.prod(map(len, self.axes))
        scenarios = self.tree.get("scenarios")
        seeds = self._plain("seeds", [0])
        count = len(scenarios.value) if scenarios is not None and scenarios.is_mapping else 1
        cells = points * len(self.methods.entries or [0]) * len(seeds) * count
        if cells > MAX_CELLS:
            at = self.tree.get("sweep") or self.tree
            self.problems.add(at.named, f"this suite has {cells:,} cells; at most {MAX_CELLS:,} are taken")
            self.problems.raise_any()

    def _points(self) -> Iterator[tuple[str, str, Node, dict[str, Node], dict[str, Node]]]:
        """Every scenario at every sweep point, complete: (scenario, variant, settings, methods, the settings of those
        methods that have some of their own)."""
        base = [
            Node.of(profiles.DEFAULTS, Mark("defaults")),
            Node.of(profiles.PROFILES[self.profile], Mark(f"profile {self.profile}")),
            self.tree.get("defaults") or Node({}, self.tree.mark),
        ]
        scenarios = self.tree.get("scenarios")
        methods: dict[tuple[int, ...], dict[str, Node]] = {}
        for name, scenario in scenarios.value.items() if scenarios is not None and scenarios.is_mapping else ():
            below = stack([*base, scenario])
            for point in itertools.product(*self.axes):
                choices = [*point, *self.sets.values()]
                key = tuple(id(choice) for choice in choices if choice.label)
                if key not in methods:
                    methods[key] = self._methods(choices)
                variant = "; ".join([*(c.text for c in point), *self.called, *(c.text for c in self.sets.values())])
                full = {
                    label: self.references.settings(self._needed(name, scenario, self._stacked(below, point, label)))
                    for label in ("", *self._with_own(choices))
                }
                yield name, variant, full.pop(""), methods[key], full

    def _stacked(self, below: Node, point: Sequence[_Choice], label: str) -> Node:
        """A scenario with what lies on it for everybody, or for the method of that label: the sweep point, the
        overlay, the method's own settings, the command line."""
        shared = [*(choice.layer for choice in point if choice.label is None), self.overlay]
        everybodys = stack([below, *(layer for layer in shared if layer is not None)])
        swept = [choice.layer for choice in point if choice.label == label]
        own = stack([everybodys, *self.methods.own(label), *(layer for layer in swept if layer is not None)])
        other = _adapter(own) != _adapter(everybodys)  # options of everybody's adapter are then not this one's
        for choice in self.sets.values():
            if choice.layer is None or choice.label not in (None, label):
                continue
            foreign = other and choice.label is None and choice.layer.get("adapter") and not _adapter(choice.layer)
            own = stack([own, choice.layer.put(("adapter",), None) if foreign else choice.layer])
        return own

    def _with_own(self, choices: Sequence[_Choice]) -> list[str]:
        """The labels of the methods that bring settings of their own."""
        chosen = {choice.label for choice in choices if choice.layer is not None}
        return [label for label in self.methods.entries if label in chosen or self.methods.own(label)]

    def _methods(self, choices: list[_Choice]) -> dict[str, Node]:
        return {
            label: self.methods.resolve(label, [c.options for c in choices if c.label == label and c.options])
            for label in self.methods.entries
        }

    def _needed(self, name: str, scenario: Node, settings: Node) -> Node:
        """Report what no layer says."""
        for key in validate.NEEDED if settings.is_mapping else ():
            node = settings.get(key)
            if node is not None and node.value is INVALID:
                continue
            if (settings.get("data", "name") if key == "data" else node) is None:
                self.problems.add(scenario.named, f"scenario {shown(name)} has no {key}, and neither have the defaults")
                settings = settings.put((key,), replace(scenario, value=INVALID))
        for path, keys in validate.WHOLE.items():
            node = settings.get(*path)
            missing = [key for key in keys if node.get(key) is None] if node is not None and node.is_mapping else []
            if node is not None and missing:
                self.problems.add(node.named, f"{'.'.join(path)} needs {', '.join(missing)}")
        return settings


def _adapter(settings: Node) -> str | None:
    """The name of the adapter that settings speak of."""
    name = settings.get("adapter", "name")
    return name.value if name is not None and isinstance(name.value, str) else None


def _text(value: Any) -> str:
    """A value as a variant's name shows it: `attn.proj+mlp.fc2`, `lora(rank=4)`."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "+".join(map(_text, value))
    if isinstance(value, dict):
        options = ",".join(f"{key}={_text(part)}" for key, part in value.items() if key != "name")
        return f"{value.get('name', '')}({options})" if options else str(value.get("name", "{}"))
    return shown(value)
