"""What methods of unequal ranks share.

The first terms of an adapter, what came of its factors, and their best approximation of a rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from fedbench.errors import NotApplicable, UserError
from fedbench.families.aggregation import client_weights, mean, weighted_mean
from fedbench.families.regularizer import refuse_feddyn
from fedbench.method import Setup, State
from fedbench.models.backbone import Blocks
from fedbench.models.lowrank import ADDED, FROZEN, AdapterPair, pairs, rank_of
from fedbench.models.param_paths import mapped, name_of, places, trained_by
from fedbench.types import Cohort, Plan, Scenario, Uploads


def names_of(model: Blocks, factors: str) -> tuple[str, ...]:
    """Return patterns for the names of all factors of low-rank adapters, as a plan or `layerwise` takes them.

    Args:
        model: The model.
        factors: `A`, `B` or `AB`.

    Raises:
        NotApplicable: The model has no low-rank adapters.
    """
    found = [place for pair in pairs(model) for which in factors for place in [pair.A if which == "A" else pair.B]]
    if not found:
        raise NotApplicable("the method is about low-rank adapters B A, and the adapter has none (try adapter: lora)")
    return tuple(dict.fromkeys(map(name_of, found)))


def only_without_feddyn(setup: Setup) -> None:
    """For aggregators of products. Raises NotApplicable under FedDyn."""
    refuse_feddyn(setup, "corrects the means of tensors, and this aggregator goes by products of them")


def ranks_of(model: Blocks, cohort: Cohort) -> Tensor:
    """(N,) int64: r_n as the scenario gives them, R for everybody where it gives none.

    Raises UserError for one above R.
    """
    R = rank_of(model)
    r_n = torch.full((len(cohort),), R) if cohort.ranks is None else cohort.ranks
    if len(r_n) and int(r_n.max()) > R:
        raise UserError(f"a client's rank is {int(r_n.max())}, the adapter's {R}: raise adapter.rank, or lower ranks")
    return r_n


def depth_under_ranks(setup: Setup) -> Callable[[int], int]:
    """Return `depth_of(L_n)` of methods whose clients differ in rank.

    Where the scenario gives ranks, it is all layers, as in their papers, whatever depths the scenario gives besides.
    Elsewhere it is L_n.
    """
    L, unequal = setup.backbone.num_layers, setup.scenario.ranks is not None
    return lambda L_n: L if unequal else L_n


def smallest_rank(model: Blocks, scenario: Scenario) -> int:
    """The smallest rank that any registered client may have; R where the scenario gives none."""
    return rank_of(model) if scenario.ranks is None else int(scenario.ranks.min())


def first_terms(model: Blocks, plan: Plan, r_n: Tensor) -> Plan:
    """The plan, with the first r_n rank-one terms of every adapter that a client holds. r_n (N,)."""
    R = rank_of(model)
    first = torch.arange(R) < r_n[:, None]  # (N, R)
    return replace(plan, terms=plan.M[:, :, None] & first[:, None, :])


def drawn_terms(r_n: Tensor, R: int, generator: Generator) -> Tensor:
    """(N, R) bool: r_n of R terms for every client, each set as likely as any other. r_n (N,)."""
    order = torch.rand(len(r_n), R, generator=generator, dtype=torch.float64).argsort(1).argsort(1)
    return order < r_n[:, None]


@dataclass(frozen=True)
class ArrivedAdapter:
    """What arrived of one low-rank adapter from n clients.

    Attributes:
        A: (n, R, in), 0 outside of the terms that a client trained; a convolution's kernel counts as part of `in`.
        B: (n, out, R), 0 outside of these terms.
        terms: (n, R) bool, those it trained.
        weights: (n,) float64, the clients', summing to 1.
        scales: (n,) float64, what each multiplied B A with.
        rows: (n,) int64, their positions in the cohort.
    """

    pair: AdapterPair
    A: Tensor
    B: Tensor
    terms: Tensor
    weights: Tensor
    scales: Tensor
    rows: Tensor

    def product(self) -> Tensor:
        """(out, in): sum_n w_n s_n B_n A_n, from the stacked factors."""
        left = (self.weights * self.scales).to(self.B.device)[:, None, None] * self.B
        return left.transpose(0, 1).flatten(1) @ self.A.flatten(0, 1)

    def single(self) -> bool:
        """Whether it is one client's, with all terms and at the model's scale.

        The mean of products is then the product of means.
        """
        return len(self.rows) == 1 and float(self.scales) == self.pair.scaling and bool(self.terms.all())


def arrived_adapters(
    model: Blocks, uploads: Uploads, plan: Plan, cohort: Cohort, weights: str = "examples"
) -> Iterator[ArrivedAdapter]:
    """Every low-rank adapter of which anything arrived, in float64. weights: `examples` or `uniform`."""
    rows_of, w = dict(places({"r": uploads.r, "shared": uploads.shared})), client_weights(cohort, weights)
    for pair in pairs(model):
        held = trained_by(plan, pair.A) & trained_by(plan, pair.B)
        arrived = uploads.arrived[held]
        if not arrived.any():
            continue
        rows = held.nonzero().flatten()[arrived]
        A, B = (rows_of[place][arrived].double().flatten(2) for place in (pair.A, pair.B))
        terms = torch.ones(len(rows), pair.rank, dtype=torch.bool, device=A.device)
        if pair.A in uploads.coordinates:
            terms = uploads.coordinates[pair.A][arrived].flatten(1)
        scales = torch.full_like(w[rows], pair.scaling) if plan.scales is None else plan.scales[rows].double()
        yield ArrivedAdapter(
            pair, A * terms[:, :, None], B * terms[:, None, :], terms, w[rows] / w[rows].sum(), scales, rows
        )


def with_pairs(
    state: State,
    uploads: Uploads,
    plan: Plan,
    cohort: Cohort,
    found: Iterable[ArrivedAdapter],
    factors: Callable[[ArrivedAdapter], tuple[Tensor, Tensor]],
    weights: str = "examples",
) -> State:
    """Return the next state.

    `factors(came) -> A (R, in), B (out, R)` makes every adapter of which anything arrived; everything else becomes its
    weighted mean.
    """
    values = {}
    for one in found:
        values[one.pair.A], values[one.pair.B] = factors(one)
    return replaced(weighted_mean(state, uploads, plan, cohort, weights), values)


def zero_padded(state: State) -> Callable[[ArrivedAdapter], tuple[Tensor, Tensor]]:
    """Return sum_n w_n pad(A_n) and sum_n w_n pad(B_n) of an adapter.

    What a client did not train counts as 0, and all share the divisor. A term whose trainers all failed to return keeps
    its value, as every such tensor does: at 0 in both factors nobody could ever train it again.
    """
    server = dict(places(state))

    def factors(one: ArrivedAdapter) -> tuple[Tensor, Tensor]:
        trained = one.terms.any(0)
        A, B = (server[place].double().flatten(1) for place in (one.pair.A, one.pair.B))
        return (
            torch.where(trained[:, None], mean(one.A, one.weights), A),
            torch.where(trained, mean(one.B, one.weights), B),
        )

    return factors


def replaced(state: State, values: Mapping[str, Tensor]) -> State:
    """The state with these values, by place, in the shapes and types of those that were there."""

    def new(place: str, old: Tensor) -> Tensor:
        return values[place].to(old).reshape(old.shape).contiguous() if place in values else old

    return {**state, **mapped(new, state)}


def factored(Bs: Tensor, As: Tensor, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best approximation of sum_n B_n A_n of a rank: U (out, rank), sigma (rank,), V^T (rank, in).

    Zeros follow where the matrix itself is smaller.

    Args:
        Bs: (n, out, R).
        As: (n, R, in).
        rank: How many terms.
    """
    U, sigma, Vt = best_of_rank(Bs.transpose(0, 1).flatten(1), As.flatten(0, 1), rank)
    more = rank - len(sigma)
    return pad(U, (0, more)), pad(sigma, (0, more)), pad(Vt, (0, 0, 0, more))


