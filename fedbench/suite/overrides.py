"""The methods of a suite, and what is chosen for dotted keys: sweep points, --set, candidates of a tuning."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from fedbench.errors import UserError
from fedbench.registry.catalogue import OWN_SETTINGS
from fedbench.suite import validate
from fedbench.suite.references import References
from fedbench.suite.setting_layers import nest, replaces, written_out
from fedbench.suite.yaml import INVALID, Mark, Node, Problems, parse_value
from fedbench.words import in_short, nearest, shown, suggestion

PREFIX = "methods."
DEFAULTS = "defaults."


class Methods:
    """The entries of `methods` by label, each resolvable to a complete reference."""

    def __init__(self, entries: Node | None, references: References) -> None:
        self.references, self.problems = references, references.problems
        self.entries: dict[str, Node] = {}
        self.added: dict[str, dict[str, str]] = {}  # rows that the command line adds, as a suite would list them
        listed = entries.value if entries is not None and isinstance(entries.value, list) else []
        for entry in listed:
            name = entry.get("name")
            if name is None or name.value is INVALID:
                if name is None and entry.value is not INVALID:
                    self.problems.add(entry.mark, "this method has no name")
                continue
            self._enter(name, entry)

    def _enter(self, name: Node, entry: Node) -> None:
        first = self.entries.setdefault(name.value, entry)
        if first is not entry:
            self.problems.add(
                name.mark,
                f"the method {shown(name.value)} is listed twice, first on line {first.at('name').mark.line}; "
                "give one of them a name of its own and `extends`",
            )

    def add(self, names: Sequence[str]) -> None:
        """List registered methods that the suite does not list; `a,b` are two."""
        registered = self.references.catalogue.components["method"]
        for name in [one.strip() for text in names for one in text.split(",")]:
            mark = Mark(f"--add {name}")
            if name in self.entries:
                self.problems.add(mark, f"this suite lists {shown(name)} already")
            elif name in registered:
                self._add({"name": name}, mark)
            else:
                self.problems.add(mark, f"no method is called {shown(name)}{self._instead(name)}")

    def _instead(self, name: str) -> str:
        """What to write where a method of that name was wanted."""
        components = self.references.catalogue.components
        for kind in ("allocation", "aggregator", "objective"):
            if name in components[kind]:
                first = next(iter(self.entries), "METHOD")
                return f"; it is an {kind}: --set methods.{first}.{kind}={name} adds a row with it"
        return suggestion(name, components["method"], "") or "; a method in a file of yours needs --plugin FILE"

    def vary(self, label: str, options: Mapping[str, str], mark: Mark) -> str:
        """List a method once more with these options, as `fedra (aggregator=coordinate_median)`; returns that label."""
        row = f"{label} ({', '.join(f'{option}={value}' for option, value in options.items())})"
        self._add({"name": row, "extends": label}, mark)
        return row

    def _add(self, entry: dict[str, str], mark: Mark) -> None:
        self.entries[entry["name"]] = Node.of(entry, mark)
        self.added[entry["name"]] = entry

    def concerns(self, label: str | None, row: str) -> bool:
        """Whether what is chosen for a label, None for everybody, is for this row: a varied one goes with its base."""
        return label in (None, row) or (row in self.added and self.added[row].get("extends") == label)

    def label_of(self, dotted: str) -> str | None:
        """The label in `methods.NAME.option`, if this suite lists it."""
        heads = {label: f"{PREFIX}{label}." for label in self.entries}
        found = [label for label, head in heads.items() if dotted.startswith(head) and dotted != head]
        return max(found, key=len, default=None)

    def split(self, dotted: str, key: Mark) -> tuple[str, str] | None:
        """`methods.fedra.missing_layers` as (label, dotted option); None and a problem where no such method is
        listed."""
        rest, label = dotted.removeprefix(PREFIX), self.label_of(dotted)
        if label is None and rest in self.entries:
            self.problems.add(key, f"{shown(dotted)}: expected an option of that method, {PREFIX}{rest}.option")
            return None
        if label is None:
            hint = suggestion(rest.split(".")[0], self.entries, "this suite lists")
            message = f"{shown(dotted)}: expected methods.NAME.option, with a method of this suite{hint}"
            self.problems.add(key, message)
            return None
        return label, rest.removeprefix(f"{label}.")

    def override(self, dotted: str, value: Node, key: Mark) -> Node:
        """A dotted option as a layer of options."""
        return written_out(nest(dotted, value, key))

    def own(self, label: str) -> list[Node]:
        """The settings that an entry brings itself, below them those of the entries that it extends."""
        layers: list[Node] = []
        below: set[str] = set()
        while label in self.entries and label not in below:
            entry = self.entries[label]
            below.add(label)
            parts = {key: part for key, part in entry.value.items() if key in OWN_SETTINGS}
            layers += [self.checked(replace(entry, value=parts))] if parts else []
            extends = entry.get("extends")
            label = extends.value if extends is not None and isinstance(extends.value, str) else ""
        return layers[::-1]

    def checked(self, own: Node) -> Node:
        """A layer of a method's own settings. Rounds cannot be among them: a leaderboard compares equally many."""
        rounds = own.get("train", "rounds")
        if rounds is None:
            return own
        self.problems.add(rounds.named, "train.rounds is the same for every method: say it in defaults or a scenario")
        return own.put(("train", "rounds"), None)

    def resolve(self, label: str, overrides: list[Node]) -> Node:
        """The complete reference behind a label."""
        name, *layers = self._chain(label, ())
        return self.references.complete(name, "method", above=[*layers, *overrides], label=label)

    def _chain(self, label: str, below: tuple[str, ...]) -> list[Node]:
        """The registered method's name, then the options of each entry down to this one.

        They stay apart until the method's defaults lie under them: only there is it known which aggregator, say,
        a nameless `aggregator: {weights: uniform}` is about.
        """
        entry = self.entries[label]
        options = replace(
            entry,
            value={key: part for key, part in entry.value.items() if key not in ("name", "extends", *OWN_SETTINGS)},
        )
        extends = entry.get("extends")
        if extends is None:
            return [replace(entry, value={"name": self._registered(entry.at("name"), options)}), options]
        if extends.value in below:
            circle = " -> ".join((*below, label, extends.value))
            self.problems.add(extends.mark, f"the methods extend each other in a circle: {circle}")
        elif extends.value is not INVALID:
            if extends.value != label and extends.value in self.entries:
                return [*self._chain(extends.value, (*below, label)), options]
            return [replace(entry, value={"name": self._known(extends)}), options]
        return [replace(entry, value=INVALID), options]

    def _registered(self, name: Node, options: Node) -> Node:
        """The name of a registered method. For an unregistered name, the message says what its entry lacks."""
        catalogue = self.references.catalogue
        registered = catalogue.components["method"]
        if name.value in registered or name.key == name.mark or catalogue.broken:  # a bare name is like any other
            return name
        having = [one for one, found in registered.items() if options.value.keys() <= found.options.keys()]
        base = having[0] if options.value and len(having) == 1 else "METHOD"
        message = f"no method is called {shown(name.value)}{suggestion(name.value, registered, '')}"
        own = f"{{name: {name.value}, extends: {base}}}"
        self.problems.add(name.mark, f"{message}; a name of your own says what it varies: {own}".replace("?;", "?"))
        return replace(name, value=INVALID)

    def _known(self, extends: Node) -> Node:
        """The name of a registered method. A wrong one is reported here, with the suite's own names as hints."""
        registered = self.references.catalogue.components["method"]
        if extends.value in registered or self.references.catalogue.broken:
            return extends
        hint = suggestion(extends.value, [*registered, *self.entries])
        self.problems.add(extends.mark, f"no method is called {shown(extends.value)}{hint}")
        return replace(extends, value=INVALID)


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
        elif dotted.startswith(DEFAULTS):
            self.problems.add(key, f"settings stand without {DEFAULTS[:-1]}: {dotted.removeprefix(DEFAULTS)}=VALUE")
            return Choice(text)
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

    def sets(self, texts: Sequence[str], varied: Collection[str] = ()) -> dict[str, Choice]:
        """`dotted.key=value` of the command line, by key; of one key the last word holds.

        Options of a method become a row next to the method, unless the suite itself varies that key.
        """
        chosen = self._parsed(texts)
        rows: dict[str, dict[str, str]] = {}
        for dotted, choice in chosen.items():
            if choice.label is not None and dotted not in varied:
                option = dotted.removeprefix(f"{PREFIX}{choice.label}.")
                rows.setdefault(choice.label, {})[option] = choice.text.partition("=")[2]
        added = {label: self.methods.vary(label, options, Mark("--set")) for label, options in rows.items()}
        return {
            dotted: replace(choice, text="", label=added[choice.label])
            if choice.label in added and dotted not in varied
            else choice
            for dotted, choice in chosen.items()
        }

    def _parsed(self, texts: Sequence[str]) -> dict[str, Choice]:
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
            if not words.is_mapping:  # which has been reported
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
    """Whether the command line or an overlay replaces what is chosen at a key, for the method `label` or for all. No
    overlay reaches a method's own settings."""
    layers = [choice.layer for choice in above.values() if choice.label in (None, label)]
    key = dotted.removeprefix(f"{PREFIX}{label}.")
    return dotted in above or any(layer and replaces(layer, key) for layer in (*layers, None if label else overlay))
