"""Values that remember where they were written, and a list of problems that are reported at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from fedbench.errors import UserError
from fedbench.schema import Path

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

    def put(self, path: Path, new: Node | None) -> Node:
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