def added(state: State, values: Mapping[str, Tensor], ranks: Mapping[str, int]) -> State:
    """Return the state with more added to the frozen weights.

    Args:
        state: The state.
        values: (out, in) by the adapter's place.
        ranks: As how many rank-one terms each is sent.
    """
    frozen = dict(state.get(FROZEN, {}))
    like = next(value for _, value in places(state))
    for place, value in values.items():
        frozen[place] = (frozen[place] + value if place in frozen else value).to(like).contiguous()
    return {**state, FROZEN: frozen, ADDED: dict(ranks)}


def best_of_rank(B: Tensor, A: Tensor, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """U (out, r), sigma (r,), V^T (r, in): the best approximation of B A of that rank, or less where it has less.

    B (out, m), A (m, in). Computed from the factors (two QR, then the SVD of an (m, m) matrix), without B A. An SVD
    leaves signs open: the largest entry of every row of V^T is made positive, so that equal runs have equal bits.
    """
    left, Rb = torch.linalg.qr(B)
    right, Ra = torch.linalg.qr(A.mT)
    U, sigma, Vt = torch.linalg.svd(Rb @ Ra.mT, full_matrices=False)
    U, Vt = left @ U[:, :rank], Vt[:rank] @ right.mT
    largest = Vt.abs().argmax(1, keepdim=True)
    sign = torch.where(Vt.gather(1, largest) < 0, -1.0, 1.0).to(Vt)
    return U * sign.mT, sigma[:rank], Vt * sign
