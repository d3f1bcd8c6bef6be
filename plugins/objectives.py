"""Plain cross-entropy, summed over a client's classifiers."""

from __future__ import annotations

from fedbench import hookimpl, objective


def cross_entropy():
    """sum_i CE(o_i, y), the batch mean at each classifier."""
    return objective.cross_entropy


@hookimpl
def fedbench_register_objectives(register):
    register("cross_entropy", cross_entropy)
