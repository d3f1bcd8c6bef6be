"""The core's allocations under their names in suites, and one of our own under memory."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Generator, Tensor

from fedbench import hookimpl
from fedbench.families import allocation
from fedbench.options import judged
from fedbench.types import Plan


@judged("knapsack")
def knapsack(
    capacities: Tensor,
    num_layers: int,
    generator: Generator,
    scores: Tensor,
    history: Tensor,
    layer_memory: Tensor,
    memory_budgets: Tensor,
    hold: Literal["trained", "all"] = "trained",
) -> Tensor | Plan:
    """The layers of most value that fit into a client's memory: M_n maximises sum_j v_j M_nj subject to sum_j c_j M_nj
    <= b_n and at most L_n layers. A plain rule of ours, no paper's.

    v_j is the norm of layer j's last aggregated update, and more than the largest for a layer that nobody has returned
    yet; c_j the bytes that training it takes; b_n those of L_n mean layers. Of equal sums the one of more layers is
    taken, so that one of value 0 fills what room is left; further ties are settled by chance. Layers of one size make
    that the L_n of most value. hold: `trained` skips the other layers, as FedRA does; `all` runs them frozen, in memory
    that b_n does not count: everybody holds the whole model then, and is limited in what it trains alone.
    """
    values = torch.where(history == 0, scores.max().clamp(min=0) + 1, scores).double()
    M = torch.zeros(len(capacities), num_layers, dtype=torch.bool)
    for n, (L_n, budget) in enumerate(zip(capacities.tolist(), memory_budgets.tolist(), strict=True)):
        shuffled = torch.randperm(num_layers, generator=generator)
        M[n, shuffled[packed(values[shuffled].tolist(), layer_memory[shuffled].tolist(), budget, L_n)]] = True
    if hold == "trained":
        return M
    return Plan(torch.ones_like(M), [], trained=M)


def packed(values: list[float], costs: list[float], budget: float, most: int) -> list[int]:
    """Which things to take, at most so many: the largest sum of values whose costs stay within the budget, and of equal
    ones the most things.

    Goes over the things once and keeps, of what can be taken so far, what nothing of as many things, no more cost and
    no less value beats (Nemhauser and Ullmann, 1969); fewer things of the same value beat none.
    """
    budget *= 1 + 1e-9  # sums of equal shares may round above their whole
    kept: list[tuple[int, float, float, list[int]]] = [(0, 0.0, 0.0, [])]  # (number, cost, value, which)
    for i, (value, cost) in enumerate(zip(values, costs, strict=True)):
        more = [(k + 1, c + cost, v + value, [*which, i]) for k, c, v, which in kept if k < most]
        kept = _undominated([*kept, *(one for one in more if one[1] <= budget)])
    return max(kept, key=lambda one: (one[2], one[0]))[3]


def _undominated(
    found: list[tuple[int, float, float, list[int]]],
) -> list[tuple[int, float, float, list[int]]]:
    left: list[tuple[int, float, float, list[int]]] = []
    for one in sorted(found, key=lambda one: (one[0], one[1], -one[2])):
        if not any(c <= one[1] and (v > one[2] or (v == one[2] and k == one[0])) for k, c, v, _ in left):
            left.append(one)
    return left


@hookimpl
def fedbench_register_allocations(register):
    register("prefix", allocation.prefix)
    register("random", allocation.random)
    register("cover", allocation.cover)
    register("knapsack", knapsack, exact=False)
