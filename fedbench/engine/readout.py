"""What is read of many clients' tokens at once: features, and the logits of their classifiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedbench.engine.leaves import Leaves
from fedbench.engine.tokens import Tokens
from fedbench.models.adapter import Stack, stacked
from fedbench.models.backbone import Blocks
from fedbench.models.draws import Draws
from fedbench.models.kernels import linears
from fedbench.types import Plan


@dataclass(frozen=True)
class Answers:
    """What clients say whose batches are of one size B, and who have equally many exits: the logits (n, B, C) of each
    exit, which keep their gradients."""

    clients: list[int]
    exits: list[Tensor]


class ReadOut:
    """The logits of a pass, gathered exit by exit.

    at: by client the depths at which it has classifiers, and their names · found: by client and classifier, where its
    logits stand: in which tensor (n, B, C), and in which row.
    """

    def __init__(self, model: Blocks, leaves: Leaves, plan: Plan, draws: Mapping[int, Draws]) -> None:
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
            for clients in tokens.alike(some):
                features = self._features(tokens, clients)
                for name in names:
                    logits = linears(features, *self.leaves.classifier(name, clients))
                    self.found |= {(n, name): (logits, row) for row, n in enumerate(clients)}

    def _features(self, tokens: Tokens, clients: list[int]) -> Tensor:
        """(n, B, D)"""
        sizes, drawn = [tokens.sizes[n] for n in clients], [tokens.drawn[n] for n in clients]
        draws = [self.draws[n] for n in clients]
        with stacked(self.model, Stack(self.leaves.read_out(clients), sizes, draws, drawn=drawn)):
            features = self.model.features(tokens.of(clients))
        return features.view(len(clients), sizes[0], -1)

    def answers(self, sizes: Mapping[int, int]) -> list[Answers]:
        """Of all clients, those alike together. sizes: their batches'."""
        alike: dict[tuple[int, int], list[int]] = {}
        for n, B in sizes.items():
            alike.setdefault((B, len(self.plan.exits[n])), []).append(n)
        return [
            Answers(clients, [self._exit(clients, i) for i in range(exits)]) for (_, exits), clients in alike.items()
        ]

    def _exit(self, clients: Sequence[int], i: int) -> Tensor:
        """(n, B, C): the logits of every client's i-th exit."""
        found = [self.found[n, self.plan.exits[n][i].classifier] for n in clients]
        first, _ = found[0]
        if [row for whole, row in found if whole is first] == list(range(len(first))) and len(first) == len(found):
            logits = first
        else:
            rows = {id(whole): whole.unbind() for whole, _ in found}
            logits = torch.stack([rows[id(whole)][row] for whole, row in found])
        if logits.requires_grad:
            logits.retain_grad()  # which tells what the objective used
        return logits
