"""What a suite may say of its clients' sizes and devices, and the devices that it names, with their numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict  # pydantic takes typing's own only from Python 3.12 on

from fedbench.devices.table import SERVER, SHIPPED, numbers_of
from fedbench.options import Count, Natural, NotNegative, Positive, Share
from fedbench.suite.values import Name, OneOf, Span, in_one_way, not_empty, shorthand
from fedbench.suite.yaml import INVALID, Node, Problems
from fedbench.types import SIZES
from fedbench.words import shown, suggestion

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


_SCALED = {"memory": "memory", "flops": "flops", "flops_bf16": "flops", "down": "network", "up": "network"}


class Known:
    """The devices of a suite: those that are shipped, and its own."""

    def __init__(self, own: Node | None, problems: Problems) -> None:
        self.problems = problems
        self.numbers: dict[str, dict[str, Any] | None] = {name: numbers_of(one) for name, one in SHIPPED.items()}
        for name, given in own.value.items() if own is not None and own.is_mapping else ():
            self.numbers[name] = self._own(name, given)

    def _own(self, name: str, given: Node) -> dict[str, Any] | None:
        """The numbers of a device of the suite's own; None where they are wrong."""
        if not given.is_valid or not given.is_mapping:
            return None
        said = {key: value for key, value in given.plain().items() if key not in ("extends", "source")}
        base = given.get("extends")
        below = name if base is None else base.value
        if base is not None and below not in SHIPPED:
            message = f"no device that fedbench ships is called {shown(below)}{suggestion(below, SHIPPED)}"
            self.problems.add(base.mark, message)
            return None
        full = {**(numbers_of(SHIPPED[below]) if below in SHIPPED else {}), **said}
        if missing := [key for key in NUMBERS if full.get(key) is None]:
            message = f"the device {shown(name)} needs {', '.join(map(shown, missing))}; or let it extend a shipped one"
            self.problems.add(given.named, message + suggestion(name, SHIPPED, ""))
            return None
        return _plain(full)

    def settings(self, node: Node) -> Node:
        """Settings with the numbers of the devices that they name, and with sizes left to the methods; settings without
        devices say nothing of how they fit. Nothing is said of how a batch is computed where that is the usual way."""
        return _usual_ways_unsaid(self._with_numbers(node))

    def _with_numbers(self, node: Node) -> Node:
        given = node.get("devices")
        if given is None or given.value is None or not given.is_valid:
            if (wait := node.get("wait_for")) is not None and wait.value is not None:
                self.problems.add(
                    wait.named, "wait_for: who is fastest is not known without devices; say wait_for: null"
                )
            for key in ("devices", "fit", "device_scale", "device_jitter", "wait_for"):
                node = node.put((key,), None) if node.get(key) is not None else node
            return node
        server = given.get("server") or replace(given, value=SERVER)
        known = given.get("known")
        written = known.plain() if known is not None else {}
        scale = node.get("device_scale")
        factors = scale.plain() if scale is not None and scale.is_mapping and scale.is_valid else {}
        numbers = {}
        for name in [*_named(given), server]:
            if (found := written.get(name.value) or self._of(name)) is not None:
                numbers[name.value] = _scaled(found, factors)
        for key, into in (("device_jitter", "jitter"), ("wait_for", "wait_for")):
            if (said := node.get(key)) is not None and said.value:
                given = given.put((into,), said)
        for key in ("device_scale", "device_jitter", "wait_for", *SIZES):
            node = node.put((key,), None) if node.get(key) is not None else node
        everybody = Node.of({"all": True}, given.mark)
        given = given.put(("server",), server).put(("known",), Node.of(dict(sorted(numbers.items())), given.mark))
        fit = node.get("fit") or Node.of({"memory": True}, given.mark)
        return node.put(("devices",), given).put(("capacities",), everybody).put(("fit",), fit)

    def _of(self, name: Node) -> Mapping[str, Any] | None:
        if name.value not in self.numbers:
            hint = suggestion(name.value, self.numbers, "there are")
            self.problems.add(name.mark, f"no device is called {shown(name.value)}{hint}")
        return self.numbers.get(name.value)


def _usual_ways_unsaid(node: Node) -> Node:
    """Settings in which `train` says how many images pass at once where that may be fewer than a batch has, which
    `auto` is where a device's memory must suffice, and that layers are computed again where they are."""
    train, fit = node.get("train"), node.get("fit")
    if train is None or not train.is_mapping:
        return node
    own, size = dict(train.value), train.get("batch_size")
    limited = fit is not None and fit.is_mapping and fit.get("memory") is not None
    micro_batch = own.get("micro_batch", Node.of("auto", train.mark) if limited else None)
    own.pop("micro_batch", None)
    if micro_batch is not None and micro_batch.value is not None and micro_batch.is_valid:
        batch = size.value if size is not None and type(size.value) is int else math.inf
        whole = not limited if micro_batch.value == "auto" else micro_batch.value >= batch
        own |= {} if whole else {"micro_batch": micro_batch}
    again = own.get("checkpointing")
    if again is not None and again.value is False:
        del own["checkpointing"]
    return node.put(("train",), replace(train, value=own))


def _named(given: Node) -> list[Node]:
    """Where a device is named, once for each."""
    found: list[Node] = []
    for way in ("by_client", "by_domain"):
        found += part.value if (part := given.get(way)) is not None and isinstance(part.value, list) else []
    if (shares := given.get("shares")) is not None and shares.is_mapping:
        found += [replace(share, value=name, mark=share.named) for name, share in shares.value.items()]
    first: dict[Any, Node] = {}
    for node in found:
        if node.value is not INVALID:
            first.setdefault(node.value, node)
    return list(first.values())


def _plain(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Memory in whole bytes, all else as floats; nothing of what is not known, or takes no time."""
    given = {
        key: float(value) for key, value in numbers.items() if value is not None and (key, value) != ("message", 0)
    }
    return {**given, "memory": int(given["memory"])}


def _scaled(numbers: Mapping[str, Any], factors: Mapping[str, float]) -> dict[str, Any]:
    return _plain({key: value * factors.get(_SCALED.get(key, ""), 1.0) for key, value in numbers.items()})
