"""Split learning of adapters: clients train those of the first layers, the server those of the others and the head.

It is SplitLoRA (Lin et al., arXiv 2407.00952), of whose text the abstract alone was at hand: the rules are those of the
authors' code (FDU-INC/Split_LoRA, `gpt2_ft_sfl.py`).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn

from fedbench.errors import NotApplicable, UserError
from fedbench.families.aggregation import PLAIN_MEAN
from fedbench.families.batch_parts import refuse_for_a_cut
from fedbench.families.layerwise import full_depth
from fedbench.families.split import split_cost
from fedbench.families.split.cut import after_layers
from fedbench.families.split.server import OwnOptimizer, ServerOptimizer, of_server
from fedbench.method import Method, Predict, Ref, Setup, State
from fedbench.models.adapter import seed_dropout
from fedbench.models.backbone import HEAD, Blocks, in_layers, load
from fedbench.models.codec import refuse_coded
from fedbench.models.draws import Draws
from fedbench.models.lowrank import FROZEN
from fedbench.models.optimizer import make_optimizer
from fedbench.models.param_paths import at_classifier, by_layer, layer_of, name_of, places
from fedbench.models.tokens import counted, over_tokens
from fedbench.options import Count, NotNegative, judged
from fedbench.seeding import generator
from fedbench.types import ClientCost, Cohort, Exit, Objective, Plan, Report, Uploads

CLIENT_LAYERS = 3  # as in the authors' code
Server = Literal["in_turn", "together"]
Params = dict[str, nn.Parameter]


@judged("split_adapters")
def split_adapters(
    setup: Setup,
    client_layers: Count | None = None,
    server: Server = "in_turn",
    server_lr: NotNegative | None = None,
    server_optimizer: ServerOptimizer | None = None,
    aggregator: Ref = PLAIN_MEAN,
    objective: Ref = "cross_entropy",
) -> Method:
    """Build split learning of adapters; the defaults are SplitLoRA's.

    Args:
        setup: what the runner hands to a method.
        client_layers: how many of the first layers are the clients'; None for CLIENT_LAYERS, or all but one of fewer.
        server: whether it steps after every client's batch, or once for the batches of all.
        server_lr: its rate; None for the clients', and theirs for classifiers.
        server_optimizer: its own; None for the clients', whose moments it keeps from round to round.
        aggregator: of the clients' adapters, a reference to a component or a function.
        objective: a reference to a component, or a function.

    Raises:
        NotApplicable: for a backbone without layers, and under a regularizer, coded messages, `micro_batch` or
            `checkpointing`.
        UserError: where no layer is left for the server.
    """
    if setup.train.get("regularizer"):
        raise NotApplicable("regularisers pull clients towards a global model; here the server has most of it")
    refuse_coded(setup.train, ["uploads", "downloads"], "split learning exchanges features and gradients in every step")
    refuse_for_a_cut(setup.train)
    model = in_layers(setup.backbone)
    setup.adapter(model)
    if client_layers is None:
        client_layers = min(CLIENT_LAYERS, model.num_layers - 1)
    if not 0 < client_layers < model.num_layers:
        raise UserError(
            f"client_layers is {client_layers}, but of the backbone's {model.num_layers} layers at least one stays on "
            f"the server: take at most {model.num_layers - 1}"
        )
    model.add_classifier(HEAD, setup.num_classes)
    loss = setup.component("objective", objective)
    made = SplitAdapters(
        setup=setup,
        model=model.to(setup.device).eval(),
        c=client_layers,
        in_turn=server == "in_turn",
        server_lr=server_lr,
        own=of_server(server_optimizer, server),
        objective=over_tokens(loss) if model.predicts_tokens else loss,
        aggregate=setup.component("aggregator", aggregator),
    )
    return Method(made.init, made.round, made.predictor, made.cost, alone=True, running=made.running, holds=made.holds)


@dataclass(frozen=True, eq=False)
class SplitAdapters:
    """The method itself. The state is that of layerwise methods, with the moments of the server's optimizer.

    Attributes:
        c: how many layers are the clients'.
        own: the server's optimizer, complete but for its rate.
    """

    setup: Setup
    model: Blocks
    c: int
    in_turn: bool
    server_lr: float | None
    own: Mapping[str, Any] | None
    objective: Objective
    aggregate: Callable[..., State]

    @functools.cached_property
    def sides(self) -> tuple[Params, Params]:
        """What the clients train, and what the server does, by place."""
        sides: tuple[Params, Params] = {}, {}
        for place, parameter in self.model.trained().items():
            j = layer_of(place)
            sides[after_layers(name_of(place)) if j is None else j >= self.c][place] = parameter
        return sides

    def init(self, generator: Generator) -> State:
        """Return the state before the first round: adapters by layer, and the classifier."""
        self.model.draw(generator)
        values = {place: p.detach().clone() for place, p in self.model.trained().items()}
        return {**by_layer(values, self.model.num_layers), "memory": {}, "server": {}}

    def round(self, state: State, t: int, cohort: Cohort, generator: Generator) -> tuple[State, Report]:
        """Local steps of all clients side by side, the server's in between, and the mean of the clients' adapters."""
        clients_side, server_side = self.sides
        before = dict(places(state))
        load(server_side, {place: before[place] for place in server_side})
        train = self.setup.train
        server = OwnOptimizer(server_side, self.own or train["optimizer"], state["server"], self._heads)
        start = {place: before[place] for place in clients_side}
        clients = [_Client(self, n, cohort, start, t) for n in range(len(cohort))]
        for k in range(max((client.steps for client in clients), default=0)):
            asked = [client for client in clients if k < client.steps]
            self._step(asked, server, t)
        plan = self.plan(len(cohort))
        uploads = self.setup.receive(self._uploads(clients, cohort), state, plan, cohort, t)
        report = Report(plan, cohort, uploads, [self.cost(0, t)] * len(cohort))
        if not uploads.arrived.any():
            return state, report
        now = {place: p.detach().clone() for place, p in server_side.items()}
        learnt = by_layer({**before, **now}, self.model.num_layers)
        new = self.aggregate({**state, **learnt, "server": server.kept()}, uploads, plan, cohort)
        if FROZEN in new:
            raise NotApplicable("the aggregator adds to frozen weights, which stay as they are where a model is cut")
        return new, report

    @property
    def _heads(self) -> list[nn.Parameter]:
        """The classifier, where the clients' rate for classifiers is the server's, too."""
        own_rate = self.server_lr is None and self.setup.train["optimizer"].get("head_lr") is not None
        return [p for place, p in self.sides[1].items() if own_rate and at_classifier(place)]

    def _step(self, clients: Sequence[_Client], server: OwnOptimizer, t: int) -> None:
        """One batch of each client, and what the server learns of them.

        It takes a step for each, or one along the mean over all their examples (or tokens).
        """
        arriving = [client for client in clients if client.arrives]
        batches = {client.n: next(client.batches) for client in clients}
        whole = sum(counted(batches[client.n][1]) for client in arriving)
        total: dict[str, Tensor] = {}
        for client in clients:
            x, y = batches[client.n]
            gradient = client.step(x, y, t)
            if not client.arrives:
                continue
            if self.in_turn:
                self._learn(server, gradient)
                continue
            for place, g in gradient.items():
                total[place] = total.get(place, 0) + counted(y) / whole * g
        if total:
            self._learn(server, total)

    def _learn(self, server: OwnOptimizer, gradient: Mapping[str, Tensor]) -> None:
        if (most := self.setup.train["clip"]) is not None:
            norm = nn.utils.get_total_norm(list(gradient.values()))
            gradient = {place: g * torch.clamp(most / (norm + 1e-6), max=1.0) for place, g in gradient.items()}
        rates = self.setup.train["optimizer"]
        server.step(gradient, rates["lr"] if self.server_lr is None else self.server_lr, rates.get("head_lr") or 0.0)

    def plan(self, N: int) -> Plan:
        """Everybody has the first layers, and nobody what the server has after the last."""
        M = torch.zeros(N, self.model.num_layers, dtype=torch.bool, device="cpu")
        M[:, : self.c] = True
        after = [name_of(place) for place in self.sides[1] if layer_of(place) is None]
        return Plan(M, [[] for _ in range(N)], frozen=after)

    def _uploads(self, clients: Sequence[_Client], cohort: Cohort) -> Uploads:
        """The clients' adapters; of what the server has no row."""
        rows = {
            place: torch.stack([client.own[place].detach() for client in clients])
            if clients and place in self.sides[0]
            else p.detach().new_empty(0, *p.shape)
            for place, p in self.model.trained().items()
        }
        means = [sum(client.losses) / max(len(client.losses), 1) for client in clients]
        return Uploads.of(
            cohort,
            **by_layer(rows, self.model.num_layers),
            loss=torch.tensor(means, dtype=torch.float64),
            seconds=torch.tensor([client.seconds for client in clients], dtype=torch.float64),
        )

    def predictor(self, state: State, client: int | None = None) -> Predict:
        """Return the model of both sides."""
        values = dict(places(state))
        load(self.model.trained(), {place: values[place] for place in self.model.trained()})
        return full_depth(self.model, state)

    def running(self, size: Any) -> None:
        """No client can answer without the server's layers."""

    def holds(self, L_n: int, t: int, rank: int | None = None) -> Sequence[int]:
        """The first layers, whatever the capacity."""
        return range(self.c)

    def cost(self, L_n: int, t: int) -> ClientCost:
        """Return what a client pays in any round, whatever its capacity."""
        return self._cost

    @functools.cached_property
    def _cost(self) -> ClientCost:
        return split_cost.of_adapters(
            self.model, self.c, self.objective, self.setup.train, self.setup.image_size, server_optimizer=self.own
        )


