"""What a suite may hold: typed dictionaries, validated by pydantic and turned into a JSON Schema for editors."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict  # pydantic takes typing's own only from Python 3.12 on

from fedbench.options import Count, Natural, NotNegative, Positive, Range, Share
from fedbench.suite.values import (
    Factor,
    Fraction,
    Name,
    OneOf,
    Probability,
    Seed,
    Span,
    distinct,
    in_one_way,
    instead,
    kind,
    moments,
    not_both,
    not_empty,
    rising,
    shorthand,
)

_closed = with_config(ConfigDict(extra="forbid", strict=True, allow_inf_nan=False))
_open = with_config(ConfigDict(extra="allow", strict=True, allow_inf_nan=False))

GIVEN = ("by_client", "by_domain", "shares")  # the ways to say who has which device
NUMBERS = ("memory", "flops", "flops_bf16", "down", "up")  # what a device must have
CANDIDATES_SEED = 1000  # of the candidates' cells, where a suite does not say
MOST_CANDIDATES = 256
Seeds = Annotated[list[Seed], AfterValidator(distinct), Field(min_length=1)]

_COUNT = {"type": "integer", "minimum": 1}
_SHARE = {"type": "number", "exclusiveMinimum": 0, "maximum": 1}


@_open
class ComponentKeys(TypedDict, total=False):
    """A component by name, with its options next to the name."""

    name: str


@_closed
class ProxyKeys(TypedDict, total=False):
    """How many of the training images are the server's own, and nobody's else."""

    images: Count
    fraction: Annotated[Fraction, Field(description="of all training examples")]


@_open
class DataKeys(ComponentKeys, total=False):
    """A data set by name, with its options, how it is shared out and how its images enter the backbone."""

    partition: Annotated[
        ComponentKeys, kind("partition"), Field(description="how the examples are shared out to clients")
    ]
    image_size: Annotated[Count | None, Field(description="side in pixels; null: what the backbone wants")]
    max_length: Annotated[Count, Field(description="of a text, the tokens that are kept; otherwise all it may have")]
    normalize: Annotated[
        Literal["backbone", "clip", "imagenet", "half"],
        Field(description="mean and deviation of the colours; backbone: those it was pre-trained with"),
    ]
    proxy: Annotated[
        Annotated[ProxyKeys, OneOf("images", "fraction")] | None,
        Field(description="training examples held out of everybody's training for the server; null: none"),
    ]


@_closed
class ParticipationKeys(TypedDict, total=False):
    """Who takes part in a round."""

    all: Literal[True]
    fraction: Share
    count: Count
    per_domain: Count


@_closed
class OptimizerKeys(TypedDict, total=False):
    """The clients' optimiser."""

    name: Literal["sgd", "adamw"]
    lr: Positive
    head_lr: Annotated[Positive | None, Field(description="rate of classifiers; null: lr")]
    schedule: Annotated[
        Literal["constant", "cosine", "linear"], Field(description="how the rates fall over the rounds of the run")
    ]
    warmup: Annotated[
        Count | Annotated[float, Range(above=0, below=1)] | None,
        Field(description="rounds, or a share of all, in which the rates rise to their full height; null: none"),
    ]
    momentum: Annotated[float, Field(ge=0, lt=1)]
    weight_decay: NotNegative


@_closed
class RegularizerKeys(TypedDict, total=False):
    """What pulls clients towards the global model."""

    feddyn: Annotated[Positive, Field(description="FedDyn with this a")]
    fedprox: Annotated[Positive, Field(description="FedProx with this mu")]


@_closed
class GuardKeys(TypedDict, total=False):
    """Which uploads the server refuses, in addition to malformed ones."""

    max_norm: Annotated[Positive, Field(description="largest norm of a client's update over all its tensors")]


