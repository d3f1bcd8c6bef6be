"""Batches of uneven sizes made even on a GPU, so that what is done for all clients is one operation all the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from fedbench.engine.readout import Answers
from fedbench.models.adapter import filled_up

FILLED = 1.25  # times the rows that there are, at most: beyond that, computing them costs more than it saves


def together(x: Mapping[int, Tensor]) -> tuple[Tensor, dict[int, int]]:
    """The clients' batches (B_n, ...) one after the other, and how many rows each of them has there: as many as the
    largest, where short ones are filled up."""
    sizes = {n: len(part) for n, part in x.items()}
    parts, most = list(x.values()), max(sizes.values())
    if not fills(list(sizes.values()), parts[0]):
        return torch.cat(parts), sizes
    return filled_up(parts, most), dict.fromkeys(sizes, most)


def fills(sizes: Sequence[int], x: Tensor) -> bool:
    """Whether batches of such sizes are to be filled up: on a CPU, whose numbers stay as they are to the bit, never."""
    return x.is_cuda and len(set(sizes)) > 1 and max(sizes) * len(sizes) <= FILLED * sum(sizes)


def read(answers: Sequence[Answers], y: Mapping[int, Tensor]) -> Iterator[Answers]:
    """The same without what was filled up: clients of one batch size at a time. y: labels (B_n,)."""
    for alike in answers:
        groups: dict[int, list[int]] = {}
        for row, n in enumerate(alike.clients):
            groups.setdefault(len(y[n]), []).append(row)
        if all(list(groups) == [o.shape[1]] for o in alike.exits):
            yield alike
            continue
        each = [o.unbind() for o in alike.exits]
        for B, which in groups.items():
            exits = [torch.stack([rows[i] for i in which])[:, :B] for rows in each]
            yield Answers([alike.clients[i] for i in which], exits)
