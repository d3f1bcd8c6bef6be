"""What a suite may say of devices: who has which, numbers of its own, and what a size must fit into."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict

from fedbench.suite.values import Count, Name, NotNegative, Positive, Shorthand, in_one_way, not_empty

_closed = with_config(ConfigDict(extra="forbid", strict=True))

GIVEN = ("by_client", "by_domain", "shares")  # the ways to say who has which device
NUMBERS = ("memory", "flops", "flops_bf16", "down", "up")  # what a device must have


@_closed
class Device(TypedDict, total=False):
    """A device of a suite's own, or what it says anew of a shipped one."""

    extends: Annotated[str, Field(description="the shipped device whose numbers it has where it says none")]
    memory: Annotated[Positive, Field(description="bytes that training may take")]
    flops: Annotated[Positive, Field(description="FLOP/s that training sustains in fp32")]
    flops_bf16: Annotated[Positive, Field(description="the same in bf16")]
    down: Annotated[Positive, Field(description="bytes/s from the server")]
    up: Annotated[Positive, Field(description="bytes/s to the server")]
    watts: Annotated[Positive | None, Field(description="drawn while it trains; null: not known")]
    source: Annotated[str, Field(description="where the numbers are from; no part of what a cell is")]


@_closed
class Numbers(TypedDict, total=False):
    """A device as a configuration has it."""

    memory: Annotated[int, Field(ge=0)]
    flops: Positive
    flops_bf16: Positive
    down: Positive
    up: Positive
    watts: Positive


_Names = Annotated[list[str], Field(min_length=1)]


@_closed
class Devices(TypedDict, total=False):
    """Who has which device: by client, by its domain, or in shares that are drawn by the seed."""

    by_client: Annotated[_Names, Field(description="a device for each client")]
    by_domain: Annotated[_Names, Field(description="a device for the clients of each domain")]
    shares: Annotated[
        dict[str, Positive], Field(min_length=1, description="how many of all clients have each, in any unit")
    ]
    server: Annotated[str, Field(description="what the server computes with; default: server_gpu")]
    jitter: Annotated[NotNegative, Field(description="how much speeds vary from round to round, see device_jitter")]
    wait_for: Annotated[Count, Field(description="how many clients the server waits for, see wait_for beside devices")]
    known: Annotated[dict[str, Numbers], Field(description="numbers of devices, where they are not those of the table")]


@_closed
class Fit(TypedDict, total=False):
    """What a client's size must fit into, in every round."""

    memory: Annotated[Literal[True], Field(description="what training needs, into the device's memory")]
    seconds: Annotated[Positive, Field(description="down + compute + up of a round, into so many")]
    bytes: Annotated[Positive, Field(description="down + up of a round, into so many")]


@_closed
class Scale(TypedDict, total=False):
    """What the numbers of all devices are multiplied by, for models that are smaller than real ones."""

    memory: Positive
    flops: Annotated[Positive, Field(description="in fp32 and bf16, the server's too")]
    network: Annotated[Positive, Field(description="bytes/s down and up")]


_NAME = {"type": "string"}
GivenDevices = Annotated[
    Devices,
    in_one_way(*GIVEN),
    Shorthand(
        {
            "anyOf": [
                _NAME,
                {"type": "array", "items": _NAME, "minItems": 1},
                {"type": "object", "additionalProperties": {"type": "number", "exclusiveMinimum": 0}},
            ]
        }
    ),
]
GivenFit = Annotated[Fit, AfterValidator(not_empty), Shorthand({"const": "memory"})]
OwnDevices = dict[Name, Device]
