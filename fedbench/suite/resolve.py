"""A suite file and the command line -> a Suite: layers laid on each other, every scenario and sweep point checked."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedbench.errors import UserError
from fedbench.registry.catalogue import Catalogue
from fedbench.schema import adapter
from fedbench.suite import paper_numbers, setting_layers, tuning_space, validate
from fedbench.suite.client_keys import Known
from fedbench.suite.keys import Settings
from fedbench.suite.limits import Facts, Limits
from fedbench.suite.overrides import Choice, Choices, Methods, replaced
from fedbench.suite.points import KEYS, Group, Suite
from fedbench.suite.references import References
from fedbench.suite.setting_layers import stack
from fedbench.suite.shipped import found
from fedbench.suite.yaml import INVALID, Mark, Node, Problems, read
from fedbench.types import SIZES
from fedbench.words import shown, suggestion

MAX_CELLS = 20_000


def load(
    path: str | Path,
    catalogue: Catalogue,
    *,
    sets: Sequence[str] = (),
    add: Sequence[str] = (),
    profile: str | None = None,
    data: str | None = None,
    facts: Facts | None = None,
    text: str | None = None,
) -> Suite:
    """Read a suite, by its file or by its name if it ships. Raises UserError with everything that is wrong in it.

    The last word holds; from the bottom to the top: the defaults of components and of fedbench, the profile, the
    suite's `defaults`, the scenario, the sweep point, the overlay `data`, a method's own settings, `sets`. An overlay
    lies above the suite because it moves a whole suite elsewhere, say from photographs to the embedded data: backbone,
    image size, rounds and learning rate go together; a method's own settings lie above it because they are what tells
    that method from the others. A sweep over something that the overlay or a `--set` replaces is not swept.

    Args:
        sets: `dotted.key=value`; `methods.NAME.option=value` adds a row next to that method's.
        add: methods that the suite does not list.
        profile: instead of the suite's.
        data: an overlay of the suite, a built-in one, or the name of a data set.
        facts: without them capacities are not compared to anything.
        text: of a suite that is in no file, which messages call by the path.
    """
    return _Resolver(found(str(path)) if text is None else path, catalogue, profile, data, text).suite(sets, add, facts)


class _Resolver:
    def __init__(
        self, path: str | Path, catalogue: Catalogue, profile: str | None, data: str | None, text: str | None = None
    ) -> None:
        self.path, self.catalogue, self.data = path, catalogue, data
        self.problems = Problems()
        tree = paper_numbers.written_out(read(path, self.problems, text), path, self.problems)
        self.tree = validate.suite_file(tree, self.problems, catalogue)
        if not self.tree.is_mapping:
            self.problems.raise_any()
        own = self._plain("profile", "paper")
        self.profile = profile or (own if own in setting_layers.PROFILES else "paper")
        if self.profile not in setting_layers.PROFILES:
            raise UserError(
                f"--profile {shown(self.profile)}: no such profile{suggestion(self.profile, setting_layers.PROFILES)}"
            )
        self.called = [f"data={data}"] if data else []
        self.called += [f"profile={profile}"] if profile and profile != own else []
        self.known = Known(self.tree.get("devices"), self.problems)
        self.references = References(catalogue, self.profile, self.problems, in_suite=True)
        self.methods = Methods(self.tree.get("methods"), self.references)

    def _plain(self, key: str, default: Any) -> Any:
        node = self.tree.get(key)
        return default if node is None or not node.is_valid else node.plain()

    def suite(self, sets: Sequence[str], add: Sequence[str], facts: Facts | None) -> Suite:
        self.overlay = self._overlay()
        self.choices = Choices(self.methods, self.problems)
        self.words: dict[str, list[Choice]] = {}
        self.methods.add(add)
        self.sets = self.choices.sets(sets, self._varied())
        axes = self.choices.axes(self.tree.get("sweep"))
        self.points = [choice.text for axis in axes.values() for choice in axis]
        self.axes = [axis for key, axis in axes.items() if not self._replaced(key, axis[0])]
        self._check_unused_overlays()
        self._check_size()
        said = any(choice.layer is not None and choice.layer.get("data", "root") for choice in self.sets.values())
        base = Path() if said else Path(self.path).parent
        overlays = () if self.data else self._overlays()
        self.limits = Limits(facts, self.problems, overlays, base, self._plain("seeds", [0])[0])
        found = list(self._points())
        drawn = self._drawn()
        trials = [list(self._points(choices)) for _, choices, _ in drawn]
        numbers = self._expected()
        self.problems.raise_any()
        suite = Suite(
            name=self._plain("suite", ""),
            path=str(self.path),
            description=self._plain("description", ""),
            profile=self.profile,
            seeds=tuple(self._plain("seeds", [0])),
            scenarios=tuple(self.tree.at("scenarios").value),
            variants=tuple(dict.fromkeys(variant for _, variant, *_ in found)),
            methods=tuple(self.methods.entries),
            timeout=self._plain("timeout", None),
            expected=numbers,
            groups=tuple(group_of(*point) for point in found),
            base=base,
            added=self.methods.added,
        )
        if drawn:
            groups = [tuple(group_of(*point) for point in points) for points in trials]
            tried = [(values, beyond) for values, _, beyond in drawn]
            tuning = tuning_space.tuning(self.tree.at("tune"), suite.groups, tried, suite.seeds, self.problems)
            suite = replace(suite, tuning=tuning, candidate_groups=tuple(groups))
            self.problems.raise_any()
        return suite

    def _varied(self) -> set[str]:
        """The dotted keys of which the suite itself tries several values."""
        parts = (self.tree.get("sweep"), self.tree.get("tune", "space"))
        return {key for part in parts if part is not None and part.is_mapping for key in part.value}

    def _expected(self) -> tuple[dict[str, Any], ...]:
        scenarios = self.tree.get("scenarios")
        names = list(scenarios.value) if scenarios is not None and scenarios.is_mapping else []
        return paper_numbers.check(self.tree.get("expected"), names, self.methods.entries, self.points, self.problems)

    def _overlay(self) -> Node | None:
        if self.data is None:
            return None
        own = self.tree.get("overlays", self.data)
        if own is not None:
            return own
        if self.data in setting_layers.OVERLAYS:
            mark = Mark(f"overlay {self.data}")
            return validate.settings(Node.of(setting_layers.OVERLAYS[self.data], mark), self.problems)
        mark = Mark(f"--data {self.data}")
        if self.data not in self.catalogue.components["dataset"]:
            near = suggestion(self.data, [*self._overlays(), *self.catalogue.components["dataset"]])
            self.problems.add(mark, f"neither an overlay nor a data set{near}")
            return None
        return Node.of({"data": {"name": self.data}}, mark)

    def _overlays(self) -> list[str]:
        """The names of fedbench's overlays and of the suite's."""
        own = self.tree.get("overlays")
        return list(dict.fromkeys([*setting_layers.OVERLAYS, *(own.value if own and own.is_mapping else ())]))

    def _replaced(self, key: str, swept: Choice) -> bool:
        return replaced(key, swept.label, self.sets, self.overlay)

    def _drawn(self) -> list[tuple[dict[str, Any], list[Choice], int | None]]:
        """The candidates of the tuning, each as its values, the choices they are, and the one that it lies beyond; none
        where there is no tuning, or where the command line says all that it would choose."""
        tune = self.tree.get("tune")
        if tune is None or not tune.is_valid or not {"trials", "space"} <= tune.value.keys():
            return []
        tuning_space.check(tune, self.problems, validate.keys.Settings.__annotations__)
        ranges = {
            key: node
            for key, node in tune.at("space").value.items()
            if node.value and not replaced(key, self.methods.label_of(key), self.sets, None) and self._holds(key, node)
        }
        drawn = tuning_space.candidates(ranges, tune) if ranges else []

        @functools.cache
        def takes(key: str, value: Any) -> bool:
            with self.problems.forgotten():
                return self._takes(key, Node.of(value, ranges[key].mark), ranges[key].named)

        beyond = tuning_space.beyond_edges(ranges, drawn, takes) if tune.get("confirm") else []
        return [
            (
                values,
                [
                    self.choices.of(key, Node.of(value, ranges[key].mark), ranges[key].named)
                    for key, value in values.items()
                ],
                k,
            )
            for k, values in [*((None, values) for values in drawn), *beyond]
        ]

    def _holds(self, key: str, node: Node) -> bool:
        """Whether the ends of a range of the tuning are values that the key takes, each judged where it stands."""
        taken = [self._takes(key, end, node.named) for end in tuning_space.ends(node)]
        return all(taken)

    def _takes(self, key: str, value: Node, named: Mark) -> bool:
        """Whether a key takes a value, which is judged where it stands."""
        before = len(self.problems)
        for _ in self._points([self.choices.of(key, value, named)]):
            pass
        return len(self.problems) == before

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

    def _points(
        self, candidate: Sequence[Choice] = ()
    ) -> Iterator[tuple[str, str, Node, dict[str, Node], dict[str, Node]]]:
        """Every scenario at every sweep point, complete: (scenario, variant, settings, methods, the settings of those
        methods that have some of their own), with what a candidate of the tuning chooses."""
        base = [
            Node.of(setting_layers.DEFAULTS, Mark("defaults")),
            Node.of(setting_layers.PROFILES[self.profile], Mark(f"profile {self.profile}")),
            self.tree.get("defaults") or Node({}, self.tree.mark),
        ]
        scenarios = self.tree.get("scenarios")
        methods: dict[tuple[int, ...], dict[str, Node]] = {}
        for name, scenario in scenarios.value.items() if scenarios is not None and scenarios.is_mapping else ():
            words = scenario.get("methods")
            below = stack([*base, scenario.put(("methods",), None) if words else scenario])
            above = [*self._words(name, words), *candidate, *self.sets.values()]
            for point in itertools.product(*self.axes):
                choices = [*point, *above]
                key = tuple(id(choice) for choice in choices if choice.label)
                if key not in methods:
                    methods[key] = self._methods(choices)
                texts = [*(c.text for c in point), *self.called, *(c.text for c in self.sets.values())]
                variant = "; ".join(filter(None, texts))
                full = {
                    label: self._complete(name, scenario, self._stacked(below, point, above, label))
                    for label in ("", *self._with_own(choices))
                }
                for one in full.values():
                    self.limits.check(one)
                yield name, variant, full.pop(""), methods[key], full

    def _complete(self, name: str, scenario: Node, settings: Node) -> Node:
        """Settings with all that is needed, every component complete, every device with its numbers."""
        return self.known.settings(self.references.settings(self._needed(name, scenario, settings)))

    def _words(self, name: str, words: Node | None) -> list[Choice]:
        """A scenario's own options of single methods, as choices. They are kept, as methods are cached by them."""
        if name not in self.words:
            self.words[name] = self.choices.words(words) if words is not None and words.is_mapping else []
        return self.words[name]

    def _stacked(self, below: Node, point: Sequence[Choice], above: Sequence[Choice], label: str) -> Node:
        """A scenario with what lies on it for everybody, or for the method of that label: the sweep point, the
        overlay, the method's own settings; what the scenario says of it, the candidate, the command line."""
        shared = [*(choice.layer for choice in point if choice.label is None), self.overlay]
        everybodys = stack([below, *(layer for layer in shared if layer is not None)])
        swept = [choice.layer for choice in point if choice.label and self.methods.concerns(choice.label, label)]
        own = stack([everybodys, *self.methods.own(label), *(layer for layer in swept if layer is not None)])
        for choice in above:
            if choice.layer is None or not self.methods.concerns(choice.label, label):
                continue
            other = _adapter(own) != _adapter(everybodys)  # options of everybody's adapter are then not this one's
            foreign = other and choice.label is None and choice.layer.get("adapter") and not _adapter(choice.layer)
            own = stack([own, choice.layer.put(("adapter",), None) if foreign else choice.layer])
        return own

    def _with_own(self, choices: Sequence[Choice]) -> list[str]:
        """The labels of the methods that bring settings of their own."""
        chosen = {choice.label for choice in choices if choice.layer is not None and choice.label}
        return [
            label
            for label in self.methods.entries
            if any(self.methods.concerns(one, label) for one in chosen) or self.methods.own(label)
        ]

    def _methods(self, choices: list[Choice]) -> dict[str, Node]:
        return {
            label: self.methods.resolve(
                label, [c.options for c in choices if c.options and self.methods.concerns(c.label, label)]
            )
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
                self.problems.add(node.named, f"{'.'.join(path)} needs {', '.join(map(shown, missing))}")
        rotate, shuffle = (settings.get(key) for key in KEYS.values())
        if rotate and shuffle and rotate.value is shuffle.value is True:
            text = f"rotate_capacities is true too (at {rotate.mark}), and a seed assigns in one way; set it to false"
            self.problems.add(shuffle.named, f"shuffle_capacities: {text}")
        augment, features = settings.get("data", "augment"), settings.get("frozen_features")
        if augment and augment.value and features and features.value == "kept":
            text = f"frozen_features: kept (at {features.mark}) needs images that stay the same; leave one out"
            self.problems.add(augment.named, f"data.augment: {text}")
        guard, privacy = settings.get("train", "guard"), settings.get("privacy")
        if guard and guard.value and privacy and privacy.value:
            text = f"no epsilon covers what train.guard (at {guard.mark}) lets through; leave one out"
            self.problems.add(privacy.named, f"privacy: {text}")
        return settings


def _adapter(settings: Node) -> str | None:
    """The name of the adapter that settings speak of."""
    name = settings.get("adapter", "name")
    return name.value if name is not None and isinstance(name.value, str) else None


def group_of(
    scenario: str, variant: str, settings: Node, methods: Mapping[str, Node], own: Mapping[str, Node]
) -> Group:
    """The points of a scenario at one place of the sweep. own: the settings of methods that have their own."""
    plain, assign = _plain(settings)
    theirs = {label: _plain(node)[0] for label, node in own.items()}
    nodes = {label: (method, own.get(label, settings)) for label, method in methods.items()}
    options = {label: method.plain() for label, method in methods.items()}
    return Group(scenario, variant, plain, options, assign, theirs, nodes)


def _plain(settings: Node) -> tuple[dict[str, Any], str]:
    """The settings once more through the model, which turns 1 into 1.0 where it must; and how seeds assign sizes."""
    plain = adapter(Settings).validate_python(settings.plain())
    assign = "".join(how for how, key in KEYS.items() if plain.pop(key))
    plain["engine"] = setting_layers.ENGINES[plain["engine"]]
    if plain["train"]["max_steps"] == "smallest" and plain["train"]["local_epochs"] > 1:
        plain["train"]["max_steps"] = setting_layers.EACH_EPOCH
    plain["data"]["augment"] = sorted(plain["data"].get("augment") or ()) or None
    _leave_out_nothing(plain)
    return plain, assign


# Values that say that nothing is to happen, by section: the cell is the same as one without the key.
_NOTHING: dict[str, dict[str, Any]] = {
    "": {**dict.fromkeys((*SIZES, "privacy")), "frozen_weights": "resent", "frozen_features": "computed"},
    "data": {"proxy": None, "augment": None},
    "train": {"regularizer": None, "guard": None, "uploads": None, "downloads": None},
    "train.optimizer": {"head_lr": None, "schedule": "constant", "warmup": None},
    "evaluation": {"by": "domain", "at": None, "validation": None, "sizes": False},
    "privacy": {"local": False, "delta": 1e-5},
}


def _leave_out_nothing(plain: dict[str, Any]) -> None:
    """Take out what says that nothing is to happen."""
    sections = {"": plain, **plain, "train.optimizer": plain["train"]["optimizer"]}
    for name, nothing in _NOTHING.items():
        section = sections.get(name) or {}
        for key in [key for key, value in nothing.items() if section.get(key) == value]:
            section.pop(key, None)
    faults = plain.get("faults", {})
    for key in list(faults):
        chance = faults[key] if key == "dropout" else (faults[key] or {}).get("probability")
        if not chance:
            del faults[key]
    if not faults:
        plain.pop("faults", None)
