"""What a suite may say of its clients' sizes and devices, in the same form as the other keys of a suite."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict  # pydantic takes typing's own only from Python 3.12 on

from fedbench.options import Count, Natural, NotNegative, Positive, Share
from fedbench.suite.values import Name, OneOf, Span, in_one_way, not_empty, shorthand

closed = with_config(ConfigDict(extra="forbid", strict=True, allow_inf_nan=False))

GIVEN = ("by_client", "by_domain", "shares")  # the ways to say who has which device
NUMBERS = ("memory", "flops", "flops_bf16", "down", "up")  # what a device must have

_COUNT = {"type": "integer", "minimum": 1}
_SHARE = {"type": "number", "exclusiveMinimum": 0, "maximum": 1}


@closed
class RankKeys(TypedDict, total=False):
    """How many rank-one terms of an adapter a client can hold: by client, by domain, in turns, or drawn each round."""

    by_client: Annotated[list[Count], Field(min_length=1)]
    by_domain: Annotated[list[Count], Field(min_length=1)]
    cycle: Annotated[list[Count], Field(min_length=1, description="of the clients in their order, over and over")]
    uniform: Annotated[Span[Count], Field(description="[lowest, highest], both included")]


@closed
class CapacityKeys(RankKeys, total=False):
    """How many layers a client can hold: all, by client, by domain, in turns, or drawn for each client and round."""

    all: Literal[True]


@closed
class WidthKeys(TypedDict, total=False):
    """Which share of the hidden units a client can hold: by client, by domain, in turns, or drawn each round."""

    by_client: Annotated[list[Share], Field(min_length=1)]
    by_domain: Annotated[list[Share], Field(min_length=1)]
    cycle: Annotated[list[Share], Field(min_length=1, description="of the clients in their order, over and over")]
    uniform: Span[Share]


def _listed(items: Any, noun: str) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1, "title": f"a list with a {noun} for each client"}


GivenCapacities = Annotated[
    CapacityKeys,
    OneOf("all", "by_client", "by_domain", "cycle", "uniform"),
    shorthand({"anyOf": [_listed(_COUNT, "depth"), {"const": "all"}]}),
]
GivenRanks = Annotated[
    RankKeys,
    OneOf("by_client", "by_domain", "cycle", "uniform"),
    shorthand({"anyOf": [_listed(_COUNT, "rank"), _COUNT]}),
]
GivenWidths = Annotated[
    WidthKeys,
    OneOf("by_client", "by_domain", "cycle", "uniform"),
    shorthand({"anyOf": [_listed(_SHARE, "width"), _SHARE]}),
]


@closed
class DeviceKeys(TypedDict, total=False):
    """A suite's own device, or its numbers for a shipped one."""

    extends: Annotated[str, Field(description="the shipped device whose numbers it has where it says none")]
    memory: Annotated[Positive, Field(description="bytes that training may take")]
    flops: Annotated[Positive, Field(description="FLOP/s that training sustains in fp32")]
    flops_bf16: Annotated[Positive, Field(description="the same in bf16")]
    down: Annotated[Positive, Field(description="bytes/s from the server")]
    up: Annotated[Positive, Field(description="bytes/s to the server")]
    watts: Annotated[Positive | None, Field(description="drawn while it trains; null: not known")]
    message: Annotated[NotNegative, Field(description="seconds of each message besides its bytes; default: 0")]
    source: Annotated[str, Field(description="where the numbers are from; no part of what a cell is")]


@closed
class DeviceNumberKeys(TypedDict, total=False):
    """A device as a configuration has it."""

    memory: Natural
    flops: Positive
    flops_bf16: Positive
    down: Positive
    up: Positive
    watts: Positive
    message: Positive


_Names = Annotated[list[str], Field(min_length=1)]


@closed
class DevicesKeys(TypedDict, total=False):
    """Who has which device: by client, by its domain, or in shares that are drawn by the seed."""

    by_client: Annotated[_Names, Field(description="a device for each client")]
    by_domain: Annotated[_Names, Field(description="a device for the clients of each domain")]
    shares: Annotated[
        dict[str, Positive], Field(min_length=1, description="how many of all clients have each, in any unit")
    ]
    server: Annotated[str, Field(description="what the server computes with; default: server_gpu")]
    jitter: Annotated[NotNegative, Field(description="how much speeds vary from round to round, see device_jitter")]
    wait_for: Annotated[Count, Field(description="how many clients the server waits for, see wait_for of the settings")]
    known: Annotated[
        dict[str, DeviceNumberKeys], Field(description="numbers of devices, where they are not those of the table")
    ]


@closed
class FitKeys(TypedDict, total=False):
    """What a client's size must fit into, in every round."""

    memory: Annotated[Literal[True], Field(description="what training needs, into the device's memory")]
    seconds: Annotated[Positive, Field(description="down + compute + up of a round, into so many")]
    bytes: Annotated[Positive, Field(description="down + up of a round, into so many")]


@closed
class ScaleKeys(TypedDict, total=False):
    """What the numbers of all devices are multiplied by, for models that are smaller than real ones."""

    memory: Positive
    flops: Annotated[Positive, Field(description="in fp32 and bf16, the server's too")]
    network: Annotated[Positive, Field(description="bytes/s down and up")]


_NAME = {"type": "string"}
GivenDevices = Annotated[
    DevicesKeys,
    in_one_way(*GIVEN),
    shorthand(
        {
            "anyOf": [
                {**_NAME, "title": "one device"},
                _listed(_NAME, "device"),
                {"type": "object", "additionalProperties": {"type": "number", "exclusiveMinimum": 0}},
            ]
        }
    ),
]
GivenFit = Annotated[FitKeys, AfterValidator(not_empty), shorthand({"const": "memory"})]
OwnDevices = dict[Name, DeviceKeys]
