"""The one validator: pydantic's types and their JSON Schemas, and each fault in words with its place.

What a suite may hold, what an option takes and what a file of results must look like are types that pydantic checks. A
message says what is wrong by the JSON Schema of the place: `expected "keep" or "cover", got "covr"`. pydantic is
imported when something is checked: commands that check nothing start without it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NotRequired, Required, Union

from annotated_types import Interval, Len
from typing_extensions import TypedDict

from fedbench.words import shown, suggestion

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError
    from pydantic.json_schema import GenerateJsonSchema
    from pydantic_core import ErrorDetails

Schema = dict[str, Any]
KeyPath = tuple[str | int, ...]

PLAIN = "plain"  # the type of errors whose message is shown as it is, see `plain_error`
MOST_KEYS = 6  # of a mapping that are named in a message
TRUTHS = {"yes", "no", "on", "off", "y", "n", "true", "false"}  # which YAML 1.2 takes for texts, but for the last two


class Fault(NamedTuple):
    """What is wrong with a part of a value.

    Attributes:
        kind: pydantic's name of it.
        path: to the part, for `extra_forbidden` to the unknown key, for `missing` to the mapping that lacks keys.
        of_key: whether the key itself is wrong.
    """

    path: KeyPath
    kind: str
    message: str
    of_key: bool = False


def plain_error(message: str, **values: Any) -> Exception:
    """What a validator raises for its message to be shown as it is. Braces stand for values."""
    from pydantic_core import PydanticCustomError

    return PydanticCustomError(PLAIN, message, values)


@functools.cache
def adapter(shape: Any) -> TypeAdapter:
    """pydantic's validator of a type, strict, in which typed dictionaries have no keys but their own."""
    from pydantic import ConfigDict, TypeAdapter
    from typing_extensions import is_typeddict

    config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    own = is_typeddict(shape) or hasattr(shape, "model_config")  # which says by itself how strict it is
    return TypeAdapter(shape) if own else TypeAdapter(shape, config=config)


def schema_of(shape: Any) -> Schema:
    """The JSON Schema of a type; titles are for what a text stands for, and no field has one by its name."""
    return adapter(shape).json_schema(schema_generator=_generator())


@functools.cache
def _generator() -> type[GenerateJsonSchema]:
    from pydantic.json_schema import GenerateJsonSchema

    class Untitled(GenerateJsonSchema):
        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

    return Untitled


def faults(schema: Schema, value: Any) -> Iterator[Fault]:
    """What is wrong with a value by a JSON Schema as `schema_of` makes them, written out without references."""
    from pydantic import ValidationError

    try:
        _adapter_of(json.dumps(schema, sort_keys=True)).validate_python(value)
    except ValidationError as error:
        yield from explained(error, schema, value)


@functools.lru_cache(maxsize=4096)
def _adapter_of(text: str) -> TypeAdapter:
    return adapter(_type(json.loads(text)))


def _type(schema: Schema) -> Any:
    """The type that a JSON Schema is of, which pydantic can check."""
    if "anyOf" in schema:
        return Union[tuple(map(_type, schema["anyOf"]))]  # noqa: UP007  # of as many as there are
    if choices := _choices(schema):
        return Literal[tuple(choices)]
    match schema.get("type"):
        case "integer" | "number":
            keys = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}
            bounds = {name: schema[key] for name, key in keys.items() if key in schema}
            number: Any = int if schema["type"] == "integer" else float
            return Annotated[number, Interval(**bounds)]
        case "array":
            items: Any = Sequence[_type(schema.get("items", {}))]  # type: ignore[misc]  # which is no type for mypy
            length = Len(schema.get("minItems", 0), schema.get("maxItems"))
            return Annotated[items, length, _distinct()] if schema.get("uniqueItems") else Annotated[items, length]
        case "object" if "properties" in schema:
            needed = schema.get("required", ())
            parts = {key: (key in needed, _type(part)) for key, part in schema["properties"].items()}
            return _closed({key: Required[part] if must else NotRequired[part] for key, (must, part) in parts.items()})
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return Mapping[str, _type(schema["additionalProperties"])]  # type: ignore[misc]  # as above
    plain: dict[Any, Any] = {"null": None, "boolean": bool, "string": str, "object": Mapping[str, Any]}
    return plain.get(schema.get("type"), Any)


