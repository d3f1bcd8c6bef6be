"""FedVZ: FedV whose server learns from losses alone (Shi et al., arXiv 2403.16050, Algorithm 1, option II)."""

from __future__ import annotations

from fedbench import hookimpl
from fedbench.families.split import PLAIN_MEAN, Optimizer, split
from fedbench.method import Method, Ref, Setup
from fedbench.models.weight_init import Begin
from fedbench.options import Count, Natural, NotNegative, Positive, judged


@judged("fedvz")
def fedvz(
    setup: Setup,
    server_lr: NotNegative = 1e-6,
    server_decay: Positive = 0.5,
    epsilon: Positive = 1e-4,
    num_directions: Count = 1,
    fedround: Count = 50,
    head_blocks: Natural = 0,
    tail_blocks: Natural = 0,
    client_start: Begin = "random",
    encoder: Begin = "pretrained",
    optimizer: Optimizer | None = None,
    aggregator: Ref = PLAIN_MEAN,
    objective: Ref = "cross_entropy",
) -> Method:
    """FedV, but the server estimates its gradient from two losses of every client's last step (SPSA), without a
    backward pass of its own.

    server_decay: server_lr is multiplied by it from half of the rounds on, and again from three quarters on. epsilon:
    how far the weights are moved. num_directions: of how many estimates the mean is taken. The others as in fedv.
    """
    return split(
        setup,
        learns="losses",
        server_lr=server_lr,
        server_decay=server_decay,
        epsilon=epsilon,
        num_directions=num_directions,
        fedround=fedround,
        head_blocks=head_blocks,
        tail_blocks=tail_blocks,
        client_start=client_start,
        encoder=encoder,
        optimizer=optimizer,
        aggregator=aggregator,
        objective=objective,
    )


@hookimpl
def fedbench_register_methods(register):
    register(
        "fedvz",
        fedvz,
        ignores=["capacities", "ranks", "widths", "adapter"],
        look=6,
        paper="Shi et al., FedVZ, 2024, arXiv 2403.16050",
    )
