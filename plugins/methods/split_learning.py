"""Split learning: FedV, FedVZ and FESTA of an image transformer, SplitLoRA of any backbone in layers."""

from __future__ import annotations

from typing import Literal

from fedbench import hookimpl
from fedbench.families.split import PLAIN_MEAN, ClientOptimizer, ServerOptimizer, split, split_adapters
from fedbench.method import Method, Ref, Setup
from fedbench.models.backbone import Begin
from fedbench.options import Count, Natural, NotNegative, Positive, judged

# FedV: split learning with a pre-trained image transformer (Shi et al., arXiv 2403.16050, Algorithm 1, option I)


@judged("fedv")
def fedv(
    setup: Setup,
    server_lr: NotNegative | None = None,
    fedround: Count = 50,
    head_blocks: Natural = 0,
    tail_blocks: Natural = 0,
    client_start: Begin = "random",
    encoder: Begin = "pretrained",
    optimizer: ClientOptimizer | None = None,
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


# FedVZ: FedV whose server learns from losses alone (Shi et al., arXiv 2403.16050, Algorithm 1, option II)


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
    optimizer: ClientOptimizer | None = None,
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


# FESTA: a vision transformer split between clients and server, trained at every step (Park et al., NeurIPS 2021,
# arXiv 2111.01338)


ADAM: ServerOptimizer = {"name": "adamw"}  # without weight decay unless it is given


@judged("festa")
def festa(
    setup: Setup,
    server_lr: NotNegative | None = None,
    server_optimizer: ServerOptimizer | None = ADAM,
    fedround: Count = 50,
    head_blocks: Natural = 0,
    tail_blocks: Natural = 0,
    client_start: Begin = "random",
    encoder: Begin = "random",
    optimizer: ClientOptimizer | None = None,
    aggregator: Ref = PLAIN_MEAN,
    objective: Ref = "cross_entropy",
) -> Method:
    """As fedv, but the server's body steps at every local step, on the mean gradient over the clients that take it.

    The head is the backbone's own embedding, as FedV's authors compare it, with one task for all clients. It is
    trained from scratch there: encoder is `random` unless it is `pretrained`, as the backbone is. server_optimizer:
    Adam, for "model parameters are optimized by Adam" is said there of FESTA (A.3) and names no side; `{name: sgd}`
    takes plain steps. Its rate is server_lr, null for the clients' own. The other options are fedv's.
    """
    return split(
        setup,
        learns="every_step",
        server_lr=server_lr,
        server_optimizer=server_optimizer,
        fedround=fedround,
        head_blocks=head_blocks,
        tail_blocks=tail_blocks,
        client_start=client_start,
        encoder=encoder,
        optimizer=optimizer,
        aggregator=aggregator,
        objective=objective,
    )


# SplitLoRA: adapters split between clients and server (Lin et al., 2024, arXiv 2407.00952)


@judged("splitlora")
def splitlora(
    setup: Setup,
    client_layers: Count | None = None,
    server: Literal["in_turn", "together"] = "in_turn",
    server_lr: NotNegative | None = None,
    server_optimizer: ServerOptimizer | None = None,
    aggregator: Ref = PLAIN_MEAN,
    objective: Ref = "cross_entropy",
) -> Method:
    """Clients hold the first layers and send their features and labels in every step; the server holds the other layers
    and the head. Both train the adapters of what they hold, and those of the clients are averaged after every round.

    client_layers: null takes 3, as the authors' code, whatever clients could hold. server: it steps after every
    client's batch, `in_turn` as there, or once along the mean over all their examples or tokens, `together`. server_lr,
    server_optimizer: null takes the clients', and the server's moments last from round to round. aggregator: the plain
    mean, as there. Ours: a client's optimizer starts afresh in every round; both sides are clipped by themselves; the
    server learns nothing of a client that does not arrive; faults and the guard see adapters alone.
    """
    return split_adapters(
        setup,
        client_layers=client_layers,
        server=server,
        server_lr=server_lr,
        server_optimizer=server_optimizer,
        aggregator=aggregator,
        objective=objective,
    )


@hookimpl
def fedbench_register_methods(register):
    register(
        "fedv",
        fedv,
        ignores=["capacities", "ranks", "widths", "adapter"],
        look=5,
        later=["server_optimizer"],
        family="Split learning",
        paper="Shi et al., FedV, 2024, arXiv 2403.16050",
    )
    register(
        "fedvz",
        fedvz,
        ignores=["capacities", "ranks", "widths", "adapter"],
        look=6,
        family="Split learning",
        paper="Shi et al., FedVZ, 2024, arXiv 2403.16050",
    )
    register(
        "festa",
        festa,
        ignores=["capacities", "ranks", "widths", "adapter"],
        look=7,
        family="Split learning",
        paper="Park et al., FESTA, NeurIPS 2021, arXiv 2111.01338",
    )
    register(
        "splitlora",
        splitlora,
        ignores=["capacities", "ranks", "widths"],
        family="Split learning",
        paper="Lin et al., SplitLoRA, 2024, arXiv 2407.00952",
    )
