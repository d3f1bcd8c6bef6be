"""LEGEND: ranks that grow towards the classifier, in as many last layers as a client can train (Liu et al., 2024,
arXiv 2412.20004)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Generator, Tensor

from fedbench import hookimpl
from fedbench.families.aggregation import PLAIN_MEAN
from fedbench.families.deployed_submodel import capacities
from fedbench.families.layerwise import layerwise
from fedbench.method import Method, Ref, Setup, State
from fedbench.models.backbone import in_layers
from fedbench.models.lowrank import rank_of
from fedbench.options import Natural, judged
from fedbench.types import Cohort, Plan


@judged("legend")
def legend(
    setup: Setup, difference: Natural = 1, aggregator: Ref = PLAIN_MEAN, objective: Ref = "cross_entropy"
) -> Method:
    """Every client runs all layers and has adapters in its L_n last ones, of ranks that grow towards the classifier;
    the server averages every layer over those who have its adapters.

    difference: between the ranks of neighbouring layers. The paper's (its abstract was read, and the configuration of a
    third party, UIUC-Cloud-Computing-Capstone/hralora at 6108f9a): a client's LoRA depth is the number of layers,
    counted from the output, that have adapters; their ranks are an arithmetic sequence, the same for all clients, r_j =
    R - difference (L - j), so that layers of different clients match; the mean of a layer is uniform over the clients
    that have it. Ours: the depth is the scenario's L_n, where the paper fits depths to the devices of each round; no
    rank is below 1; R is the adapter's rank; one scale alpha / R for all ranks. The layers below run without adapters.
    """
    model = in_layers(setup.backbone)
    L = model.num_layers

    def share(plan: Plan, state: State, t: int, cohort: Cohort, generator: Generator) -> Plan:
        R = rank_of(model)
        last = torch.arange(L) >= L - cohort.capacities[:, None]  # (N, L)
        terms = torch.arange(R) < growing(L, R, difference)[:, None]  # (L, R)
        return replace(plan, trained=last, terms=last[:, :, None] & terms)

    return layerwise(setup, "prefix", aggregator, objective, depth_of=lambda L_n: L, share=share, sizes=capacities)


def growing(L: int, R: int, difference: int) -> Tensor:
    """(L,) int64: R in the last layer, less by `difference` from each layer to the one below, at least 1."""
    return (R - difference * torch.arange(L).flip(0)).clamp(min=1)


@hookimpl
def fedbench_register_methods(register):
    register(
        "legend",
        legend,
        ignores=["ranks", "widths"],
        family="Depth",
        paper="Liu et al., LEGEND, 2024, arXiv 2412.20004",
    )
