"""What an option takes: nouns for the annotations of a component's parameters.

A parameter declares by `Literal["keep", "cover"]`, `Annotated[float, Range(0, below=0.5)]`, `Annotated[str, Text("a
folder")]`, lists (with `Length`), typed dictionaries, and any of these with `|`. The catalogue keeps that as a JSON
Schema, by which suites are checked without importing the component; `judged` holds callers from Python to it.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from annotated_types import GroupedMetadata, Interval, Len
from typing_extensions import is_typeddict

from fedbench.disk import at_home
from fedbench.errors import UserError
from fedbench.schema import KeyPath, Schema, faults, schema_of

Make = TypeVar("Make", bound=Callable[..., Any])


@dataclass(frozen=True)
class Range(GroupedMetadata):
    """Which numbers are right: from `least` to `most`, both included, or `above` and `below`, themselves not. Without
    a bound every finite number is."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def __iter__(self) -> Iterator[Any]:
        yield from Interval(ge=self.least, le=self.most, gt=self.above, lt=self.below)


@dataclass(frozen=True)
class Text:
    """Any text is right. what: it stands for, with its article, such as `a folder`."""

    what: str = ""

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> Schema:
        return {**handler(core), **({"title": self.what} if self.what else {})}


class PathText(Text):
    """A path: `judged` puts a home folder in the place of its `~`."""


@dataclass(frozen=True)
class Length(GroupedMetadata):
    """How many items a list has, and whether they must differ."""

    least: int | None = None
    most: int | None = None
    distinct: bool = False

    def __iter__(self) -> Iterator[Any]:
        yield Len(self.least or 0, self.most)
        if self.distinct:
            yield _Distinct()


class _Distinct:
    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> Schema:
        return {**handler(core), "uniqueItems": True}


Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range(0)]
Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(above=0, most=1)]


def declared(make: Callable[..., Any]) -> dict[str, Schema]:
    """What the parameters of `make` take, by name; left out are those whose annotations declare nothing, or hold what
    pydantic does not know."""
    found = {}
    for name, parameter in inspect.signature(make).parameters.items():
        annotation = _evaluated(parameter.annotation, make)
        if _declares(annotation):
            try:
                schema = schema_of(annotation)
            except Exception:  # pydantic raises many kinds for what it has no schema of, such as a class of anybody's
                continue
            found[name] = _without_references(schema, schema.pop("$defs", {}))
    return found


def _evaluated(annotation: Any, make: Callable[..., Any]) -> Any:
    """An annotation that `from __future__ import annotations` has left as text; None where it cannot be read, as of a
    name that is imported for type checkers alone."""
    made = inspect.unwrap(make.func if isinstance(make, functools.partial) else make)
    names = getattr(made, "__globals__", None) or vars(sys.modules.get(made.__module__, sys))
    holder = types.SimpleNamespace(__annotations__={"given": annotation})
    try:
        return typing.get_type_hints(holder, globalns=names, include_extras=True)["given"]
    except Exception:  # anything that a plugin's annotation does when it is evaluated
        return None


def _declares(annotation: Any) -> bool:
    """Whether an annotation says more than a type."""
    if typing.get_origin(annotation) is Literal or is_typeddict(annotation):
        return True
    marks = getattr(annotation, "__metadata__", ())
    return bool(marks) or any(_declares(part) for part in typing.get_args(annotation))


def _without_references(part: Any, shapes: Schema) -> Any:
    """A schema in which what it refers to is written out."""
    if isinstance(part, list):
        return [_without_references(item, shapes) for item in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _without_references(shapes[part["$ref"].rpartition("/")[2]], shapes)
    return {key: _without_references(value, shapes) for key, value in part.items()}


def judged(name: str) -> Callable[[Make], Make]:
    """Hold callers from Python to what a component's parameters declare, as suites are held to it when they are read:
    the decorated function raises UserError. name: the component's, for messages."""

    def decorate(make: Make) -> Make:
        signature = inspect.signature(make)
        takes = functools.cache(lambda: declared(make))
        paths = functools.cache(lambda: {option for option in signature.parameters if _is_path(make, option)})

        @functools.wraps(make)
        def call(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            given = bound.arguments
            for option, schema in takes().items():
                if option in given and given[option] is not signature.parameters[option].default:
                    for fault in faults(schema, given[option]):
                        raise UserError(f"{name}: {place(option, fault.path)}: {fault.message}", option=option)
            for option in paths() & given.keys():
                given[option] = at_home(given[option]) if isinstance(given[option], str) else given[option]
            return make(*bound.args, **bound.kwargs)

        return typing.cast(Make, call)

    return decorate


def _is_path(make: Callable[..., Any], option: str) -> bool:
    """Whether a parameter, or a part of its union, is declared with PathText."""

    def marked(annotation: Any) -> bool:
        marks = getattr(annotation, "__metadata__", ())
        return any(isinstance(mark, PathText) for mark in marks) or any(map(marked, typing.get_args(annotation)))

    return marked(_evaluated(inspect.signature(make).parameters[option].annotation, make))


def place(option: str, path: KeyPath) -> str:
    """`rates[1]`, `optimizer.lr`."""
    return option + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
