"""DepthFL's objective: cross-entropy at every exit and mutual distillation between exits."""

from __future__ import annotations

import functools

from fedbench import hookimpl, objective
from fedbench.errors import UserError
from fedbench.types import Setup


def mutual_kl(setup: Setup, ramp_rounds: int | None = None, epsilon: float = 0.0):
    """sum_i CE_i + w(t) / (m - 1) sum KL(o_j || o_i), with w(t) ramped up over `ramp_rounds` (default: all
    rounds of the run).

    epsilon is added to the distribution that is imitated.
    """
    T_w = setup.train["rounds"] if ramp_rounds is None else ramp_rounds
    if T_w < 1:
        raise UserError(f"mutual_kl: ramp_rounds is at least 1, not {T_w}")
    return functools.partial(objective.mutual_kl, ramp_rounds=T_w, epsilon=epsilon)


@hookimpl
def fedbench_register_objectives(register):
    register("mutual_kl", mutual_kl, profiles={"reference": {"ramp_rounds": 500, "epsilon": 1e-7}})
