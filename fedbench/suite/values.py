"""What a single value of a suite may be: bounds, rules of more than one number, and marks for the JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field

from fedbench.schema import Schema, plain_error, schema_of
from fedbench.words import shown

A_NAME = "letters, digits, and _ - . + after the first, at most 80 of them"
NAMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,79}")
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$", max_length=80, title=A_NAME)]
Seed = Annotated[int, Field(ge=0, lt=2**32, title="a whole number from 0 to 2^32 - 1")]
Fraction = Annotated[float, Field(gt=0, lt=1)]
Probability = Annotated[float, Field(ge=0, le=1)]
Factor = Annotated[float, Field(ge=1)]
Number = TypeVar("Number", int, float)


@dataclass(frozen=True, eq=False)
class InSchema:
    """Marks a value whose part of the JSON Schema is another: `change` makes it of its own."""

    change: Callable[[Schema], Schema]

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> Schema:
        return self.change(handler(core))


def kind(name: str) -> InSchema:
    """A reference to a component: `name`, or `{name: ..., option: value}`."""
    return InSchema(lambda own: {"x-component": name, "allOf": [own]})


def shorthand(short: Schema) -> InSchema:
    """A mapping that has a shorter spelling too."""
    return InSchema(lambda own: {"anyOf": [short, own]})


def instead(shape: Any) -> InSchema:
    """A value that a mapping of that shape may stand for; the mapping is replaced before the check."""
    return InSchema(lambda own: {"anyOf": [schema_of(shape), own]})


def in_one_way(*ways: str) -> AfterValidator:
    """A mapping has exactly one of `ways`, whatever other keys it has."""

    def check(choice: dict[str, Any]) -> dict[str, Any]:
        if (count := len(choice.keys() & {*ways})) != 1:
            raise plain_error("expected one of {ways}, got {count} of them", ways=", ".join(ways), count=count)
        return choice

    return AfterValidator(check)


class OneOf:
    """Marks a mapping that has exactly one of its keys."""

    def __init__(self, *keys: str) -> None:
        self.check = in_one_way(*keys)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return self.check.__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> Schema:
        return {**handler(core), "minProperties": 1, "maxProperties": 1}


def not_empty(choice: dict[str, Any]) -> dict[str, Any]:
    """A mapping says something."""
    if not choice:
        raise plain_error("must not be empty")
    return choice


def span(bounds: list[Number]) -> list[Number]:
    """[lowest, highest], in this order."""
    if len(bounds) != 2:
        raise plain_error("expected [lowest, highest], got {count} numbers", count=len(bounds))
    if bounds[0] > bounds[1]:
        raise plain_error("the lowest, {low}, is above the highest, {high}", low=bounds[0], high=bounds[1])
    return bounds


Value = TypeVar("Value")
Span = Annotated[list[Value], AfterValidator(span), Field(title="[lowest, highest]")]


def rising(values: list[Number]) -> list[Number]:
    """Every number is above the one before."""
    if any(after <= before for before, after in zip(values, values[1:], strict=False)):
        raise plain_error("expected numbers in rising order, got {values}", values=shown(values))
    return values


def distinct(values: list[Any]) -> list[Any]:
    """No value is listed twice."""
    seen: set[Any] = set()
    for value in values:
        if value in seen:
            raise plain_error("{value} is listed twice", value=value)
        seen.add(value)
    return values


def moments(rounds: Any) -> Any:
    """Rounds come back in order, each once."""
    return sorted(distinct(rounds)) if isinstance(rounds, list) else rounds


def not_both(evaluation: dict[str, Any]) -> dict[str, Any]:
    """One layer says when to test in one way."""
    if evaluation.get("every") is not None and evaluation.get("at") is not None:
        raise plain_error("expected `every` or `at`, not both")
    return evaluation


def whole_codec(coded: dict[str, Any]) -> dict[str, Any]:
    """A codec comes by name, with a density where it is topk, and nowhere else."""
    if "codec" not in coded:
        raise plain_error("needs codec: int8 or topk")
    if (coded["codec"] == "topk") != ("density" in coded):
        wanted = "topk needs a density, such as 0.1" if coded["codec"] == "topk" else "int8 has no density"
        raise plain_error("{wanted}", wanted=wanted)
    return coded
