"""Fed-HeLLo: everybody runs all layers and trains some (Zhang et al., IEEE TNNLS 2025, arXiv 2506.12213)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Generator, Tensor, nn

from fedbench import hookimpl
from fedbench.errors import NotApplicable
from fedbench.families.allocation import prefix
from fedbench.families.deployed_submodel import capacities
from fedbench.families.layerwise import layerwise
from fedbench.method import Method, Ref, Setup, State
from fedbench.models.backbone import HEAD, Blocks
from fedbench.options import Count, Natural, judged
from fedbench.types import Cohort, Exit, Plan, Report

# What the released configuration gives a ViT's 12 layers, in 27ths: `layer_prob` of the bottleneck.
BOTTLENECK = (3.0, 3.0, 3.0, 2.0, 2.0, 1.0, 1.0, 1.0, 2.0, 3.0, 3.0, 3.0)

# The paper names the other shapes; their numbers here are ours: straight lines between the bottleneck's extremes.
SHAPES: dict[str, tuple[float, ...]] = {
    "bottleneck": BOTTLENECK,
    "triangle": (3.0, 1.0),
    "inverted_triangle": (1.0, 3.0),
    "uniform": (1.0,),
}

CLUSTERS = (1.0, 2.0, 3.0)  # 1/27, 2/27 and 1/9, from the least important layers to the most
MEMORY = "fed_hello"


def probabilities(shape: str, num_layers: int) -> Tensor:
    """(L,) float64, summing to 1: how likely each layer is to be drawn. Of other than 12 layers, the shape is
    interpolated."""
    given = np.array(SHAPES[shape])
    pi = np.interp(np.linspace(0, 1, num_layers), np.linspace(0, 1, len(given)), given)
    return torch.from_numpy(pi / pi.sum())


def randomised(pi: Tensor, c: Tensor, generator: Generator) -> Tensor:
    """RGD-HLA: c_n layers for every client, one after another, with probability pi among those left. -> (N, L) bool"""
    chosen = torch.zeros(len(c), len(pi), dtype=torch.bool)
    for n, c_n in enumerate(c.tolist()):
        chosen[n, torch.multinomial(pi, c_n, generator=generator)] = True
    return chosen


def fixed(pi: Tensor, c: Tensor) -> Tensor:
    """GD-HLA: the c_n likeliest layers of every client; of equals those farther from the middle, of these the upper
    one, which is ours. -> (N, L) bool"""
    L = len(pi)
    order = sorted(range(L), key=lambda j: (-float(pi[j]), -abs(2 * j - (L - 1)), -j))
    rank = torch.tensor(order).argsort()
    return rank < c[:, None]


@judged("fed_hello")
def fed_hello(
    setup: Setup,
    strategy: Literal["randomised", "fixed", "fisher"] = "randomised",
    shape: Literal["bottleneck", "triangle", "inverted_triangle", "uniform"] = "bottleneck",
    prior_rounds: Natural = 50,
    fisher_every: Count = 50,
    aggregator: Ref = {"name": "weighted_mean", "weights": "uniform"},  # noqa: B006  # only read
    objective: Ref = "cross_entropy",
) -> Method:
    """Every client holds all layers and trains the adapters of L_n of them; the others run frozen. The server averages
    every layer over those who trained it.

    strategy: `randomised` draws the layers of every client in every round by the probabilities of a geometric shape
    (RGD-HLA); `fixed` takes the likeliest (GD-HLA); `fisher` draws by the Fisher information of each layer's adapters
    on the server's proxy images, which `data.proxy` holds out of training (FIM-HLA): of the squared gradients of the
    label's logit, meant over the images, the Frobenius norms of a layer's tensors are summed; the L scores are cut into
    three clusters, of weights 1, 2 and 3. prior_rounds: for so many rounds the shape is used first; fisher_every:
    scores are computed whenever so many rounds, counted from the very first, are over, and first where prior_rounds
    are: of 30 and 50, in round 31 for 20 rounds, then in 51, 101 and so on. shape: `bottleneck`, as released,
    `triangle`, `inverted_triangle` or `uniform`, whose numbers are ours.

    Where the released code differs: its k-means leaves clusters unordered, so that the most important layers need not
    get the weight 1/9, draws from the prior again in every round in which no scores are computed, and goes over the
    first batch of the proxy set alone; here the clusters are the best three of the sorted scores, in order, scores
    stay, and all images count. It trains no classifier; ours is trained and averaged as in all methods here.
    """
    if strategy == "fisher" and setup.proxy() is None:
        raise NotApplicable("fed_hello scores layers on images of the server's own: give the suite data.proxy")
    if strategy == "fisher" and setup.backbone.predicts_tokens:
        raise NotApplicable("fed_hello scores layers by the logits of classes, and here are next tokens")

    def share(plan: Plan, state: State, t: int, cohort: Cohort, generator: Generator) -> Plan:
        pi = by_cluster(state["memory"][MEMORY]) if MEMORY in state["memory"] else probabilities(shape, L)
        if strategy == "fixed":
            return replace(plan, trained=fixed(pi, cohort.capacities))
        if setup.scenario.fitting:  # what fits must fit whichever layers are drawn, and the lowest keeps the most
            return replace(plan, trained=prefix(cohort.capacities, L))
        trained = randomised(pi, cohort.capacities, generator)
        return replace(plan, trained=trained)

    L = setup.backbone.num_layers
    base = layerwise(setup, "prefix", aggregator, objective, depth_of=lambda L_n: L, share=share, sizes=capacities)
    if strategy != "fisher":
        return base
    return FisherScored(setup, base, prior_rounds, fisher_every).method()


@dataclass(frozen=True)
class FisherScored:
    """A method whose server scores the layers before every `every`th round from `prior` on."""

    setup: Setup
    base: Method
    prior: int
    every: int

    def method(self) -> Method:
        return replace(self.base, round=self.round)

    def round(self, state: State, t: int, cohort: Cohort, generator: Generator) -> tuple[State, Report]:
        due = t >= self.prior and state["memory"].get("scored", -1) != t // self.every
        seen = state
        if due and len(cohort):
            scored = {MEMORY: self.scores(state), "scored": t // self.every}
            seen = {**state, "memory": {**state["memory"], **scored}}
        after, report = self.base.round(seen, t, cohort, generator)
        return (after if report.uploads.arrived.any() else state), report

    def scores(self, state: State) -> Tensor:
        """(L,) float64: the Fisher score of every layer's adapters under the global model of that state."""
        model, given = self.setup.backbone, self.setup.proxy()
        assert isinstance(model, Blocks) and given is not None  # `fed_hello` has seen to it
        self.base.predictor(state)  # loads it
        with self.setup.precision():
            return fisher_scores(model, *given)


