"""SPRY: trainable weights split over clients that differentiate in forward mode (Panchal et al., NeurIPS 2024, arXiv
2405.15551)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Generator, Tensor, nn

from fedbench import hookimpl
from fedbench.families.forward_only import Direction, ForwardClient, drawn
from fedbench.families.layerwise import ForwardOnly, Steps, layerwise
from fedbench.method import Method, Ref, Setup, State
from fedbench.models.backbone import in_layers
from fedbench.models.forward_cost import ForwardPasses
from fedbench.models.optimizer import make_optimizer, optimizer_states
from fedbench.models.param_paths import at_classifier
from fedbench.options import Count, judged
from fedbench.types import Cohort, Plan


@judged("spry")
def spry(
    setup: Setup,
    perturbation_count: Count = 1,
    aggregator: Ref = "weighted_mean",
    objective: Ref = "cross_entropy",
) -> Method:
    """Every client trains the adapters of some layers, dealt out in turn, by forward-mode derivatives along random
    directions; the server averages each layer over those who trained it.

    In every local step g = 1/K sum_k (dL . v_k) v_k for K = perturbation_count directions v_k ~ N(0, I) over what the
    client trains, a pass of `torch.func.jvp` each; then a step of the suite's optimizer along g. Fewer weights for each
    client make g a closer estimate. Client n of N trains the layers n, n + N, n + 2 N, ...; of more clients than layers
    several train one. Everybody trains the classifier, as the released code does for most models (Astuary/Spry at
    f85533c).

    The paper's text was read in part. Ours: layers are dealt out, where the code deals out the pairs of factors, and to
    other clients in every round; clients beyond the number of layers train one too, where the code gives them the
    classifier alone; directions follow from seed, round, client and step; `train.clip` bounds g. The code's server
    takes a step of FedYogi on the mean: `aggregator: server_optimizer`.
    """
    L = in_layers(setup.backbone).num_layers

    def share(plan: Plan, state: State, t: int, cohort: Cohort, generator: Generator) -> Plan:
        return replace(plan, trained=dealt(len(cohort), L, t))

    def steps(state: State, plan: Plan, cohort: Cohort, t: int) -> Steps:
        def take(client: ForwardClient) -> float:
            trained, losses = list(client.parameters.values()), []
            heads = [p for place, p in client.parameters.items() if at_classifier(place)]
            optimizer = make_optimizer(trained, client.job.optimizer, heads=heads)
            for number, batch in enumerate(client.batches()):
                for k in range(perturbation_count):
                    v = drawn(client, Direction(setup.seed, t, client.id, number * perturbation_count + k))
                    loss, slope = client.derivative(batch, v)
                    for place, parameter in client.parameters.items():
                        part = v[place] * (slope / perturbation_count)
                        parameter.grad = part if k == 0 or parameter.grad is None else parameter.grad.add_(part)
                    losses.append(loss)
                if client.job.clip is not None:
                    nn.utils.clip_grad_norm_(trained, client.job.clip)
                optimizer.step()
                client.mask()
            optimizer.zero_grad()
            return sum(losses) / max(len(losses), 1)

        return take

    copies = 2 + optimizer_states(setup.train["optimizer"])  # g and v
    passes = ForwardPasses(passes=perturbation_count, tangents=True, copies=copies)
    forward = ForwardOnly(steps, passes)
    return layerwise(setup, "prefix", aggregator, objective, depth_of=lambda L_n: L, share=share, forward=forward)


def dealt(N: int, L: int, t: int) -> Tensor:
    """(N, L) bool: layer j to client j + t modulo N; of more clients than layers, client n has layer n + t modulo L."""
    n, j = torch.arange(N)[:, None], torch.arange(L)
    return (j + t) % max(N, 1) == n if N <= L else (n + t) % L == j


@hookimpl
def fedbench_register_methods(register):
    register(
        "spry",
        spry,
        ignores=["capacities", "ranks", "widths"],
        family="Forward passes",
        paper="Panchal et al., SPRY, NeurIPS 2024, arXiv 2405.15551",
    )
