"""The oracle: client after client, as a paper would write it. Never optimised; every other engine is tested
against it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.linalg import vector_norm

from fedbench.engine.forward import ForwardClient
from fedbench.models.adapter import seed_dropout
from fedbench.models.backbone import Blocks
from fedbench.models.draws import Draws
from fedbench.models.lowrank import FROZEN, Terms, load_additions, pairs, scaled
from fedbench.models.optimizer import make_optimizer
from fedbench.models.param_paths import at_classifier, by_layer, holders, layer_of, places, trained_by
from fedbench.models.tokens import counted
from fedbench.seeding import generator
from fedbench.types import Cohort, Exit, Job, Plan, Pull, Uploads


@dataclass(frozen=True)
class TrainedParam:
    """A parameter that a client trains.

    Attributes:
        begun: its value in what the server gave.
        loaded: its value as training began, 0 where the client does not hold a coordinate.
        within: which coordinates it trains, where not all.
    """

    parameter: nn.Parameter
    begun: Tensor
    loaded: Tensor
    within: Tensor | None

    def mask(self) -> None:
        """Take the gradient of what is not trained away."""
        if self.within is not None and self.parameter.grad is not None:
            self.parameter.grad.mul_(self.within)

    @torch.no_grad()
    def restore(self) -> None:
        """Undo what weight decay did to what is not trained."""
        if self.within is not None:
            self.parameter.copy_(torch.where(self.within, self.parameter, self.loaded))

    def sent(self) -> Tensor:
        """What the client sends: what it did not train is as the server gave it."""
        value = self.parameter.detach()
        return value.clone() if self.within is None else torch.where(self.within, value, self.begun)


def train(model: Blocks, start: dict[str, Any], plan: Plan, cohort: Cohort, job: Job) -> Uploads:
    """Let every client of the cohort tune its own copy of r_j, j in S_n, and of its classifiers.

    start: `{"r": [{name: tensor}] * L, "shared": {name: tensor}}`; a tensor with one more axis than its
    parameter is one row for each client that holds it, in order. `frozen`, if there: additions to the frozen weights,
    see `fedbench.models.lowrank`.
    """
    load_additions(model, start.get(FROZEN))
    parameters, begun, terms = model.trained(), dict(places(start)), Terms(model, plan)
    held = {place: holders(plan, place) for place in parameters}
    trains = {place: trained_by(plan, place) for place in parameters}
    rows: dict[str, list[Tensor]] = {place: [] for place in parameters}
    losses, seconds = [], []
    for n in range(len(cohort)):
        began = time.perf_counter()
        mine = {}
        for place, parameter in parameters.items():
            if n in held[place]:
                value = begun[place][held[place].index(n)] if begun[place].dim() > parameter.dim() else begun[place]
                _load(parameter, value, terms.held(place, [n], value.dim()))
                if trains[place][n]:
                    within = terms.trained(place, [n], value.dim())
                    mine[place] = TrainedParam(
                        parameter, value, parameter.detach().clone(), None if within is None else within[0]
                    )
        if job.forward is None:
            losses.append(_tune(model, mine, rows, plan, cohort, job, n))
        else:
            losses.append(job.forward(_forward_client(model, mine, plan, cohort, job, n)))
            seed_dropout(model, None)
        for place, tuned in mine.items():
            rows[place].append(tuned.sent())
        seconds.append(time.perf_counter() - began)
    sent = {place: torch.stack(own) if own else _none(parameters[place]) for place, own in rows.items()}
    return Uploads.of(
        cohort,
        **by_layer(sent, model.num_layers),
        loss=torch.tensor(losses, dtype=torch.float64),
        seconds=torch.tensor(seconds, dtype=torch.float64),
        coordinates=terms.of_uploads(sent),
    )


def _tune(
    model: Blocks,
    mine: Mapping[str, TrainedParam],
    rows: Mapping[str, list],
    plan: Plan,
    cohort: Cohort,
    job: Job,
    n: int,
) -> float:
    """Client n's local steps; returns its mean training loss, without the job's pull."""
    S_n, trained = plan.M[n].nonzero().flatten().tolist(), [tuned.parameter for tuned in mine.values()]
    heads = [tuned.parameter for place, tuned in mine.items() if at_classifier(place)]
    optimizer = make_optimizer(trained, job.optimizer, heads=heads) if trained else None
    pull, tail = _term(job.pull, mine, rows), _tail(model, job.pull, mine, n)
    draws = Draws(generator(job.seed, job.t, cohort.ids[n], "dropout", model.device))
    seed_dropout(model, draws)
    model.recomputes = [draws] if job.checkpointing else None
    losses = []
    with scaled(model, None if plan.scales is None else float(plan.scales[n])):
        for step, (x, y) in zip(range(int(cohort.steps[n])), cohort.batches(n), strict=False):
            run, exits = (S_n, plan.exits[n]) if job.layers is None else _of_batch(job.layers(n, step), plan.exits[n])
            model.zero_grad()
            losses.append(0.0)
            for part in draws.parts(len(y), job.micro_batch):
                own, is_last = y[part], part.stop == len(y)
                loss = counted(own) / counted(y) * job.objective(model(x[part], run, exits), own, job.t)
                losses[-1] += loss.item()
                if optimizer is not None:
                    (loss + pull(run) + tail() if is_last else loss).backward()
            if optimizer is None:  # it trains nothing in this round
                continue
            for tuned in mine.values():
                tuned.mask()
            if job.clip is not None:
                nn.utils.clip_grad_norm_(trained, job.clip)
            optimizer.step()
            for tuned in mine.values():
                tuned.restore()
    seed_dropout(model, None)
    model.recomputes = None
    return sum(losses) / max(len(losses), 1)


def _of_batch(layers: Sequence[int], exits: Sequence[Exit]) -> tuple[Sequence[int], Sequence[Exit]]:
    """These layers, with the deepest classifier behind the last of them."""
    return layers, [Exit(len(layers), max(exits, key=lambda exit: exit.depth).classifier)]


def _forward_client(
    model: Blocks, mine: Mapping[str, TrainedParam], plan: Plan, cohort: Cohort, job: Job, n: int
) -> ForwardClient:
    """Client n, for a rule of forward passes alone."""

    def mask() -> None:
        for tuned in mine.values():
            tuned.restore()

    return ForwardClient(
        model=model,
        parameters={place: tuned.parameter for place, tuned in mine.items()},
        mask=mask,
        layers=plan.M[n].nonzero().flatten().tolist(),
        exits=plan.exits[n],
        job=job,
        id=int(cohort.ids[n]),
        scale=None if plan.scales is None else float(plan.scales[n]),
        draws=Draws(generator(job.seed, job.t, cohort.ids[n], "dropout", model.device)),
        steps=int(cohort.steps[n]),
        batches=lambda: itertools.islice(cohort.batches(n), int(cohort.steps[n])),
    )


def _term(
    pull: Pull | None, mine: Mapping[str, TrainedParam], rows: Mapping[str, list]
) -> Callable[[Sequence[int]], Tensor | float]:
    """What a client adds to its loss, from its parameters as they are, outside the layers and in those that a batch
    runs: strength / 2 ||w - w_start||^2 - <linear, w>."""
    if pull is None or not pull.everywhere:
        return lambda run: 0.0
    linear = {} if pull.linear is None else dict(places(pull.linear))
    terms = [
        (layer_of(place), tuned.parameter, tuned.loaded, linear[place][len(rows[place])] if linear else 0.0)
        for place, tuned in mine.items()  # with the client's own row
    ]
    return lambda run: sum(
        pull.strength / 2 * ((w - w_start) ** 2).sum() - (g * w).sum()
        for j, w, w_start, g in terms
        if j is None or j in run
    )


def _tail(model: Blocks, pull: Pull | None, mine: Mapping[str, TrainedParam], n: int) -> Callable[[], Tensor | float]:
    """tail_strength sum ||B[:, c_n:]||_F ||A[c_n:, :]||_F of client n, from its factors as they are."""
    if pull is None or pull.tails is None:
        return lambda: 0.0
    c_n, strength = int(pull.tails[n]), pull.tail_strength
    factors = [(mine[p.A].parameter, mine[p.B].parameter) for p in pairs(model) if p.A in mine and p.B in mine]
    return lambda: strength * sum(vector_norm(B[:, c_n:]) * vector_norm(A[c_n:]) for A, B in factors)


@torch.no_grad()
def _load(parameter: nn.Parameter, value: Tensor, held: Tensor | None) -> None:
    """held: (1, ...) bool, which coordinates the client holds, where not all."""
    parameter.copy_(value if held is None else value * held[0])


def _none(like: Tensor) -> Tensor:
    return like.detach().new_empty((0, *like.shape))
