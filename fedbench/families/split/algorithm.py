"""Split learning: client i has a head H_i and a tail T_i, the server the encoder E between them.

Symbols and line numbers are those of FedV (Shi et al., arXiv 2403.16050, Algorithms 1 and 2).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Generator, Tensor

from fedbench.errors import NotApplicable
from fedbench.families.aggregation import PLAIN_MEAN
from fedbench.families.batch_parts import refuse_for_a_cut
from fedbench.families.split import split_cost
from fedbench.families.split.cut import Cut
from fedbench.families.split.participant import ClientOutcome, Participant, plan_of, uploads_of
from fedbench.families.split.server import (
    Backward,
    ClientOptimizer,
    Frozen,
    Learns,
    OwnOptimizer,
    Rules,
    Server,
    ServerOptimizer,
    ZerothOrder,
    of_server,
    with_optimizer,
)
from fedbench.method import Method, Predict, Ref, Setup, State
from fedbench.models.backbone import HEAD, Begin, begin, in_layers, load
from fedbench.models.codec import refuse_coded
from fedbench.models.globalmodel import GlobalModel
from fedbench.options import Count, Natural, NotNegative, Positive, judged
from fedbench.seeding import seed_of
from fedbench.types import ClientCost, Cohort, Exit, Objective, Report, Size


@judged("split")
def split(
    setup: Setup,
    learns: Learns = "last_step",
    server_lr: NotNegative | None = None,
    server_optimizer: ServerOptimizer | None = None,
    server_decay: Positive = 1.0,
    epsilon: Positive = 1e-4,
    num_directions: Count = 1,
    fedround: Count = 50,
    head_blocks: Natural = 0,
    tail_blocks: Natural = 0,
    client_start: Begin = "random",
    encoder: Begin = "pretrained",
    optimizer: ClientOptimizer | None = None,
    aggregator: Ref = PLAIN_MEAN,  # 1 / m, line 21
    objective: Ref = "cross_entropy",
) -> Method:
    """Build a split-learning method from its parts; the defaults are FedV.

    Args:
        setup: what the runner hands to a method.
        learns: how the server gets its gradient: by back-propagation at the round's `last_step` or at `every_step`,
            or from `losses` at the last one (SPSA with `epsilon`, the mean over `num_directions`).
        server_lr: eta of the server's step; None for the clients' own. 0 freezes the encoder and computes no gradient.
        server_optimizer: steps along that gradient at that rate; None for the plain step of line 19.
        server_decay: eta is multiplied by it from half of the rounds on, and again from three quarters on.
        epsilon: how far SPSA moves the weights.
        num_directions: how many SPSA estimates are averaged.
        fedround: every so many rounds, from the first on, heads and tails are averaged.
        head_blocks: see `Cut`.
        tail_blocks: see `Cut`.
        client_start: see `Cut`.
        encoder: `pretrained`, as the backbone is, or `random`.
        optimizer: the clients'; None for the suite's.
        aggregator: a reference to a component, or a function.
        objective: a reference to a component, or a function.

    Raises:
        NotApplicable: for a backbone without layers, and under a regularizer, coded messages, `micro_batch` or
            `checkpointing`.
        UserError: for options that contradict each other.
    """
    if setup.backbone.predicts_tokens:
        raise NotApplicable("this method cuts models of images, and the head of next tokens is frozen")
    setup = with_optimizer(setup, optimizer)
    body = setup.backbone.model.named_parameters() if client_start == "pretrained" else ()
    came = {f"model.{name}": weights.detach().clone() for name, weights in body}  # before the encoder is drawn
    begin(setup.backbone, "encoder", encoder, seed_of(setup.seed, use="encoder"))
    l_c = setup.component("objective", objective)
    aggregate = setup.component("aggregator", aggregator)
    lr = setup.train["optimizer"]["lr"] if server_lr is None else server_lr
    own = of_server(server_optimizer, learns)
    rules = Rules(learns, lr, server_decay, epsilon, num_directions, fedround, setup.train["rounds"], own)
    if setup.train.get("regularizer"):
        raise NotApplicable("regularisers pull clients towards a global model; heads and tails here have none")
    refuse_coded(setup.train, ["uploads", "downloads"], "split learning exchanges features and gradients in every step")
    refuse_for_a_cut(setup.train)
    model = in_layers(setup.backbone).to(setup.device).eval()
    cut = Cut(model, setup.num_classes, head_blocks, tail_blocks, client_start, came)
    made = Split(setup, rules, cut, l_c, aggregate)
    return Method(made.init, made.round, made.predictor, made.cost, personal=True, alone=True, running=made.running)


@dataclass(frozen=True, eq=False)
class Split:
    """The method itself: w_E is kept in the state, every client's (w_H^i, w_T^i) in the setup's store."""

    setup: Setup
    rules: Rules
    cut: Cut
    l_c: Objective
    aggregate: Callable[..., State]

    def init(self, generator: Generator) -> State:
        """Return the state before the first round."""
        return {
            "r": [{} for _ in range(self.cut.model.num_layers)],
            "encoder": self.encoder(),
            "shared": self.cut.start(self.setup.seed, -1),  # until heads and tails are averaged
            "clients": {},
            "memory": {},
            **({"server": {}} if self.rules.optimizer and self.rules.lr else {}),
        }

    def encoder(self) -> dict[str, Tensor]:
        """w_E as it is now."""
        return {name: w.detach().clone() for name, w in self.cut.w_E.items()}

    def w_of(self, state: State, i: int) -> dict[str, Tensor]:
        """(w_H^i, w_T^i), by name in the names' order."""
        key = state["clients"].get(str(i))
        return self.cut.start(self.setup.seed, i) if key is None else self.setup.store.get(key, self.setup.device)

    def optimizer(self, state: State) -> OwnOptimizer | None:
        """The server's own, as the rounds before have left it; None where it takes plain steps, or none."""
        if not self.rules.optimizer or "server" not in state:
            return None
        return OwnOptimizer(self.cut.w_E, self.rules.optimizer, state["server"])

    def server(self, optimizer: OwnOptimizer | None) -> Server:
        """The server of one round."""
        if self.rules.lr == 0:
            return Frozen()
        if self.rules.learns == "losses":
            return ZerothOrder(self.cut, self.setup.seed, self.rules.epsilon, self.rules.directions)
        return Backward(self.cut, optimizer)

    def round(self, state: State, t: int, cohort: Cohort, generator: Generator) -> tuple[State, Report]:
        """Lines 3 to 22."""
        averages, N, L = self.rules.averages(t), len(cohort), self.cut.model.num_layers
        optimizer, kept = self.optimizer(state), dict(state["clients"])
        server = self.server(optimizer)
        done: list[ClientOutcome] = []
        load(self.cut.w_E, state["encoder"])
        # Where the encoder stands still until the round's end, clients in parallel are clients one after another, and
        # no more than one of them is in memory.
        for together in [range(N)] if self.rules.every_step else [[n] for n in range(N)]:
            clients = [
                Participant(n, cohort, self.w_of(state, cohort.ids[n]), self.cut, self.setup, t) for n in together
            ]
            self.local_steps(clients, server, t)
            for client in clients:
                done.append(client.outcome(with_own=averages))
                if client.arrived and not averages:
                    kept[str(client.i)] = self.setup.store.put(client.w)
        server.step(self.cut.w_E, self.rules.eta(t))
        up = uploads_of(done, cohort, L)
        report = Report(plan_of(N, L), cohort, up, [self.cost(0, t)] * N)
        if not up.arrived.any():
            return state, report
        new = {**state, "encoder": self.encoder(), **({"server": optimizer.kept()} if optimizer else {})}
        if averages:
            new = self.aggregate(new, up, report.plan, cohort)
            kept |= {str(i): self.setup.store.put(new["shared"]) for n, i in enumerate(cohort.ids) if up.arrived[n]}
        return {**new, "clients": kept}, report

    def local_steps(self, clients: Sequence[Participant], server: Server, t: int) -> None:
        """Take the K_i steps of each client, side by side.

        The server receives every step or the last one, and steps along where it learns at every one.
        """
        for k in range(1, max((client.K for client in clients), default=0) + 1):
            for client in (client for client in clients if k <= client.K):  # in parallel
                last = k == client.K
                asks = client.arrived and (self.rules.every_step or last)
                answer = client.local_step(self.l_c, server if asks else None)
                if not asks:
                    continue
                came = client.upload(answer, last and self.rules.averages(t))
                if came is not None:
                    server.take(came, t, client.i)
            if self.rules.every_step:
                server.step(self.cut.w_E, self.rules.eta(t))

    def predictor(self, state: State, client: int | None = None) -> Predict:
        """Return the model of a client, or of the averaged heads and tails."""
        load(self.cut.w_E, state["encoder"])
        load(self.cut.own, state["shared"] if client is None else self.w_of(state, client))
        L = self.cut.model.num_layers
        return GlobalModel(self.cut.model, range(L), [Exit(L, HEAD)])

    def running(self, size: Size) -> None:
        """No client can answer without the server's encoder."""

    def cost(self, L_n: int, t: int) -> ClientCost:
        """Return what a client pays in round t, whatever its capacity."""
        return self._costs[self.rules.averages(t)]

    @functools.cached_property
    def _costs(self) -> tuple[ClientCost, ClientCost]:
        """Of a round whose heads and tails stay where they are, and of one that averages them."""
        prices = split_cost.measure(self.cut, self.l_c, self.setup.image_size)
        learns = self.rules.learns if self.rules.lr else None
        directions = self.rules.directions if learns == "losses" else 0

        def of_client(averages: bool) -> ClientCost:
            return split_cost.of_client(
                prices,
                self.setup.train,
                learns=learns,
                directions=directions,
                averages=averages,
                server_optimizer=self.rules.optimizer,
            )

        return of_client(False), of_client(True)
