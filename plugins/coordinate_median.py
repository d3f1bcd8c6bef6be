"""The coordinate-wise median (Yin et al., ICML 2018, arXiv 1803.01498, Algorithm 1, Option I)."""

from __future__ import annotations

from fedbench import hookimpl
from fedbench.families.aggregation import each_returned, trimmed


def coordinate_median():
    """The median of every number over the clients that returned it, each with one vote; of an even number of clients
    the mean of the middle two.

    It stays between the values of honest clients as long as these are more than half of those that returned the
    tensor. The paper's clients have equally many examples, and it has no weights.
    """

    def aggregate(state, uploads, plan, cohort):
        return each_returned(state, uploads, plan, lambda rows: trimmed(rows, (len(rows) - 1) // 2))

    return aggregate


@hookimpl
def fedbench_register_aggregators(register):
    register("coordinate_median", coordinate_median)
