"""What a suite may hold: typed dictionaries, validated by pydantic and turned into a JSON Schema for editors."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, ConfigDict, Field, WrapValidator, with_config
from typing_extensions import TypedDict  # pydantic takes typing's own only from Python 3.12 on

from fedbench.suite.devices import GivenDevices, GivenFit, OwnDevices, Scale
from fedbench.suite.faults import Faults
from fedbench.suite.sizes import GivenCapacities, GivenRanks, GivenWidths
from fedbench.suite.space import Tune
from fedbench.suite.values import (
    Count,
    Instead,
    Kind,
    Name,
    NotNegative,
    Positive,
    Share,
    Shorthand,
    distinct,
    moments,
    not_both,
    one_of,
    steps,
)

_closed = with_config(ConfigDict(extra="forbid", strict=True))
_open = with_config(ConfigDict(extra="allow", strict=True))


@_open
class Component(TypedDict, total=False):
    """A component by name, with its options beside the name."""

    name: str


@_closed
class Proxy(TypedDict, total=False):
    """How many of the training images are the server's own, and nobody's else."""

    images: Count
    fraction: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False, description="of all training images")]


@_open
class Data(Component, total=False):
    """A data set by name, with its options, how it is shared out and how its images enter the backbone."""

    partition: Annotated[Component, Kind("partition"), Field(description="how the images are shared out to clients")]
    image_size: Annotated[Count | None, Field(description="side in pixels; null: what the backbone wants")]
    normalize: Annotated[
        Literal["backbone", "clip", "imagenet", "half"],
        Field(description="mean and deviation of the colours; backbone: those it was pre-trained with"),
    ]
    proxy: Annotated[
        Annotated[Proxy, one_of("images", "fraction")] | None,
        Field(description="training images held out of everybody's training for the server; null: none"),
    ]


@_closed
class Participation(TypedDict, total=False):
    """Who takes part in a round."""

    all: Literal[True]
    fraction: Share
    count: Count
    per_domain: Count


@_closed
class Optimizer(TypedDict, total=False):
    """The clients' optimiser."""

    name: Literal["sgd", "adamw"]
    lr: Positive
    momentum: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
    weight_decay: NotNegative


@_closed
class Regularizer(TypedDict, total=False):
    """What pulls clients towards the global model."""

    feddyn: Annotated[Positive, Field(description="FedDyn with this a")]
    fedprox: Annotated[Positive, Field(description="FedProx with this mu")]


@_closed
class Guard(TypedDict, total=False):
    """Which uploads the server refuses, beside malformed ones."""

    max_norm: Annotated[Positive, Field(description="largest norm of a client's update over all its tensors")]


@_closed
class Train(TypedDict, total=False):
    """The work of a round."""

    rounds: Annotated[int, Field(ge=1, description="T")]
    local_epochs: Count
    max_steps: Annotated[
        Count | Literal["smallest"] | None,
        WrapValidator(steps),
        Field(
            description="most batches of a client in a round; smallest: in each local epoch one above the smallest "
            "client's; null: no limit"
        ),
    ]
    batch_size: Count
    optimizer: Optimizer
    clip: Annotated[Positive | None, Field(description="largest norm of a client's gradient; null: no limit")]
    guard: Annotated[
        Annotated[Guard, one_of("max_norm")] | None,
        Field(description="which uploads the server refuses beside malformed ones; null: none"),
    ]
    regularizer: Annotated[
        Annotated[Regularizer, one_of("feddyn", "fedprox")] | None,
        Field(description="what pulls clients towards the global model; null: nothing, plain FedAvg"),
    ]


@_closed
class Evaluation(TypedDict, total=False):
    """When and how the models are tested."""

    every: Annotated[
        Count | None, Field(description="test after every so many rounds and the last; null: five or so times")
    ]
    at: Annotated[
        Annotated[list[Count], Field(min_length=1)] | Literal["reference"] | None,
        WrapValidator(moments),
        Field(
            description="test after these rounds and the last, in place of `every`; reference: after every 20th round "
            "counted from 21 on, and the last four"
        ),
    ]
    by: Annotated[
        Literal["domain", "client"],
        Field(description="client: on test images dealt to the clients as their training images are"),
    ]
    validation: Annotated[
        Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None,
        Field(description="the part of each client's training images that is held out to choose by; null: none"),
    ]
    sizes: Annotated[
        bool, Field(description="score the last model at every size that a device could run, and what each client can")
    ]
    batch_size: Count
    metrics: Annotated[list[Annotated[Component, Kind("metric")]], Field(min_length=1)]


