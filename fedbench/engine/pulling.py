"""What a job's pull adds to the gradients of a group's stacked tensors, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedbench.engine.leaves import Leaves, pick
from fedbench.models.backbone import Blocks
from fedbench.models.lowrank import pairs
from fedbench.models.places import places, trainers
from fedbench.types import Plan, Pull


@dataclass(frozen=True)
class Tail:
    """The factors A (n, R, ...) and B (n, out, R, ...) of one low-rank adapter, and which of its terms are pulled to
    0, `terms` (n, R) bool."""

    A: Tensor
    B: Tensor
    terms: Tensor

    def add(self, strength: float) -> None:
        """The gradient of strength ||B_tail|| ||A_tail||, client by client; 0 where a norm is 0, as autograd has it."""
        in_A, in_B = self._beside(self.A, 1), self._beside(self.B, 2)
        A, B = self.A.detach() * in_A, self.B.detach() * in_B
        a, b = (x.flatten(1).norm(dim=1) for x in (A, B))  # (n,)
        for leaf, tail, own, other in ((self.A, A, a, b), (self.B, B, b, a)):
            factor = torch.where(own > 0, strength * other / own.where(own > 0, 1.0), 0.0)
            _add(leaf, tail * factor.view(-1, *[1] * (leaf.dim() - 1)))

    def _beside(self, rows: Tensor, axis: int) -> Tensor:
        """The terms as a mask beside rows whose axis of terms is `axis`."""
        shape = [len(rows)] + [1] * (rows.dim() - 1)
        shape[axis] = self.terms.shape[1]
        return self.terms.view(shape)


class Pulling:
    """A pull on the tensors of a group. w_start is what they hold as this is made.

    places: of the tensors that it pulls.
    """

    def __init__(self, model: Blocks, leaves: Leaves, pull: Pull, plan: Plan) -> None:
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

    def begin(self) -> None:
        """What the tensors hold now is w_start."""
        for w, w_start, _ in self.terms:
            w_start.copy_(w.detach())

    def add(self) -> None:
        """Add the gradient, strength (w - w_start) - linear and that of the tails, to every tensor's own."""
        for w, w_start, g in self.terms:
            _add(w, self.pull.strength * (w.detach() - w_start) - g)
        for tail in self.tails:
            tail.add(self.pull.tail_strength)


def _add(w: Tensor, gradient: Tensor) -> None:
    w.grad = gradient if w.grad is None else w.grad.add_(gradient)
