"""A validated suite, the points it stands for, and which client has which size or device under a seed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from fedbench.errors import UserError
from fedbench.registry.catalogue import OWN_SETTINGS
from fedbench.seeding import permuted
from fedbench.suite.keys import CANDIDATES_SEED
from fedbench.suite.references import with_seed
from fedbench.suite.yaml import Mark, Node
from fedbench.types import assignment
from fedbench.types.tuning import Tuning
from fedbench.words import suggestion

KEYS = {"rotate": "rotate_capacities", "shuffle": "shuffle_capacities"}

Lists = dict[tuple[str, str], list[Any]]  # of `fedbench.types.assignment`


@dataclass(frozen=True)
class Point:
    """Scenario x sweep point x method x seed: its names, and the resolved configuration, in which no name occurs.

    Attributes:
        shared: where the method brings settings of its own, what all others have in the place of each such section.
        candidate: the number of the candidate of a suite's tuning that it tries.
    """

    scenario: str
    method: str
    variant: str
    seed: int
    config: dict[str, Any] = field(repr=False)
    shared: dict[str, Any] | None = field(default=None, repr=False)
    candidate: int | None = None

    @property
    def backbone(self) -> str:
        """The backbone's name, as leaderboards show it."""
        return self.config["backbone"]["name"]

    @property
    def dataset(self) -> str:
        """The data set's name, as leaderboards show it."""
        return self.config["data"]["name"]


@dataclass(frozen=True)
class Group:
    """The points of one scenario at one place of the sweep: all but method and seed decided.

    Attributes:
        assign: how seeds change who has which size, see `assigned`.
        own: the settings of methods that bring some of their own, by label.
        nodes: of every label the method and its settings, with marks.
    """

    scenario: str
    variant: str
    settings: dict[str, Any]
    methods: dict[str, dict[str, Any]]
    assign: str
    own: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodes: Mapping[str, tuple[Node, Node]] = field(default_factory=dict, repr=False, compare=False)

    def mark(self, label: str, option: str) -> Mark:
        """Where an option of the method of that label, or of a component it runs with, got its value; else where the
        component is named, or the method."""
        method, settings = self.nodes[label]
        inside = [part for part in method.value.values() if part.is_mapping]
        components = [settings.get(*path) for path in (("adapter",), ("data", "partition"), ("data",), ("backbone",))]
        for section in (method, *inside, *filter(None, components)):
            for node in (section.get(option), section.get("name")) if section.get(option) else ():
                if node is not None and node.mark.is_given:
                    return node.mark
        return method.at("name").mark


