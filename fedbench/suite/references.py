"""References to components: known by the catalogue, their options checked, what they leave out filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedbench.errors import UserError
from fedbench.options import place
from fedbench.registry.catalogue import OWN_SETTINGS, REQUIRED, SET_UP, Catalogue, Component
from fedbench.registry.contracts import fault_of_parameters, unset_options
from fedbench.schema import TRUTHS, Schema, faults
from fedbench.suite.setting_layers import CORE_KEYS, NESTED, stack, written_out
from fedbench.suite.validate import COMPONENTS, belongs
from fedbench.suite.yaml import INVALID, Mark, Node, Problems, parse_value
from fedbench.words import nearest, quoted, shown, suggestion

# Options that take more than their default shows; a contract of the core with every component of the kind.
_ALSO_TEXT = {("backbone", "pretrained")}


SEED = "seed"
_FOLLOW_SEED = ("dataset", "backbone")  # kinds whose whole numbers from 0 on may be `seed`: that of the cell


class FollowsSeed(str):
    """The word `seed` as the value of an option that is each cell's own seed."""


def reference(catalogue: Catalogue, kind: str, given: str | Mapping[str, Any], source: str) -> dict[str, Any]:
    """A reference outside a suite, every option written out: a name, or `{name: ..., option: value}` as YAML or a dict.

    source: where it stands, such as `--executor`. Raises: UserError with everything that is wrong.
    """
    problems, mark = Problems(), Mark(source)
    node = parse_value(given, mark) if isinstance(given, str) else Node.of(dict(given), mark)
    if not node.is_mapping:
        node = Node.of({"name": node.plain()}, mark)
    done = References(catalogue, "paper", problems).complete(node, kind)
    problems.raise_any()
    return done.plain()


