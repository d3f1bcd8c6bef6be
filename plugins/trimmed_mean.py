"""The coordinate-wise trimmed mean (Yin et al., ICML 2018, arXiv 1803.01498, Algorithm 1, Option II)."""

from __future__ import annotations

import math

from fedbench import hookimpl
from fedbench.errors import UserError
from fedbench.families.aggregation import each_returned, trimmed


def trimmed_mean(trim: float = 0.1):
    """The mean of every number over the clients that returned it, each with one vote, without the share `trim` of the
    smallest and of the largest.

    Of n clients ceil(trim n) are cut at either end, but so few that one or two are left: (n - 1) // 2 at most, where it
    is the median. The paper takes trim n for a whole number; rounding up cuts one client at either end where only a few
    hold a layer. It has no weights, as its clients have equally many examples.
    """
    if not 0 <= trim < 0.5:
        raise UserError(f"trimmed_mean: trim is from 0, below 0.5, not {trim}")

    def aggregate(state, uploads, plan, cohort):
        return each_returned(state, uploads, plan, lambda rows: trimmed(rows, cut(len(rows), trim)))

    return aggregate


def cut(n: int, trim: float) -> int:
    """How many of n clients are left out at either end."""
    return min(math.ceil(trim * n - 1e-9), (n - 1) // 2)  # 0.07 * 100 is 7.000000000000001


@hookimpl
def fedbench_register_aggregators(register):
    register("trimmed_mean", trimmed_mean)