@dataclass(frozen=True)
class Suite:
    """What a file says, with overlay, profile and command line applied. `methods` are labels, in the file's order;
    `variants` the places of its sweep.

    Attributes:
        base: what the roots of its data are relative to, its own folder; where the command line says the root, the
            current one.
        tuning: where the suite has one that is not done, see `tuned`: the same candidates for every method.
        candidate_groups: the groups of the suite as each candidate has them.
        added: what the command line adds to the methods, by label, as the file would list it.
    """

    name: str
    path: str
    description: str
    profile: str
    seeds: tuple[int, ...]
    scenarios: tuple[str, ...]
    variants: tuple[str, ...]
    methods: tuple[str, ...]
    timeout: float | None
    expected: tuple[dict[str, Any], ...]
    groups: tuple[Group, ...] = field(repr=False)
    base: Path = Path()
    tuning: Tuning | None = field(default=None, repr=False)
    candidate_groups: tuple[tuple[Group, ...], ...] = field(default=(), repr=False)
    added: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def points(
        self,
        scenarios: Sequence[str] = (),
        methods: Sequence[str] = (),
        seeds: Iterable[int] = (),
        variants: Sequence[str] = (),
    ) -> list[Point]:
        """Every point, by scenario, place in the sweep, method and seed.

        Args:
            scenarios, variants: patterns (`all_*`, `*rank=4*`), any of which must match.
            methods: labels, to which those come that the command line adds.
            seeds: instead of the suite's own.

        An empty argument means everything. Raises UserError for a pattern or a label that nothing answers to.
        """
        for what, patterns, known in (("scenario", scenarios, self.scenarios), ("variant", variants, self.variants)):
            for pattern in patterns:
                if not any(fnmatchcase(name, pattern) for name in known):
                    self._nothing(what, pattern, known)
        for label in methods:
            if label not in self.methods:
                self._nothing("method", label, self.methods)
        chosen = tuple(dict.fromkeys(seeds)) or self.seeds
        for seed in chosen:
            if not 0 <= seed < 2**32:
                raise UserError(f"seed {seed}: expected a whole number from 0 to {2**32 - 1}")
            if self.tuning and seed in self.tuning.all_seeds:
                raise UserError(f"{self.path}: seed {seed} is one that the candidates are tried on; report other seeds")
        return list(self._points_of(_matching(self.groups, scenarios, variants), methods, chosen))

    def candidates(
        self, scenarios: Sequence[str] = (), methods: Sequence[str] = (), variants: Sequence[str] = ()
    ) -> list[Point]:
        """What the tuning tries for these points, by candidate, and may try; nothing where there is none."""
        if (tuning := self.tuning) is None:
            return []
        seeds = tuning.all_seeds
        return [
            replace(point, candidate=k)
            for k, groups in enumerate(self.candidate_groups)
            for point in self._points_of(_matching(groups, scenarios, variants), methods, seeds)
        ]

    def mark(self, point: Point, option: str = "") -> Mark:
        """Where the value of an option of a point stands, see `Group.mark`."""
        tried = () if point.candidate is None else self.candidate_groups[point.candidate]
        for group in tried or self.groups:
            if (group.scenario, group.variant) == (point.scenario, point.variant) and point.method in group.nodes:
                return group.mark(point.method, option)
        return Mark(self.path)

    def is_beyond(self, point: Point) -> bool:
        """Whether a point's candidate lies beyond the edge of what was drawn."""
        return self.tuning is not None and point.candidate is not None and point.candidate >= self.tuning.trials

    def tuned(self, winners: Mapping[tuple[str, str, str], int]) -> Suite:
        """This suite with every method as its candidate has it; winners: by (scenario, variant, label). What has no
        winner is left out."""
        assert self.tuning is not None
        chosen = []
        for i, group in enumerate(self.groups):
            methods, own = {}, {}
            for label in group.methods:
                if (k := winners.get((group.scenario, group.variant, label))) is not None:
                    theirs = self.candidate_groups[k][i]
                    methods[label], own[label] = theirs.methods[label], theirs.own.get(label, theirs.settings)
            if methods:
                chosen.append(replace(group, methods=methods, own=own))
        return replace(self, groups=tuple(chosen))

    def _points_of(self, groups: Iterable[Group], methods: Sequence[str], seeds: Sequence[int]) -> Iterator[Point]:
        for group in groups:
            for label in group.methods:
                for seed in seeds if not methods or label in methods or label in self.added else ():
                    config, shared = self._config(group, label, seed), _shared(group, label)
                    yield Point(group.scenario, label, group.variant, seed, config, shared)

    def _nothing(self, what: str, asked: str, known: Iterable[str]) -> None:
        message = f"no {what} of this suite is called {asked!r}{suggestion(asked, known, 'there are')}"
        if not any(known):
            message = f"nothing is swept in this suite, so that none of its cells is a {what} {asked!r}"
        raise UserError(f"{self.path}: {message}")

    def _config(self, group: Group, label: str, seed: int) -> dict[str, Any]:
        settings, method = _copied(group.own.get(label, group.settings)), group.methods[label]
        settings = assigned(settings, group.assign, seed)
        settings |= {part: with_seed(settings[part], seed) for part in ("data", "backbone")}
        return {**settings, "method": _copied(method), "seed": seed, "profile": self.profile}


