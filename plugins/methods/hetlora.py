"""HetLoRA: ranks that clients prune themselves, and a mean by the size of their updates (Cho et al., EMNLP 2024,
arXiv 2401.06432)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor
from typing import Annotated, Literal

import torch
from torch import Generator, Tensor

from fedbench import hookimpl
from fedbench.families.adapter_ranks import (
    ArrivedAdapter,
    arrived_adapters,
    depth_under_ranks,
    first_terms,
    only_without_feddyn,
    ranks_of,
    smallest_rank,
    with_pairs,
    zero_padded,
)
from fedbench.families.deployed_submodel import ranks
from fedbench.families.layerwise import layerwise
from fedbench.method import Method, Ref, Setup, State
from fedbench.models.backbone import Blocks, in_layers
from fedbench.models.param_paths import places
from fedbench.options import Count, NotNegative, Range, judged
from fedbench.types import Cohort, Plan, Pull, Uploads

GIVEN_UP = "given_up"


@judged("hetlora")
def hetlora(
    setup: Setup,
    gamma: Annotated[float, Range(above=0, below=1)] = 0.99,
    lam: NotNegative = 0.01,
    r_min: Count | None = None,
    weights: Literal["sparsity", "examples"] = "sparsity",
    objective: Ref = "cross_entropy",
) -> Method:
    """Client n trains the first r_n terms of every adapter and may give up the last of them; the server pads with zeros
    and weighs clients by the norm of their update.

    gamma: the share of its rank that a client keeps when it prunes, between 0 and 1. lam: lambda, the strength of the
    term lam sum ||B[:, c:]|| ||A[c:, :]|| of its loss, c = floor(gamma r_n). r_min: no rank falls below it; by default
    the smallest that any registered client may have. weights: `sparsity`, q_n proportional to S_n = ||B_n A_n||_F over
    all adapters, the paper's; or `examples`, as third parties' code has it.

    The paper's (read in descriptions and in third parties' code, which gamma and lam are from; there is none by the
    authors): where the sum of those tail products is smaller after local training than before, r_n falls to floor(gamma
    r_n) for good, and A_n, B_n are cut before they are sent. Zeros are averaged in, and all clients that arrived share
    the divisor. Equal weights where every S_n is 0. Ours: a term that nobody trained who came back keeps its value; c
    is at least r_min, so that only what can be pruned is pulled; where ranks are drawn every round, as many terms as a
    client has given up are missing from every later draw; classifiers are averaged by examples; a client whose work is
    lost does not prune; what a client sends in the round in which it prunes is still charged at its old rank; one scale
    alpha / R for everybody; a client's first L_n layers where a scenario gives no ranks. Not applicable under FedDyn,
    which moves what norms are taken of.
    """
    only_without_feddyn(setup)
    made = HetLoRA(setup, gamma, r_min, weights)

    def share(plan: Plan, state: State, t: int, cohort: Cohort, generator: Generator) -> Plan:
        return first_terms(made.model, plan, made.ranks(state, cohort))

    def pull(given: Pull | None, state: State, plan: Plan, cohort: Cohort) -> Pull | None:
        if lam == 0:
            return given
        return replace(given or Pull(0.0), tails=made.pruned(made.ranks(state, cohort)), tail_strength=lam)

    depth_of = depth_under_ranks(setup)
    return layerwise(setup, "prefix", made.aggregate, objective, share=share, pull=pull, depth_of=depth_of, sizes=ranks)


@dataclass(frozen=True)
class HetLoRA:
    """The server's side, and how many terms clients have given up: `given_up` in the state's memory, by client."""

    setup: Setup
    gamma: float
    r_min: int | None
    weights: str

    @property
    def model(self) -> Blocks:
        return in_layers(self.setup.backbone)

    def ranks(self, state: State, cohort: Cohort) -> Tensor:
        """(N,) int64: the scenario's r_n less what a client has given up, r_min at least, or r_n where that is less."""
        given, gone, low = ranks_of(self.model, cohort), state["memory"].get(GIVEN_UP, {}), self.low
        own = [max(min(r, low), r - gone.get(str(n), 0)) for n, r in zip(cohort.ids, given.tolist(), strict=True)]
        return torch.tensor(own, dtype=torch.int64)

    @property
    def low(self) -> int:
        """r_min."""
        return smallest_rank(self.model, self.setup.scenario) if self.r_min is None else self.r_min

    def pruned(self, r_n: Tensor) -> Tensor:
        """(N,) int64: the ranks after pruning, max(r_min, floor(gamma r_n)); no larger than they are."""
        return torch.tensor([min(r, max(self.low, floor(self.gamma * r))) for r in r_n.tolist()], dtype=torch.int64)

    def aggregate(self, state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        """Prune, weigh, and average zero-padded factors."""
        found, r_n = list(arrived_adapters(self.model, uploads, plan, cohort)), self.ranks(state, cohort)
        c_n = self.pruned(r_n)
        begun = [_begun(one, state) for one in found]
        trained = found if uploads.sent is None else list(arrived_adapters(self.model, uploads.own, plan, cohort))
        prunes = uploads.arrived & (c_n < r_n) & (tails(trained, c_n) < tails(begun, c_n))
        kept = torch.where(prunes, c_n, r_n)
        cut = [_cut(one, kept) for one in found]
        if self.weights == "sparsity":
            cut = [replace(one, weights=w) for one, w in zip(cut, sparsity_weights(cut, len(cohort)), strict=True)]
        new = with_pairs(state, uploads, plan, cohort, cut, zero_padded(state))
        gone, less = dict(state["memory"].get(GIVEN_UP, {})), ranks_of(self.model, cohort) - kept
        gone |= {str(cohort.ids[n]): int(less[n]) for n in prunes.nonzero().flatten().tolist()}
        return {**new, "memory": {**state["memory"], GIVEN_UP: gone}}


def tails(found: Sequence[ArrivedAdapter], c_n: Tensor) -> Tensor:
    """(N,) float64: sum over the adapters of ||B_n[:, c_n:]||_F ||A_n[c_n:, :]||_F."""
    total = torch.zeros(len(c_n), dtype=torch.float64)
    for one in found:
        tail = (torch.arange(one.pair.rank) >= c_n[one.rows, None]).to(one.A)  # (n, R)
        A, B = (one.A * tail[:, :, None]).flatten(1), (one.B * tail[:, None, :]).flatten(1)
        total[one.rows] += (B.norm(dim=1) * A.norm(dim=1)).cpu()
    return total


def sparsity_weights(found: Sequence[ArrivedAdapter], N: int) -> list[Tensor]:
    """Of every adapter q_n (n,), summing to 1 over the clients that have it: S_n = ||B_n A_n||_F over all adapters of a
    client; equal where all are 0."""
    squared = torch.zeros(N, dtype=torch.float64)
    for one in found:
        squared[one.rows] += (one.A * (one.B.mT @ one.B @ one.A)).sum((1, 2)).clamp(min=0).cpu()
    S = squared.sqrt()
    each = (S[one.rows] if S[one.rows].any() else torch.ones_like(S[one.rows]) for one in found)
    return [q / q.sum() for q in each]


def _begun(one: ArrivedAdapter, state: State) -> ArrivedAdapter:
    """The same adapter as its clients began with it."""
    server = dict(places(state))
    A, B = (server[place].double().flatten(1) for place in (one.pair.A, one.pair.B))
    return replace(one, A=A * one.terms[:, :, None], B=B * one.terms[:, None, :])


def _cut(one: ArrivedAdapter, kept: Tensor) -> ArrivedAdapter:
    """Without the terms that its clients have given up. kept (N,)."""
    held = (torch.arange(one.pair.rank) < kept[one.rows, None]).to(one.A)
    return replace(one, A=one.A * held[:, :, None], B=one.B * held[:, None, :])


@hookimpl
def fedbench_register_methods(register):
    register(
        "hetlora", hetlora, ignores=["widths"], family="Rank", paper="Cho et al., HetLoRA, EMNLP 2024, arXiv 2401.06432"
    )
