"""What a suite may hold: typed dictionaries, validated by pydantic and turned into a JSON Schema for editors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, WrapValidator
from pydantic_core import PydanticCustomError, ValidationError
from typing_extensions import TypedDict  # pydantic takes typing's own only from Python 3.12 on

from fedbench.words import shown

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$"

Name = Annotated[str, Field(pattern=NAME, max_length=80)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Factor = Annotated[float, Field(ge=1, allow_inf_nan=False)]

_CLOSED = ConfigDict(extra="forbid", strict=True)
_OPEN = ConfigDict(extra="allow", strict=True)


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


def _one_of(*keys: str) -> AfterValidator:
    def check(choice: dict[str, Any]) -> dict[str, Any]:
        if len(choice) != 1:
            raise _say("expected one of {keys}, got {count} of them", keys=", ".join(keys), count=len(choice))
        return choice

    return AfterValidator(check)


def _span(bounds: list[int]) -> list[int]:
    if len(bounds) != 2:
        raise _say("expected [lowest, highest], got {count} numbers", count=len(bounds))
    if bounds[0] > bounds[1]:
        raise _say("the lowest depth, {low}, is above the highest, {high}", low=bounds[0], high=bounds[1])
    return bounds


def _distinct(values: list[Any]) -> list[Any]:
    seen: set[Any] = set()
    for value in values:
        if value in seen:
            raise _say("{value} is listed twice", value=value)
        seen.add(value)
    return values


def _slowdown(value: Any, handler: Any) -> Any:
    try:
        found = handler(value)
    except ValidationError:
        found = []
    if isinstance(found, list) and (not found or found[0] > found[1]):
        raise _say("expected a number of at least 1, or [lowest, highest] of them, got {value}", value=shown(value))
    return found


def _steps(value: Any, handler: Any) -> Any:
    try:
        return handler(value)
    except ValidationError:
        raise _say(
            'expected a whole number of at least 1, "smallest" or null, got {value}', value=shown(value)
        ) from None


class Component(TypedDict, total=False):
    """A component by name, with its options beside the name."""

    __pydantic_config__ = _OPEN
    name: str


class Data(Component, total=False):
    """A data set by name, with its options, how it is shared out and how its images enter the backbone."""

    __pydantic_config__ = _OPEN
    partition: Annotated[Component, Kind("partition"), Field(description="how the images are shared out to clients")]
    image_size: Annotated[Count | None, Field(description="side in pixels; null: what the backbone wants")]
    normalize: Annotated[
        Literal["backbone", "clip", "imagenet", "half"],
        Field(description="mean and deviation of the colours; backbone: those it was pre-trained with"),
    ]


class Capacities(TypedDict, total=False):
    """How many layers a client can hold: all, by client, by its domain, or drawn anew for each client and round."""

    __pydantic_config__ = _CLOSED
    all: Literal[True]
    by_client: Annotated[list[Count], Field(min_length=1)]
    by_domain: Annotated[list[Count], Field(min_length=1)]
    uniform: Annotated[list[Count], AfterValidator(_span), Field(description="[lowest, highest], both included")]


class Participation(TypedDict, total=False):
    """Who takes part in a round."""

    __pydantic_config__ = _CLOSED
    all: Literal[True]
    fraction: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
    count: Count
    per_domain: Count


class Optimizer(TypedDict, total=False):
    """The clients' optimiser."""

    __pydantic_config__ = _CLOSED
    name: Literal["sgd", "adamw"]
    lr: Positive
    momentum: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
    weight_decay: NotNegative


class Regularizer(TypedDict, total=False):
    """What pulls clients towards the global model."""

    __pydantic_config__ = _CLOSED
    feddyn: Annotated[Positive, Field(description="FedDyn with this a")]
    fedprox: Annotated[Positive, Field(description="FedProx with this mu")]


class Guard(TypedDict, total=False):
    """Which uploads the server refuses, beside malformed ones."""

    __pydantic_config__ = _CLOSED
    max_norm: Annotated[Positive, Field(description="largest norm of a client's update over all its tensors")]


class Train(TypedDict, total=False):
    """The work of a round."""

    __pydantic_config__ = _CLOSED
    rounds: Annotated[int, Field(ge=1, description="T")]
    local_epochs: Count
    max_steps: Annotated[
        Count | Literal["smallest"] | None,
        WrapValidator(_steps),
        Field(
            description="most batches of a client in a round; smallest: one above the smallest client; null: no limit"
        ),
    ]
    batch_size: Count
    optimizer: Optimizer
    clip: Annotated[Positive | None, Field(description="largest norm of a client's gradient; null: no limit")]
    guard: Annotated[
        Annotated[Guard, _one_of("max_norm")] | None,
        Field(description="which uploads the server refuses beside malformed ones; null: none"),
    ]
    regularizer: Annotated[
        Annotated[Regularizer, _one_of("feddyn", "fedprox")] | None,
        Field(description="what pulls clients towards the global model; null: nothing, plain FedAvg"),
    ]


class Stragglers(TypedDict, total=False):
    """Slow clients, and how long the server waits for them; a suite that has any says all four."""

    __pydantic_config__ = _CLOSED
    probability: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, description="of each client in each round")]
    slowdown: Annotated[
        Factor | Annotated[list[Factor], Field(min_length=2, max_length=2)],
        WrapValidator(_slowdown),
        Field(description="so many times slower, or [lowest, highest] to draw from"),
    ]
    deadline: Annotated[Factor, Field(description="how long the server waits, in times a client's usual time")]
    late: Annotated[
        Literal["partial", "lost"], Field(description="partial: what is done by the deadline counts; lost: nothing")
    ]