@_closed
class TrainKeys(TypedDict, total=False):
    """The work of a round."""

    rounds: Annotated[Count, Field(description="T")]
    local_epochs: Count
    max_steps: Annotated[
        Count | Literal["smallest"] | None,
        Field(
            description="most batches of a client in a round; smallest: in each local epoch one above the smallest "
            "client's; null: no limit"
        ),
    ]
    batch_size: Count
    micro_batch: Annotated[
        Count | Literal["auto"] | None,
        Field(
            description="how many examples of a batch pass at once, their gradients added up; auto, the default with "
            "devices: as many as fit into a device's memory; null: all"
        ),
    ]
    checkpointing: Annotated[
        bool, Field(description="keep each layer's input alone, and compute the layer again in the backward pass")
    ]
    optimizer: OptimizerKeys
    clip: Annotated[Positive | None, Field(description="largest norm of a client's gradient; null: no limit")]
    guard: Annotated[
        Annotated[GuardKeys, OneOf("max_norm")] | None,
        Field(description="which uploads the server refuses in addition to malformed ones; null: none"),
    ]
    regularizer: Annotated[
        Annotated[RegularizerKeys, OneOf("feddyn", "fedprox")] | None,
        Field(description="what pulls clients towards the global model; null: nothing, plain FedAvg"),
    ]


@_closed
class EvaluationKeys(TypedDict, total=False):
    """When and how the models are tested."""

    every: Annotated[
        Count | None, Field(description="test after every so many rounds and the last; null: five or so times")
    ]
    at: Annotated[
        Annotated[list[Count], Field(min_length=1, title="rounds, such as [10, 50]")] | Literal["reference"] | None,
        AfterValidator(moments),
        Field(
            description="test after these rounds and the last, in place of `every`; reference: after every 20th round "
            "counted from 21 on, and the last four"
        ),
    ]
    by: Annotated[
        Literal["domain", "client"],
        Field(description="client: on test examples dealt to the clients as their training examples are"),
    ]
    validation: Annotated[
        Fraction | None,
        Field(description="the part of each client's training examples that is held out to choose by; null: none"),
    ]
    sizes: Annotated[
        bool, Field(description="score the last model at every size that a device could run, and what each client can")
    ]
    batch_size: Count
    metrics: Annotated[list[Annotated[ComponentKeys, kind("metric")]], Field(min_length=1)]


@_closed
class RankKeys(TypedDict, total=False):
    """How many rank-one terms of an adapter a client can hold: by client, by domain, in turns, or drawn each round."""

    by_client: Annotated[list[Count], Field(min_length=1)]
    by_domain: Annotated[list[Count], Field(min_length=1)]
    cycle: Annotated[list[Count], Field(min_length=1, description="of the clients in their order, over and over")]
    uniform: Annotated[Span[Count], Field(description="[lowest, highest], both included")]


@_closed
class CapacityKeys(RankKeys, total=False):
    """How many layers a client can hold: all, by client, by domain, in turns, or drawn for each client and round."""

    all: Literal[True]


@_closed
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


@_closed
class DeviceKeys(TypedDict, total=False):
    """A suite's own device, or its numbers for a shipped one."""

    extends: Annotated[str, Field(description="the shipped device whose numbers it has where it says none")]
    memory: Annotated[Positive, Field(description="bytes that training may take")]
    flops: Annotated[Positive, Field(description="FLOP/s that training sustains in fp32")]
    flops_bf16: Annotated[Positive, Field(description="the same in bf16")]
    down: Annotated[Positive, Field(description="bytes/s from the server")]
    up: Annotated[Positive, Field(description="bytes/s to the server")]
    watts: Annotated[Positive | None, Field(description="drawn while it trains; null: not known")]
    source: Annotated[str, Field(description="where the numbers are from; no part of what a cell is")]


@_closed
class DeviceNumberKeys(TypedDict, total=False):
    """A device as a configuration has it."""

    memory: Natural
    flops: Positive
    flops_bf16: Positive
    down: Positive
    up: Positive
    watts: Positive


_Names = Annotated[list[str], Field(min_length=1)]


@_closed
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


@_closed
class FitKeys(TypedDict, total=False):
    """What a client's size must fit into, in every round."""

    memory: Annotated[Literal[True], Field(description="what training needs, into the device's memory")]
    seconds: Annotated[Positive, Field(description="down + compute + up of a round, into so many")]
    bytes: Annotated[Positive, Field(description="down + up of a round, into so many")]


@_closed
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


@_closed
class StragglerKeys(TypedDict, total=False):
    """Slow clients, and how long the server waits for them; a suite that has any says all four."""

    probability: Annotated[Probability, Field(description="of each client in each round")]
    slowdown: Annotated[
        Factor | Span[Factor],
        Field(description="so many times slower, or [lowest, highest] to draw from"),
    ]
    deadline: Annotated[Factor, Field(description="how long the server waits, in times a client's usual time")]
    late: Annotated[
        Literal["partial", "lost"], Field(description="partial: what is done by the deadline counts; lost: nothing")
    ]


