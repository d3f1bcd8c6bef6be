"""FESTA: a vision transformer split between clients and server, trained at every step (Park et al., NeurIPS 2021,
arXiv 2111.01338)."""

from __future__ import annotations

from fedbench import hookimpl
from fedbench.families.split import PLAIN_MEAN, Optimizer, ServerOptimizer, split
from fedbench.method import Method, Ref, Setup
from fedbench.models.weight_init import Begin
from fedbench.options import Count, Natural, NotNegative, judged

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
    optimizer: Optimizer | None = None,
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


@hookimpl
def fedbench_register_methods(register):
    register(
        "festa",
        festa,
        ignores=["capacities", "ranks", "widths", "adapter"],
        look=7,
        paper="Park et al., FESTA, NeurIPS 2021, arXiv 2111.01338",
    )