class _Client:
    """One client in a round: its adapters, its optimizer, which starts afresh, and its batches."""

    def __init__(self, method: SplitAdapters, n: int, cohort: Cohort, start: Mapping[str, Tensor], t: int) -> None:
        self.method, self.n, self.steps = method, n, int(cohort.steps[n])
        self.arrives, self.batches = bool(cohort.arrives[n]), cohort.batches(n)
        self.own = {place: nn.Parameter(value.detach().clone()) for place, value in start.items()}
        self.optimizer = make_optimizer(list(self.own.values()), method.setup.train["optimizer"])
        self.draws = Draws(generator(method.setup.seed, t, cohort.ids[n], "dropout", method.model.device))
        self.losses: list[float] = []
        self.seconds = 0.0

    def step(self, x: Tensor, y: Tensor, t: int) -> dict[str, Tensor]:
        """One local step; returns the gradient of the server's side."""
        began, method = time.perf_counter(), self.method
        (own, server), model = method.sides, method.model
        load(own, self.own)
        for parameter in (*own.values(), *server.values()):
            parameter.grad = None
        seed_dropout(model, self.draws)
        L = model.num_layers
        with method.setup.precision():
            loss = method.objective(model(x, range(L), [Exit(L, HEAD)]), y, t)
            loss.backward()
        seed_dropout(model, None)
        for place, parameter in own.items():
            self.own[place].grad = parameter.grad
        if (clip := method.setup.train["clip"]) is not None:
            nn.utils.clip_grad_norm_(self.own.values(), clip)
        self.optimizer.step()
        gradient = {p: torch.zeros_like(w) if w.grad is None else w.grad for p, w in server.items()}
        for parameter in (*own.values(), *server.values()):
            parameter.grad = None
        self.losses.append(loss.item())
        self.seconds += time.perf_counter() - began
        return gradient
