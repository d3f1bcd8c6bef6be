"""Which components exist, from which package, with which options: known without importing any of them."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from fedbench.data.sources import DataSource
from fedbench.errors import UserError
from fedbench.options import declared, place
from fedbench.results.scores import Measure
from fedbench.schema import Schema, faults
from fedbench.types import SIZES
from fedbench.words import meant, nearest, shortened

KINDS = {
    "allocation": "fedbench_register_allocations",
    "aggregator": "fedbench_register_aggregators",
    "objective": "fedbench_register_objectives",
    "adapter": "fedbench_register_adapters",
    "backbone": "fedbench_register_backbones",
    "method": "fedbench_register_methods",
    "dataset": "fedbench_register_datasets",
    "partition": "fedbench_register_partitions",
    "metric": "fedbench_register_metrics",
    "executor": "fedbench_register_executors",
}

REQUIRED = "<required>"
_YEAR = re.compile(r"\b(19|20)[0-9]{2}\b")

# What an entry of a suite's `methods` may say of the settings, which are no options of the method itself.
OWN_SETTINGS = ("adapter", "train")

# What a method is there for: to be judged, or to judge others by.
ROLES = ("method", "ceiling", "floor", "control", "constant")

# What methods have in common, in the order of tables; a method that names none is a bound or control, or stands last.
FAMILIES = ("Depth", "Rank", "Aggregation", "Forward passes", "Width", "Whole models", "Split learning")

# What a client may have less of than others, by the part of a configuration that says so.
LIMITED = {"capacities": "layers", "ranks": "ranks", "widths": "widths"}

# The keyword arguments of `register`.
FACTS = (
    *(
        "profiles",
        "later",
        "paper",
        "role",
        "family",
        "exact",
        "source",
        "elsewhere",
        "engine",
        "better",
        "unit",
        "format",
        "ignores",
        "tunable",
    ),
    "look",
)
PUBLIC_FACTS = ", ".join(FACTS[:-1])  # `look`, how pictures draw it, is for fedbench's own

# What the core hands to a component by name; every other parameter is an option that a suite may set.
ALLOCATION_INPUTS = frozenset(
    [
        "capacities",
        "num_layers",
        "generator",
        "round",
        "client_ids",
        "layer_costs",
        "budgets",
        "scores",
        "history",
        "ranks",
        "layer_memory",
        "memory_budgets",
    ]
)
EXECUTOR_INPUTS = frozenset(["workers", "most", "timeout", "memory_limit", "gpu", "gpus"])
SET_UP = ("method", "aggregator", "objective")
MADE_WITH = ("allocation", "aggregator", "objective")  # what a method is made with
OF_ONE_METHOD = ("method", "allocation", "aggregator", "objective")  # kinds that other methods of a suite do not need

# The parts of a configuration that a component may say it does not depend on.
PARTS = (*SIZES, "adapter")
BY_CAPACITY = ("capacities", "budgets", "memory_budgets")  # of an allocation's inputs
_GIVEN = {
    "allocation": ALLOCATION_INPUTS,
    "dataset": {"image_size"},
    "backbone": {"name", "load"},
    "executor": EXECUTOR_INPUTS,
}


def references(config: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every component that a configuration names, as (kind, reference)."""
    yield "dataset", config["data"]
    yield "partition", config["data"]["partition"]
    for section in (config, config["method"]):
        for kind in KINDS:  # in their order: a reason names the first that may be to blame
            if kind != "dataset" and isinstance(section.get(kind), dict) and "name" in section[kind]:
                yield kind, section[kind]
    for kind in MADE_WITH:  # what those of the method wrap
        if isinstance(part := config["method"].get(kind), dict):
            yield from made_with(part)
    yield from (("metric", ref) for ref in config["evaluation"]["metrics"])


