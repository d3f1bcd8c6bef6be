"""YAML 1.2 text -> nodes with line and column, safe against whatever the text holds; and problems reported at once."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml import events as ev
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.reader import ReaderError

from fedbench.disk import opened
from fedbench.errors import UserError
from fedbench.schema import KeyPath
from fedbench.words import shown

ON_A_SCREEN = 20


@dataclass(frozen=True, slots=True)
class Mark:
    """A place: a file with line and column (both from 1), or just a name such as `--set train.rounds=3`."""

    source: str
    line: int | None = None
    column: int | None = None

    @property
    def is_given(self) -> bool:
        """Whether a person wrote it there: in a file, or on the command line."""
        return self.line is not None or self.source.startswith("--")

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}:{self.column}"


class _Invalid:
    """Stands for a value that has been reported as wrong, so that no later check reports it again."""

    def __repr__(self) -> str:
        return "INVALID"


INVALID: Any = _Invalid()


@dataclass(frozen=True, slots=True)
class Node:
    """A scalar, a list of nodes or a dict of nodes, never changed once made.

    Attributes:
        mark: where the value stands.
        key: where its key stands, for a value of a mapping.
    """

    value: Any
    mark: Mark
    key: Mark | None = None

    @classmethod
    def of(cls, value: Any, mark: Mark) -> Node:
        """The node of a plain value, every part of it at `mark`."""
        if isinstance(value, dict):
            return cls({key: cls.of(part, mark) for key, part in value.items()}, mark, mark)
        if isinstance(value, list | tuple):
            return cls([cls.of(part, mark) for part in value], mark, mark)
        return cls(value, mark, mark)

    @property
    def named(self) -> Mark:
        """Where its key stands, or else the value."""
        return self.key or self.mark

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.value, dict)

    def plain(self) -> Any:
        """The value as fresh dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def get(self, *path: str | int) -> Node | None:
        """The node at a path of keys and positions, None where there is none."""
        node = self
        for step in path:
            value: Any = node.value
            in_list = isinstance(value, list) and isinstance(step, int) and step < len(value)
            if not in_list and not (isinstance(value, dict) and step in value):
                return None
            node = value[step]
        return node

    def at(self, *path: str | int) -> Node:
        """The node at a path that is known to be there."""
        node = self.get(*path)
        assert node is not None, path
        return node

    def put(self, path: KeyPath, new: Node | None) -> Node:
        """This tree with the node at `path` replaced, or removed where `new` is None; missing mappings are made."""
        if not path:
            return new or self
        step, rest = path[0], path[1:]
        parts: Any = list(self.value) if isinstance(self.value, list) else dict(self.value if self.is_mapping else {})
        if new is not None and isinstance(parts, dict) and step not in parts:
            parts[step] = Node({}, new.mark, new.named).put(rest, new)
        elif new is None and not rest:
            del parts[step]
        else:
            parts[step] = parts[step].put(rest, new)
        return replace(self, value=parts)

    def walk(self) -> Iterator[Node]:
        """This node and everything in it."""
        yield self
        parts = self.value.values() if isinstance(self.value, dict) else self.value
        if isinstance(self.value, dict | list):
            for part in parts:
                yield from part.walk()

    @property
    def is_valid(self) -> bool:
        return all(node.value is not INVALID for node in self.walk())


class Problems:
    """A list of (place, message) that ends in one UserError; a problem found twice is reported once."""

    def __init__(self) -> None:
        self._found: dict[tuple[Mark, str], None] = {}

    def add(self, mark: Mark, message: str) -> None:
        """Note what is wrong, and go on."""
        self._found[mark, message] = None

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[tuple[Mark, str]]:
        return iter(sorted(self._found, key=_place))

    @contextmanager
    def forgotten(self) -> Iterator[None]:
        """What is noted inside is forgotten: for a value that is only asked about."""
        before, self._found = self._found, {}
        try:
            yield
        finally:
            self._found = before

    def raise_any(self) -> None:
        """Raises UserError with the problems in the order of each file, at most one screen of them."""
        if not self._found:
            return
        order = list(self)
        lines = [f"{mark}: {message}" for mark, message in order[:ON_A_SCREEN]]
        if left := len(order) - len(lines):
            lines.append(f"... and {left} more problem{'s' if left > 1 else ''}")
        raise UserError("\n".join(lines))


