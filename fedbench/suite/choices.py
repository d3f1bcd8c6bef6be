"""What is chosen for dotted keys, above a suite's layers: the points of its sweep, --set, candidates of its tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fedbench.errors import UserError
from fedbench.registry.catalogue import OWN_SETTINGS
from fedbench.suite import validate
from fedbench.suite.methods import PREFIX, Methods
from fedbench.suite.node import Mark, Node, Problems
from fedbench.suite.overlay import nest, sets_anew, written_out
from fedbench.suite.yaml import parse_value
from fedbench.words import in_short, nearest, shown, suggestion


@dataclass(frozen=True)
class Choice:
    """One value for one dotted key: a layer of settings, everybody's or those of the method `label`, or options of that
    method."""

    text: str
    layer: Node | None = None
    label: str | None = None
    options: Node | None = None


class Choices:
    """Makes choices of a suite with these methods, and finds faults in them."""

    def __init__(self, methods: Methods, problems: Problems) -> None:
        self.methods, self.problems = methods, problems

    def of(self, dotted: str, value: Node, key: Mark) -> Choice:
        """A value for a dotted key of the settings, or for `methods.NAME.option`; key: where that stands."""
        text = f"{dotted}={in_short(value.plain())}"
        label: str | None = None
        if dotted.startswith(PREFIX):
            if (found := self.methods.split(dotted, key)) is None:
                return Choice(text)
            label, dotted = found
            if dotted.split(".")[0] not in OWN_SETTINGS:
                return Choice(text, label=label, options=self.methods.override(dotted, value, key))
        elif astray := self._astray(dotted):
            self.problems.add(key, f"{shown(dotted)}: options of a method are methods.NAME.option{astray}")
            return Choice(text)
        layer = validate.settings(nest(dotted, value, key), self.problems, self.methods.references.catalogue)
        return Choice(text, self.methods.checked(layer) if label else layer, label)

    def _astray(self, dotted: str) -> str:
        """What a key means that begins with a method's name, or nearly with `methods`; "" for any other."""
        head, dot, rest = dotted.partition(".")
        if not dot or head in validate.keys.Settings.__annotations__:
            return ""
        if nearest(head, [PREFIX[:-1]]):
            return f"; did you mean {shown(PREFIX + rest)}?"
        found = next((label for label in self.methods.entries if label.lower() == head.lower()), None)
        return f"; did you mean {shown(f'{PREFIX}{found}.{rest}')}?" if found else ""

    def sets(self, texts: Sequence[str]) -> dict[str, Choice]:
        """`dotted.key=value` of the command line, by key; of one key the last word holds."""
        chosen: dict[str, Choice] = {}
        for text in texts:
            dotted, equals, value = text.partition("=")
            mark = Mark(f"--set {text}")
            if not equals or not value.strip():
                self.problems.add(
                    mark, "expected dotted.key=value, for example train.rounds=3; to set nothing, write null: key=null"
                )
                continue
            try:
                node = parse_value(value, mark)
            except UserError as error:
                self.problems.add(mark, str(error).removeprefix(f"{mark}: "))
                continue
            chosen.pop(dotted.strip(), None)
            chosen[dotted.strip()] = self.of(dotted.strip(), node, mark)
        return chosen

    def axes(self, sweep: Node | None) -> dict[str, list[Choice]]:
        """The points of each axis of a sweep, by its dotted key."""
        axes: dict[str, list[Choice]] = {}
        for dotted, points in sweep.value.items() if sweep is not None and sweep.is_mapping else ():
            if isinstance(points.value, list):
                axes[dotted] = [self.of(dotted, point, points.named) for point in points.value]
                self._check_distinct(axes[dotted], points.value)
        return axes

    def words(self, methods: Node) -> list[Choice]:
        """What a scenario says of single methods, by their labels."""
        found = []
        for label, words in methods.value.items():
            if label not in self.methods.entries:
                hint = suggestion(label, self.methods.entries, "this suite lists")
                self.problems.add(words.named, f"no method of this suite is called {shown(label)}{hint}")
                continue
            if not words.is_mapping:  # which has been told
                continue
            own = {key: part for key, part in words.value.items() if key in OWN_SETTINGS}
            options = {key: part for key, part in words.value.items() if key not in OWN_SETTINGS}
            layer = self.methods.checked(replace(words, value=own)) if own else None
            written = written_out(replace(words, value=options)) if options else None
            found.append(Choice(label, layer, label, written))
        return found

    def _check_distinct(self, axis: list[Choice], points: list[Node]) -> None:
        seen: set[str] = set()
        for choice, point in zip(axis, points, strict=True):
            if choice.text in seen:
                self.problems.add(point.mark, f"the sweep point {shown(choice.text)} is listed twice")
            seen.add(choice.text)


def replaced(dotted: str, label: str | None, above: Mapping[str, Choice], overlay: Node | None) -> bool:
    """Whether the command line, or an overlay, says anew what is chosen at a key, of the method `label` or of all; no
    overlay reaches a method's own settings."""
    layers = [choice.layer for choice in above.values() if choice.label in (None, label)]
    key = dotted.removeprefix(f"{PREFIX}{label}.")
    return dotted in above or any(layer and sets_anew(layer, key) for layer in (*layers, None if label else overlay))
