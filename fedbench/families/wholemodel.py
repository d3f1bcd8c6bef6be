"""Whole models: each client trains every weight of body and classifier, and the server averages them."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call

from fedbench.errors import NotApplicable
from fedbench.families.batch_parts import is_mean, mixes_images, refuse_parts
from fedbench.families.regularizer import refuse_books, towards
from fedbench.method import Method, Ref, Setup, State
from fedbench.models import cost
from fedbench.models.backbone import HEAD, Blocks, Plain, begin, identity, load, once, parameters_of, recomputed
from fedbench.models.codec import codec_of, refuse_coded
from fedbench.models.counting import counted, to_run_all
from fedbench.models.optimizer import make_optimizer, optimizer_states
from fedbench.seeding import seed_of
from fedbench.types import ClientCost, Cohort, Exit, Objective, Plan, Report, Sent, Uploads

Found = TypeVar("Found")
Tensors = Mapping[str, Tensor]


class WholeModel(nn.Module):
    """A body and the classifier at its end, called with the weights that a state holds.

    The module's own weights remain those that the backbone came with. Names of weights are `model.<timm's name>`
    and `head.weight`, `head.bias`.

    Attributes:
        cut: what a narrower model is besides the shapes of its weights, see `narrow`.
        recomputes: whether layers, where the body has some, are computed again in the backward pass.
    """

    def __init__(self, body: Blocks | Plain, cut: Hashable = None, recomputes: bool = False) -> None:
        super().__init__()
        self.body, self.cut, self.recomputes = body, cut, recomputes

    def forward(self, x: Tensor, run: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return the features (B, D) of images (B, 3, H, W), or what a part of the body makes of x."""
        return self.body.pooled(x) if run is None else run(x)

    def weights(self) -> dict[str, nn.Parameter]:
        """Return all parameters by name."""
        return {name.removeprefix("classifiers."): p for name, p in self.body.named_parameters()}

    def features(self, weights: Tensors, x: Tensor) -> Tensor:
        """Return the features (B, D) of images (B, 3, H, W) with other weights."""
        own = {f"body.{name}": value for name, value in weights.items() if name.startswith("model.")}

        def part(run: Callable[[Tensor], Tensor] | None, x: Tensor) -> Tensor:
            z: Tensor = functional_call(self, own, (x, run))
            return z

        body = self.body
        if not self.recomputes or not isinstance(body, Blocks):
            return part(None, x)
        tokens, mask = part(body.embed, x), body.mask(x)
        for j in range(body.num_layers):
            tokens = recomputed(functools.partial(part, functools.partial(body.layer, j, mask=mask)), tokens)
        return part(functools.partial(body.features, mask=mask), tokens)

    def logits(self, weights: Tensors, x: Tensor) -> Tensor:
        """Return the logits (B, C) of images (B, 3, H, W) with other weights."""
        return read(weights, HEAD, self.features(weights, x))

    def to_train(self, loss: ModelLoss, image_size: int) -> tuple[int, int]:
        """Return the FLOPs of one image through the loss and its backward pass, and the bytes of the activations saved.

        They are counted once for equal models, unless the loss is a closure, which would be kept with all that it
        holds.
        """

        def compute() -> tuple[int, int]:
            return counted(self, loss, image_size, recomputes=self.recomputes)

        if getattr(loss, "__closure__", None):
            return compute()
        which = (OnLogits, identity(loss.objective)) if isinstance(loss, OnLogits) else loss
        return self._once(("to train", which, image_size, self.recomputes), compute)

    def to_run(self, image_size: int) -> int:
        """Bytes that a device needs to answer one image with body and classifier."""
        weights = [w for name, w in self.weights().items() if name.startswith(("model.", f"{HEAD}."))]

        def compute() -> int:
            return to_run_all(self, weights, lambda twin, x: twin.logits(twin.weights(), x), image_size)

        return self._once(("to run", image_size), compute)

    def _once(self, key: tuple[Hashable, ...], find: Callable[[], Found]) -> Found:
        return once(self.body.origin, parameters_of(self), (*key, self.cut), find)


ModelLoss = Callable[[WholeModel, Tensor, Tensor], Tensor]  # of x and y, by a model's own weights


@dataclass(frozen=True)
class OnLogits:
    """The loss that an objective of logits alone gives a whole model with its own weights."""

    objective: Objective

    def __call__(self, model: WholeModel, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of a batch."""
        return self.objective([model.logits(model.weights(), x)], y, 0)


def read(weights: Tensors, classifier: str, features: Tensor) -> Tensor:
    """The logits (B, C) of a classifier among the weights, of features (B, D)."""
    return nn.functional.linear(features, weights[f"{classifier}.weight"], weights[f"{classifier}.bias"])


def trainable(setup: Setup, start: str = "pretrained") -> WholeModel:
    """The backbone with a classifier, all of its weights to be trained. The adapter of the suite is left aside.

    start: `pretrained`, as the backbone is, or `random`, drawn from the seed. Raises UserError, and NotApplicable
    for a model that has one parameter in several places, where a client's own cannot stand for it.
    """
    own = setup.backbone.model
    if setup.backbone.predicts_tokens:
        raise NotApplicable("it trains the whole model, and the head of next tokens, its vocabulary, is frozen")
    if len([*own.named_parameters(remove_duplicate=False)]) > len([*own.parameters()]):
        raise NotApplicable(
            f"{type(own).__name__} has one parameter in several places, and cannot be trained as a whole"
        )
    body = setup.backbone.requires_grad_(True)
    begin(body, "body", start, seed_of(setup.seed, use="body"))
    body.add_classifier(HEAD, setup.num_classes)
    return WholeModel(body.to(setup.device).eval(), recomputes=cost.recomputes(setup.train))


Batch = tuple[Tensor, Tensor]
LossOf = Callable[[Tensor, Tensor], tuple[Tensor, Tensor | float]]
Group = Iterable[Tensor] | Tensors
Turn = tuple[LossOf, Sequence[Group]]  # a loss, and the groups of tensors that it trains


@dataclass(frozen=True)
class Visit:
    """A client in round t: what it is given, and what it trains.

    Attributes:
        start: the global model's weights, which it must leave alone.
        weights: its copy of them, which it sends back.
        own: called without arguments; the tensors it kept, None if it has none yet.
        steps: optimiser steps of the global model.
        personal_steps: called as `personal_steps(epochs)`; steps of so many epochs of its own model, see `Federation`.
        passes: called without arguments; its batches of the round.
        y: called without arguments; the labels (n,) of all its images, in whatever number of equal copies.
        pull: called without arguments; what a regulariser adds to the loss of `weights`.
    """

    t: int
    start: Tensors
    weights: dict[str, Tensor]
    own: Callable[[], Tensors | None]
    steps: int
    personal_steps: Callable[[int], int]
    passes: Callable[[], Iterator[Batch]]
    y: Callable[[], Tensor]
    pull: Callable[[], Tensor | float]

    def batches(self) -> Iterator[Batch]:
        """Its batches, and again from the first when they have come to an end."""
        return itertools.chain.from_iterable(self.passes() for _ in itertools.count())


# Trains a visit's weights; returns their mean training loss, and what the client keeps.
Train = Callable[[Visit], tuple[float, Tensors | None]]


def fit(
    setup: Setup,
    loss_of: LossOf,
    groups: Sequence[Group],
    batches: Iterable[Batch],
    steps: int,
    then: Turn | None = None,
) -> float:
    """Local steps with the suite's optimiser, fresh as in every round; returns the mean of the loss reported.

    Args:
        setup: What the runner hands to a method.
        loss_of: Called as `loss_of(x, y)`; the loss to be reported, a mean over the images, and what is added to it.
            `train.micro_batch` calls it for parts of a batch.
        groups: Tensors that are trained; those of one group are clipped together. Of a group with names, those that
            are not the `model.`'s have `train.optimizer.head_lr`, where it is given.
        batches: Pairs (x, y).
        steps: How many steps are taken.
        then: a turn of others, with an optimiser of their own, on every batch after that.
    """
    turns = [_turn(setup, loss_of, groups), *([_turn(setup, *then)] if then else [])]
    every = [[take(x, y) for take in turns][0] for x, y in itertools.islice(batches, steps)]
    losses: list[float] = torch.stack(every).tolist() if every else []  # waits for a GPU once, not in every step
    return sum(losses) / max(len(losses), 1)


def _turn(setup: Setup, loss_of: LossOf, given: Sequence[Group]) -> Callable[[Tensor, Tensor], Tensor]:
    """One step on a batch; returns the loss reported."""
    groups = [list(group.values()) if isinstance(group, Mapping) else list(group) for group in given]
    named = [item for group in given if isinstance(group, Mapping) for item in group.items()]
    heads = [tensor for name, tensor in named if not name.startswith("model.")]
    optimizer = make_optimizer([w for group in groups for w in group], setup.train["optimizer"], heads=heads)
    micro_batch = cost.micro_batch_of(setup.train)

    def take(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        total = y.new_zeros((), dtype=x.dtype)
        for own, labels in zip(x.split(micro_batch or len(y)), y.split(micro_batch or len(y)), strict=True):
            loss, further = loss_of(own, labels)
            (len(labels) / len(y) * (loss + further)).backward()
            total = total + len(labels) / len(y) * loss.detach()
        if setup.train["clip"] is not None:
            for group in groups:
                nn.utils.clip_grad_norm_(group, setup.train["clip"])
        optimizer.step()
        return total

    return take


def copies(tensors: Tensors) -> dict[str, Tensor]:
    """The same values to be trained."""
    return {name: value.detach().clone().requires_grad_(True) for name, value in tensors.items()}


@dataclass(frozen=True)
class Answer:
    """A whole model to be called; valid until the method's next call of `round` or `predictor`.

    head: gives logits (B, C) of features (B, D), by default the one among the weights.
    """

    model: WholeModel
    weights: Tensors
    head: Callable[[Tensor], Tensor] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits (B, C) of images (B, 3, H, W)."""
        z = self.features(x)
        return read(self.weights, HEAD, z) if self.head is None else self.head(z)

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, D): what the classifiers read."""
        return self.model.features(self.weights, x)


def wholemodel(
    setup: Setup,
    model: WholeModel,
    train: Train,
    price: Callable[[], ClientCost],
    aggregator: Ref = "weighted_mean",
    personal: Callable[[Tensors, Tensors], Answer] | None = None,
) -> Method:
    """A whole-model method from its parts.

    Args:
        setup: What the runner hands to a method.
        model: The model.
        train: What a client does in a round.
        price: Called without arguments; what that costs.
        aggregator: a reference to a component, or the function itself.
        personal: Called as `personal(weights, own)`; the model of a client that keeps tensors of its own; by default
            none does.

    Raises:
        NotApplicable: under FedDyn.
    """
    aggregate = setup.component("aggregator", aggregator)
    refuse_books(setup)
    refuse_coded(setup.train, ["downloads"], "clients that train whole models are sent them as they are")
    made = WholeModelMethod(setup, model, train, functools.cache(price), aggregate, personal)
    if cost.micro_batch_of(setup.train):
        made.price()  # which refuses what cannot be split
    running = functools.cache(lambda size: model.to_run(setup.image_size))
    own = personal is not None
    return Method(made.init, made.round, made.predictor, made.cost, personal=own, alone=True, running=running)


@dataclass(frozen=True, eq=False)
class WholeModelMethod:
    """The method itself, of the parts that `wholemodel` names: the weights are the state's `shared`."""

    setup: Setup
    model: WholeModel
    train: Train
    price: Callable[[], ClientCost]
    aggregate: Callable[..., State]
    personal: Callable[[Tensors, Tensors], Answer] | None

    def init(self, generator: Generator) -> State:
        """Return the state before the first round: all weights are shared."""
        self.model.body.draw(generator)
        weights = {name: p.detach().clone() for name, p in self.model.weights().items()}
        own: State = {"clients": {}} if self.personal else {}
        return {"r": [{} for _ in range(self.model.body.num_layers)], "shared": weights, "memory": {}, **own}

    def own_of(self, state: State, client: int) -> Tensors | None:
        """The tensors that a client kept, None if it has none yet."""
        key = state["clients"].get(str(client)) if self.personal else None
        return None if key is None else self.setup.store.get(key, self.setup.device)

    def plan(self, N: int) -> Plan:
        """Nobody holds a layer's adapters; everybody has every classifier, behind all layers."""
        L = self.model.body.num_layers
        return Plan(torch.zeros(N, L, dtype=torch.bool), [[Exit(L, name) for name in self.model.body.classifiers]] * N)

    def round(self, state: State, t: int, cohort: Cohort, generator: Generator) -> tuple[State, Report]:
        """Train the cohort's models, and aggregate those that arrive."""
        N, plan = len(cohort), self.plan(len(cohort))
        trained, kept = self.local_steps(state, t, cohort)
        up = self.setup.receive(trained, state, plan, cohort, t)
        report = Report(plan, cohort, up, [self.price()] * N)
        if not up.arrived.any():
            return state, report
        new = self.aggregate(state, up, plan, cohort)
        if self.personal:
            came = {str(client): kept[n] for n, client in enumerate(cohort.ids) if up.arrived[n] and n in kept}
            new = {**new, "clients": {**state["clients"], **came}}
        return new, report

    def local_steps(self, state: State, t: int, cohort: Cohort) -> tuple[Uploads, dict[int, str]]:
        """What clients send, one after another, and the keys in the store of what those at these positions keep."""
        rows = {name: value.new_empty(len(cohort), *value.shape) for name, value in state["shared"].items()}
        losses, seconds, kept = [], [], {}
        for n in range(len(cohort)):
            began = time.perf_counter()
            visit = self.visit(t, state, cohort, n)
            with self.setup.precision():
                loss, own = self.train(visit)
            if own is not None:
                kept[n] = self.setup.store.put(own)
            load({name: row[n] for name, row in rows.items()}, visit.weights)
            losses.append(loss)
            seconds.append(time.perf_counter() - began)
        means, took = (torch.tensor(numbers, dtype=torch.float64) for numbers in (losses, seconds))
        return Uploads.of(cohort, [{} for _ in range(self.model.body.num_layers)], rows, means, took), kept

    def visit(self, t: int, state: State, cohort: Cohort, n: int) -> Visit:
        """The round as the client at position n of the cohort has it."""
        start, weights = state["shared"], copies(state["shared"])
        labels = getattr(cohort.batches, "labels", lambda n: torch.cat([y for _, y in cohort.batches(n)]))
        further = getattr(cohort.batches, "personal_steps", lambda n, epochs, done: epochs * done)  # those are an epoch
        strength, done = (self.setup.train.get("regularizer") or {}).get("fedprox"), int(cohort.steps[n])
        return Visit(
            t=t,
            start=start,
            weights=weights,
            own=lambda: self.own_of(state, cohort.ids[n]),
            steps=done,
            personal_steps=lambda epochs: further(n, epochs, done),
            passes=lambda: iter(cohort.batches(n)),
            y=lambda: labels(n),
            pull=(lambda: towards(weights, start, strength)) if strength else lambda: 0.0,
        )

    def predictor(self, state: State, client: int | None = None) -> Answer:
        """Return the global model, or a client's where it has one."""
        own = None if client is None else self.own_of(state, client)
        if self.personal is None or own is None:
            return Answer(self.model, state["shared"])
        return self.personal(state["shared"], own)

    def cost(self, L_n: int, t: int) -> ClientCost:
        """Return what a client pays in round t, whatever its capacity."""
        return self.price()


def price_of(
    setup: Setup,
    model: WholeModel,
    loss: ModelLoss,
    *,
    personal_epochs: int = 0,
    extra_models: int = 0,
    own_bytes: int = 0,
) -> ClientCost:
    """What a client pays that trains all weights and sends them.

    Args:
        setup: What the runner hands to a method.
        model: The model.
        loss: Called as `loss(model, x, y)`; of the module's own weights, such as `OnLogits`.
        personal_epochs: Of a model of its own, see `ClientCost`.
        extra_models: Whole models that it holds in addition to the one it trains; a regulariser holds some anyway.
        own_bytes: Of what it trains together with that model, and keeps.
    """
    flops, activations = model.to_train(loss, setup.image_size)
    at_once = cost.images_at_once(setup.train)
    tensors = model.weights().values()
    weights, codec = sum(p.nbytes for p in tensors), codec_of(setup.train.get("uploads"))
    sent = codec.nbytes((p.numel(), p.element_size()) for p in tensors) if codec else weights
    trained = (2 + optimizer_states(setup.train["optimizer"])) * (weights + own_bytes)
    others = max(extra_models, cost.regularizer_copies(setup.train)) * weights
    return ClientCost(
        flops_per_image=flops,
        bytes_down=weights,
        bytes_up=sent,
        memory_bytes=trained + others + at_once * activations,
        sent=(Sent("weights", weights, sent),),
        personal_epochs=personal_epochs,
        batch=at_once,
        passes=((0, activations),) if splits(setup, model, loss) else (),
    )


def splits(setup: Setup, model: WholeModel, loss: ModelLoss) -> bool:
    """Return whether batches can be computed in parts; raise NotApplicable where they are to be and cannot."""
    if not setup.train.get("micro_batch"):
        return True
    mean = not isinstance(loss, OnLogits) or is_mean(loss.objective, 1, setup.num_classes, setup.train["rounds"])
    found = mean and not mixes_images(model)
    refuse_parts(setup.train, found)
    return found
