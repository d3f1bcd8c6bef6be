"""Methods that correct the error of averaging factors: FedEx-LoRA and LoRA-FAIR."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedbench import hookimpl
from fedbench.families.adapter_ranks import added, arrived_adapters, names_of, only_without_feddyn, replaced
from fedbench.families.aggregation import Weights, weighted_mean
from fedbench.families.layerwise import layerwise
from fedbench.method import Method, Ref, Setup, State
from fedbench.models.backbone import in_layers
from fedbench.models.param_paths import places
from fedbench.options import Natural, NotNegative, Positive, judged
from fedbench.types import Cohort, Plan, Uploads

# FedEx-LoRA: what averaging the factors loses is added to the frozen weights (Singhal et al., ACL 2025, arXiv
# 2410.09432)


def fedex_lora(
    setup: Setup,
    allocation: Ref = "prefix",
    aggregator: Ref = "exact_mean",
    objective: Ref = "cross_entropy",
) -> Method:
    """Clients train A and B, the server averages both and adds the residual, the mean of products less the product of
    the means, to the frozen weight: no aggregation error.

    The residual is of rank (K + 1) r at most, for K clients, and is charged as factors of that rank or as the matrix,
    whichever is the smaller. Not applicable to adapters without low-rank factors, nor under FedDyn.
    """
    method = layerwise(setup, allocation, aggregator, objective)
    names_of(in_layers(setup.backbone), "AB")
    return method


@judged("exact_mean")
def exact_mean(setup: Setup, weights: Weights = "examples") -> Callable[[State, Uploads, Plan, Cohort], State]:
    """The per-layer mean of everything, with R = sum p_k B_k A_k - B A of every low-rank adapter, B and A being the
    means, added to its frozen weight: W <- W + s R, over all rounds.

    weights: p_k by number of `examples`, or `uniform` as in the authors' code (CERT-Lab/fedex-lora), in all three
    means. R is that of B and A as they are kept, in float64, so that the model errs by the rounding of W + s R alone.
    Of what one client alone has trained nothing is lost, and R is not sent. Where clients hold rank-one terms of their
    own, each factor is averaged over those who hold it, and R is what that loses.
    """
    only_without_feddyn(setup)
    model = in_layers(setup.backbone)

    def aggregate(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        new = weighted_mean(state, uploads, plan, cohort, weights)
        means, residuals, ranks = dict(places(new)), {}, {}
        for one in arrived_adapters(model, uploads, plan, cohort, weights):
            if one.single():
                continue
            A, B = (means[place].double().flatten(1) for place in (one.pair.A, one.pair.B))
            residuals[one.pair.place] = one.product() - one.pair.scaling * B @ A
            ranks[one.pair.place] = int(one.terms.sum()) + one.pair.rank
        return added(new, residuals, ranks)

    return aggregate


# LoRA-FAIR: the server corrects the mean of B towards the mean of products (Bian et al., ICCV 2025, arXiv
# 2411.14961)


def lora_fair(
    setup: Setup,
    allocation: Ref = "prefix",
    aggregator: Ref = "refined_mean",
    objective: Ref = "cross_entropy",
) -> Method:
    """Clients train A and B and start from the server's; the server averages both and adds D to the mean of B, which
    brings (B + D) A closer to the mean of products sum p_k B_k A_k.

    Known of the paper are B + D, a similarity "from the cosine", a penalty lambda ||D|| with lambda = 0.01, and SGD on
    the server; `refined_mean` says what is ours. Not applicable to adapters without low-rank factors, nor under
    FedDyn.
    """
    method = layerwise(setup, allocation, aggregator, objective)
    names_of(in_layers(setup.backbone), "AB")
    return method


@judged("refined_mean")
def refined_mean(
    setup: Setup,
    lam: NotNegative = 0.01,
    squared: bool = True,
    steps: Natural = 100,
    lr: Positive = 0.5,
    weights: Weights = "examples",
) -> Callable[[State, Uploads, Plan, Cohort], State]:
    """The per-layer mean, with D = argmin 1 - cos(dW, (B + D) A) + lam ||D||^2 added to the mean B of every low-rank
    adapter, A being the mean too and dW = sum p_k B_k A_k.

    lam: lambda, the paper's 0.01. Not known, and ours: 1 - cos, as a similarity is nothing to minimise; squared,
    whether the norm is: with the norm itself D is 0 wherever the gradient of the cosine is below lambda; steps and lr
    of the descent from D = 0, lr in units of the inverse of the curvature, ||A||_2^2 / ||B A||^2 of 1 - cos and 2
    lambda of the squared norm, so that below 2 it is stable for factors of any size; and that the last D is taken, or 0
    where that is no better: the lowest on the way could be one or another of nearly equal steps. weights: p_k by number
    of `examples`, or `uniform`.
    """
    only_without_feddyn(setup)
    model, search = in_layers(setup.backbone), CorrectionSearch(lam, squared, steps, lr)

    def aggregate(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        new = weighted_mean(state, uploads, plan, cohort, weights)
        means, refined = dict(places(new)), {}
        for one in arrived_adapters(model, uploads, plan, cohort, weights):
            A, B = (means[place].double().flatten(1) for place in (one.pair.A, one.pair.B))
            refined[one.pair.B] = B + search.correction(one.product(), B, A)
        return replaced(new, refined)

    return aggregate


@dataclass(frozen=True)
class CorrectionSearch:
    """How D is looked for, see `refined_mean`."""

    lam: float
    squared: bool
    steps: int
    lr: float

    def correction(self, product: Tensor, B: Tensor, A: Tensor) -> Tensor:
        """D (out, r) for dW = product (out, in), B (out, r), A (r, in); 0 where the cosine is not defined.

        With C = dW A^T, G = A A^T and X = B + D, <dW, X A> = <C, X> and ||X A||^2 = <X G, X>: no step needs a matrix of
        dW's size.
        """
        C, G, length, begun = product @ A.mT, A @ A.mT, product.norm(), (B @ A).norm()
        D = torch.zeros_like(B)
        if not length or not begun:
            return D
        curvature = torch.linalg.matrix_norm(G, 2) / begun**2 + (2 * self.lam if self.squared else 0.0)
        step = self.lr / curvature

        def at(D: Tensor) -> tuple[Tensor, Tensor]:
            """The value that D has, and its gradient."""
            X = B + D
            XG = X @ G
            q = (XG * X).sum().sqrt()  # ||X A||
            cosine = (C * X).sum() / (length * q)
            return 1 - cosine + self._penalty(D), cosine / q**2 * XG - C / (length * q) + self._slope(D)

        for _ in range(self.steps):
            D = D - step * at(D)[1]
        return D if at(D)[0] < at(torch.zeros_like(B))[0] else torch.zeros_like(B)

    def _penalty(self, D: Tensor) -> Tensor:
        return self.lam * (D.square().sum() if self.squared else D.norm())

    def _slope(self, D: Tensor) -> Tensor:
        """The penalty's gradient; at D = 0, where the norm has none, 0."""
        return 2 * self.lam * D if self.squared else self.lam * D / D.norm().clamp(min=torch.finfo(D.dtype).tiny)


@hookimpl
def fedbench_register_methods(register):
    register(
        "fedex_lora",
        fedex_lora,
        ignores=["ranks", "widths"],
        family="Aggregation",
        paper="Singhal et al., FedEx-LoRA, ACL 2025, arXiv 2410.09432",
    )
    register(
        "lora_fair",
        lora_fair,
        ignores=["ranks", "widths"],
        family="Aggregation",
        paper="Bian et al., LoRA-FAIR, ICCV 2025, arXiv 2411.14961",
    )


@hookimpl
def fedbench_register_aggregators(register):
    register(
        "exact_mean",
        exact_mean,
        ignores=["capacities", "ranks", "widths"],
        profiles={"reference": {"weights": "uniform"}},
    )
    register("refined_mean", refined_mean, ignores=["capacities", "ranks", "widths"])