@dataclass(frozen=True)
class References:
    """What completes references: the catalogue, the profile whose values they get, and where faults go."""

    catalogue: Catalogue
    profile: str
    problems: Problems
    in_suite: bool = False

    def settings(self, node: Node) -> Node:
        """Settings with every component complete."""
        for dotted, kind in COMPONENTS.items():
            path = tuple(dotted.split("."))
            part = node.get(*path)
            if part is None or part.value is INVALID:
                continue
            node = node.put(path, self.complete(part, kind, CORE_KEYS.get(dotted, frozenset())))
        metrics = node.get("evaluation", "metrics")
        if metrics and isinstance(metrics.value, list):
            done = [self.complete(metric, "metric") for metric in metrics.value]
            self._check_distinct(done)
            node = node.put(("evaluation", "metrics"), replace(metrics, value=done))
        return node

    def _check_distinct(self, metrics: Sequence[Node]) -> None:
        """Results are recorded under a metric's name, so one can stand in a suite once."""
        seen: set[str] = set()
        for name in filter(None, (metric.get("name") for metric in metrics)):
            if name.value in seen:
                self.problems.add(name.mark, f"the metric {shown(name.value)} is listed twice")
            seen.add(name.value)

    def loose(self, node: Node) -> None:
        """Check what can be checked of settings that nothing uses now: components they name, and their options."""
        for dotted, kind in COMPONENTS.items():
            part = node.get(*dotted.split("."))
            if part and part.get("name"):
                self.complete(part, kind, CORE_KEYS.get(dotted, frozenset()), partial=True)

    def complete(
        self,
        node: Node,
        kind: str,
        core_keys: frozenset[str] = frozenset(),
        *,
        above: Sequence[Node] = (),
        partial: bool = False,
        label: str = "",
    ) -> Node:
        """A reference with every option.

        Args:
            node: the reference as the suite has it.
            kind: of the component.
            core_keys: keys that belong to the core.
            above: further layers of options.
            partial: whether required options may be missing.
            label: the suite's own name of a method.
        """
        name = node.get("name")
        if node.value is INVALID or (name is not None and name.value is INVALID):
            return replace(node, value=INVALID)
        if name is None or not isinstance(name.value, str):
            got = "" if name is None else f": expected a text, got {shown(name.plain())}"
            self.problems.add(node.named if name is None else name.mark, f"this {kind} has no name{got}")
            return replace(node, value=INVALID)
        component = self._find(kind, name)
        if component is None:
            return replace(node, value=INVALID)
        own = {key: part for key, part in node.value.items() if key != "name" and key not in core_keys}
        layers = [written_out(layer) for layer in (Node(own, node.mark), *above)]
        given = stack(layers, NESTED).value
        wrong_keys = self._check_known(component, given, core_keys, label)
        missing = unset_options(component, given)
        if missing and not partial:
            own_file = component.plugin.endswith(".py")
            hint = f"; to check it: fedbench plugins check {quoted(component.plugin)}" if own_file else ""
            if fault := fault_of_parameters(component, given):  # a misspelt input looks like an option
                hint = f": {fault}{hint}"
            self.problems.add(name.mark, f"{kind} {shown(name.value)} needs {', '.join(map(shown, missing))}{hint}")
            wrong_keys += missing
        parts = {key: part for key, part in node.value.items() if key == "name" or key in core_keys}
        wrong = {key: Node(INVALID, name.mark) for key in wrong_keys}  # so that no process makes it
        return replace(node, value=parts | self._options(component, layers) | wrong)

    def _find(self, kind: str, name: Node) -> Component | None:
        try:
            return self.catalogue.find(kind, name.value)
        except UserError as error:
            self.problems.add(name.mark, str(error))
            return None

    def _check_known(
        self, component: Component, given: dict[str, Node], core_keys: frozenset[str], label: str
    ) -> list[str]:
        """Report the options that it does not have, and return them."""
        unknown = []
        for key in [] if component.open else given:
            if key not in component.options:
                extra = ("extends", *OWN_SETTINGS) if component.kind == "method" else ()
                own = [*component.options, *core_keys, *extra]
                astray = "" if nearest(key, own, least=0.8) else belongs(key, self.catalogue)  # more than a slip
                hint = astray or suggestion(key, own, "its options")
                message = f"{component.kind} {shown(label or component.name)} has no option {shown(key)}"
                self.problems.add(given[key].named, message + (hint or "; it has none"))
                unknown.append(key)
        return unknown

    def _options(self, component: Component, layers: Sequence[Node]) -> dict[str, Node]:
        """Defaults, the profile's values, then what was given, layer by layer, its types checked."""
        default = Mark(f"{component.kind} {component.name}")
        base = Node.of({key: value for key, value in component.options.items() if value != REQUIRED}, default)
        profile = Node.of(component.profiles.get(self.profile, {}), Mark(f"profile {self.profile}"))
        full = stack([written_out(base), written_out(profile), *layers], NESTED)
        given = {key for layer in layers for key in layer.value}
        done = {}
        for key, part in full.value.items():
            if component.kind in SET_UP and key in NESTED and part.value is not None:
                whole = self.complete if part.is_mapping else self._not_a_reference
                done[key] = whole(part, NESTED[key])
            else:
                done[key] = self._typed(component, key, part) if key in given else part
        unset = {key for key in component.later if key in done and done[key].plain() == component.options[key]}
        return {key: part for key, part in done.items() if key not in unset}

    def _not_a_reference(self, part: Node, kind: str) -> Node:
        if part.value is not INVALID:
            got = shown(part.plain())
            self.problems.add(part.mark, f"{kind}: expected a name, or {{name: ..., option: value}}, got {got}")
        return replace(part, value=INVALID)

    def _typed(self, component: Component, key: str, part: Node) -> Node:
        """The option's value if it is what the option takes, with what is wrong with it reported."""
        default, value = component.options.get(key), part.plain()
        takes = component.takes.get(key) or implied(component, key)
        if (component.kind, key) in _ALSO_TEXT and isinstance(value, str) and value.lower() in TRUTHS:
            takes = {"type": "boolean"}  # nobody calls a file so
        if takes is None or not part.is_valid or (type(value) is type(default) and value == default):
            return part
        if self.in_suite and value == SEED and may_follow_seed(component, takes):
            return replace(part, value=FollowsSeed(SEED))
        found = list(faults(takes, value))
        for fault in found:
            at = part.at(*fault.path)
            mark = at.named if fault.kind == "extra_forbidden" else at.mark
            self.problems.add(mark, f"{component.name} {place(key, fault.path)}: {fault.message}")
        if found:
            return replace(part, value=INVALID)
        floats = isinstance(default, float) and isinstance(value, int)
        return replace(part, value=float(value)) if floats else part


def may_follow_seed(component: Component, takes: Schema) -> bool:
    """Whether an option that takes this, of a data set or a backbone, may be the seed of each cell."""
    return component.kind in _FOLLOW_SEED and takes.get("type") == "integer" and takes.get("minimum") in (None, 0)


def with_seed(part: Any, seed: int) -> Any:
    """A configuration with the seed in place of `FollowsSeed`."""
    if isinstance(part, dict):
        return {key: with_seed(value, seed) for key, value in part.items()}
    return seed if isinstance(part, FollowsSeed) else part


def implied(component: Component, key: str) -> Schema | None:
    """What an option takes that declares nothing, by its default; None where that says nothing."""
    default = component.options.get(key)
    if (component.kind, key) in _ALSO_TEXT:
        return {"anyOf": [{"type": "boolean"}, {"type": "string", "title": "a file"}]}
    if default is None or default == REQUIRED:
        return None
    if isinstance(default, str):
        text = {"type": "string"}
        return {"anyOf": [text, {"type": "array", "items": text, "minItems": 1}]}
    return {"type": {bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}[type(default)]}
