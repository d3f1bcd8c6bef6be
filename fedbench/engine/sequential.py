"""The oracle: client after client, as a paper would write it. Never optimised; every other engine is tested
against it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fedbench.models.adapter import seed_dropout
from fedbench.models.backbone import Blocks
from fedbench.models.optimizer import make_optimizer
from fedbench.models.places import holds
from fedbench.seeding import generator
from fedbench.types import Cohort, Job, Plan, Pull, Uploads


def train(model: Blocks, start: dict[str, Any], plan: Plan, cohort: Cohort, job: Job) -> Uploads:
    """Let every client of the cohort tune its own copy of r_j, j in S_n, and of its classifiers.

    start: `{"r": [{name: tensor}] * L, "shared": {name: tensor}}`; a tensor with one more axis than its
    parameter is one row for each client that holds it, in order.
    """
    L = model.num_layers
    r: list[dict[str, list[Tensor]]] = [{name: [] for name in start["r"][j]} for j in range(L)]
    shared: dict[str, list[Tensor]] = {name: [] for name in start["shared"]}
    losses, seconds = [], []
    for n in range(len(cohort)):
        began = time.perf_counter()
        S_n = plan.M[n].nonzero().flatten().tolist()
        classifiers = {exit.classifier for exit in plan.exits[n]}
        mine = {name: p for name, p in model.shared().items() if holds(classifiers, name)}
        held = [(model.r(j), start["r"][j], r[j]) for j in S_n] + [(mine, start["shared"], shared)]
        for parameters, values, rows in held:
            _load_row(parameters, values, rows)
        losses.append(_tune(model, S_n, held, plan, cohort, job, n))
        for parameters, _, rows in held:
            for name, parameter in parameters.items():
                rows[name].append(parameter.detach().clone())
        seconds.append(time.perf_counter() - began)
    return Uploads.of(
        cohort,
        r=[_stacked(rows, start["r"][j]) for j, rows in enumerate(r)],
        shared=_stacked(shared, start["shared"]),
        loss=torch.tensor(losses, dtype=torch.float64),
        seconds=torch.tensor(seconds, dtype=torch.float64),
    )


def _tune(model: Blocks, S_n: list[int], held: list, plan: Plan, cohort: Cohort, job: Job, n: int) -> float:
    """Client n's local steps; returns its mean training loss, without the job's pull."""
    trained = [parameter for parameters, _, _ in held for parameter in parameters.values()]
    optimizer = make_optimizer(trained, job.optimizer)
    pull = _term(job.pull, S_n, held)
    seed_dropout(model, generator(job.seed, job.t, cohort.ids[n], "dropout", model.device))
    losses = []
    for _, (x, y) in zip(range(int(cohort.steps[n])), cohort.batches(n), strict=False):
        loss = job.objective(model(x, S_n, plan.exits[n]), y, job.t)
        optimizer.zero_grad()
        (loss + pull()).backward()
        if job.clip is not None:
            nn.utils.clip_grad_norm_(trained, job.clip)
        optimizer.step()
        losses.append(loss.item())
    seed_dropout(model, None)
    return sum(losses) / max(len(losses), 1)


def _term(pull: Pull | None, S_n: list[int], held: list) -> Callable[[], Tensor | float]:
    """What a client adds to its loss, from its parameters as they are: strength / 2 ||w - w_start||^2 - <linear, w>."""
    if pull is None:
        return lambda: 0.0
    linear = [] if pull.linear is None else [*(pull.linear["r"][j] for j in S_n), pull.linear["shared"]]
    terms = []
    for i, (parameters, _, rows) in enumerate(held):
        for name, w in parameters.items():
            g = linear[i][name][len(rows[name])] if linear else 0.0  # the client's own row
            terms.append((w, w.detach().clone(), g))
    return lambda: sum(pull.strength / 2 * ((w - w_start) ** 2).sum() - (g * w).sum() for w, w_start, g in terms)


def _load_row(parameters: dict[str, nn.Parameter], values: dict[str, Tensor], rows: dict[str, list[Tensor]]) -> None:
    with torch.no_grad():
        for name, parameter in parameters.items():
            value = values[name]
            parameter.copy_(value[len(rows[name])] if value.dim() > parameter.dim() else value)


def _stacked(rows: dict[str, list[Tensor]], like: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: torch.stack(tensors) if tensors else like[name].new_empty((0, *like[name].shape))
        for name, tensors in rows.items()
    }
