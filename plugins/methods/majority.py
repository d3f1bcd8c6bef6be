"""The majority class: nobody trains, the control that a model of clients whose classes differ has to pass."""

from __future__ import annotations

import time

import torch
from torch import Generator, Tensor

from fedbench import hookimpl
from fedbench.method import Method, Predict, Setup, State
from fedbench.types import ClientCost, Cohort, Plan, Report, Sent, Size, Uploads

COUNTS = "counts"  # N_c


def majority(setup: Setup) -> Method:
    """Every client answers with the commonest class of its own training images, whatever an image shows. A control, not
    a method: with two classes a client it has a score of one half, and so learns nothing who has that.

    A client counts N_c, its images of class c, in each round it takes part in, keeps them and sends them, C whole
    numbers. Its logits are log(N_c + 1), so that its loss is that of its class distribution, smoothed by one image of
    each class; of classes with equally many it takes the first. The global model, which also answers for a client whose
    counts never came, does the same with the sum over all clients whose counts came, each once. Backbone, adapter,
    optimiser and capacities have no say; use `evaluation: {by: client}`.
    """
    C, L = setup.num_classes, setup.scenario.num_layers
    own = 8 * C
    price = ClientCost(flops_per_image=0, bytes_down=0, bytes_up=own, memory_bytes=own, sent=(Sent(COUNTS, up=own),))

    def init(generator: Generator) -> State:
        return {"r": [{} for _ in range(L)], "shared": {COUNTS: torch.zeros(C, dtype=torch.int64)}, "clients": {}}

    def round(state: State, t: int, cohort: Cohort, generator: Generator) -> tuple[State, Report]:
        N = len(cohort)
        counted, seconds = torch.zeros(N, C, dtype=torch.int64), torch.zeros(N, dtype=torch.float64)
        for n in range(N):
            began = time.perf_counter()
            counted[n] = torch.bincount(labels(cohort, n), minlength=C)
            seconds[n] = time.perf_counter() - began
        plan = Plan(torch.zeros(N, L, dtype=torch.bool), [()] * N)
        sent = Uploads.of(
            cohort, [{} for _ in range(L)], {COUNTS: counted}, torch.zeros(N, dtype=torch.float64), seconds
        )
        came = setup.receive(sent, state, plan, cohort, t)
        total, clients = state["shared"][COUNTS].clone(), dict(state["clients"])
        for n, client in enumerate(map(str, cohort.ids)):
            if came.arrived[n] and client not in clients:
                clients[client] = setup.store.put({COUNTS: came.shared[COUNTS][n].clone()})
                total += came.shared[COUNTS][n]
        return {**state, "shared": {COUNTS: total}, "clients": clients}, Report(plan, cohort, came, [price] * N)

    def predictor(state: State, client: int | None = None) -> Predict:
        key = None if client is None else state["clients"].get(str(client))
        N_c = state["shared"][COUNTS] if key is None else setup.store.get(key)[COUNTS]
        return lambda x: (N_c + 1.0).log().to(x.device, x.dtype).expand(len(x), C)

    def running(size: Size) -> int:
        return own

    return Method(init, round, predictor, lambda L_n, t: price, personal=True, alone=True, running=running)


def labels(cohort: Cohort, n: int) -> Tensor:
    """(images,) int64: the classes of all images of the client at that position, on the CPU."""
    of_all = getattr(cohort.batches, "labels", None)  # without decoding an image
    found: Tensor = of_all(n) if of_all else torch.cat([y for _, y in cohort.batches(n)])
    return found.cpu()


@hookimpl
def fedbench_register_methods(register):
    register("majority", majority, ignores=["capacities", "ranks", "widths", "adapter"], role="control")
