"""What a suite may say of faults: which clients are lost or slow, and which uploads are spoilt."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, WrapValidator, with_config
from typing_extensions import TypedDict  # pydantic takes typing's own only from Python 3.12 on

from fedbench.suite.values import Factor, slowdown

_closed = with_config(ConfigDict(extra="forbid", strict=True))


@_closed
class Stragglers(TypedDict, total=False):
    """Slow clients, and how long the server waits for them; a suite that has any says all four."""

    probability: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, description="of each client in each round")]
    slowdown: Annotated[
        Factor | Annotated[list[Factor], Field(min_length=2, max_length=2)],
        WrapValidator(slowdown),
        Field(description="so many times slower, or [lowest, highest] to draw from"),
    ]
    deadline: Annotated[Factor, Field(description="how long the server waits, in times a client's usual time")]
    late: Annotated[
        Literal["partial", "lost"], Field(description="partial: what is done by the deadline counts; lost: nothing")
    ]


@_closed
class Corrupted(TypedDict, total=False):
    """Uploads that are spoilt on their way; a suite that has any says how many and how."""

    probability: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, description="of each client in each round")]
    kind: Annotated[
        Literal["nan", "inf", "wrong_shape", "scaled", "noise"],
        Field(description="what arrives in place of what a client has learnt"),
    ]
    scale: Annotated[
        float, Field(allow_inf_nan=False, description="of the update; left out: 1e6 for scaled, 1 for noise")
    ]


@_closed
class Faults(TypedDict, total=False):
    """What goes wrong in a round; the draws are the same for every method."""

    dropout: Annotated[
        float, Field(ge=0, lt=1, allow_inf_nan=False, description="probability that a client is lost in a round")
    ]
    stragglers: Annotated[Stragglers | None, Field(description="slow clients; null: none, whatever lies beneath")]
    corrupted: Annotated[Corrupted | None, Field(description="uploads that are spoilt on their way; null: none")]
