"""What a group of clients trains: one tensor for all holders of an adapter, a row for each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedbench.engine.groups import Part
from fedbench.models.backbone import Blocks
from fedbench.models.lowrank import Terms, pairs
from fedbench.models.places import holders, layer_of, places, trainers
from fedbench.types import Plan

READ_OUT = ("norm.", "fc_norm.", "attn_pool.", "head")  # timm's modules after the layers begin so


@dataclass(frozen=True)
class Masks:
    """Of a step that stands, which all clients take through all layers: what of it is theirs.

    layers: (N, L) bool, M · active: (N,) bool, who has not finished yet.
    """

    layers: Tensor
    active: Tensor

    def passed(self, j: int, sizes: Sequence[int], out: Tensor, before: Tensor) -> Tensor:
        """What clients have after layer j, which gave `out` (B_1 + ... + B_N, T, D): those that do not hold it have
        what they had."""
        held = self.layers[:, j].split(1)
        rows = torch.cat([one.expand(B) for one, B in zip(held, sizes, strict=True)])
        return torch.where(rows.view(-1, 1, 1), out, before[:, : out.shape[1]])

    def moving(self, place: str, clients: Sequence[int], dim: int) -> Tensor:
        """(n, 1, ...) bool: whose rows of the tensor at `place` a step may move."""
        j = layer_of(place)
        mask = self.active if j is None else self.active & self.layers[:, j]
        return pick(mask, range(len(mask)), clients).view(-1, *[1] * (dim - 1))


class Leaves:
    """The trained tensors of a group: of every layer, and of what is shared, one row for each client that trains it.

    at: by place · trainers: whose rows they are · fixed, holders: the rows of all that hold a tensor which some of them
    do not train, and whose they are · within, loaded, begun: of tensors that are trained in part, which coordinates of
    each row are, the rows as training began, and as the server gave them · held: M, of all clients of the round ·
    masks: where a step stands, what of it is whose.
    """

    masks: Masks | None = None

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
