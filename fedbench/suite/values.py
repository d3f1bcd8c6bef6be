"""What a single value of a suite may be: bounds, rules of more than one number, and marks for the JSON Schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter
from pydantic_core import PydanticCustomError, ValidationError

from fedbench.words import shown

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$"

Name = Annotated[str, Field(pattern=NAME, max_length=80)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Number = TypeVar("Number", int, float)
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Factor = Annotated[float, Field(ge=1, allow_inf_nan=False)]


@dataclass(frozen=True)
class Kind:
    """Marks a reference to a component: `name`, or `{name: ..., option: value}`."""

    kind: str

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        return {"x-component": self.kind, "allOf": [handler(core)]}


@dataclass(frozen=True)
class Shorthand:
    """Marks a mapping that has a shorter spelling too."""

    schema: dict[str, Any]

    def __hash__(self) -> int:
        return id(self)

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [self.schema, handler(core)]}


@dataclass(frozen=True)
class Instead:
    """Marks a value that may be told by another mapping, which is replaced by what it stands for before the check."""

    shape: Any

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [TypeAdapter(self.shape).json_schema(), handler(core)]}


def _say(message: str, **values: Any) -> PydanticCustomError:
    return PydanticCustomError("plain", message, values)


def one_of(*keys: str) -> AfterValidator:
    """A mapping says exactly one of `keys`."""

    def check(choice: dict[str, Any]) -> dict[str, Any]:
        if len(choice) != 1:
            raise _say("expected one of {keys}, got {count} of them", keys=", ".join(keys), count=len(choice))
        return choice

    return AfterValidator(check)


def in_one_way(*ways: str) -> AfterValidator:
    """A mapping says exactly one of `ways`, whatever else it says."""

    def check(choice: dict[str, Any]) -> dict[str, Any]:
        if len(found := [way for way in ways if way in choice]) != 1:
            raise _say("expected one of {ways}, got {count} of them", ways=", ".join(ways), count=len(found))
        return choice

    return AfterValidator(check)


def not_empty(choice: dict[str, Any]) -> dict[str, Any]:
    """A mapping says something."""
    if not choice:
        raise _say("must not be empty")
    return choice


def span(bounds: list[Number]) -> list[Number]:
    """[lowest, highest], in this order."""
    if len(bounds) != 2:
        raise _say("expected [lowest, highest], got {count} numbers", count=len(bounds))
    if bounds[0] > bounds[1]:
        raise _say("the lowest, {low}, is above the highest, {high}", low=bounds[0], high=bounds[1])
    return bounds


def rising(values: list[Number]) -> list[Number]:
    """Every number is above the one before."""
    if any(after <= before for before, after in zip(values, values[1:], strict=False)):
        raise _say("expected numbers in rising order, got {values}", values=shown(values))
    return values


def distinct(values: list[Any]) -> list[Any]:
    """No value is listed twice."""
    seen: set[Any] = set()
    for value in values:
        if value in seen:
            raise _say("{value} is listed twice", value=value)
        seen.add(value)
    return values


def slowdown(value: Any, handler: Any) -> Any:
    """A factor or a span of factors; pydantic would tell of each of the two what is wrong."""
    try:
        found = handler(value)
    except ValidationError:
        found = []
    if isinstance(found, list) and (not found or found[0] > found[1]):
        raise _say("expected a number of at least 1, or [lowest, highest] of them, got {value}", value=shown(value))
    return found


def steps(value: Any, handler: Any) -> Any:
    """A count, a word or null, told in one line."""
    try:
        return handler(value)
    except ValidationError:
        raise _say(
            'expected a whole number of at least 1, "smallest" or null, got {value}', value=shown(value)
        ) from None


def moments(value: Any, handler: Any) -> Any:
    """Rounds, a word or null, told in one line; rounds come back in order."""
    try:
        found = handler(value)
    except ValidationError:
        raise _say(
            'expected rounds of at least 1, such as [10, 50], "reference" or null, got {value}', value=shown(value)
        ) from None
    return sorted(distinct(found)) if isinstance(found, list) else found


def not_both(evaluation: dict[str, Any]) -> dict[str, Any]:
    """One layer says when to test in one way."""
    if evaluation.get("every") is not None and evaluation.get("at") is not None:
        raise _say("expected `every` or `at`, not both")
    return evaluation
