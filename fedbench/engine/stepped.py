"""What is done around an optimiser step of many clients, so that it is to each client's rows what its own would be."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.linalg import vector_norm

from fedbench.engine.leaves import Leaves
from fedbench.engine.readout import Answers
from fedbench.models.places import holds, layer_of, name_of
from fedbench.types import Plan


def clip_each(leaves: Leaves, most: float) -> None:
    """Scale each client's gradient, over all its layers and classifiers, to a norm of at most `most`."""
    theirs = [(tensor.grad, clients) for tensor, _, clients in leaves if tensor.grad is not None and clients]
    norms: dict[int, list[Tensor]] = {}
    for grad, clients in theirs:
        for n, norm in zip(clients, vector_norm(grad.flatten(1), dim=1).unbind(), strict=True):
            norms.setdefault(n, []).append(norm)
    factors: dict[int, Tensor] = {}
    for length in {len(own): 0 for own in norms.values()}:  # clients of equally many tensors at once
        some = [n for n, own in norms.items() if len(own) == length]
        norm = vector_norm(torch.stack([one for n in some for one in norms[n]]).view(len(some), length), dim=1)
        factors |= dict(zip(some, (most / (norm + 1e-6)).clamp(max=1.0).unbind(), strict=True))
    for grad, clients in theirs:
        grad.mul_(torch.stack([factors[n] for n in clients]).view(-1, *[1] * (grad.dim() - 1)))


@contextmanager
def others_frozen(
    leaves: Leaves, plan: Plan, answers: Sequence[Answers], pulled: Collection[str] = ()
) -> Iterator[None]:
    """Around an optimiser step: momentum and weight decay move nothing of a client that has taken all its steps, and
    nothing that its objective did not use, as an optimiser of its own would not.

    answers: of those who take the step, after the backward pass, with their gradients retained · pulled: places that a
    further term of their losses uses.
    """
    used = {
        n: [exit for exit, o in zip(plan.exits[n], alike.exits, strict=True) if o.grad is not None]
        for alike in answers
        for n in alike.clients
    }

    def moves(n: int, place: str) -> bool:
        if place in pulled:
            return n in used
        exits, j = used.get(n, []), layer_of(place)
        if j is None:
            return bool(exits) and holds({exit.classifier for exit in exits}, name_of(place))
        beneath = sum(leaves.held[n][:j])
        return beneath < max((exit.depth for exit in exits), default=0)

    still = []
    for tensor, place, clients in leaves:
        moving = [moves(n, place) for n in clients]
        if not all(moving):
            still.append((tensor.detach(), moving, tensor.detach().clone()))
    masks = leaves.masks
    before = [tensor.detach().clone() for tensor, _, _ in leaves] if masks else []
    yield
    if masks is not None:
        for (tensor, place, clients), kept in zip(leaves, before, strict=True):
            own = tensor.detach()
            own.copy_(torch.where(masks.moving(place, clients, own.dim()), own, kept))
    for tensor, moving, kept in still:
        rows = zip(tensor.unbind(), kept.unbind(), moving, strict=True)
        tensor.copy_(torch.stack([new if moved else old for new, old, moved in rows]))
