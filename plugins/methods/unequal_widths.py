"""Methods of unequal width: HeteroFL, FedRolex and FjORD."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from fedbench import hookimpl
from fedbench.families.aggregation import MEAN_BY_EXAMPLES
from fedbench.families.wholemodel import Batch, ModelLoss, OnLogits, Tensors, Visit, fit, price_of, trainable
from fedbench.families.width import (
    PLAIN_MEAN,
    RATES,
    Cuts,
    NarrowModel,
    Rates,
    averaged_slices,
    count,
    first,
    offered,
    widthwise,
)
from fedbench.method import Method, Ref, Setup
from fedbench.models.backbone import Begin
from fedbench.options import judged
from fedbench.types import ClientCost

# HeteroFL: clients train the first units of every layer, as many as they can hold (Diao et al., ICLR 2021, arXiv
# 2010.01264)


@judged("heterofl")
def heterofl(
    setup: Setup,
    rates: Rates = RATES,
    body: Begin = "pretrained",
    aggregator: Ref = PLAIN_MEAN,
    objective: Ref = "cross_entropy",
    scale: bool = True,
    mask: bool = True,
) -> Method:
    """A client of rate g trains the first ceil(K g) of K hidden units of every layer, of every head the first
    ceil(d_head g); every coordinate becomes the unweighted mean over the clients that hold it, and one that nobody
    holds keeps its value (Section 3, Algorithm 1).

    rates: the widths offered; a client takes the largest it can hold: up to its width where the scenario gives
    `widths`, else with g^2 at most L_n / L; one that can hold none takes no part. `rates: [1]` is the control in which
    full models alone take part. body: `pretrained`, as the backbone is, or `random`; the paper trains from scratch.
    scale: the Scaler, outputs of hidden layers divided by g in training alone. mask: the masking trick, logits of
    classes that a client has no image of are 0 in its training (0, and not minus infinity, in the paper's code), and
    its rows of the classifier are not averaged.

    The paper's static batch norm has no use here: no backbone keeps running statistics. Ours: group norms normalise
    every group of the whole model over those of its channels that are held; the code keeps the number of groups. The
    global model is that of full width.
    """
    return averaged_slices(setup, "heterofl", first, rates, body, aggregator, objective, scale, mask)


# FedRolex: HeteroFL's slices as windows that roll over the units round by round (Alam et al., NeurIPS 2022, arXiv
# 2212.01548)


def rolling(K: int, g: float, t: int) -> Tensor:
    """t, t + 1, ..., t + ceil(K g) - 1, modulo K (Equation 2)."""
    return (torch.arange(count(K, g), device="cpu") + t) % K


@judged("fedrolex")
def fedrolex(
    setup: Setup,
    rates: Rates = RATES,
    body: Begin = "pretrained",
    aggregator: Ref = PLAIN_MEAN,
    objective: Ref = "cross_entropy",
    scale: bool = True,
    mask: bool = True,
) -> Method:
    """In round t a client of rate g trains ceil(K g) of K hidden units of every layer from unit t mod K on, so that all
    units are trained evenly; every coordinate becomes the unweighted mean over the clients that hold it (Algorithm 1).

    rates, body, aggregator, objective, scale, mask: as for HeteroFL, on whose code the authors' stands. t counts from
    0. Of the heads of an attention each rolls by itself. The text takes floor(K g) units, the code ceil(K g), as here;
    the code's window moves the other way, which is the same but for the numbering. At the commit read the code's server
    for transformers computes the mean and then loads the old weights again; this does not.
    """
    return averaged_slices(setup, "fedrolex", rolling, rates, body, aggregator, objective, scale, mask)


# FjORD: ordered dropout, every batch trains a width drawn from those that a client can hold (Horvath et al.,
# NeurIPS 2021, arXiv 2102.13451)


FJORD_RATES = (0.2, 0.4, 0.6, 0.8, 1.0)


@judged("fjord")
def fjord(
    setup: Setup,
    rates: Rates = FJORD_RATES,
    distill: bool = False,
    body: Begin = "pretrained",
    aggregator: Ref = MEAN_BY_EXAMPLES,
    objective: Ref = "cross_entropy",
) -> Method:
    """A client of width p_max draws for every batch one p for all layers, uniform over the p of P up to p_max, and
    trains the first ceil(p K) of K units of every layer (ordered dropout, Section 3).

    rates: P; p_max is the largest that the client can hold, see HeteroFL. distill: the loss is that of p_max plus the
    cross-entropy of p against the softmax of p_max, through which no gradient flows (Section 3.2); the loss recorded is
    the sum. The authors' server goes through P from large to small and overwrites each time the first units by the mean
    over the clients with p_max >= p, weighted by |D_n|: since the slices nest, that is every coordinate's mean over the
    clients that hold it. What no batch of a client has trained counts as trained where p_max holds it.

    Ours: momentum and weight decay move all of p_max's weights in every step, as in the authors' code. FLOPs are the
    mean over the p that a client draws from, bytes those of p_max, memory that of the largest step. The global model is
    that of full width.
    """
    ps = offered("fjord", "rates", rates)
    cuts = Cuts(trainable(setup, body))
    loss = setup.component("objective", objective)

    def of_batch(weights: Tensors, part: NarrowModel, p: float, x: Tensor, y: Tensor, t: int) -> Tensor:
        small = cuts.at(p)
        own = weights if p == part.rate else small.slice.within(part.slice).of(weights)
        drawn = small.model.logits(own, x)
        if not distill:
            return cast(Tensor, loss([drawn], y, t))
        whole = part.model.logits(weights, x)
        return cast(Tensor, loss([whole], y, t)) + F.cross_entropy(drawn, whole.detach().softmax(1))

    def train(visit: Visit, part: NarrowModel, draws: Generator) -> float:
        own, drawn = up_to(ps, part.rate), [part.rate]

        def batches() -> Iterator[Batch]:
            for batch in visit.batches():  # which is given one p, also where it is computed in parts
                drawn[0] = own[int(torch.randint(len(own), (), generator=draws))]
                yield batch

        def loss_of(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor | float]:
            return of_batch(visit.weights, part, drawn[0], x, y, visit.t), visit.pull()

        return fit(setup, loss_of, [visit.weights], batches(), visit.steps)

    return widthwise(setup, cuts, ps, train, price_of_draws(setup, cuts, ps, OnLogits(loss), distill), aggregator)


def price_of_draws(
    setup: Setup,
    cuts: Cuts,
    ps: Sequence[float],
    one_image: ModelLoss,
    distill: bool,
) -> Callable[[NarrowModel], ClientCost]:
    """What a client pays whose part is of width p_max: FLOPs are the mean over its p, memory that of the largest step.

    one_image(model, x, y): the loss of a model of any width.
    """

    @functools.cache
    def measured(p: float) -> tuple[int, int]:
        """FLOPs of one image at width p, and bytes of the activations saved."""
        return cuts.at(p).model.to_train(one_image, setup.image_size)

    def price(part: NarrowModel) -> ClientCost:
        whole = price_of(setup, part.model, one_image)
        _, saved = measured(part.rate)
        flops, passes = [], []
        for p in up_to(ps, part.rate):
            of_p, saved_of_p = measured(p)
            copied = 0 if p == part.rate else sum(w.nbytes for w in cuts.at(p).model.weights().values())
            flops.append(of_p + (whole.flops_per_image if distill else 0))
            passes.append((copied, saved_of_p + (saved if distill else 0)))
        largest = max(fixed + whole.batch * each for fixed, each in passes)
        return replace(
            whole,
            flops_per_image=round(sum(flops) / len(flops)),
            memory_bytes=whole.memory_bytes - whole.batch * saved + largest,
            passes=tuple(passes) if whole.passes else (),
        )

    return price


def up_to(ps: Sequence[float], p_max: float) -> list[float]:
    """The p that a client of p_max draws from, the smallest first."""
    return sorted(p for p in ps if p <= p_max)


@hookimpl
def fedbench_register_methods(register):
    register(
        "heterofl",
        heterofl,
        ignores=["ranks", "adapter"],
        family="Width",
        paper="Diao et al., HeteroFL, ICLR 2021, arXiv 2010.01264",
    )
    register(
        "fedrolex",
        fedrolex,
        ignores=["ranks", "adapter"],
        family="Width",
        paper="Alam et al., FedRolex, NeurIPS 2022, arXiv 2212.01548",
    )
    register(
        "fjord",
        fjord,
        ignores=["ranks", "adapter"],
        family="Width",
        paper="Horvath et al., FjORD, NeurIPS 2021, arXiv 2102.13451",
    )
