"""What a group of clients trains: one tensor for all holders of an adapter, a row for each of them; and what a job's
pull adds to the gradients of these tensors, in closed form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedbench.engine.microbatching import Part
from fedbench.models.backbone import Blocks
from fedbench.models.lowrank import Terms, pairs
from fedbench.models.param_paths import holders, places, trainers
from fedbench.types import Plan, Pull

READ_OUT = ("norm.", "fc_norm.", "attn_pool.", "head")  # timm's modules after the layers begin so


class StackedParams:
    """The trained tensors of a group: of every layer, and of what is shared, one row for each client that trains it.

    Attributes:
        at: by place.
        trainers: whose rows they are.
        fixed, holders: the rows of all that hold a tensor which some of them do not train, and whose they are.
        within, loaded, begun: of tensors that are trained in part, which coordinates of each row are, the rows as
            training began, and as the server gave them.
        held: M, of all clients of the round.
    """

    def __init__(self, model: Blocks, start: dict[str, Any], plan: Plan, group: Sequence[int]) -> None:
        self.trainers: dict[str, list[int]] = {}
        self.at: dict[str, Tensor] = {}
        self.fixed: dict[str, Tensor] = {}
        self.holders: dict[str, list[int]] = {}
        self.within: dict[str, Tensor] = {}
        self.loaded: dict[str, Tensor] = {}
        self.begun: dict[str, Tensor] = {}
        values, terms = dict(places(start)), Terms(model, plan)
        for place, parameter in model.trained().items():
            held, trains = holders(plan, place, group), trainers(plan, place, group)
            rows = begun = _rows(parameter, values[place], held, plan, place)
            if (mask := terms.held(place, held, parameter.dim())) is not None:
                rows = rows * mask
            if trains != held:
                self.fixed[place], self.holders[place] = rows, held
            self.trainers[place] = trains
            self.at[place] = pick(rows, held, trains).detach().clone().contiguous().requires_grad_()
            if (mask := terms.trained(place, trains, parameter.dim())) is not None:
                self.within[place] = mask
                self.loaded[place] = self.at[place].detach().clone()
                self.begun[place] = pick(begun, held, trains)
        self.names = [_within(self.at, f"r/{j}/") for j in range(model.num_layers)]
        self.held: list[list[bool]] = plan.M.tolist()
        self.factors = _factors(model, plan)

    def __iter__(self) -> Iterator[tuple[Tensor, str, list[int]]]:
        """Every tensor with its place, and the clients its rows belong to."""
        yield from ((tensor, place, self.trainers[place]) for place, tensor in self.at.items())

    def rows(self, place: str, clients: Sequence[int]) -> Tensor:
        """The rows of these clients, whether they train the tensor or only hold it, as their models use them."""
        own = self.at[place]
        if place not in self.fixed:
            rows = pick(own, self.trainers[place], clients)
        elif list(clients) == self.trainers[place]:
            rows = own
        else:
            trained, fixed = own.unbind(), self.fixed[place].unbind()
            where, held = self.trainers[place], self.holders[place]
            rows = torch.stack([trained[where.index(n)] if n in where else fixed[held.index(n)] for n in clients])
        if place not in self.factors:
            return rows
        factor = pick(self.factors[place], range(len(self.factors[place])), clients).to(rows.dtype)
        return rows * factor.view(-1, *[1] * (rows.dim() - 1))

    def layer(self, j: int, clients: Sequence[int]) -> dict[str, Tensor]:
        """Layer j's tensors, the rows of these clients."""
        return {name: self.rows(place, clients) for name, place in self.names[j].items()}

    def classifier(self, name: str, clients: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Weights (n, C, D) and biases (n, C) of these clients' classifiers of that name."""
        weight, bias = (self.rows(f"shared/{name}.{part}", clients) for part in ("weight", "bias"))
        return weight, bias

    def outside(self, clients: Sequence[int]) -> dict[str, Tensor]:
        """The adapters that stand in no layer, by their names in the model."""
        return {f"model.{name}": self.rows(place, clients) for name, place in _within(self.at, "shared/model.").items()}

    def read_out(self, clients: Sequence[int]) -> dict[str, Tensor]:
        """Of these, those between the last layer and the classifiers, by their names in the model."""
        late = {f"shared/model.{name}" for name in _within(self.at, "shared/model.") if name.startswith(READ_OUT)}
        return {place.removeprefix("shared/"): self.rows(place, clients) for place in self.at if place in late}

    def lowest(self, n: int) -> int:
        """The lowest layer in which a client trains something; 0 where it trains what stands before all layers."""
        for place in _within(self.at, "shared/model.").values():
            if n in self.trainers[place]:
                return 0
        layers = (j for j, names in enumerate(self.names) if any(n in self.trainers[p] for p in names.values()))
        return next(layers, len(self.names))

    def mask(self) -> None:
        """Take the gradients of what is not trained away."""
        for place, mask in self.within.items():
            if (gradient := self.at[place].grad) is not None:
                gradient.mul_(mask)

    @torch.no_grad()
    def restore(self) -> None:
        """Undo what weight decay did to what is not trained."""
        for place, mask in self.within.items():
            self.at[place].copy_(torch.where(mask, self.at[place], self.loaded[place]))

    def part(self) -> Part:
        """The tensors as they are now, each at its place; what was not trained is as the server gave it."""
        return {
            place: torch.where(self.within[place], tensor.detach(), self.begun[place])
            if place in self.within
            else tensor.detach()
            for place, tensor in self.at.items()
        }


def _rows(parameter: nn.Parameter, value: Tensor, clients: Sequence[int], plan: Plan, place: str) -> Tensor:
    """One row for each of `clients`, of a value that is shared by all, or one row for each client that holds it."""
    if value.dim() == parameter.dim():
        return value.expand(len(clients), *value.shape)
    return pick(value, holders(plan, place), clients)


def _within(values: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """The places that begin so, by what follows."""
    return {place.removeprefix(prefix): place for place in values if place.startswith(prefix)}


def _factors(model: Blocks, plan: Plan) -> dict[str, Tensor]:
    """(N,) by the place of B, where the model is: what stands for a client's own scale of B A where the adapter
    multiplies by alpha / R."""
    return {} if plan.scales is None else {p.B: (plan.scales / p.scaling).to(model.device) for p in pairs(model)}


def pick(tensor: Tensor, holders: Sequence[int], clients: Sequence[int]) -> Tensor:
    """The rows of these clients, of a tensor that has one for each holder."""
    if list(holders) == list(clients):
        return tensor
    if not clients:
        return tensor[:0]
    picked: Tensor = _Picked.apply(tensor, [holders.index(n) for n in clients])
    return picked


class _Picked(torch.autograd.Function):
    """Some rows of a tensor: tensor[which], but that no index is copied to a GPU."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, which: list[int]) -> Tensor:
        ctx.which, ctx.all, rows = which, len(tensor), tensor.unbind()
        return torch.stack([rows[i] for i in which])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        own = dict(zip(ctx.which, grad.unbind(), strict=True))
        none = torch.zeros_like(grad[0])
        return torch.stack([own.get(i, none) for i in range(ctx.all)]), None


@dataclass(frozen=True)
class Tail:
    """The factors A (n, R, ...) and B (n, out, R, ...) of one low-rank adapter, and which of its terms are pulled to
    0, `terms` (n, R) bool."""

    A: Tensor
    B: Tensor
    terms: Tensor

    def add(self, strength: float) -> None:
        """The gradient of strength ||B_tail|| ||A_tail||, client by client; 0 where a norm is 0, as autograd has it."""
        in_A, in_B = self._for_rows(self.A, 1), self._for_rows(self.B, 2)
        A, B = self.A.detach() * in_A, self.B.detach() * in_B
        a, b = (x.flatten(1).norm(dim=1) for x in (A, B))  # (n,)
        for leaf, tail, own, other in ((self.A, A, a, b), (self.B, B, b, a)):
            factor = torch.where(own > 0, strength * other / own.where(own > 0, 1.0), 0.0)
            _add(leaf, tail * factor.view(-1, *[1] * (leaf.dim() - 1)))

    def _for_rows(self, rows: Tensor, axis: int) -> Tensor:
        """The terms as a mask for rows whose axis of terms is `axis`."""
        shape = [len(rows)] + [1] * (rows.dim() - 1)
        shape[axis] = self.terms.shape[1]
        return self.terms.view(shape)


class Pulling:
    """A pull on the tensors of a group. w_start is what they hold as this is made.

    places: of the tensors that it pulls.
    """

    def __init__(self, model: Blocks, leaves: StackedParams, pull: Pull, plan: Plan) -> None:
        self.pull = pull
        self.terms: list[tuple[Tensor, Tensor, Tensor | float]] = []
        self.tails: list[Tail] = []
        self.places: set[str] = set()
        if pull.everywhere:
            linear = dict(places(pull.linear)) if pull.linear else {}
            for place, w in leaves.at.items():
                g = pick(linear[place], trainers(plan, place), leaves.trainers[place]) if linear else 0.0
                self.terms.append((w, w.detach().clone(), g))
            self.places |= leaves.at.keys()
        if pull.tails is not None:
            for pair in pairs(model):
                clients = leaves.trainers[pair.A]
                if clients and clients == leaves.trainers[pair.B]:
                    tail = torch.arange(pair.rank) >= pull.tails[clients, None]  # (n, R)
                    self.tails.append(Tail(leaves.at[pair.A], leaves.at[pair.B], tail.to(model.device)))
                    self.places |= {pair.A, pair.B}

    def add(self) -> None:
        """Add the gradient, strength (w - w_start) - linear and that of the tails, to every tensor's own."""
        for w, w_start, g in self.terms:
            _add(w, self.pull.strength * (w.detach() - w_start) - g)
        for tail in self.tails:
            tail.add(self.pull.tail_strength)


def _add(w: Tensor, gradient: Tensor) -> None:
    w.grad = gradient if w.grad is None else w.grad.add_(gradient)
