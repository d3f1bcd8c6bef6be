"""What a suite may hold: typed dictionaries, validated by pydantic and turned into a JSON Schema for editors."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict  # pydantic takes typing's own only from Python 3.12 on

from fedbench.options import Count, NotNegative, Positive, Range, Share
from fedbench.suite.client_keys import (
    GivenCapacities,
    GivenDevices,
    GivenFit,
    GivenRanks,
    GivenWidths,
    OwnDevices,
    ScaleKeys,
    closed,
)
from fedbench.suite.values import (
    Factor,
    Fraction,
    Name,
    OneOf,
    Probability,
    Seed,
    Span,
    distinct,
    instead,
    kind,
    moments,
    not_both,
    rising,
    shorthand,
    whole_codec,
)

_open = with_config(ConfigDict(extra="allow", strict=True, allow_inf_nan=False))

CANDIDATES_SEED = 1000  # of the candidates' cells, where a suite does not say
MOST_CANDIDATES = 256
Seeds = Annotated[list[Seed], AfterValidator(distinct), Field(min_length=1)]


@_open
class ComponentKeys(TypedDict, total=False):
    """A component by name, with its options next to the name."""

    name: str


@closed
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
    augment: Annotated[
        Annotated[list[Literal["crop", "flip"]], AfterValidator(distinct)] | None,
        Field(description="random changes of training images in every step; null: none"),
    ]
    proxy: Annotated[
        Annotated[ProxyKeys, OneOf("images", "fraction")] | None,
        Field(description="training examples held out of everybody's training for the server; null: none"),
    ]


@closed
class ParticipationKeys(TypedDict, total=False):
    """Who takes part in a round."""

    all: Literal[True]
    fraction: Share
    count: Count
    per_domain: Count


@closed
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


@closed
class RegularizerKeys(TypedDict, total=False):
    """What pulls clients towards the global model."""

    feddyn: Annotated[Positive, Field(description="FedDyn with this a")]
    fedprox: Annotated[Positive, Field(description="FedProx with this mu")]


@closed
class CodecKeys(TypedDict, total=False):
    """How tensors are coded on their way."""

    codec: Annotated[
        Literal["int8", "topk"],
        Field(description="int8: stochastic rounding, one scale for a tensor; topk: the largest numbers of a message"),
    ]
    density: Annotated[Share, Field(description="of topk: the share of the numbers that is sent")]


@closed
class GuardKeys(TypedDict, total=False):
    """Which uploads the server refuses, in addition to malformed ones."""

    max_norm: Annotated[Positive, Field(description="largest norm of a client's update over all its tensors")]


@closed
class PrivacyKeys(TypedDict, total=False):
    """Differential privacy of clients' uploads; a suite that asks for it says clip and noise."""

    clip: Annotated[Positive, Field(description="C, the largest norm of a client's update over all its tensors")]
    noise: Annotated[Positive, Field(description="z, the deviation of the Gaussian noise in units of what it hides")]
    delta: Annotated[float, Range(above=0, below=1), Field(description="for which epsilon is reported; default: 1e-5")]
    local: Annotated[
        bool, Field(description="every client adds the noise to its own upload; default: the server does, to means")
    ]


@closed
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
    uploads: Annotated[
        Annotated[CodecKeys, AfterValidator(whole_codec)] | None,
        Field(description="how clients code their updates; null: not at all"),
    ]
    downloads: Annotated[
        Annotated[CodecKeys, AfterValidator(whole_codec)] | None,
        Field(description="how the server codes what clients start from; null: not at all"),
    ]
    regularizer: Annotated[
        Annotated[RegularizerKeys, OneOf("feddyn", "fedprox")] | None,
        Field(description="what pulls clients towards the global model; null: nothing, plain FedAvg"),
    ]


@closed
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


@closed
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


@closed
class CorruptedKeys(TypedDict, total=False):
    """Uploads that are spoilt on their way; a suite that has any says how many and how."""

    probability: Annotated[Probability, Field(description="of each client in each round")]
    kind: Annotated[
        Literal["nan", "inf", "wrong_shape", "scaled", "noise"],
        Field(description="what arrives in place of what a client has learnt"),
    ]
    scale: Annotated[float, Field(description="of the update; left out: 1e6 for scaled, 1 for noise")]


@closed
class FaultKeys(TypedDict, total=False):
    """What goes wrong in a round; the draws are the same for every method."""

    dropout: Annotated[float, Field(ge=0, lt=1, description="probability that a client is lost in a round")]
    stragglers: Annotated[StragglerKeys | None, Field(description="slow clients; null: none, whatever lies beneath")]
    corrupted: Annotated[CorruptedKeys | None, Field(description="uploads that are spoilt on their way; null: none")]


@closed
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
    privacy: Annotated[PrivacyKeys | None, Field(description="clipped updates with noise; null: neither")]
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


@closed
class ScenarioKeys(Settings, total=False):
    """What a scenario says besides the defaults."""

    methods: Annotated[
        dict[Name, ScenarioMethodKeys], Field(description="by a method's name: its options and own settings here")
    ]


@closed
class ExpectedKeys(TypedDict):
    """A number from a paper, to be shown next to the measured one."""

    scenario: NotRequired[Annotated[str, Field(description="may be left out where the suite has only one")]]
    variant: NotRequired[Annotated[str, Field(description="the sweep point, as in `adapter.rank=4`")]]
    dataset: str
    backbone: str
    method: Annotated[str, Field(description="a method of the suite, or one of its answers, as in `METHOD/local`")]
    metric: Annotated[str, Field(description="a domain, or average")]
    score: NotRequired[Annotated[str, Field(description="what is printed, if not accuracy")]]
    value_percent: float
    std: NotRequired[NotNegative]
    rounds: NotRequired[Count]
    source: NotRequired[str]


@closed
class ExpectedFileKeys(TypedDict):
    """Rows of a CSV file: those of one paper, of one of its tables, or of one data set in it."""

    file: Annotated[str, Field(description="a CSV file, relative to the suite")]
    paper: str
    table: NotRequired[str]
    dataset: NotRequired[str]
    score: NotRequired[Annotated[str, Field(description="what is printed, if not accuracy")]]


@closed
class RangeKeys(TypedDict, total=False):
    """What a key may be: a number between two, evenly or in their logarithm, a whole number between two, or one of a
    list."""

    log: Annotated[Span[Positive], Field(description="[lowest, highest], even in the logarithm")]
    uniform: Span[float]
    integer: Annotated[Span[int], Field(description="[lowest, highest], both included")]
    choice: Annotated[list[Any], Field(min_length=2, description="values, all equally likely")]


@closed
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


@closed
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
