"""Which clients of a round step together: a function of the plan and the batches alone (on a GPU of its free
memory too), never of the machine's load or number of cores, so that equal CPUs give equal bits."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedbench.models.places import by_layer, trainers
from fedbench.types import Cohort, Plan, Uploads

# Token rows (images x tokens) of one pass on a CPU. Fewer leave time to Python, more fall out of its caches.
ROWS = 2080

# What a group sends back: `r/3/attn.proj.lora_A` and `shared/head.weight`, one row for each client that trains it,
# in order, and `loss` and `seconds`, one value for each of its clients.
Part = dict[str, Tensor]


def grouped(work: Sequence[float], rows: Sequence[int], most: int) -> list[list[int]]:
    """The clients dealt to as few groups as hold at most `most` rows each, equal in work as far as possible.

    work, rows: of every client. The one with most work comes first, to the group with least work that has room; a
    client of more rows than that stands alone. Returns positions, ascending within a group.
    """
    groups: list[list[int]] = [[] for _ in range(-(-sum(rows) // most))]
    load, filled = [0.0 for _ in groups], [0 for _ in groups]  # what each has of work and rows
    for n in sorted(range(len(work)), key=lambda n: -work[n]):
        room = [k for k, group in enumerate(groups) if not group or filled[k] + rows[n] <= most]
        if not room:
            room = [len(groups)]
            groups.append([])
            load.append(0.0)
            filled.append(0)
        k = min(room, key=load.__getitem__)
        groups[k].append(n)
        load[k] += work[n]
        filled[k] += rows[n]
    return [sorted(group) for group in groups if group]


def joined(parts: Sequence[Part], groups: Sequence[Sequence[int]], plan: Plan, cohort: Cohort) -> Uploads:
    """The parts of all groups as one upload, rows in the order of the clients."""
    whole = merged(parts, groups, plan)
    sent = {place: rows for place, rows in whole.items() if "/" in place}
    return Uploads.of(cohort, **by_layer(sent, plan.M.shape[1]), loss=whole["loss"], seconds=whole["seconds"])


def merged(parts: Sequence[Part], groups: Sequence[Sequence[int]], plan: Plan) -> Part:
    """The parts of some groups as that of one group, rows in the order of the clients."""

    def rows_of(place: str) -> Tensor:
        clients = [n for group in groups for n in (trainers(plan, place, group) if "/" in place else group)]
        rows = torch.cat([part[place] for part in parts])
        return rows[torch.tensor(clients, device=rows.device).argsort()]

    return parts[0] if len(parts) == 1 else {place: rows_of(place) for place in parts[0]}
