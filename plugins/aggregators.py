"""How the server makes one state of many uploads: FedRA's mean over a layer's holders, robust means, server steps."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedbench import hookimpl
from fedbench.families import aggregation
from fedbench.families.aggregation import Aggregate, Weights, averaging, each_returned, trimmed
from fedbench.method import Ref, Setup, State
from fedbench.models.param_paths import mapped, places, trained_by
from fedbench.options import Positive, Range, judged
from fedbench.types import Cohort, Plan, Uploads


# FedRA, Eq. 3 (v1), which the other depth-allocated methods use too.
@judged("weighted_mean")
def weighted_mean(
    weights: Weights = "examples", outside_layers: Literal["always", "with_client_0"] = "always"
) -> Aggregate:
    """The per-layer mean over the clients that hold a layer; a layer nobody returned keeps its value.

    weights: by number of `examples`, or `uniform`. outside_layers: when adapters that stand in no layer are
    averaged, `always` or only `with_client_0`, as in the FedRA authors' code.
    """

    @averaging(weights)
    def aggregate(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        new = aggregation.weighted_mean(state, uploads, plan, cohort, weights)
        arrived = [cohort.ids[n] for n in uploads.arrived.nonzero().flatten().tolist()]
        if outside_layers == "with_client_0" and 0 not in arrived:
            kept = {name: value.clone() for name, value in state["shared"].items() if name.startswith("model.")}
            new["shared"] = {**new["shared"], **kept}
        return new

    return aggregate


# Yin et al., ICML 2018, arXiv 1803.01498, Algorithm 1, Option I.
def coordinate_median() -> Aggregate:
    """The median of every number over the clients that returned it, each with one vote; of an even number of clients
    the mean of the middle two.

    It stays between the values of honest clients as long as these are more than half of those that returned the
    tensor. The paper's clients have equally many examples, and it has no weights.
    """

    def aggregate(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        return each_returned(state, uploads, plan, lambda rows: trimmed(rows, (len(rows) - 1) // 2))

    return aggregate


# Yin et al., ICML 2018, arXiv 1803.01498, Algorithm 1, Option II.
@judged("trimmed_mean")
def trimmed_mean(trim: Annotated[float, Range(0, below=0.5)] = 0.1) -> Aggregate:
    """The mean of every number over the clients that returned it, each with one vote, without the share `trim` of the
    smallest and of the largest.

    Of n clients ceil(trim n) are cut at either end, but so few that one or two are left: (n - 1) // 2 at most, where it
    is the median. The paper takes trim n for a whole number; rounding up cuts one client at either end where only a few
    hold a layer. It has no weights, as its clients have equally many examples.
    """

    def aggregate(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        return each_returned(state, uploads, plan, lambda rows: trimmed(rows, cut(len(rows), trim)))

    return aggregate


def cut(n: int, trim: float) -> int:
    """How many of n clients are left out at either end."""
    return min(math.ceil(trim * n - 1e-9), (n - 1) // 2)  # 0.07 * 100 is 7.000000000000001


# Sun et al., 2019, arXiv 1911.07963, Section 4: nobody moves the model further than a limit.
@judged("norm_clipping")
def norm_clipping(max_norm: Positive | None = None, weights: Weights = "examples") -> Aggregate:
    """The per-layer mean, after the update of every client, what it sends minus the global value, is scaled down to a
    norm of at most `max_norm`, over all tensors that it holds.

    max_norm: null takes the median of the norms that came back in the round. weights: of the mean, by number of
    `examples`, as FedAvg in the paper, or `uniform`.
    """

    def aggregate(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        if uploads.arrived.any():
            uploads = clipped(state, uploads, plan, max_norm)
        return aggregation.weighted_mean(state, uploads, plan, cohort, weights)

    return aggregate


def clipped(state: State, uploads: Uploads, plan: Plan, max_norm: float | None) -> Uploads:
    """The uploads with no update longer than max_norm, or than the median of those that arrived."""
    norms = update_norms(state, uploads, plan)
    came = norms[uploads.arrived]
    limit = trimmed(came, (len(came) - 1) // 2) if max_norm is None else max_norm
    factors = torch.where(norms > limit, limit / norms, 1.0)  # (N,)

    def shortened(old: Tensor, rows: Tensor, held: Tensor) -> Tensor:
        factor = factors[held].to(rows.device, rows.dtype).reshape(-1, *[1] * old.dim())
        return torch.where(factor < 1, old + factor * (rows - old), rows)

    return replace(uploads, **aggregation.by_tensor(state, uploads, plan, shortened))


def update_norms(state: State, uploads: Uploads, plan: Plan) -> Tensor:
    """(N,) float64: the norm of every client's update over all tensors that it holds."""

    def squares(old: Tensor, rows: Tensor, held: Tensor) -> Tensor:
        own = (rows - old).double().square()[:, None].flatten(1).sum(1)
        return torch.zeros(len(held), dtype=torch.float64).masked_scatter(held, own.cpu())

    found = aggregation.by_tensor(state, uploads, plan, squares)
    return sum(each for part in (*found["r"], found["shared"]) for each in part.values()).sqrt()


