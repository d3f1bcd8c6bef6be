"""FedV: split learning with a pre-trained image transformer (Shi et al., arXiv 2403.16050, Algorithm 1, option I)."""

from __future__ import annotations

from fedbench import hookimpl
from fedbench.families.split import PLAIN_MEAN, Optimizer, ServerOptimizer, split
from fedbench.method import Method, Ref, Setup
from fedbench.models.weight_init import Begin
from fedbench.options import Count, Natural, NotNegative, judged


@judged("fedv")
def fedv(
    setup: Setup,
    server_lr: NotNegative | None = None,
    fedround: Count = 50,
    head_blocks: Natural = 0,
    tail_blocks: Natural = 0,
    client_start: Begin = "random",
    encoder: Begin = "pretrained",
    optimizer: Optimizer | None = None,
    aggregator: Ref = PLAIN_MEAN,
    objective: Ref = "cross_entropy",
    server_optimizer: ServerOptimizer | None = None,
) -> Method:
    """Every client has a head and a tail of its own around the server's pre-trained encoder, which steps once a round,
    on the mean gradient of the clients' last steps.

    server_lr: null takes the clients' learning rate (the paper writes one eta for both); 0 freezes the encoder.
    server_optimizer: null takes the plain step of Algorithm 1, line 19; `{name: adamw}` makes an Adam step of the mean
    gradient at server_lr, as "model parameters are optimized by Adam" (A.2) may be read, which names no side.
    fedround: heads and tails are averaged every so many rounds, from the first on. head_blocks, tail_blocks: how many
    of the first and last blocks are the client's. client_start: heads and tails `random` as in the paper, or
    `pretrained` but for the classifier. encoder: `pretrained`, as the backbone is, or `random`. optimizer: the
    clients', {name, lr, ...}; null takes the suite's.
    """
    return split(
        setup,
        server_lr=server_lr,
        fedround=fedround,
        head_blocks=head_blocks,
        tail_blocks=tail_blocks,
        client_start=client_start,
        encoder=encoder,
        optimizer=optimizer,
        aggregator=aggregator,
        objective=objective,
        server_optimizer=server_optimizer,
    )


@hookimpl
def fedbench_register_methods(register):
    register(
        "fedv",
        fedv,
        ignores=["capacities", "ranks", "widths", "adapter"],
        look=5,
        later=["server_optimizer"],
        paper="Shi et al., FedV, 2024, arXiv 2403.16050",
    )
