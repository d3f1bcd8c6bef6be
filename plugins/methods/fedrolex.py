"""FedRolex: HeteroFL's slices as windows that roll over the units round by round (Alam et al., NeurIPS 2022, arXiv
2212.01548)."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench import hookimpl
from fedbench.families.width import PLAIN_MEAN, RATES, Rates, averaged_slices, count
from fedbench.method import Method, Ref, Setup
from fedbench.models.weight_init import Begin
from fedbench.options import judged


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


@hookimpl
def fedbench_register_methods(register):
    register(
        "fedrolex",
        fedrolex,
        ignores=["ranks", "adapter"],
        paper="Alam et al., FedRolex, NeurIPS 2022, arXiv 2212.01548",
    )
