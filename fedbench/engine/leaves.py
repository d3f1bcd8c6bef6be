"""What a group of clients trains: one tensor for all holders of an adapter, and what is done to each client's rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fedbench.engine.groups import Part
from fedbench.models.backbone import Blocks
from fedbench.models.places import holders, holds
from fedbench.types import Plan, Pull


class Leaves:
    """The trained tensors of a group: of every layer, and of what is shared, one row for each client that holds it."""

    def __init__(self, model: Blocks, start: dict[str, Any], plan: Plan, group: Sequence[int]) -> None:
        trained = [(f"r/{j}", model.r(j), start["r"][j]) for j in range(model.num_layers)]
        trained += [(f"shared/{name}", {name: p}, start["shared"]) for name, p in model.shared().items()]
        self.holders = {place: holders(plan, place, group) for place, _, _ in trained}
        self.at = {
            place: _rows(parameters, values, self.holders[place], holders(plan, place))
            for place, parameters, values in trained
        }

    def __iter__(self) -> Iterator[tuple[Tensor, str, list[int]]]:
        """Every tensor with its place, and the clients its rows belong to."""
        for place, tensors in self.at.items():
            yield from ((tensor, place, self.holders[place]) for tensor in tensors.values())

    def layer(self, j: int, clients: Sequence[int]) -> dict[str, Tensor]:
        """Layer j's tensors, the rows of these clients."""
        place = f"r/{j}"
        return {name: _pick(tensor, self.holders[place], clients) for name, tensor in self.at[place].items()}

    def classifier(self, name: str, client: int) -> tuple[Tensor, Tensor]:
        """Weight (C, D) and bias (C,) of one client's classifier."""
        row = self.holders[f"shared/{name}.weight"].index(client)
        weight, bias = (self.at[f"shared/{name}.{part}"][f"{name}.{part}"][row] for part in ("weight", "bias"))
        return weight, bias

    def outside(self, clients: Sequence[int]) -> dict[str, Tensor]:
        """The adapters that stand in no layer, by their names in the model."""
        return {
            name: _pick(tensor, self.holders[place], clients)
            for place, tensors in self.at.items()
            for name, tensor in tensors.items()
            if place.startswith("shared/model.")
        }

    def part(self) -> Part:
        """The tensors as they are now, each at its place."""
        layers = {f"{place}/{name}": t for place, ts in self.at.items() for name, t in ts.items() if place[0] == "r"}
        shared = {place: t for place, ts in self.at.items() for t in ts.values() if place[0] == "s"}
        return {place: tensor.detach() for place, tensor in (layers | shared).items()}


def clip_each(leaves: Leaves, most: float) -> None:
    """Scale each client's gradient, over all its layers and classifiers, to a norm of at most `most`."""
    rows: dict[int, list[Tensor]] = {}
    for tensor, _, clients in leaves:
        if tensor.grad is not None:
            for n, row in zip(clients, tensor.grad, strict=True):
                rows.setdefault(n, []).append(row)
    for own in rows.values():
        norm = torch.stack(torch._foreach_norm(own)).norm()
        torch._foreach_mul_(own, (most / (norm + 1e-6)).clamp(max=1.0))


def pulling(leaves: Leaves, pull: Pull, plan: Plan) -> Callable[[], None]:
    """A function that adds the gradient of a pull, strength (w - w_start) - linear, to every tensor's own. w_start is
    what the tensors hold now."""
    terms = []
    for place, tensors in leaves.at.items():
        linear = _of_place(pull.linear, place) if pull.linear else {}
        for name, w in tensors.items():
            g = _pick(linear[name], holders(plan, place), leaves.holders[place]) if linear else 0.0
            terms.append((w, w.detach().clone(), g))

    def add() -> None:
        for w, w_start, g in terms:
            gradient = pull.strength * (w.detach() - w_start) - g
            w.grad = gradient if w.grad is None else w.grad.add_(gradient)

    return add


@contextmanager
def others_frozen(
    leaves: Leaves, plan: Plan, logits: Mapping[int, Sequence[Tensor]], pulled: bool = False
) -> Iterator[None]:
    """Around an optimiser step: momentum and weight decay move nothing of a client that has taken all its steps, and
    nothing that its objective did not use, as an optimiser of its own would not.

    logits: of those who take the step, after the backward pass, with their gradients retained · pulled: whether their
    losses have a term that uses all they hold.
    """
    used = {
        n: [exit for exit, o in zip(plan.exits[n], own, strict=True) if o.grad is not None] for n, own in logits.items()
    }

    beneath = (plan.M.cumsum(1) - plan.M.long()).tolist()  # how many layers each client holds below each

    def moves(n: int, place: str) -> bool:
        if pulled:
            return n in used
        exits, (kind, _, rest) = used.get(n, []), place.partition("/")
        if kind == "shared":
            return bool(exits) and holds({exit.classifier for exit in exits}, rest)
        return beneath[n][int(rest)] < max((exit.depth for exit in exits), default=0)

    still = [
        tensor.detach()[row]
        for tensor, place, clients in leaves
        for row, n in enumerate(clients)
        if not moves(n, place)
    ]
    kept = [row.clone() for row in still]
    yield
    for row, values in zip(still, kept, strict=True):
        row.copy_(values)


def _rows(
    parameters: dict[str, nn.Parameter], values: dict[str, Tensor], clients: Sequence[int], of: Sequence[int]
) -> dict[str, Tensor]:
    """One trainable row for each of `clients`, from values that are shared by all or one row for each client in
    `of`."""
    rows = {}
    for name, parameter in parameters.items():
        value = values[name]
        if value.dim() == parameter.dim():
            value = value.expand(len(clients), *value.shape)
        else:
            value = _pick(value, of, clients)
        rows[name] = value.detach().clone().contiguous().requires_grad_()
    return rows


def _of_place(values: Mapping[str, Any], place: str) -> Mapping[str, Tensor]:
    kind, _, rest = place.partition("/")
    return values["r"][int(rest)] if kind == "r" else values["shared"]


def _pick(tensor: Tensor, holders: Sequence[int], clients: Sequence[int]) -> Tensor:
    if list(holders) == list(clients):
        return tensor
    rows = tensor.unbind()  # no index is copied to a GPU
    return torch.stack([rows[holders.index(n)] for n in clients]) if clients else tensor[:0]
