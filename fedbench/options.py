"""What an option takes: nouns for the annotations of a component's parameters, and the one judge of values by them.

A parameter declares by `Literal["keep", "cover"]`, `Annotated[float, Range(0, below=0.5)]`, `Annotated[str, Text("a
folder")]`, lists (with `Length`), typed dictionaries, and any of these with `|`. The catalogue keeps that as a JSON
Schema, by which suites are judged without importing the component; `judged` holds callers from Python to it.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from fedbench.errors import UserError
from fedbench.words import shown, suggestion

Schema = dict[str, Any]
Path = tuple[str | int, ...]
Make = TypeVar("Make", bound=Callable[..., Any])


@dataclass(frozen=True)
class Range:
    """Which numbers are right: from `least` to `most`, both included, or `above` and `below`, themselves not. Without
    a bound every finite number is."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    @property
    def bounds(self) -> Schema:
        keys = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        given = (self.least, self.most, self.above, self.below)
        return {key: bound for key, bound in zip(keys, given, strict=True) if bound is not None}


@dataclass(frozen=True)
class Text:
    """Any text is right. what: it stands for, with its article, such as `a folder`."""

    what: str = ""


@dataclass(frozen=True)
class Length:
    """How many items a list has, and whether they must differ."""

    least: int | None = None
    most: int | None = None
    distinct: bool = False

    @property
    def bounds(self) -> Schema:
        bounds = {"minItems": self.least, "maxItems": self.most, "uniqueItems": self.distinct or None}
        return {key: bound for key, bound in bounds.items() if bound is not None}


Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range(0)]
Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(above=0, most=1)]

_BASES: dict[Any, Schema] = {
    types.NoneType: {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
}
_PLAIN = {"null": types.NoneType, "boolean": bool, "string": str, "object": Mapping}
_LISTS = (list, Sequence)
_MAPPINGS = (dict, Mapping)


def declared(make: Callable[..., Any]) -> dict[str, Schema]:
    """What the parameters of `make` take, by name; left out are those whose annotations declare nothing, or hold what
    this module does not know."""
    found = {}
    for name, parameter in inspect.signature(make).parameters.items():
        annotation = _evaluated(parameter.annotation, make)
        schema = _schema(annotation) if _declares(annotation) else None
        if schema is not None:
            found[name] = schema
    return found


def _evaluated(annotation: Any, make: Callable[..., Any]) -> Any:
    """An annotation that `from __future__ import annotations` has left as text; None where it cannot be read, as of a
    name that is imported for type checkers alone."""
    made = inspect.unwrap(make.func if isinstance(make, functools.partial) else make)
    names = getattr(made, "__globals__", None) or vars(sys.modules.get(made.__module__, sys))
    holder = types.SimpleNamespace(__annotations__={"given": annotation})
    try:
        return typing.get_type_hints(holder, globalns=names, include_extras=True)["given"]
    except Exception:  # whatever a stranger's annotation does when it is evaluated
        return None


def _declares(annotation: Any) -> bool:
    """Whether an annotation says more than a type."""
    if typing.get_origin(annotation) is Literal or typing.is_typeddict(annotation):
        return True
    if typing.get_origin(annotation) is Annotated and _marks(annotation):
        return True
    return any(_declares(part) for part in typing.get_args(annotation))


def _marks(annotation: Any) -> list[Range | Text | Length]:
    return [mark for mark in annotation.__metadata__ if isinstance(mark, Range | Text | Length)]


def _schema(annotation: Any) -> Schema | None:
    """The JSON Schema of an annotation, None where a part of it is not known."""
    if annotation in _BASES:
        return dict(_BASES[annotation])
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _marked(_schema(parts[0]), _marks(annotation))
    if origin is Literal:
        return {"enum": list(parts)}
    if origin in (typing.Union, types.UnionType):
        each = [_schema(part) for part in parts]
        return None if None in each else {"anyOf": each}
    if typing.is_typeddict(annotation):
        return _of_keys(annotation)
    if annotation in _LISTS or origin in _LISTS:
        items = _schema(parts[0]) if parts else {}
        return None if items is None else {"type": "array", "items": items}
    return {"type": "object"} if annotation in _MAPPINGS or origin in _MAPPINGS else None


def _marked(schema: Schema | None, marks: Sequence[Range | Text | Length]) -> Schema | None:
    """A schema with what its marks say."""
    if schema is None:
        return None
    said: Schema = {}
    for mark in marks:
        if not isinstance(mark, Text):
            said |= mark.bounds
        elif mark.what:
            said["description"] = mark.what
    return schema | said


def _of_keys(shape: Any) -> Schema | None:
    """Of a typed dictionary."""
    each = {key: _schema(part) for key, part in typing.get_type_hints(shape, include_extras=True).items()}
    if None in each.values():
        return None
    needed = {"required": sorted(shape.__required_keys__)} if shape.__required_keys__ else {}
    return {"type": "object", "properties": each, "additionalProperties": False, **needed}


def faults(schema: Schema, value: Any) -> Iterator[tuple[Path, str]]:
    """What is wrong with a value, each with the path to the part of it: `expected "keep" or "cover", got "covr"`."""
    cases = schema.get("anyOf", [schema])
    if any(_fits(case, value) for case in cases):
        return
    inside = next((case for case in cases if _holds_parts(case, value)), None)
    if inside is not None and (found := list(_faults_inside(inside, value))):
        yield from found
        return
    choices = [choice for case in cases for choice in case.get("enum", ()) if isinstance(choice, str)]
    near = suggestion(value, choices, "") if isinstance(value, str) and choices else ""
    if isinstance(value, int | float) and any(case.get("type") == "string" for case in cases):
        near = f"; write {shown(value)} in quotes"
    yield (), f"expected {told(schema)}, got {shown(value)}{near}"


def _fits(schema: Schema, value: Any) -> bool:
    return not any(_own_faults(schema, value)) and not any(_faults_inside(schema, value))


def _holds_parts(schema: Schema, value: Any) -> bool:
    """Whether a value is of the schema's type, a list or a mapping, so that its parts can be told of."""
    kind = schema.get("type")
    return (kind == "array" and isinstance(value, list | tuple)) or (kind == "object" and isinstance(value, Mapping))


def _own_faults(schema: Schema, value: Any) -> Iterator[bool]:
    """Of the value itself, whatever is in it."""
    if "enum" in schema:
        yield not any(value == choice and type(value) is type(choice) for choice in schema["enum"])
    match schema.get("type"):
        case "null" | "boolean" | "string" | "object" as kind:
            yield not isinstance(value, _PLAIN[kind])
        case "array":
            yield not isinstance(value, list | tuple) or not _long_enough(schema, value)
        case "integer" | "number" as kind:
            right = int if kind == "integer" else (int, float)
            yield not isinstance(value, right) or isinstance(value, bool) or not _in_range(schema, value)


def _in_range(schema: Schema, value: float) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return False
    closed = schema.get("minimum", value) <= value <= schema.get("maximum", value)
    return bool(closed) and schema.get("exclusiveMinimum", -math.inf) < value < schema.get("exclusiveMaximum", math.inf)


def _long_enough(schema: Schema, value: Sequence[Any]) -> bool:
    distinct = not schema.get("uniqueItems") or all(item not in value[:i] for i, item in enumerate(value))
    return schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)) and distinct