@_closed
class CorruptedKeys(TypedDict, total=False):
    """Uploads that are spoilt on their way; a suite that has any says how many and how."""

    probability: Annotated[Probability, Field(description="of each client in each round")]
    kind: Annotated[
        Literal["nan", "inf", "wrong_shape", "scaled", "noise"],
        Field(description="what arrives in place of what a client has learnt"),
    ]
    scale: Annotated[float, Field(description="of the update; left out: 1e6 for scaled, 1 for noise")]


@_closed
class FaultKeys(TypedDict, total=False):
    """What goes wrong in a round; the draws are the same for every method."""

    dropout: Annotated[float, Field(ge=0, lt=1, description="probability that a client is lost in a round")]
    stragglers: Annotated[StragglerKeys | None, Field(description="slow clients; null: none, whatever lies beneath")]
    corrupted: Annotated[CorruptedKeys | None, Field(description="uploads that are spoilt on their way; null: none")]


@_closed
class Settings(TypedDict, total=False):
    """What describes a cell besides its method and its seed; every layer may leave out what another one says."""

    backbone: Annotated[ComponentKeys, kind("backbone")]
    adapter: Annotated[ComponentKeys, kind("adapter")]
    data: Annotated[DataKeys, kind("dataset")]
    capacities: GivenCapacities
    ranks: Annotated[GivenRanks | None, Field(description="r_n; a number is everybody's; null: nobody is given one")]
    widths: Annotated[
        GivenWidths | None,
        Field(description="shares of the hidden units; a number is everybody's; null: nobody is given one"),
    ]
    devices: Annotated[
        GivenDevices | None,
        Field(description="who has which device, in place of capacities, ranks and widths; null: nobody has one"),
    ]
    fit: Annotated[GivenFit, Field(description="what the sizes of methods must fit into; default: memory")]
    device_scale: Annotated[
        ScaleKeys | None, Field(description="what the numbers of all devices are multiplied by; null: nothing")
    ]
    device_jitter: Annotated[
        NotNegative | None,
        Field(description="deviation of the logarithm of a factor on each client's speeds in each round; null: none"),
    ]
    wait_for: Annotated[
        Count | None,
        Field(description="of a round's clients, the fastest so many are taken, on their devices; null: all"),
    ]
    rotate_capacities: Annotated[
        bool, Field(description="seed s gives everyone the depth, rank, width or device of the neighbour s places on")
    ]
    shuffle_capacities: Annotated[
        bool,
        Field(description="each seed deals depths, ranks, widths or devices out by a permutation of its own"),
    ]
    frozen_weights: Annotated[
        Literal["resent", "cached"],
        Field(
            description="resent, the default: a client is charged the frozen weights of its layers in every round; "
            "cached: once, since it keeps them"
        ),
    ]
    frozen_features: Annotated[
        Literal["computed", "kept"],
        Field(
            description="computed, the default: what a frozen model makes of an image is charged in every step; kept: "
            "once, where nothing beneath the classifiers is trained"
        ),
    ]
    participation: Annotated[
        ParticipationKeys, OneOf("all", "fraction", "count", "per_domain"), shorthand({"const": "all"})
    ]
    faults: FaultKeys
    train: TrainKeys
    evaluation: Annotated[EvaluationKeys, AfterValidator(not_both)]
    precision: Literal["fp32", "bf16"]
    engine: Literal["auto", "sequential", "cohort"]


@_open
class MethodKeys(TypedDict, total=False):
    """A method by name; or a name of its own for a variation of another method. It may bring settings of its own."""

    name: Name
    adapter: Annotated[ComponentKeys, kind("adapter"), Field(description="its own, over everybody's, key by key")]
    train: Annotated[TrainKeys, Field(description="its own, over everybody's, key by key; rounds are everybody's")]
    extends: Annotated[str, Field(description="the method, or another name of this list, whose options it starts from")]


@_open
class ScenarioMethodKeys(TypedDict, total=False):
    """What a scenario says of one method: options, and settings of its own."""

    adapter: Annotated[ComponentKeys, kind("adapter")]
    train: TrainKeys


