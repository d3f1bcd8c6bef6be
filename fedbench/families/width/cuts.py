"""A whole model at the widths that a method offers, and which of them a client takes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fedbench.errors import UserError
from fedbench.families.body import WholeModel
from fedbench.families.width.maps import map_of
from fedbench.families.width.narrow import narrow
from fedbench.families.width.units import Rule, Slice, first
from fedbench.options import Length, Share

# The widths that a method offers.
Rates = Annotated[Sequence[Share], Length(1)]
RATES = (1, 0.5, 0.25, 0.125, 0.0625)  # of HeteroFL's levels a to e
KEPT = 32  # models of other sizes, which are but shapes


@dataclass(frozen=True)
class Part:
    """A model of one width: its rate g, the slice of the whole model's tensors, and what is called with them."""

    rate: float
    slice: Slice
    model: WholeModel


class Cuts:
    """The parts of a whole model.

    rule: which units a slice of rate g holds in round t · scaled: whether parts divide the outputs of hidden layers by
    g, as HeteroFL does while training. Raises NotApplicable for a model whose units are not known.
    """

    def __init__(self, model: WholeModel, rule: Rule = first, scaled: bool = False) -> None:
        self.model, self.rule, self.scaled = model, rule, scaled
        self.map = map_of(model)
        self.at = functools.lru_cache(maxsize=KEPT)(self._at)

    def _at(self, g: float, t: int = 0) -> Part:
        """`at(g, t)`: the part of rate g in round t."""
        held = self.map.slice(g, self.rule, t)
        return Part(g, held, narrow(self.model, held, g if self.scaled else 1.0))


def offered(method: str, option: str, rates: Sequence[float]) -> tuple[float, ...]:
    """The rates of an option, the largest first. Raises UserError."""
    if not isinstance(rates, list | tuple) or not rates:
        raise UserError(f"{method}: {option} is a list of numbers above 0 and at most 1, not {rates!r}")
    for rate in rates:
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1:
            raise UserError(f"{method}: {option} are above 0 and at most 1, not {rate!r}")
    return tuple(sorted({float(rate) for rate in rates}, reverse=True))


def rate_of(rates: Sequence[float], L_n: float, L: int, width: float | None = None) -> float | None:
    """The largest rate that a client can hold, None where it can hold none.

    Where the scenario gives it a width: the largest rate up to that. Else the largest g whose share of the weights,
    about g^2, is at most L_n / L, the share that methods of unequal depth are given by the same capacity.
    """
    fits = [g for g in rates if (g <= width + 1e-9 if width is not None else g * g <= L_n / L + 1e-9)]
    return max(fits, default=None)
