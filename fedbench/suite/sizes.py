"""What a scenario may give its clients: how many layers they can hold, which rank, which width."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict

from fedbench.suite.values import Count, Share, Shorthand, one_of, span

_closed = with_config(ConfigDict(extra="forbid", strict=True))
_COUNT = {"type": "integer", "minimum": 1}
_SHARE = {"type": "number", "exclusiveMinimum": 0, "maximum": 1}


@_closed
class Capacities(TypedDict, total=False):
    """How many layers a client can hold: all, by client, by its domain, or drawn anew for each client and round."""

    all: Literal[True]
    by_client: Annotated[list[Count], Field(min_length=1)]
    by_domain: Annotated[list[Count], Field(min_length=1)]
    uniform: Annotated[list[Count], AfterValidator(span), Field(description="[lowest, highest], both included")]


@_closed
class Ranks(TypedDict, total=False):
    """How many rank-one terms of each adapter a client can hold: by client, by its domain, or drawn anew."""

    by_client: Annotated[list[Count], Field(min_length=1)]
    by_domain: Annotated[list[Count], Field(min_length=1)]
    uniform: Annotated[list[Count], AfterValidator(span), Field(description="[lowest, highest], both included")]


@_closed
class Widths(TypedDict, total=False):
    """Which share of the hidden units of every layer a client can hold: by client, by its domain, or drawn anew."""

    by_client: Annotated[list[Share], Field(min_length=1)]
    by_domain: Annotated[list[Share], Field(min_length=1)]
    uniform: Annotated[list[Share], AfterValidator(span), Field(description="[lowest, highest]")]


GivenCapacities = Annotated[
    Capacities,
    one_of("all", "by_client", "by_domain", "uniform"),
    Shorthand({"anyOf": [{"type": "array", "items": _COUNT, "minItems": 1}, {"const": "all"}]}),
]
GivenRanks = Annotated[
    Ranks,
    one_of("by_client", "by_domain", "uniform"),
    Shorthand({"anyOf": [{"type": "array", "items": _COUNT, "minItems": 1}, _COUNT]}),
]
GivenWidths = Annotated[
    Widths,
    one_of("by_client", "by_domain", "uniform"),
    Shorthand({"anyOf": [{"type": "array", "items": _SHARE, "minItems": 1}, _SHARE]}),
]
