"""FwdLLM: perturbed inferences, of directions near the last gradient, until they agree (Xu et al., USENIX ATC 2024,
arXiv 2308.13894)."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fedbench import hookimpl
from fedbench.families.forward_only import Direction, ForwardClient, part, put
from fedbench.families.layerwise import ForwardOnly, Steps, layerwise
from fedbench.method import Method, Ref, Setup, State
from fedbench.models.backbone import in_layers
from fedbench.models.forward_cost import ForwardPasses
from fedbench.models.param_paths import mapped, places
from fedbench.options import Count, NotNegative, Positive, judged
from fedbench.types import Cohort, Plan, Uploads

OLD, POOL = "old_grad", "cached_v"  # in the state's memory: the last gradient, and (sum, count) of rounds that wait


@judged("fwdllm")
def fwdllm(
    setup: Setup,
    h: Positive = 0.01,
    var_threshold: NotNegative = 0.1,
    candidates: Count = 10,
    server_lr: Positive | None = None,
    objective: Ref = "cross_entropy",
) -> Method:
    """Clients send the mean of (L(w + h v) - L(w - h v)) / (2 h) v over their batches, one direction v for each; the
    server steps along the mean once the estimates agree, and else asks for more at the same w.

    Once there is a last gradient, a client draws `candidates` directions for each tensor and batch, and keeps the ones
    of the highest cosine similarity to it, as many as it has batches. Of all estimates at this w, the variance between
    the means of two halves, meant over the coordinates, decides: above var_threshold they are kept, w stays, and the
    next round adds more.

    h, the threshold (`var_threthod`) and 10 candidates are those of the released code for DistilBERT
    (UbiquitousLearning/FwdLLM at 36ecdbc). server_lr: of the server's step; None for the suite's `train.optimizer.lr`.
    Ours: a half has every other client, over all tensors, where the code has the earlier estimates of one layer in one
    half and the later ones in the other; the mean is over directions, where the code divides their sum by the number of
    examples; rates follow `train.optimizer.schedule`, and momentum, weight decay, `head_lr`, clipping and dropout have
    no say. Gradients are charged as they travel in the code: up, and the last one down with adapters and classifier.
    """
    L = in_layers(setup.backbone).num_layers

    def steps(state: State, plan: Plan, cohort: Cohort, t: int) -> Steps:
        old = dict(places(state["memory"][OLD])) if OLD in state["memory"] else {}

        def take(client: ForwardClient) -> float:
            begun = {place: p.detach().clone() for place, p in client.parameters.items()}
            total = {place: torch.zeros_like(p) for place, p in begun.items()}
            of_all = [Direction(setup.seed, t, client.id, c) for c in range(candidates * client.steps)]
            chosen = {place: nearest(begun[place], place, of_all, old.get(place), client.steps) for place in begun}
            losses = []
            for i, batch in enumerate(client.batches()):
                v = {place: part(chosen[place][i], place, begun[place]) for place in begun}
                around = []
                for sign in (1, -1):
                    put(client, {place: begun[place] + sign * h * v[place] for place in begun})
                    around.append(client.loss(batch))
                for place, g in total.items():
                    g.add_(v[place], alpha=(around[0] - around[1]) / (2 * h * client.steps))
                losses.append(sum(around) / 2)
            put(client, {place: begun[place] - total[place] for place in begun})
            return sum(losses) / max(len(losses), 1)

        return take

    def aggregate(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        memory = dict(state["memory"])
        pool = pooled(state, uploads, cohort, memory.pop(POOL, None))
        if disagreement(pool) > var_threshold:
            return {**state, "memory": {**memory, POOL: pool}}
        first, second = (dict(places(half)) for half in pool["halves"])
        g = {place: (first[place] + second[place]) / sum(pool["counts"]) for place in first}
        lr = server_lr or setup.train["optimizer"]["lr"]
        moved = mapped(lambda place, value: value - lr * g[place], state)
        return {**state, **moved, "memory": {**memory, OLD: mapped(lambda place, _: g[place].clone(), state)}}

    # The weights as they came, the sum, the last gradient, which is also sent down, and one direction.
    forward = ForwardOnly(steps, ForwardPasses(passes=2, copies=4, gradients=True))
    return layerwise(setup, "prefix", aggregate, objective, depth_of=lambda L_n: L, forward=forward)


def nearest(
    like: Tensor, place: str, directions: Sequence[Direction], old: Tensor | None, count: int
) -> Sequence[Direction]:
    """So many directions whose part at a place has the highest cosine similarity to the last gradient there, the best
    first; the first ones where there is none. Each is drawn and let go, so that no two exist at once."""
    if old is None or not count:
        return directions[:count]
    cosines = [F.cosine_similarity(part(z, place, like).flatten(), old.flatten(), dim=0) for z in directions]
    order = torch.stack(cosines).argsort(descending=True, stable=True)
    return [directions[i] for i in order[:count].tolist()]


def pooled(state: State, uploads: Uploads, cohort: Cohort, before: Mapping[str, Any] | None) -> dict[str, Any]:
    """The estimates that wait, with those of a round: `halves`, the sums of what every other client has sent, in the
    layout of a state, `counts` of their directions, and `clients`, how many there are."""
    rows = dict(places({"r": uploads.r, "shared": uploads.shared}))
    halves = [dict(places(half)) for half in before["halves"]] if before else [{}, {}]
    counts = list(before["counts"]) if before else [0, 0]
    clients = before["clients"] if before else 0
    for n in uploads.arrived.nonzero().flatten().tolist():
        half, c_n = halves[clients % 2], int(cohort.steps[n])
        for place, value in places(state):
            half[place] = half.get(place, 0.0) + c_n * (value - rows[place][n])
        counts[clients % 2] += c_n
        clients += 1
    for half in halves:
        half.update({place: torch.zeros_like(value) for place, value in places(state) if place not in half})
    in_layout = [mapped(functools.partial(_at, half), state) for half in halves]
    return {"halves": in_layout, "counts": counts, "clients": clients}


def _at(values: Mapping[str, Tensor], place: str, _: Tensor) -> Tensor:
    return values[place]


def disagreement(pool: Mapping[str, Any]) -> float:
    """The variance between the means of the two halves, meant over all coordinates; infinite while one is empty."""
    if not all(pool["counts"]):
        return math.inf
    first, second = (dict(places(half)) for half in pool["halves"])
    a, b = pool["counts"]
    squares = [((first[place] / a - second[place] / b) ** 2 / 2).sum() for place in first]  # the unbiased one of two
    return float(sum(squares)) / sum(value.numel() for value in first.values())


@hookimpl
def fedbench_register_methods(register):
    register(
        "fwdllm",
        fwdllm,
        ignores=["capacities", "ranks", "widths"],
        family="Forward passes",
        paper="Xu et al., FwdLLM, USENIX ATC 2024, arXiv 2308.13894",
    )