@_closed
class ScenarioKeys(Settings, total=False):
    """What a scenario says besides the defaults."""

    methods: Annotated[
        dict[Name, ScenarioMethodKeys], Field(description="by a method's name: its options and own settings here")
    ]


@_closed
class ExpectedKeys(TypedDict):
    """A number from a paper, to be shown next to the measured one."""

    scenario: NotRequired[Annotated[str, Field(description="may be left out where the suite has only one")]]
    variant: NotRequired[Annotated[str, Field(description="the sweep point, as in `adapter.rank=4`")]]
    dataset: str
    backbone: str
    method: Annotated[str, Field(description="a method of the suite, or one of its answers, as in `METHOD/local`")]
    metric: Annotated[str, Field(description="a domain, or average")]
    value_percent: float
    std: NotRequired[NotNegative]
    rounds: NotRequired[Count]
    source: NotRequired[str]


@_closed
class ExpectedFileKeys(TypedDict):
    """Rows of a CSV file: those of one paper, of one of its tables, or of one data set in it."""

    file: Annotated[str, Field(description="a CSV file, relative to the suite")]
    paper: str
    table: NotRequired[str]
    dataset: NotRequired[str]


@_closed
class RangeKeys(TypedDict, total=False):
    """What a key may be: a number between two, evenly or in their logarithm, a whole number between two, or one of a
    list."""

    log: Annotated[Span[Positive], Field(description="[lowest, highest], even in the logarithm")]
    uniform: Span[float]
    integer: Annotated[Span[int], Field(description="[lowest, highest], both included")]
    choice: Annotated[list[Any], Field(min_length=2, description="values, all equally likely")]


@_closed
class TuneKeys(TypedDict):
    """The same budget of tuning for every method of every scenario."""

    trials: Annotated[int, Field(ge=2, le=MOST_CANDIDATES, description="how many candidates each method tries")]
    space: Annotated[
        dict[str, Annotated[RangeKeys, OneOf("log", "uniform", "integer", "choice")]],
        Field(min_length=1, description="dotted keys of train and adapter, or methods.NAME.option, and their ranges"),
    ]
    seeds: NotRequired[
        Annotated[Seeds, Field(description=f"of the candidates, not the suite's own; default: [{CANDIDATES_SEED}]")]
    ]
    halving: NotRequired[
        Annotated[
            list[Fraction],
            AfterValidator(rising),
            Field(description="after these shares of the rounds the better half of the candidates goes on"),
        ]
    ]
    confirm: NotRequired[Annotated[Seeds, Field(description="further seeds for the best two; unstable ones lose")]]
    metric: NotRequired[Annotated[str, Field(description="what is compared; default: the first metric")]]
    draw: NotRequired[Annotated[Seed, Field(description="seed of the candidates' draw; default: 0")]]


@_closed
class SuiteKeys(TypedDict):
    """A suite: scenarios x methods x sweep points x seeds."""

    suite: Annotated[Name, Field(description="its name, and its folder under results/")]
    description: NotRequired[str]
    profile: NotRequired[Literal["paper", "reference"]]
    devices: NotRequired[Annotated[OwnDevices, Field(description="its own devices, or its numbers for shipped ones")]]
    defaults: NotRequired[Annotated[Settings, Field(description="what all scenarios share")]]
    scenarios: Annotated[dict[Name, ScenarioKeys], Field(min_length=1)]
    methods: Annotated[list[Annotated[MethodKeys, kind("method")]], Field(min_length=1)]
    sweep: NotRequired[
        Annotated[
            dict[str, Annotated[list[Any], Field(min_length=1)]],
            Field(description="dotted keys of settings, or methods.NAME.option, with points; all combinations are run"),
        ]
    ]
    seeds: NotRequired[Seeds]
    tune: NotRequired[Annotated[TuneKeys, Field(description="what every method chooses on validation examples first")]]
    overlays: NotRequired[Annotated[dict[Name, Settings], Field(description="named settings for --data NAME")]]
    timeout: NotRequired[Annotated[Positive | None, Field(description="seconds a cell may take; null: no limit")]]
    expected: NotRequired[Annotated[list[ExpectedKeys], instead(ExpectedFileKeys)]]
