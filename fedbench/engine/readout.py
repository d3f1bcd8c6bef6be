"""The tokens of many clients between the layers, and what is read of them: features, logits and losses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedbench.engine.stacked_params import StackedParams
from fedbench.models.adapter import Stack, stacked
from fedbench.models.backbone import Blocks
from fedbench.models.draws import Draws
from fedbench.models.kernels import linears
from fedbench.models.layered import Mask, Packing
from fedbench.models.tokens import UNCOUNTED, TokenStates
from fedbench.types import Objective, Plan


@dataclass(frozen=True, eq=False)
class Together:
    """What several clients got in one pass: their rows (B_1 + ... + B_n, T, D), one client's after the other's."""

    clients: tuple[int, ...]
    sizes: tuple[int, ...]
    rows: Tensor

    @cached_property
    def parts(self) -> dict[int, Tensor]:
        return dict(zip(self.clients, self.rows.split(self.sizes), strict=True))


class Tokens:
    """The tokens of every client as they are now."""

    def __init__(self, sizes: dict[int, int], lengths: dict[int, int] | None = None) -> None:
        """Args:
        sizes: B_n of every client.
        lengths: of texts, T_n of every client, before they were made equal.
        """
        self.sizes, self.lengths = sizes, lengths
        self.at: dict[int, Together] = {}
        self.masks: Tokens | None = None
        self.packing: Packing | None = None

    def put(self, clients: Sequence[int], rows: Tensor, mask: Mask = None) -> None:
        """What these clients got of a pass, and before the first layer of texts, which of it are tokens."""
        made = Together(tuple(clients), tuple(self.sizes[n] for n in clients), rows)
        self.at |= dict.fromkeys(clients, made)
        if isinstance(mask, Packing):
            self.packing = mask
        elif mask is not None:
            self.masks = Tokens(self.sizes)
            self.masks.put(clients, mask)

    def of(self, clients: Sequence[int]) -> Tensor:
        """(B_1 + ... + B_n, T, D): these clients' rows, copied only where they were not together."""
        first = self.at[clients[0]]
        if first.clients == tuple(clients) and all(self.at[n] is first for n in clients):
            return first.rows
        return joined([self.at[n].parts[n] for n in clients])

    def mask_of(self, clients: Sequence[int]) -> Mask:
        """(B_1 + ... + B_n, T) bool: which are tokens of these clients' texts; None for images. Where texts are packed,
        which is done for one client alone, their packing."""
        return self.packing or (None if self.masks is None else self.masks.of(clients))

    def lengths_of(self, clients: Sequence[int]) -> list[int] | None:
        """T_n of these clients; None for images."""
        return None if self.lengths is None else [self.lengths[n] for n in clients]

    def in_equal_groups(self, clients: Sequence[int]) -> list[list[int]]:
        """The clients in groups that have equally many rows of equally many tokens each."""
        groups: dict[Any, list[int]] = {}
        for n in clients:
            groups.setdefault((self.sizes[n], self.at[n].rows.shape[1]), []).append(n)
        return list(groups.values())


def joined(parts: Sequence[Tensor]) -> Tensor:
    """The parts one after the other."""
    joint: Tensor = parts[0] if len(parts) == 1 else _Joined.apply(*parts)
    return joint


class _Joined(torch.autograd.Function):
    """torch.cat, whose gradient is cut in one operation rather than in as many as there are parts."""

    @staticmethod
    def forward(ctx: Any, *parts: Tensor) -> Tensor:
        ctx.sizes = [len(part) for part in parts]
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        return grad.split(ctx.sizes)


@dataclass(frozen=True)
class Answers:
    """The answers of clients with batches of one size B and equally many exits: the logits (n, B, C) of each
    exit, which keep their gradients. Of next tokens what the head (V, D) reads of them, (n, B, T, D)."""

    clients: list[int]
    exits: list[Tensor]
    head: Tensor | None = None

    def of_each(self) -> Iterator[list[Any]]:
        """Client by client what an objective takes."""
        for own in zip(*(o.unbind() for o in self.exits), strict=True):
            yield list(own) if self.head is None else [TokenStates(o, self.head) for o in own]

    def labels(self, y: Mapping[int, Tensor]) -> Tensor:
        """(n, B) of classes, or (n, B, T) of next tokens, behind which there is nothing that counts."""
        own = [y[n] for n in self.clients]
        if self.head is not None:
            T = self.exits[0].shape[2]
            own = [pad(tokens, (0, T - tokens.shape[1]), value=UNCOUNTED) for tokens in own]
        return torch.stack(own)


