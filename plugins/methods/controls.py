"""Controls that no client trains for: the majority class, and a probe of the server's own images."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import cast

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from fedbench import hookimpl
from fedbench.errors import NotApplicable
from fedbench.families.layerwise import full_depth
from fedbench.method import Method, Predict, Setup, State
from fedbench.models.backbone import HEAD, Blocks, Plain, load
from fedbench.models.counting import to_run_all
from fedbench.models.tokens import TokenStates
from fedbench.options import Positive, judged
from fedbench.types import ClientCost, Cohort, Plan, Report, Sent, Size, Uploads

# The majority class: nobody trains, the control that a model of clients whose classes differ has to pass


COUNTS = "counts"  # N_c


def majority(setup: Setup) -> Method:
    """Every client answers with the commonest class of its own training images, whatever an image shows. A control, not
    a method: with two classes a client it has a score of one half, and so learns nothing who has that.

    A client counts N_c, its images of class c, in each round it takes part in, keeps them and sends them, C whole
    numbers. Its logits are log(N_c + 1), so that its loss is that of its class distribution, smoothed by one image of
    each class; of classes with equally many it takes the first. The global model, which also answers for a client whose
    counts never came, does the same with the sum over all clients whose counts came, each once. Backbone, adapter,
    optimiser and capacities have no say; use `evaluation: {by: client}`. Of next tokens it is the unigram distribution
    of the training tokens that count.
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
        if setup.backbone.predicts_tokens:  # a head of width 1, which reads 1 everywhere
            return lambda x: cast(Tensor, unigrams(N_c, x))
        return lambda x: (N_c + 1.0).log().to(x.device, x.dtype).expand(len(x), C)

    def running(size: Size) -> int:
        return own

    return Method(init, round, predictor, lambda L_n, t: price, personal=True, alone=True, running=running)


def unigrams(N: Tensor, x: Tensor) -> TokenStates:
    """After every token of x (B, T) the same distribution: in proportion to N (V,), and one more of each."""
    log_p = (N + 1.0).log().to(x.device)[:, None]
    return TokenStates(log_p.new_ones(*x.shape, 1), log_p)


def labels(cohort: Cohort, n: int) -> Tensor:
    """(images,) int64: the classes of all images of the client at that position, on the CPU; of next tokens all that
    count."""
    of_all = getattr(cohort.batches, "labels", None)  # without decoding an image
    found: Tensor = of_all(n) if of_all else torch.cat([y for _, y in cohort.batches(n)])
    return found.cpu()


# Zero rounds: a linear probe of the frozen backbone on the server's own images, the control that shows what
# federation adds to them


IMAGES = 64  # of a pass through the backbone
STEPS, TOLERANCE = 1000, 1e-9  # of L-BFGS: at most, and the gradient's largest entry at which it ends


@judged("zero_round")
def zero_round(setup: Setup, l2: Positive = 1e-3) -> Method:
    """Nobody takes part: the server fits the classifier to its proxy images before the first round, and that is the
    model after every round. Of next tokens it is the backbone as it came. A control, not a method.

    The classifier minimises mean CE + l2 / 2 ||W||^2 over the frozen features of all proxy images: logistic regression
    by full-batch L-BFGS with a strong Wolfe line search, in float64 on the CPU, from 0, its bias free. l2 is above 0,
    so that there is one minimum. Nothing is drawn, and nothing is sent: clients pay nothing, and what the server
    computes is not counted. Optimiser, adapter and capacities have no say.

    Not applicable where the suite holds no proxy images (`data.proxy`), which next tokens do not need.
    """
    decoder = setup.backbone.predicts_tokens
    if not decoder and setup.proxy() is None:
        raise NotApplicable("the server has no images of its own: the suite says nothing of data.proxy")
    body = setup.backbone
    body.add_classifier(HEAD, setup.num_classes)
    body.to(setup.device).eval()
    L = body.num_layers

    def init(generator: Generator) -> State:
        if decoder:
            return {"r": [{} for _ in range(L)], "shared": {}, "memory": {}}
        proxy = setup.proxy()
        assert proxy is not None  # it was there a moment ago
        with setup.precision():
            z = features(body, proxy[0])
        W, b = probe(z, proxy[1], setup.num_classes, l2)
        fitted = {f"{HEAD}.weight": W, f"{HEAD}.bias": b}
        head = {name: fitted[name].to(p.device, p.dtype) for name, p in head_of(body).items()}
        return {"r": [{} for _ in range(L)], "shared": head, "memory": {}}

    def round(state: State, t: int, cohort: Cohort, generator: Generator) -> tuple[State, Report]:
        nobody, none = cohort.only([]), torch.zeros(0, dtype=torch.float64)
        shared = {name: value.new_empty(0, *value.shape) for name, value in state["shared"].items()}
        plan = Plan(torch.zeros(0, L, dtype=torch.bool), [])
        return state, Report(plan, nobody, Uploads.of(nobody, [{} for _ in range(L)], shared, none, none), [])

    def predictor(state: State, client: int | None = None) -> Predict:
        load(head_of(body), state["shared"])
        return full_depth(body, state) if isinstance(body, Blocks) else Probed(body)

    def running(size: Size) -> int:
        return to_run_all(body, body.parameters(), lambda twin, x: Probed(twin)(x), setup.image_size)

    return Method(init, round, predictor, lambda L_n, t: None, alone=True, running=running)


@torch.no_grad()
def features(body: Blocks | Plain, x: Tensor) -> Tensor:
    """(n, 3, H, W) -> (n, D) float64 on the CPU, some images at a time."""
    return torch.cat([body.pooled(part.to(body.device)).double().cpu() for part in x.split(IMAGES)])


def probe(z: Tensor, y: Tensor, num_classes: int, l2: float) -> tuple[Tensor, Tensor]:
    """W (C, D) and b (C,) in float64 at the minimum of mean CE(z W^T + b, y) + l2 / 2 ||W||^2; z (n, D), y (n,)."""
    W = torch.zeros(num_classes, z.shape[1], dtype=torch.float64, device=z.device, requires_grad=True)
    b = torch.zeros(num_classes, dtype=torch.float64, device=z.device, requires_grad=True)
    y = y.to(z.device)
    solver = torch.optim.LBFGS(
        [W, b], max_iter=STEPS, tolerance_grad=TOLERANCE, tolerance_change=0.0, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        solver.zero_grad()
        value = F.cross_entropy(z @ W.T + b, y) + l2 / 2 * (W**2).sum()
        value.backward()
        return value

    solver.step(loss)
    return W.detach(), b.detach()


def head_of(body: Blocks | Plain) -> dict[str, nn.Parameter]:
    """Its classifier's parameters."""
    return {f"{HEAD}.{name}": p for name, p in body.classifiers[HEAD].named_parameters()}


@dataclass(frozen=True)
class Probed:
    """A model as a whole, and its classifier; valid until the next call of `predictor`."""

    body: Blocks | Plain

    def __call__(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, C)"""
        logits: Tensor = self.body.classifiers[HEAD](self.features(x))
        return logits

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, D): what the classifier reads."""
        return self.body.pooled(x)


@hookimpl
def fedbench_register_methods(register):
    everything = ["capacities", "ranks", "widths", "adapter"]
    register("majority", majority, ignores=everything, role="constant", tunable=False)
    register("zero_round", zero_round, ignores=everything, role="control")