def _closed(hints: Mapping[str, Any]) -> Any:
    from pydantic import ConfigDict, with_config

    config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    return with_config(config)(TypedDict("Keys", dict(hints)))  # type: ignore[operator]  # its keys are known here alone


def _distinct() -> Any:
    from pydantic import AfterValidator

    def check(values: Sequence[Any]) -> Sequence[Any]:
        if any(value in values[:i] for i, value in enumerate(values)):
            raise ValueError("twice")
        return values

    return AfterValidator(check)


def explained(error: ValidationError, schema: Schema, value: Any, most: int | None = None) -> list[Fault]:
    """pydantic's errors in words, at most so many. schema: of the value, its references within it.

    Of a value that is none of several types pydantic reports what each of them misses. Here one fault is reported: that
    of the parts of the value where there are any, else that of the whole.
    """
    found: dict[KeyPath, tuple[ErrorDetails, bool]] = {}
    lacks: dict[KeyPath, list[str]] = {}
    for one in error.errors(include_url=False)[:most]:
        *above, last = one["loc"] or ("",)
        if one["type"] == "missing":
            lacks.setdefault(_within(above, value)[0], []).append(str(last))
            continue
        path, exact = _within(one["loc"], value)
        if path not in found or one["type"] == PLAIN:
            found[path] = one, exact
    inner = {path[:n] for path in (*found, *lacks) for n in range(len(path))}
    faulty = [
        Fault(path, one["type"], _message(one, path, schema, value), of_key=one["loc"][-1:] == ("[key]",))
        for path, (one, exact) in found.items()
        if exact or path not in inner
    ]
    return faulty + [Fault(path, "missing", f"needs {', '.join(map(shown, keys))}") for path, keys in lacks.items()]


def _within(loc: Iterable[str | int], value: Any) -> tuple[KeyPath, bool]:
    """Those steps of pydantic's place that lead into the value, and whether all do: others name one of several types,
    or the check that failed."""
    path: list[str | int] = []
    exact = True
    for step in loc:
        inside = isinstance(value, Mapping) and step in value
        if inside or (isinstance(value, list | tuple) and isinstance(step, int) and step < len(value)):
            path.append(step)
            value = value[step]
        else:
            exact = False
    return tuple(path), exact


def _message(error: ErrorDetails, path: KeyPath, schema: Schema, value: Any) -> str:
    if error["type"] == PLAIN:
        return error["msg"]
    if error["type"] == "extra_forbidden":
        return f"unknown key {shown(path[-1])}{suggestion(str(path[-1]), keys_of(schema, path[:-1]))}"
    for step in path:
        value = value[step]
    return expected(at(schema, path), value, schema)


def expected(part: Schema, value: Any, whole: Schema | None = None) -> str:
    """What a value should be that is something else, and what may have been meant. whole: holds what `part` refers
    to."""
    cases = _cases(part)
    choices = [choice for case in cases for choice in _choices(case) if isinstance(choice, str)]
    kinds = {case.get("type") for case in cases if not _choices(case)} - {"null"}
    near = suggestion(value, choices, "") if isinstance(value, str) and choices else ""
    if isinstance(value, int | float) and kinds == {"string"}:
        near = f"; write {shown(value)} in quotes"
    if isinstance(value, str) and value.lower() in TRUTHS and "boolean" in kinds:
        near = "; YAML 1.2 writes true and false"
    return f"expected {described(part, whole)}, got {shown(value)}{near}"


def at(schema: Schema, path: KeyPath) -> Schema:
    """The part of a schema that is about the value at a path; empty where it says nothing of that."""
    part = schema
    for step in path:
        part = next(filter(None, (_inside(_resolved(case, schema), step) for case in _cases(part))), {})
    return part


def keys_of(schema: Schema, path: KeyPath = ()) -> list[str]:
    """The keys of the mapping at a path of a schema; none where there is no mapping."""
    cases = (_resolved(case, schema) for case in _cases(at(schema, path)))
    return next((list(case["properties"]) for case in cases if "properties" in case), [])