class ReadOut:
    """The logits of a pass, gathered exit by exit.

    Attributes:
        at: by client the depths at which it has classifiers, and their names.
        found: by client and classifier, where its logits stand: in which tensor (n, B, C), and in which row.
    """

    def __init__(self, model: Blocks, leaves: StackedParams, plan: Plan, draws: Mapping[int, Draws]) -> None:
        self.model, self.leaves, self.plan, self.draws = model, leaves, plan, draws
        self.found: dict[tuple[int, str], tuple[Tensor, int]] = {}

    def read(self, tokens: Tokens, depths: Mapping[int, int]) -> None:
        """Ask the classifiers that these clients have at their depths: all clients with the same ones at once."""
        asked: dict[tuple[str, ...], list[int]] = {}
        for n, depth in depths.items():
            names = tuple(exit.classifier for exit in self.plan.exits[n] if exit.depth == depth)
            if names:
                asked.setdefault(names, []).append(n)
        for names, some in asked.items():
            for clients in tokens.in_equal_groups(some):
                features = self._features(tokens, clients)
                for name in names:
                    logits = features
                    if not self.model.predicts_tokens:
                        logits = linears(features, *self.leaves.classifier(name, clients))
                    self.found |= {(n, name): (logits, row) for row, n in enumerate(clients)}

    def _features(self, tokens: Tokens, clients: list[int]) -> Tensor:
        """(n, B, D), or (n, B, T, D) where every token is read."""
        sizes, draws = [tokens.sizes[n] for n in clients], [self.draws[n] for n in clients]
        stack = Stack(self.leaves.read_out(clients), sizes, draws, lengths=tokens.lengths_of(clients))
        with stacked(self.model, stack):
            features = self.model.features(tokens.of(clients), tokens.mask_of(clients))
        return features.view(len(clients), sizes[0], *features.shape[1:])

    def answers(self, sizes: Mapping[int, int]) -> list[Answers]:
        """Of all clients, those of equal sizes and exits together. sizes: their batches'."""
        groups: dict[tuple[int, int], list[int]] = {}
        for n, B in sizes.items():
            groups.setdefault((B, len(self.plan.exits[n])), []).append(n)
        head = self.model.decoder.vocabulary if self.model.predicts_tokens else None
        return [
            Answers(clients, [self._exit(clients, i) for i in range(exits)], head)
            for (_, exits), clients in groups.items()
        ]

    def _exit(self, clients: Sequence[int], i: int) -> Tensor:
        """(n, B, C): the logits of every client's i-th exit; of next tokens what the head reads, (n, B, T, D)."""
        found = [self.found[n, self.plan.exits[n][i].classifier] for n in clients]
        first, _ = found[0]
        if [row for whole, row in found if whole is first] == list(range(len(first))) and len(first) == len(found):
            logits = first
        else:
            rows = {id(whole): whole.unbind() for whole, _ in found}
            logits = torch.stack([rows[id(whole)][row] for whole, row in found])
        if logits.requires_grad:
            logits.retain_grad()  # which shows what the objective used
        return logits


def losses_of(objective: Objective, answers: Sequence[Answers], y: Mapping[int, Tensor], t: int) -> Tensor:
    """(n,) the loss of each client, in the order of y: the labels (B_n,) of each, or its next tokens (B_n, T_n).

    An objective that has a function of many clients' exits (n, B, C) and labels (n, B), `objective.stacked`, is called
    once for clients with equal batch sizes and numbers of exits. Any other is called client by client.
    """
    found: dict[int, Tensor] = {}
    for answer in answers:
        labels = answer.labels(y)
        stacked = getattr(objective, "stacked", None) if len(labels) > 1 else None
        each = _one_by_one(objective, answer, labels, t) if stacked is None else stacked(answer.exits, labels, t)
        if answer.clients == list(y):
            return each
        found |= dict(zip(answer.clients, each.unbind(), strict=True))
    return torch.stack([found[n] for n in y])


def _one_by_one(objective: Objective, answer: Answers, y: Tensor, t: int) -> Tensor:
    rows = answer.of_each()
    return torch.stack([objective(own, labels, t) for own, labels in zip(rows, y.unbind(), strict=True)])