def _faults_inside(schema: Schema, value: Any) -> Iterator[tuple[Path, str]]:
    """Of the parts of a list or of a mapping."""
    if not _holds_parts(schema, value):
        return
    if schema["type"] == "array":
        yield from (((i, *path), told) for i, item in enumerate(value) for path, told in faults(schema["items"], item))
        return
    known: Schema = schema.get("properties", {})
    for key, part in value.items() if "properties" in schema else ():
        if key not in known:
            yield (key,), f"unknown key {shown(key)}{suggestion(str(key), known)}"
        else:
            yield from (((key, *path), told) for path, told in faults(known[key], part))
    if lacks := [key for key in schema.get("required", ()) if key not in value]:
        yield (), f"needs {', '.join(lacks)}"


def told(schema: Schema) -> str:
    """What is right, as a message and a table say it: `a number of at least 0 and below 0.5, or null`."""
    if "anyOf" in schema:
        return ", or ".join(map(told, schema["anyOf"]))
    if "enum" in schema:
        *first, last = map(shown, schema["enum"])
        return f"{', '.join(first)} or {last}" if first else last
    if "description" in schema:
        return str(schema["description"])
    match schema.get("type"):
        case "integer":
            return f"a whole number{_told_bounds(schema)}"
        case "number":
            return f"a number{_told_bounds(schema)}"
        case "array":
            return f"a list{_told_length(schema)}" + (f", each {told(schema['items'])}" if schema["items"] else "")
        case "object":
            keys = ", ".join(f"{key}: {told(part)}" for key, part in schema.get("properties", {}).items())
            return f"a mapping {{{keys}}}" if keys else "a mapping"
    return {"string": "a text", "boolean": "true or false", "null": "null"}.get(schema.get("type", ""), "any value")


def _told_bounds(schema: Schema) -> str:
    if "minimum" in schema and "maximum" in schema:
        return f" from {schema['minimum']:g} to {schema['maximum']:g}"
    words = {
        "minimum": "of at least",
        "exclusiveMinimum": "above",
        "maximum": "of at most",
        "exclusiveMaximum": "below",
    }
    said = " and ".join(f"{word} {schema[key]:g}" for key, word in words.items() if key in schema)
    return f" {said.replace('and of', 'and')}".rstrip()


def _told_length(schema: Schema) -> str:
    least, most = schema.get("minItems"), schema.get("maxItems")
    bounds = [f"{word} {n}" for word, n in (("at least", least), ("at most", most)) if n is not None]
    numbers = str(least) if least is not None and least == most else " and ".join(bounds)
    kinds = " different" if schema.get("uniqueItems") else ""
    return f" of {numbers}{kinds}".rstrip() if numbers or kinds else ""


def judged(name: str) -> Callable[[Make], Make]:
    """Hold callers from Python to what a component's parameters declare, as suites are held to it when they are read:
    the decorated function raises UserError. name: the component's, for messages."""

    def decorate(make: Make) -> Make:
        signature = inspect.signature(make)
        takes = functools.cache(lambda: declared(make))

        @functools.wraps(make)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind(*args, **kwargs).arguments
            for option, schema in takes().items():
                if option in given and given[option] is not signature.parameters[option].default:
                    for path, message in faults(schema, given[option]):
                        raise UserError(f"{name}: {place(option, path)}: {message}", option=option)
            return make(*args, **kwargs)

        return typing.cast(Make, call)

    return decorate


def place(option: str, path: Path) -> str:
    """`rates[1]`, `optimizer.lr`."""
    return option + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