def fisher_scores(model: Blocks, x: Tensor, y: Tensor) -> Tensor:
    """(L,) float64: sum over a layer's tensors of ||F||_F, F the mean over images of the squared gradient of the
    label's logit. x (n, 3, H, W), y (n,)."""
    L = model.num_layers
    layers: list[list[nn.Parameter]] = [list(model.r(j).values()) for j in range(L)]
    flat = [p for layer in layers for p in layer]
    F = [torch.zeros_like(p, dtype=torch.float64) for p in flat]
    for image, label in zip(x.split(1), y.tolist(), strict=True):
        (logits,) = model(image, range(L), [Exit(L, HEAD)])
        for total, g in zip(F, torch.autograd.grad(logits[0, label], flat), strict=True):
            total += g.double() ** 2 / len(y)
    norms = iter([total.norm() for total in F])
    return torch.stack([sum((next(norms) for _ in layer), torch.zeros(())) for layer in layers]).double().cpu()


def by_cluster(scores: Tensor) -> Tensor:
    """(L,) float64, summing to 1: 1, 2 and 3 parts for the layers of the lowest, middle and highest of the three
    clusters whose squared deviations are the smallest."""
    order = scores.argsort(stable=True)
    ranked, L = scores[order].double(), len(scores)

    def spread(cuts: tuple[int, ...]) -> float:
        parts = [ranked[a:b] for a, b in itertools.pairwise((0, *cuts, L))]
        return float(sum(((part - part.mean()) ** 2).sum() for part in parts))

    cuts = min(itertools.combinations(range(1, L), min(3, L) - 1), key=spread)
    weights = torch.empty(L, dtype=torch.float64)
    for weight, (a, b) in zip(CLUSTERS, itertools.pairwise((0, *cuts, L)), strict=False):
        weights[order[a:b]] = weight
    return weights / weights.sum()


@hookimpl
def fedbench_register_methods(register):
    register(
        "fed_hello",
        fed_hello,
        ignores=["ranks", "widths"],
        family="Depth",
        paper="Zhang et al., Fed-HeLLo, IEEE TNNLS 2025, arXiv 2506.12213",
    )