def repeats(points: Iterable[Point]) -> str:
    """A sentence where some seeds of a scenario have the same assignment and others do not; "" where none does."""
    seeds: dict[tuple[str, str], dict[int, str]] = {}
    for point in points:
        seeds.setdefault((point.scenario, point.variant), {})[point.seed] = repr(assignment(point.config))
    shared = [(len(set(found.values())), len(found)) for found in seeds.values()]
    if not (shared := [(draws, n) for draws, n in shared if 1 < draws < n]):
        return ""
    draws, n = shared[0]
    return (
        f"{n} seeds share {draws} assignments of sizes to clients, and are tested as {draws} draws: rotate_capacities "
        f"repeats after as many seeds as there are values; shuffle_capacities repeats after all their orders."
    )


def _matching(groups: Iterable[Group], scenarios: Sequence[str], variants: Sequence[str]) -> Iterator[Group]:
    """Those whose scenario and whose place in the sweep answer to a pattern each, where there are any."""
    for group in groups:
        asked = ((group.scenario, scenarios), (group.variant, variants))
        if all(not patterns or any(fnmatchcase(name, one) for one in patterns) for name, patterns in asked):
            yield group


def _shared(group: Group, label: str) -> dict[str, Any] | None:
    """What others have in place of the sections that are a method's own, where those differ."""
    own = group.own.get(label, group.settings)
    theirs = {key: group.settings[key] for key in OWN_SETTINGS if own[key] != group.settings[key]}
    return _copied(theirs) or None


def _copied(part: Any) -> Any:
    """Of a configuration, whose parts are JSON values; `deepcopy` takes ten times as long."""
    if isinstance(part, dict):
        return {key: _copied(value) for key, value in part.items()}
    return [_copied(value) for value in part] if isinstance(part, list) else part


def assigned(settings: Mapping[str, Any], how: str, seed: int) -> dict[str, Any]:
    """The settings in which every list of sizes or devices is in the order of a seed.

    Args:
        settings: of a cell.
        how: "rotate", "shuffle", or "" for as it stands.
        seed: of the cell.
    """
    if not how:
        return dict(settings)
    found = {"rotate": _rotated, "shuffle": _shuffled}[how](assignment(settings), seed)
    return {**settings, **{key: {**settings[key], way: values} for (key, way), values in found.items()}}


def _rotated(given: Lists, seed: int) -> Lists:
    """Everyone has the value of the one `seed` places on, cyclically."""
    return {name: values[seed % len(values) :] + values[: seed % len(values)] for name, values in given.items()}


def _shuffled(given: Lists, seed: int) -> Lists:
    """Lists of one way and length are permuted together, so that whoever has a deep model keeps its rank."""
    done: Lists = {}
    for way, length in dict.fromkeys((way, len(values)) for (_, way), values in given.items()):
        names = [name for name, values in given.items() if name[1] == way and len(values) == length]
        order = arrangement(list(zip(*(given[name] for name in names), strict=True)), seed)
        done |= {name: list(values) for name, values in zip(names, zip(*order, strict=True), strict=True)}
    return done


def arrangement(values: Sequence[Any], seed: int) -> list[Any]:
    """The values in an order of a seed. Two seeds have the same order only if there are fewer orders than that.

    All n different orders of the values are numbered, and `permuted` puts them into one fixed random sequence; seed s
    has the s-th of it, modulo n. The seeds of a tuning are counted from its end, so that they meet those of a report
    as late as they can. The order in which values are written down does not matter.
    """
    counts = Counter(values)
    number = math.factorial(len(values)) // math.prod(map(math.factorial, counts.values()))
    position = seed if seed < CANDIDATES_SEED else CANDIDATES_SEED - 1 - seed
    return _unranked(counts, number, permuted(position % number, number))


def _unranked(counts: Counter[Any], number: int, index: int) -> list[Any]:
    """Of the `number` orders of a multiset, by value, the one of that index."""
    order = []
    for left in range(counts.total(), 0, -1):
        for value in sorted(+counts):
            if index < (beginning_so := number * counts[value] // left):
                order.append(value)
                counts[value] -= 1
                number = beginning_so
                break
            index -= beginning_so
    return order
