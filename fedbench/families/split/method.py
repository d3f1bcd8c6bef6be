"""Family 2, split learning: client i has a head H_i and a tail T_i, the server the encoder E between them.

Symbols and line numbers are those of FedV (Shi et al., arXiv 2403.16050, Algorithms 1 and 2).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from torch import Generator, Tensor

from fedbench.errors import NotApplicable
from fedbench.families.split import price
from fedbench.families.split.client import Participant, plan_of, uploads_of
from fedbench.families.split.cut import HEAD, Cut
from fedbench.families.split.options import check, with_own
from fedbench.families.split.server import Backward, Frozen, Server, ZerothOrder
from fedbench.method import Method, Predict, Ref, Setup, State
from fedbench.models.backbone import begin, in_layers, load
from fedbench.models.globalmodel import GlobalModel
from fedbench.seeding import seed_of
from fedbench.types import ClientCost, Cohort, Exit, Report

PLAIN_MEAN = {"name": "weighted_mean", "weights": "uniform"}  # 1 / m, line 21


def split(
    setup: Setup,
    learns: str = "last_step",
    server_lr: float | None = None,
    server_decay: float = 1.0,
    epsilon: float = 1e-4,
    num_directions: int = 1,
    fedround: int = 50,
    head_blocks: int = 0,
    tail_blocks: int = 0,
    client_start: str = "random",
    encoder: str = "pretrained",
    optimizer: Mapping[str, Any] | None = None,
    aggregator: Ref = PLAIN_MEAN,
    objective: Ref = "cross_entropy",
) -> Method:
    """A split-learning method from its parts; the defaults are FedV.

    learns: how the server's gradient comes about: by back-propagation at the round's `last_step` or at `every_step`,
    or from `losses` at the last one (SPSA with `epsilon`, the mean over `num_directions`) · server_lr: eta of the
    server's step, None for the clients' own; 0 keeps the encoder as it is and computes no gradient · server_decay:
    times this from half of the rounds on, and again from three quarters on · fedround: every so many rounds, from the
    first on, heads and tails are averaged · head_blocks, tail_blocks, client_start: see `Cut` · encoder: `pretrained`,
    as the backbone is, or `random` · optimizer: the clients', None for the suite's.
    """
    setup = with_own(setup, optimizer)
    begin(setup.backbone, "encoder", encoder, seed_of(setup.seed, use="encoder"))
    l_c = setup.component("objective", objective)
    aggregate = setup.component("aggregator", aggregator)
    lr = setup.train["optimizer"]["lr"] if server_lr is None else server_lr
    check(learns, lr, server_decay, epsilon, num_directions, fedround)
    if setup.train.get("regularizer"):
        raise NotApplicable("regularisers pull clients towards a global model; heads and tails here have none")
    in_layers(setup.backbone).to(setup.device).eval()
    cut = Cut(setup.backbone, setup.num_classes, head_blocks, tail_blocks, client_start)
    every_step, L, T = learns == "every_step", cut.model.num_layers, setup.train["rounds"]

    def made_server() -> Server:
        if lr == 0:
            return Frozen()
        return ZerothOrder(cut, setup.seed, epsilon, num_directions) if learns == "losses" else Backward(cut)

    def eta(t: int) -> float:
        return lr * server_decay ** ((t >= T / 2) + (t >= 3 * T / 4))

    def w_of(state: State, i: int) -> dict[str, Tensor]:
        """(w_H^i, w_T^i), by name in the names' order."""
        key = state["clients"].get(str(i))
        return cut.start(setup.seed, i) if key is None else setup.store.get(key, setup.device)

    def init(generator: Generator) -> State:
        return {
            "r": [{} for _ in range(L)],
            "encoder": {name: w.detach().clone() for name, w in cut.w_E.items()},
            "shared": cut.start(setup.seed, -1),  # until heads and tails are averaged
            "clients": {},
            "memory": {},
        }

    def round(state: State, t: int, cohort: Cohort, generator: Generator) -> tuple[State, Report]:
        """Lines 3 to 22."""
        averages, N = t % fedround == 0, len(cohort)
        server, done, kept = made_server(), [], dict(state["clients"])
        load(cut.w_E, state["encoder"])
        # Where the encoder stands still until the round's end, clients in parallel are clients one after another, and
        # no more than one of them is in memory.
        for together in [range(N)] if every_step else [[n] for n in range(N)]:
            clients = [Participant(n, cohort, w_of(state, cohort.ids[n]), cut, setup, t) for n in together]
            for k in range(1, max((client.K for client in clients), default=0) + 1):
                for client in clients:  # in parallel
                    if k > client.K:
                        continue
                    asks = client.arrived and (every_step or k == client.K)
                    told = client.local_step(l_c, server if asks else None)
                    if asks and (came := client.upload(told, with_own=averages and k == client.K)) is not None:
                        server.take(came, t, client.i)
                if every_step:
                    server.step(cut.w_E, eta(t))
            for client in clients:
                done.append(client.outcome(with_own=averages))
                if client.arrived and not averages:
                    kept[str(client.i)] = setup.store.put(client.w)
        server.step(cut.w_E, eta(t))
        up = uploads_of(done, cohort, L)
        report = Report(plan_of(N, L), cohort, up, [cost(0, t)] * N)
        if not up.arrived.any():
            return state, report
        new = {**state, "encoder": {name: w.detach().clone() for name, w in cut.w_E.items()}}
        if averages:
            new = aggregate(new, up, report.plan, cohort)
            kept |= {str(i): setup.store.put(new["shared"]) for n, i in enumerate(cohort.ids) if up.arrived[n]}
        return {**new, "clients": kept}, report

    def predictor(state: State, client: int | None = None) -> Predict:
        load(cut.w_E, state["encoder"])
        load(cut.own, state["shared"] if client is None else w_of(state, client))
        return GlobalModel(cut.model, range(L), [Exit(L, HEAD)])

    @functools.cache
    def prices() -> price.Prices:
        return price.measure(cut, l_c, setup.image_size)

    @functools.cache
    def priced(averages: bool) -> ClientCost:
        how, directions = (learns, num_directions if learns == "losses" else 0) if lr else (None, 0)
        return price.of_client(prices(), setup.train, learns=how, directions=directions, averages=averages)

    def cost(L_n: int, t: int) -> ClientCost:
        return priced(t % fedround == 0)

    return Method(init, round, predictor, cost, personal=True, alone=True)