def _inside(case: Schema, step: str | int) -> Schema:
    if isinstance(step, int):
        return dict(case.get("items", {}))
    others = [*case.get("patternProperties", {}).values(), case.get("additionalProperties")]
    return dict(case.get("properties", {}).get(step) or next((one for one in others if isinstance(one, dict)), {}))


def _cases(part: Schema) -> list[Schema]:
    """The alternatives of a schema, or itself."""
    return [each for case in part["anyOf"] for each in _cases(case)] if "anyOf" in part else [part]


def _choices(schema: Schema) -> list[Any]:
    return [schema["const"]] if "const" in schema else list(schema.get("enum", ()))


def _resolved(part: Schema, whole: Schema) -> Schema:
    """A schema with what it refers to in place of the reference."""
    if "allOf" in part:
        return {**_resolved(part["allOf"][0], whole), **part}
    if "$ref" in part:
        return {**whole["$defs"][part["$ref"].rpartition("/")[2]], **part}
    return part


def described(schema: Schema, whole: Schema | None = None) -> str:
    """What is right, as a message and a table have it: `a number of at least 0 and below 0.5, or null`."""
    *others, last = _alternatives(schema, whole)
    return f"{', '.join(others)}, or {last}" if others else last


def _alternatives(schema: Schema, whole: Schema | None) -> list[str]:
    if "anyOf" in schema:
        return [text for case in schema["anyOf"] for text in _alternatives(case, whole)]
    shape = _resolved(schema, whole) if whole else schema
    if shape.get("maxProperties") == 1:
        return [f"{{{key}: ...}}" for key in shape["properties"]]
    return [_describe(schema, whole)]


def _describe(schema: Schema, whole: Schema | None) -> str:
    if choices := _choices(schema):
        *first, last = map(shown, choices)
        return f"{', '.join(first)} or {last}" if first else last
    if whole and ("$ref" in schema or "allOf" in schema):
        return _describe_mapping(_resolved(schema, whole), whole)
    if "title" in schema and "properties" not in schema:
        return str(schema["title"])
    match schema.get("type"):
        case "string":
            return "a text"
        case "integer":
            return f"a whole number{_describe_bounds(schema)}"
        case "number":
            return f"a number{_describe_bounds(schema)}"
        case "array":
            each = f", each {described(schema['items'], whole)}" if schema.get("items") else ""
            return f"a list{_describe_length(schema)}{each}"
        case "object":
            return _describe_mapping(schema, whole)
    return {"boolean": "true or false", "null": "null"}.get(schema.get("type", ""), "any value")


def _describe_mapping(schema: Schema, whole: Schema | None) -> str:
    """A mapping by its keys, where they are few, with what they take unless a reference leads there."""
    if "x-component" in schema:
        return "a name, or {name: ..., option: value}"
    keys = schema.get("properties", {})
    if 0 < len(keys) <= MOST_KEYS:
        parts = [key if "$ref" in schema else f"{key}: {described(keys[key], whole)}" for key in keys]
        return f"a mapping {{{', '.join(parts)}}}"
    some = " that is not empty" if schema.get("minProperties") else ""
    return f"a mapping (key: value){some}"


def _describe_bounds(schema: Schema) -> str:
    bound = {key: f"{value:g}" if isinstance(value, float) else str(value) for key, value in schema.items()}
    if "minimum" in schema and "maximum" in schema:
        return f" from {bound['minimum']} to {bound['maximum']}"
    words = {
        "minimum": "of at least",
        "exclusiveMinimum": "above",
        "maximum": "of at most",
        "exclusiveMaximum": "below",
    }
    bounds = " and ".join(f"{word} {bound[key]}" for key, word in words.items() if key in schema)
    return f" {bounds.replace('and of', 'and')}".rstrip()


def _describe_length(schema: Schema) -> str:
    least, most = schema.get("minItems"), schema.get("maxItems")
    bounds = [f"{word} {n}" for word, n in (("at least", least), ("at most", most)) if n is not None]
    numbers = str(least) if least is not None and least == most else " and ".join(bounds)
    kinds = " different" if schema.get("uniqueItems") else ""
    return f" of {numbers}{kinds}".rstrip() if numbers or kinds else ""