def made_with(ref: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The components that a method is made with, as (kind, reference), and those that one of them wraps."""
    for kind in MADE_WITH:
        if isinstance(part := ref.get(kind), dict) and "name" in part:
            yield kind, part
            yield from made_with(part)


def inputs_of(kind: str) -> list[str]:
    """What the core hands to a component of that kind by name."""
    return sorted({*_GIVEN.get(kind, ()), *({"setup"} if kind in SET_UP else ())})


class Unfit(ValueError):
    """What is registered cannot be what a suite names, and why."""


@dataclass(frozen=True)
class Component:
    """A registered name: who registered it, what it is for (the first paragraph of its docstring, and as `details` the
    others), its options with their defaults, and what those take that declare it (`fedbench.options`); for a method its
    role, one of ROLES, and its family, for a data set where its files come from, for an executor whether its cells run
    on other machines, and the one engine that it has, or "". later: the options that came when results were kept
    already, paper: where it is from, look: how pictures draw it, better, unit, format: what a metric says of itself,
    ignores: those of PARTS that it does not depend on, tunable: whether a method reads anything that can be tuned, see
    `hookspecs`."""

    name: str
    kind: str
    plugin: str
    package: str
    summary: str
    options: dict[str, Any]
    profiles: dict[str, dict[str, Any]] = field(default_factory=dict)
    open: bool = False
    role: str = "method"
    family: str = ""
    exact: bool = True
    later: Sequence[str] = ()
    elsewhere: bool = False
    engine: str = ""
    source: DataSource | None = None
    details: str = ""
    paper: str = ""
    look: int | None = None
    ignores: Sequence[str] = ()
    better: str = ""
    unit: str = ""
    format: str = ""
    tunable: bool = True
    takes: dict[str, Schema] = field(default_factory=dict)
    absent: str = ""  # why it stands in for one that cannot be made, see `Catalogue.find`

    @property
    def third_party(self) -> bool:
        """Whether another package than fedbench, or a file, registers it."""
        return self.package != "fedbench"

    @property
    def limited(self) -> list[str]:
        """What unequal clients hold less of with this method: the sizes that it depends on."""
        return [word for part, word in LIMITED.items() if part not in self.ignores]

    @classmethod
    def of(cls, kind: str, name: str, make: Callable, plugin: str, package: str, **facts: Any) -> Component:
        """Describe `make` by its signature and docstring. Raises Unfit for what suites cannot express."""
        if not isinstance(name, str) or not name or not name.isprintable():
            raise Unfit(f"the name of a {kind} is a text, not {name!r:.80}; write register(name, make)")
        if not callable(make):
            raise Unfit(
                f"{kind} {name!r}: the second argument of `register` is the function that makes it, not {make!r:.80}"
            )
        _check_facts(kind, name, facts)
        if "profiles" in facts:
            facts["profiles"] = _plain("profiles", facts["profiles"])
        options, open_, parameters = {}, False, inspect.signature(make).parameters
        facts["ignores"] = _ignored(kind, facts.get("ignores", ()), parameters)
        for parameter in parameters.values():
            if parameter.name == "setup" or parameter.name in _GIVEN.get(kind, ()):
                continue
            if parameter.kind is parameter.VAR_POSITIONAL:
                raise Unfit(f"{kind} {name!r} takes *{parameter.name}, which a suite cannot set")
            if parameter.kind is parameter.VAR_KEYWORD:
                open_ = True
                continue
            options[parameter.name] = (
                REQUIRED if parameter.default is parameter.empty else _plain(parameter.name, parameter.default)
            )
        if kind == "method" and (taken := [option for option in OWN_SETTINGS if option in options]):
            raise Unfit(
                f"the method {name!r} has an option {taken[0]!r}, and a suite's entry says by that name which "
                f"{'adapter' if taken[0] == 'adapter' else 'training'} of its own it has; call the option otherwise"
            )
        facts["later"] = list(facts.get("later", ()))
        if odd := [option for option in facts["later"] if options.get(option, REQUIRED) == REQUIRED]:
            raise Unfit(f"{kind} {name!r} has no option {odd[0]!r} with a default, and names it in `later`")
        takes = {option: schema for option, schema in declared(make).items() if option in options}
        for given in (options, *facts.get("profiles", {}).values()):
            _check_own(f"{kind} {name!r}", takes, given)
        summary, *others = _paragraphs(inspect.getdoc(make) or "")
        details = "\n\n".join(others)
        return cls(name, kind, plugin, package, summary, options, open=open_, details=details, takes=takes, **facts)

    def to_json(self) -> dict[str, Any]:
        """Its facts but for those that are as most components have them."""
        usual = {fact.name: fact.default for fact in fields(self)}
        return {name: value for name, value in asdict(self).items() if value not in (usual[name], [], {})}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Component:
        """What `to_json` made of a component."""
        source = facts.get("source")
        facts = {"options": {}, "later": [], "ignores": [], **facts}
        return cls(**{**facts, "source": DataSource.from_json(source) if source else None})


def _paragraphs(doc: str) -> Iterator[str]:
    """The paragraphs of a docstring, a line each, and so the arguments below `Args:`."""
    for part in doc.split("\n\n"):
        parts = re.split(r"\n    (?=\S)", part)[1:] if part.startswith("Args:\n") else [part]
        yield from (" ".join(one.split()) for one in parts)


def _check_facts(kind: str, name: str, facts: dict[str, Any]) -> None:
    """Raises Unfit for arguments that `register` does not take for such a component."""
    if odd := [fact for fact in facts if fact not in FACTS]:
        raise Unfit(
            f"{kind} {name!r}: `register` takes no {odd[0]!r}; {meant(odd[0], FACTS, f'it takes {PUBLIC_FACTS}')}"
        )
    if not isinstance(facts.get("source"), DataSource | None):
        raise Unfit(f"the source of the {kind} {name!r} is no Source")
    if facts.get("role", "method") not in (ROLES if kind == "method" else ("method",)):
        raise Unfit(
            f"the role of the {kind} {name!r} is {facts['role']!r:.80}; a method's is one of {', '.join(ROLES)}"
        )
    family = facts.get("family", "")
    if not isinstance(family, str) or not f"{family} ".isprintable() or (family and kind != "method"):
        raise Unfit(
            f"the family of the {kind} {name!r} is {family!r:.80}; a method's is a few words, as {FAMILIES[0]!r}"
        )
    if (engine := facts.get("engine", "")) not in ("", "sequential", "cohort") or (engine and kind != "executor"):
        raise Unfit(f"the engine of the {kind} {name!r} is {engine!r:.80}; an executor's is sequential or cohort")
    said = {key: facts[key] for key in ("better", "unit", "format") if key in facts}
    if wrong := Measure(**said).fault() if kind == "metric" else said and f"`{next(iter(said))}` is a metric's to say":
        raise Unfit(f"{kind} {name!r}: {wrong}")
    ignores, may = facts.get("ignores", []), PARTS if kind == "method" else SIZES
    if ignores and kind not in SET_UP:
        raise Unfit(f"{kind} {name!r}: `ignores` is for {', '.join(SET_UP)} to say")
    if not isinstance(ignores, list | tuple) or any(part not in may for part in ignores):
        raise Unfit(f"the {kind} {name!r} ignores {ignores!r:.80}; what it may ignore is a list of {', '.join(may)}")
    if "tunable" in facts and (kind != "method" or not isinstance(facts["tunable"], bool)):
        raise Unfit(f"{kind} {name!r}: `tunable` is True or False, and a method's to say")
    paper = facts.get("paper", "")
    if not isinstance(paper, str) or (paper and not (_YEAR.search(paper) and paper.isprintable())):
        raise Unfit(f"the paper of the {kind} {name!r} is a citation on one line, with its year: {paper!r:.80}")


def _ignored(kind: str, said: Iterable[str], parameters: Collection[str]) -> list[str]:
    """Those of PARTS that a component does not depend on: what it says, and what it cannot see."""
    hidden: list[str] = []
    if kind == "allocation":
        given_inputs = {*parameters, *(["capacities"] if any(given in parameters for given in BY_CAPACITY) else [])}
        hidden = [part for part in PARTS if part not in given_inputs]
    elif kind == "objective" and "setup" not in parameters:
        hidden = list(PARTS)
    return [part for part in PARTS if part in said or part in hidden]


def _check_own(what: str, takes: dict[str, Schema], given: dict[str, Any]) -> None:
    """Raises Unfit where a default, or a value of a profile, is not what its option takes."""
    for option in takes.keys() & given.keys():
        for fault in faults(takes[option], given[option]) if given[option] != REQUIRED else ():
            raise Unfit(f"{what} breaks its own word on {place(option, fault.path)}: {fault.message}")


def _plain(name: str, value: Any) -> Any:
    try:
        return json.loads(json.dumps(value))
    except TypeError:
        raise Unfit(f"option {name!r} has a default that JSON cannot write") from None


@dataclass
class Catalogue:
    """All components by kind and name, the plugins that failed to load, and the names that two packages claim."""

    components: dict[str, dict[str, Component]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    broken: dict[str, str] = field(default_factory=dict)
    clashes: dict[str, str] = field(default_factory=dict)
    refused: list[Component] = field(default_factory=list)  # of installed packages, with the name of one of fedbench
    lifecycle: list[str] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)  # plugins whose import ended or hung: names, packages; not kept

    def __iter__(self) -> Iterator[Component]:
        return (component for kind in self.components.values() for component in kind.values())

    @property
    def roles(self) -> dict[str, str]:
        """The role of every method, by name: those of the benchmark itself first, then those of other packages; of
        either those with a look of their own first."""
        last = len(self.components["method"])
        methods = sorted(
            self.components["method"].values(),
            key=lambda c: (c.package != "fedbench", last if c.look is None else c.look, c.name),
        )
        return {method.name: method.role for method in methods}

    @property
    def papers(self) -> dict[str, str]:
        """The paper of every method that has one, by name."""
        return {name: method.paper for name, method in self.components["method"].items() if method.paper}

    def said_of(self, method: str) -> dict[str, str]:
        """The role and the paper of another package's method, for those who read its results and do not have it."""
        known = self.components["method"].get(method)
        if known is None or known.package == "fedbench":
            return {}
        return {what: said for what, said in (("role", known.role), ("paper", known.paper)) if said}

    def measures(self, metrics: Iterable[str]) -> dict[str, dict[str, str]]:
        """What metrics of these names say of themselves, where they do."""
        known = self.components["metric"]
        described = {name: Measure(c.better, c.unit, c.format).declared() for name in metrics if (c := known.get(name))}
        return {name: said for name, said in described.items() if said}

    def add(self, components: Iterable[Component], *, by_user: bool = False) -> None:
        """Enter components; a name that two packages have becomes a clash, reported when it is used.

        A component of fedbench keeps its name where an installed package has it too, so that no installation changes or
        stops what suites compute.

        Args:
            components: of one plugin.
            by_user: whether its file is given by `--plugin`, where nobody can know which of two is meant.
        """
        for new in components:
            old = self.components[new.kind].setdefault(new.name, new)
            if old is new:
                continue
            if old.package == "fedbench" and not by_user:
                self.refused.append(new)
            else:
                fix = "rename the latter" if by_user else "uninstall one of them, or rename one"
                self.clashes[f"{new.kind} {new.name}"] = f"{_both(old, new)}; {fix}"

    def refusals(self, named: Collection[tuple[str, str]] | None = None) -> list[str]:
        """Why components are not used whose name one of fedbench has.

        Args:
            named: only those of these kinds and names.

        Returns:
            A line each.
        """
        return [
            f"{_both(self.components[new.kind][new.name], new)}; the one of fedbench is used"
            for new in self.refused
            if named is None or (new.kind, new.name) in named
        ]

    def find(self, kind: str, name: str) -> Component:
        """The component of that name; any other backbone's name is left to the component `timm`.

        A plugin that ended or hung the process that imported it may have held an unknown name. An `absent` component
        then stands in for it where it is part of one method, so that this method's cells fail and others run.

        Raises UserError with the nearest names, the clash, or the broken plugins that may have held it.
        """
        if clash := self.clashes.get(f"{kind} {name}"):
            raise UserError(clash)
        known = self.components[kind]
        if name in known:
            return known[name]
        if kind == "backbone" and "timm" in known:
            return known["timm"]
        if self.lost and kind in OF_ONE_METHOD:
            plugin, package = next(iter(self.lost.items()))
            return Component(name, kind, plugin, package, "", {}, open=True, absent=self.unknown(kind, name))
        raise UserError(self.unknown(kind, name))

    def unknown(self, kind: str, name: str) -> str:
        """What to tell someone who asked for a component that does not exist."""
        known = sorted(self.components[kind])
        hint = meant(name, known, f"known: {', '.join(known) or 'none'}; of your own: --plugin FILE")
        if len(self.broken) == 1 and not nearest(name, known):
            note = f" A plugin failed to load: {next(iter(self.broken.values()))}."
        else:
            lost = f"{shortened(list(self.broken), 3)} (`fedbench plugins list --components` says why)"
            note = f" Plugins that failed to load: {lost}." if self.broken else ""
        return f"no {kind} is called {name!r}; {hint}{note}"


def _both(old: Component, new: Component) -> str:
    """That two packages register one name, and which."""
    packages = " and ".join(f"{one.package} (plugin {one.plugin})" for one in (old, new))
    return f"two packages register the {new.kind} {new.name!r}: {packages}"


def unread(config: Mapping[str, Any], catalogue: Catalogue) -> frozenset[str]:
    """The parts of a configuration that do not change what its method computes.

    Returns:
        Some of `PARTS`, whether the configuration has them or not. None of them where clients have devices,
        whose sizes decide who takes part, or where models are tested at every client's size.

    Raises:
        UserError: for a component that nobody registered.
    """
    if config.get("devices") or config["evaluation"].get("sizes"):
        return frozenset()
    method = config["method"]
    found = set(catalogue.find("method", method["name"]).ignores)
    for kind, ref in made_with(method):
        found &= {"adapter", *catalogue.find(kind, ref["name"]).ignores}  # none of these is given the adapter
    return frozenset(found)
