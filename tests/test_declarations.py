"""What options take: read from annotations, told in words, and judged; and that every shipped option says it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import pytest
from typing_extensions import TypedDict

from fedbench.errors import UserError
from fedbench.options import Count, Length, Range, Share, Text, declared, judged
from fedbench.registry.catalogue import SET_UP
from fedbench.registry.registry import Registry
from fedbench.schema import described, faults
from fedbench.suite.setting_layers import NESTED


class Steps(TypedDict, total=False):
    name: Literal["sgd", "adamw"]
    momentum: Annotated[float, Range(0, below=1)]


def maker(
    setup: Any,
    plain: int,
    unknown: Nowhere = None,  # noqa: F821  # a name for type checkers alone
    how: Literal["keep", "cover"] = "keep",
    rank: Count | None = None,
    trim: Annotated[float, Range(0, below=0.5)] = 0.1,
    root: Annotated[str, Text("a folder")] | None = None,
    rates: Annotated[Sequence[Share], Length(1, 3, distinct=True)] = (1.0,),
    steps: Steps | None = None,
    anything: Mapping[str, Any] | None = None,
): ...


TAKES = declared(maker)


def found(option: str, value: Any) -> list[tuple[tuple, str]]:
    return [(fault.path, fault.message) for fault in faults(TAKES[option], value)]


def test_declarations_are_read_from_annotations_and_nothing_else_is():
    assert list(TAKES) == ["how", "rank", "trim", "root", "rates", "steps"]
    assert json.loads(json.dumps(TAKES)) == TAKES
    assert TAKES["rank"] == {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}
    assert TAKES["trim"] == {"type": "number", "minimum": 0, "exclusiveMaximum": 0.5}


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("how", '"keep" or "cover"'),
        ("rank", "a whole number of at least 1, or null"),
        ("trim", "a number of at least 0 and below 0.5"),
        ("root", "a folder, or null"),
        ("rates", "a list of at least 1 and at most 3 different, each a number above 0 and at most 1"),
        ("steps", 'a mapping {name: "sgd" or "adamw", momentum: a number of at least 0 and below 1}, or null'),
    ],
)
def test_what_is_right_is_told_in_words(option, words):
    assert described(TAKES[option]) == words


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("how", "cover"),
        ("rank", 1),
        ("rank", None),
        ("trim", 0),
        ("trim", 0.4999),
        ("root", "/x"),
        ("rates", [0.5, 1]),
        ("steps", {"name": "sgd"}),
        ("steps", {}),
    ],
)
def test_what_is_right_passes(option, value):
    assert found(option, value) == []


@pytest.mark.parametrize(
    ("option", "value", "place", "message"),
    [
        ("how", "covr", (), 'expected "keep" or "cover", got "covr"; did you mean "cover"?'),
        ("how", True, (), 'expected "keep" or "cover", got true'),
        ("rank", 0, (), "expected a whole number of at least 1, or null, got 0"),
        ("rank", 1.0, (), "expected a whole number of at least 1, or null, got 1.0"),
        ("rank", True, (), "expected a whole number of at least 1, or null, got true"),
        ("trim", 0.5, (), "expected a number of at least 0 and below 0.5, got 0.5"),
        ("trim", float("nan"), (), "expected a number of at least 0 and below 0.5, got NaN"),
        ("trim", "0.1", (), 'expected a number of at least 0 and below 0.5, got "0.1"'),
        ("root", 3, (), "expected a folder, or null, got 3; write 3 in quotes"),
        ("rates", [1, 2, 0.5], (1,), "expected a number above 0 and at most 1, got 2"),
        ("steps", {"name": "sdg"}, ("name",), 'expected "sgd" or "adamw", got "sdg"; did you mean "sgd"?'),
        ("steps", {"momentm": 0}, ("momentm",), 'unknown key "momentm"; did you mean "momentum"?'),
    ],
)
def test_what_is_wrong_is_told_with_its_place(option, value, place, message):
    assert found(option, value) == [(place, message)]


@pytest.mark.parametrize("value", [[], [1, 0.5, 0.25, 0.1], [1, 1], 1])
def test_a_list_has_as_many_different_items_as_it_says(value):
    ((place, message),) = found("rates", value)
    assert place == () and message.startswith("expected a list of at least 1 and at most 3 different")


def test_callers_from_python_are_held_to_the_same_rule():
    @judged("thing")
    def thing(size: Count = 3, names: list[Annotated[str, Text()]] | None = None) -> int:
        """A thing."""
        return size

    assert thing() == 3 and thing(size=2) == 2 and thing.__doc__ == "A thing."
    with pytest.raises(UserError, match="^thing: size: expected a whole number of at least 1, got 0$"):
        thing(0)
    with pytest.raises(UserError, match=r"^thing: names\[1\]: expected a text, got 2; write 2 in quotes$"):
        thing(names=["a", 2])


def test_every_shipped_option_says_what_it_takes():
    """A number its range, or that any is right (`Range()`); a text its choices, or that any is right (`Text`)."""
    silent = [
        f"{component.kind} {component.name}: {option}"
        for component in Registry().catalogue
        if component.package == "fedbench"
        for option, default in component.options.items()
        if not isinstance(default, bool)
        and option not in component.takes
        and not (component.kind in SET_UP and option in NESTED)
        and default != {}  # passed on to a cluster as it is
    ]
    assert silent == []