def _place(found: tuple[Mark, str]) -> tuple:
    """Files first, then what has no line, in the order in which it was found."""
    mark = found[0]
    return (0, mark.source, mark.line, mark.column) if mark.line is not None else (1,)


MAX_BYTES = 2**20
MAX_NODES = 100_000  # after every alias is written out
MAX_DEPTH = 40

_TAG = "tag:yaml.org,2002:"
_HINTS = {  # by how the parser's own words begin
    "mapping values are not allowed": "; is the line indented further than those it belongs with, or does a text with "
    "a colon in it lack its quotes?",
    "expected <block end>": "; is the line indented otherwise than those it belongs with?",
}


class NotYaml(Exception):
    """The text cannot be read any further: (mark, message)."""


def read(path: str | Path, problems: Problems, text: str | None = None) -> Node:
    """The document in a file, or in a text that is in none, which messages call by the path. Raises UserError if there
    is none to be had; lesser faults go to `problems`."""
    if text is not None:
        return parse(text, str(path), problems)
    try:
        with opened(path) as file:
            raw = file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise UserError(f"{path}: this is a folder; expected a suite, a YAML file") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > MAX_BYTES:
        raise UserError(f"{path}: larger than 1 MiB; that is no suite")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}:1: not UTF-8 text; save the file as UTF-8") from None
    return parse(text, str(path), problems)


def parse(text: str, source: str, problems: Problems) -> Node:
    """The one document in `text`. Raises UserError where it is not YAML, or too much of it."""
    try:
        return _Composer(text, source, problems).document()
    except NotYaml as error:
        raise UserError("{}: {}".format(*error.args)) from None


def parse_value(text: str, mark: Mark) -> Node:
    """The value of a `--set`, all of it at `mark`. Raises UserError."""
    problems = Problems()
    try:
        node = parse(text, "value", problems)
        problems.raise_any()
    except UserError as error:
        raise UserError(f"{mark}: {shown(text)} is not a YAML value: {error}") from None
    return Node.of(node.plain(), mark)