MOMENTS = "server_optimizer"  # in the state's memory: m, and v of the adaptive rules, by place
Decay = Annotated[float, Range(0, below=1)]


# Reddi et al., ICLR 2021, arXiv 2003.00295, Algorithm 2; FedAvgM: Hsu et al., 2019, arXiv 1909.06335.
@judged("server_optimizer")
def server_optimizer(
    setup: Setup,
    rule: Literal["avgm", "adagrad", "adam", "yogi"] = "adam",
    lr: Positive | None = None,
    beta1: Decay | None = None,
    beta2: Decay = 0.99,
    tau: Positive = 1e-3,
    aggregator: Ref = "weighted_mean",
) -> Aggregate:
    """The server takes a step of an optimiser along the aggregated update: FedAvgM, FedAdagrad, FedAdam or FedYogi.

    The inner `aggregator` makes a model of the uploads. The server does not take that model: its difference from the
    global model x_t stands for a gradient.

        Delta_t = aggregator(uploads) - x_t
        avgm:     m_t = beta1 m_(t-1) + Delta_t,  x_(t+1) = x_t + lr m_t
        others:   m_t = beta1 m_(t-1) + (1 - beta1) Delta_t,  x_(t+1) = x_t + lr m_t / (sqrt(v_t) + tau)
        adagrad:  v_t = v_(t-1) + Delta_t^2
        adam:     v_t = beta2 v_(t-1) + (1 - beta2) Delta_t^2
        yogi:     v_t = v_(t-1) - (1 - beta2) Delta_t^2 sign(v_(t-1) - Delta_t^2)

    m starts at 0, v at tau^2. lr: null is 1 for avgm, with which beta1: 0 takes the aggregator's model, and 0.01 for
    the others. beta1: null is 0 for adagrad and 0.9 for the others, as in the paper. Ours: a number that nobody
    returned in a round keeps its value and its moments, where the paper's clients all train the whole model.
    """
    inner = setup.component("aggregator", aggregator)
    eta = lr if lr is not None else 1.0 if rule == "avgm" else 0.01
    decay = beta1 if beta1 is not None else 0.0 if rule == "adagrad" else 0.9

    def step(x: Tensor, delta: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if rule == "avgm":
            m = decay * m + delta
            return x + eta * m, m, v
        m, squared = decay * m + (1 - decay) * delta, delta**2
        if rule == "adagrad":
            v = v + squared
        elif rule == "adam":
            v = beta2 * v + (1 - beta2) * squared
        else:
            v = v - (1 - beta2) * squared * (v - squared).sign()
        return x + eta * m / (v.sqrt() + tau), m, v

    @functools.wraps(inner)
    def aggregate(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        new = inner(state, uploads, plan, cohort)
        after, moments = dict(places(new)), dict(state["memory"].get(MOMENTS, {}))

        def moved(place: str, x: Tensor) -> Tensor:
            if not x.is_floating_point() or (came := returned(uploads, plan, place, x)) is None:
                return after[place]
            before = moments.get(place) or {"m": torch.zeros_like(x), "v": torch.full_like(x, tau**2)}
            stepped = step(x, after[place] - x, before["m"], before["v"])
            x, m, v = (torch.where(came, *pair) for pair in zip(stepped, (x, before["m"], before["v"]), strict=True))
            moments[place] = {"m": m, "v": v}
            return x

        return {**new, **mapped(moved, state), "memory": {**new["memory"], MOMENTS: moments}}

    return aggregate


def returned(uploads: Uploads, plan: Plan, place: str, x: Tensor) -> Tensor | None:
    """Which numbers of the tensor at a place came back from anybody, in its shape or broadcast to it; None: none."""
    came = uploads.arrived[trained_by(plan, place)]
    if not came.any():
        return None
    within = uploads.coordinates.get(place)
    return torch.ones_like(x, dtype=torch.bool) if within is None else within[came].any(0)


@hookimpl
def fedbench_register_aggregators(register):
    register(
        "weighted_mean",
        weighted_mean,
        ignores=["capacities", "ranks", "widths"],
        profiles={"reference": {"weights": "uniform"}},
    )
    register("coordinate_median", coordinate_median, ignores=["capacities", "ranks", "widths"])
    register("trimmed_mean", trimmed_mean, ignores=["capacities", "ranks", "widths"])
    register(
        "norm_clipping",
        norm_clipping,
        ignores=["capacities", "ranks", "widths"],
        profiles={"reference": {"weights": "uniform"}},
    )
    register(
        "server_optimizer",
        server_optimizer,
        ignores=["capacities", "ranks", "widths"],
        paper="Reddi et al., Adaptive Federated Optimization, ICLR 2021, arXiv 2003.00295",
    )