class Corrupted(TypedDict, total=False):
    """Uploads that are spoilt on their way; a suite that has any says how many and how."""

    __pydantic_config__ = _CLOSED
    probability: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, description="of each client in each round")]
    kind: Annotated[
        Literal["nan", "inf", "wrong_shape", "scaled", "noise"],
        Field(description="what arrives in place of what a client has learnt"),
    ]
    scale: Annotated[
        float, Field(allow_inf_nan=False, description="of the update; left out: 1e6 for scaled, 1 for noise")
    ]


class Faults(TypedDict, total=False):
    """What goes wrong in a round; the draws are the same for every method."""

    __pydantic_config__ = _CLOSED
    dropout: Annotated[
        float, Field(ge=0, lt=1, allow_inf_nan=False, description="probability that a client is lost in a round")
    ]
    stragglers: Annotated[Stragglers | None, Field(description="slow clients; null: none, whatever lies beneath")]
    corrupted: Annotated[Corrupted | None, Field(description="uploads that are spoilt on their way; null: none")]


class Evaluation(TypedDict, total=False):
    """When and how the models are tested."""

    __pydantic_config__ = _CLOSED
    every: Annotated[
        Count | None, Field(description="test after every so many rounds and the last; null: five or so times")
    ]
    by: Annotated[
        Literal["domain", "client"],
        Field(description="client: on test images dealt to the clients as their training images are"),
    ]
    batch_size: Count
    metrics: Annotated[list[Annotated[Component, Kind("metric")]], Field(min_length=1)]


class Settings(TypedDict, total=False):
    """What describes a cell besides its method and its seed; every layer may leave out what another one says."""

    __pydantic_config__ = _CLOSED
    backbone: Annotated[Component, Kind("backbone")]
    adapter: Annotated[Component, Kind("adapter")]
    data: Annotated[Data, Kind("dataset")]
    capacities: Annotated[
        Capacities,
        _one_of("all", "by_client", "by_domain", "uniform"),
        Shorthand(
            {"anyOf": [{"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 1}, {"const": "all"}]}
        ),
    ]
    rotate_capacities: Annotated[
        bool, Field(description="seed s gives everyone the depth of the neighbour s places on")
    ]
    participation: Annotated[
        Participation, _one_of("all", "fraction", "count", "per_domain"), Shorthand({"const": "all"})
    ]
    faults: Faults
    train: Train
    evaluation: Evaluation
    precision: Literal["fp32", "bf16"]
    engine: Literal["auto", "sequential", "cohort"]


class Method(TypedDict, total=False):
    """A method by name; or a name of its own for a variation of another method."""

    __pydantic_config__ = _OPEN
    name: Name
    extends: Annotated[str, Field(description="the method, or another name of this list, whose options it starts from")]


class Expected(TypedDict):
    """A number from a paper, to be shown beside the measured one."""

    __pydantic_config__ = _CLOSED
    scenario: NotRequired[Annotated[str, Field(description="may be left out where the suite has only one")]]
    variant: NotRequired[Annotated[str, Field(description="the sweep point, as in `adapter.rank=4`")]]
    dataset: str
    backbone: str
    method: str
    metric: Annotated[str, Field(description="a domain, or average")]
    value_percent: Annotated[float, Field(allow_inf_nan=False)]
    std: NotRequired[NotNegative]
    rounds: NotRequired[Count]
    source: NotRequired[str]


class ExpectedFile(TypedDict):
    """Rows of a CSV file: those of one paper, of one of its tables, or of one data set in it."""

    __pydantic_config__ = _CLOSED
    file: Annotated[str, Field(description="a CSV file, relative to the suite")]
    paper: str
    table: NotRequired[str]
    dataset: NotRequired[str]


class SuiteFile(TypedDict):
    """A suite: scenarios x methods x sweep points x seeds."""

    __pydantic_config__ = _CLOSED
    suite: Annotated[Name, Field(description="its name, and its folder under results/")]
    description: NotRequired[str]
    profile: NotRequired[Literal["paper", "reference"]]
    defaults: NotRequired[Annotated[Settings, Field(description="what all scenarios share")]]
    scenarios: Annotated[dict[Name, Settings], Field(min_length=1)]
    methods: Annotated[list[Annotated[Method, Kind("method")]], Field(min_length=1)]
    sweep: NotRequired[
        Annotated[
            dict[str, Annotated[list[Any], Field(min_length=1)]],
            Field(description="dotted keys of settings, or methods.NAME.option, with points; all combinations are run"),
        ]
    ]
    seeds: NotRequired[
        Annotated[list[Annotated[int, Field(ge=0, lt=2**32)]], AfterValidator(_distinct), Field(min_length=1)]
    ]
    overlays: NotRequired[Annotated[dict[Name, Settings], Field(description="named settings for --data NAME")]]
    timeout: NotRequired[Annotated[Positive | None, Field(description="seconds a cell may take; null: no limit")]]
    expected: NotRequired[Annotated[list[Expected], Instead(ExpectedFile)]]