class _Composer:
    """Turns the parser's events into nodes.

    ruamel's own composer recurses as deep as the text says, knows an anchor before what it stands for, and forgets
    where an alias stood and which tags were written; reporting these would take a second parse.
    """

    def __init__(self, text: str, source: str, problems: Problems) -> None:
        self.text, self.source, self.problems = text, source, problems
        self.yaml = YAML(typ="safe", pure=True)
        self.anchors: dict[str, tuple[Node, int]] = {}
        self.size = 0

    def document(self) -> Node:
        events = self._events()
        root: Node | None = None
        for event in events:
            if isinstance(event, ev.DocumentStartEvent):
                if root is not None:
                    raise NotYaml(self._mark(event), "a second document starts here; a suite is one document")
                if event.version not in (None, (1, 2)):
                    raise NotYaml(self._mark(event), "suites are YAML 1.2; remove the %YAML line")
                root = self._node(next(events), events, 0)
        if root is None:
            raise NotYaml(Mark(self.source, 1, 1), "empty")
        return root

    def _events(self) -> Iterator[ev.Event]:
        try:
            yield from self.yaml.parse(self.text)
        except MarkedYAMLError as error:
            at = error.problem_mark or error.context_mark
            mark = Mark(self.source, at.line + 1, at.column + 1) if at else Mark(self.source, 1, 1)
            problem = error.problem or error.context or ""
            hint = next((hint for begins, hint in _HINTS.items() if problem.startswith(begins)), "")
            raise NotYaml(mark, f"not valid YAML: {problem}{hint}") from None
        except ReaderError as error:
            line = self.text.count("\n", 0, error.position) + 1
            column = error.position - self.text.rfind("\n", 0, error.position)
            raise NotYaml(Mark(self.source, line, column), "a control character; YAML is plain text") from None
        except (YAMLError, ValueError, RecursionError) as error:
            raise NotYaml(Mark(self.source, 1, 1), f"not valid YAML: {error}") from None

    def _mark(self, event: ev.Event) -> Mark:
        return Mark(self.source, event.start_mark.line + 1, event.start_mark.column + 1)

    def _count(self, event: ev.Event, nodes: int) -> None:
        self.size += nodes
        if self.size > MAX_NODES:
            raise NotYaml(self._mark(event), f"more than {MAX_NODES:,} values once aliases are written out")

    def _node(self, event: ev.Event, events: Iterator[ev.Event], depth: int) -> Node:
        if isinstance(event, ev.AliasEvent):
            return self._alias(event)
        if depth > MAX_DEPTH:
            raise NotYaml(self._mark(event), f"nested deeper than {MAX_DEPTH} levels")
        before = self.size
        self._count(event, 1)
        if isinstance(event, ev.ScalarEvent):
            node = Node(self._scalar(event), self._mark(event))
        else:
            assert isinstance(event, ev.CollectionStartEvent)
            if event.tag not in (None, "!"):
                self._no_tag(event)
            build = self._mapping if isinstance(event, ev.MappingStartEvent) else self._sequence
            node = Node(build(events, depth), self._mark(event))
        if event.anchor:
            self.anchors[event.anchor] = node, self.size - before
        return node

    def _alias(self, event: ev.AliasEvent) -> Node:
        if event.anchor not in self.anchors:
            raise NotYaml(self._mark(event), f"*{event.anchor} stands for nothing written before it")
        node, size = self.anchors[event.anchor]
        self._count(event, size)
        return node

    def _sequence(self, events: Iterator[ev.Event], depth: int) -> list[Node]:
        items = []
        while not isinstance(event := next(events), ev.SequenceEndEvent):
            items.append(self._node(event, events, depth + 1))
        return items

    def _mapping(self, events: Iterator[ev.Event], depth: int) -> dict[str, Node]:
        parts: dict[str, Node] = {}
        while not isinstance(event := next(events), ev.MappingEndEvent):
            mark, key = self._mark(event), self._key(event, events, depth)
            value = self._node(first := next(events), events, depth + 1)
            if isinstance(first, ev.ScalarEvent) and not first.value and first.style is None:
                value = replace(value, mark=mark)  # nothing stands there, and the parser is on the next line by now
            if key in parts:
                line = parts[key].named.line
                self.problems.add(mark, f"the key {shown(key)} appears twice here; the first is on line {line}")
            elif key is not None:
                parts[key] = replace(value, key=mark)
        return parts

    def _key(self, event: ev.Event, events: Iterator[ev.Event], depth: int) -> str | None:
        """The text of a key; None for any other key, which is reported."""
        if not isinstance(event, ev.ScalarEvent):
            self._node(event, events, depth + 1)
        if not isinstance(event, ev.ScalarEvent) or not _is_text(event.value):
            message = "a key must be a plain text"
        elif event.value == "<<" and event.style is None:
            message = "merge keys (<<) are not YAML 1.2; put what is shared under defaults or overlays"
        else:
            return event.value
        self.problems.add(self._mark(event), message)
        return None

    def _scalar(self, event: ev.ScalarEvent) -> Any:
        if event.tag not in (None, "!"):
            return self._no_tag(event)
        if not _is_text(event.value):
            self.problems.add(
                self._mark(event), f"half a surrogate pair (\\ud800 to \\udfff) is no letter: {shown(event.value)}"
            )
            return INVALID
        if event.style is not None or event.tag == "!":
            return event.value
        tag = str(self.yaml.resolver.resolve(ScalarNode, event.value, event.implicit)).removeprefix(_TAG)
        if tag not in ("null", "bool", "int", "float"):
            return event.value
        try:
            value = self.yaml.constructor.construct_object(
                ScalarNode(_TAG + tag, _decimal(event.value, tag), event.start_mark, event.end_mark)
            )
            if isinstance(value, int) and abs(value) >= 2**63:
                raise OverflowError
        except (ValueError, OverflowError):
            self.problems.add(self._mark(event), f"not a number that can be read: {shown(event.value)}")
            return INVALID
        if isinstance(value, float) and not math.isfinite(value):
            self.problems.add(self._mark(event), f"expected a finite number, got {shown(event.value)}")
            return INVALID
        return value

    def _no_tag(self, event: ev.ScalarEvent | ev.CollectionStartEvent) -> Any:
        self.problems.add(self._mark(event), f"tags are not used in suites; remove {shown(str(event.tag))}")
        return INVALID


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _decimal(text: str, tag: str) -> str:
    """An integer as YAML 1.2 means it: `010` is ten."""
    return re.sub(r"^([-+]?)0+(?=[0-9])", r"\1", text) if tag == "int" else text