@_closed
class Settings(TypedDict, total=False):
    """What describes a cell besides its method and its seed; every layer may leave out what another one says."""

    backbone: Annotated[Component, Kind("backbone")]
    adapter: Annotated[Component, Kind("adapter")]
    data: Annotated[Data, Kind("dataset")]
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
        Scale | None, Field(description="what the numbers of all devices are multiplied by; null: nothing")
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
    participation: Annotated[
        Participation, one_of("all", "fraction", "count", "per_domain"), Shorthand({"const": "all"})
    ]
    faults: Faults
    train: Train
    evaluation: Annotated[Evaluation, AfterValidator(not_both)]
    precision: Literal["fp32", "bf16"]
    engine: Literal["auto", "sequential", "cohort"]


@_open
class Method(TypedDict, total=False):
    """A method by name; or a name of its own for a variation of another method. It may bring settings of its own."""

    name: Name
    adapter: Annotated[Component, Kind("adapter"), Field(description="its own, over everybody's, key by key")]
    train: Annotated[Train, Field(description="its own, over everybody's, key by key; rounds are everybody's")]
    extends: Annotated[str, Field(description="the method, or another name of this list, whose options it starts from")]


@_open
class OwnWords(TypedDict, total=False):
    """What a scenario says of one method: options, and settings of its own."""

    adapter: Annotated[Component, Kind("adapter")]
    train: Train


@_closed
class Scenario(Settings, total=False):
    """What a scenario says besides the defaults."""

    methods: Annotated[dict[Name, OwnWords], Field(description="by a method's name: its options and own settings here")]


@_closed
class Expected(TypedDict):
    """A number from a paper, to be shown beside the measured one."""

    scenario: NotRequired[Annotated[str, Field(description="may be left out where the suite has only one")]]
    variant: NotRequired[Annotated[str, Field(description="the sweep point, as in `adapter.rank=4`")]]
    dataset: str
    backbone: str
    method: Annotated[str, Field(description="a method of the suite, or one of its answers, as in `METHOD/local`")]
    metric: Annotated[str, Field(description="a domain, or average")]
    value_percent: Annotated[float, Field(allow_inf_nan=False)]
    std: NotRequired[NotNegative]
    rounds: NotRequired[Count]
    source: NotRequired[str]


@_closed
class ExpectedFile(TypedDict):
    """Rows of a CSV file: those of one paper, of one of its tables, or of one data set in it."""

    file: Annotated[str, Field(description="a CSV file, relative to the suite")]
    paper: str
    table: NotRequired[str]
    dataset: NotRequired[str]


@_closed
class SuiteFile(TypedDict):
    """A suite: scenarios x methods x sweep points x seeds."""

    suite: Annotated[Name, Field(description="its name, and its folder under results/")]
    description: NotRequired[str]
    profile: NotRequired[Literal["paper", "reference"]]
    devices: NotRequired[Annotated[OwnDevices, Field(description="devices of its own, or others' numbers said anew")]]
    defaults: NotRequired[Annotated[Settings, Field(description="what all scenarios share")]]
    scenarios: Annotated[dict[Name, Scenario], Field(min_length=1)]
    methods: Annotated[list[Annotated[Method, Kind("method")]], Field(min_length=1)]
    sweep: NotRequired[
        Annotated[
            dict[str, Annotated[list[Any], Field(min_length=1)]],
            Field(description="dotted keys of settings, or methods.NAME.option, with points; all combinations are run"),
        ]
    ]
    seeds: NotRequired[
        Annotated[list[Annotated[int, Field(ge=0, lt=2**32)]], AfterValidator(distinct), Field(min_length=1)]
    ]
    tune: NotRequired[Annotated[Tune, Field(description="what every method chooses on validation images first")]]
    overlays: NotRequired[Annotated[dict[Name, Settings], Field(description="named settings for --data NAME")]]
    timeout: NotRequired[Annotated[Positive | None, Field(description="seconds a cell may take; null: no limit")]]
    expected: NotRequired[Annotated[list[Expected], Instead(ExpectedFile)]]
