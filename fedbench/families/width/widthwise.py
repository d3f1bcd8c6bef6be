"""Methods whose clients train parts of a whole model, each of the width it can hold."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from fedbench.errors import NotApplicable
from fedbench.families.regularizer import refuse_books
from fedbench.families.wholemodel import Answer, OnLogits, Visit, WholeModelMethod, fit, price_of, trainable
from fedbench.families.width.narrow import Cuts, NarrowModel, offered
from fedbench.families.width.units import Rule
from fedbench.method import Method, Ref, Setup, State
from fedbench.models.backbone import HEAD
from fedbench.models.codec import refuse_coded
from fedbench.models.cost import micro_batch_of
from fedbench.seeding import generator as seeded
from fedbench.types import ClientCost, Cohort, Report, Size, Uploads
from fedbench.types.clients import rate_of

# Trains a visit's weights, which are those of the part; returns their mean training loss. The generator is the
# client's own of this round.
Train = Callable[[Visit, NarrowModel, Generator], float]


def widthwise(
    setup: Setup,
    cuts: Cuts,
    rates: Sequence[float],
    train: Train,
    price: Callable[[NarrowModel], ClientCost],
    aggregator: Ref = "weighted_mean",
    own_classes: bool = False,
) -> Method:
    """A method of unequal width from its parts. The global model is that of the full width.

    Args:
        setup: What the runner hands to a method.
        cuts: The parts of the whole model.
        rates: The widths it offers, the largest first; a client takes the largest that it can hold (`rate_of`), and one
            that can hold none takes no part.
        train: What a client does in a round.
        price: Called as `price(part)`; what that costs.
        aggregator: Reads in `Uploads.coordinates` which coordinates each client trained; those that nobody trained
            keep their values.
        own_classes: Whether a client's work on the classifier counts for its own classes alone.

    Raises:
        NotApplicable: under FedDyn, and where no client can hold any of the rates.
    """
    refuse_books(setup)
    refuse_coded(setup.train, ["downloads"], "clients are sent slices of the whole model as they are")
    aggregate = setup.component("aggregator", aggregator)
    scenario = setup.scenario
    given = scenario.different("capacities" if scenario.widths is None else "widths")
    if not any(_rate(setup, rates, most, most) for _, most in given):
        raise NotApplicable(f"no client can hold {min(rates):g} of the width, the smallest of the rates")
    whole = WholeModelMethod(setup, cuts.model, _never, _never, aggregate, None)
    made = Widthwise(
        setup, whole, cuts, tuple(rates), train, functools.cache(lambda g: price(cuts.at(g, 0))), own_classes
    )
    if micro_batch_of(setup.train):
        made.price(max(rates))  # which refuses what cannot be split
    return Method(
        whole.init,
        made.round,
        whole.predictor,
        made.cost,
        alone=True,
        sizes=[Size(scenario.num_layers, width=g) for g in sorted(rates)],
        at=made.at,
        running=functools.cache(made.running),
    )


def _never(*given: object) -> Any:
    raise AssertionError("widths have a round of their own")


def _rate(setup: Setup, rates: Sequence[float], L_n: float, width: float | None) -> float | None:
    given = width if setup.scenario.widths is not None else None
    return rate_of(rates, L_n, setup.scenario.num_layers, given)


@dataclass(frozen=True, eq=False)
class Widthwise:
    """The method itself, of the parts that `widthwise` names; what it shares with whole models is theirs (`whole`)."""

    setup: Setup
    whole: WholeModelMethod
    cuts: Cuts
    rates: tuple[float, ...]
    train: Train
    price: Callable[[float], ClientCost]
    own_classes: bool

    def rate(self, cohort: Cohort, n: int) -> float | None:
        """Return g of the client at position n, None if it takes no part."""
        width = None if cohort.widths is None else float(cohort.widths[n])
        return _rate(self.setup, self.rates, int(cohort.capacities[n]), width)

    def round(self, state: State, t: int, cohort: Cohort, generator: Generator) -> tuple[State, Report]:
        """Train each client's slice, and average every coordinate over those that trained it."""
        rates = [self.rate(cohort, n) for n in range(len(cohort))]
        cohort = cohort.only([n for n, g in enumerate(rates) if g is not None])
        taken = [g for g in rates if g is not None]
        plan = self.whole.plan(len(cohort))
        up = self.setup.receive(self.local_steps(state, t, cohort, taken), state, plan, cohort, t)
        report = Report(plan, cohort, up, [self.price(g) for g in taken])
        return (self.whole.aggregate(state, up, plan, cohort) if up.arrived.any() else state), report

    def local_steps(self, state: State, t: int, cohort: Cohort, rates: Sequence[float]) -> Uploads:
        """Return what clients of these rates send, one after another, and which coordinates each trained.

        In a row, what its client does not hold is unchanged.
        """
        N, start = len(cohort), state["shared"]
        rows = {name: value.expand(N, *value.shape).clone() for name, value in start.items()}
        trained = {name: torch.ones_like(row, dtype=torch.bool) for name, row in rows.items()}
        losses, seconds = [], []
        for n, g in enumerate(rates):
            began, part = time.perf_counter(), self.cuts.at(g, t)
            visit = self.whole.visit(t, {"shared": part.slice.of(start)}, cohort, n)
            draws = seeded(self.setup.seed, t, cohort.ids[n], "width")
            with self.setup.precision():
                losses.append(self.train(visit, part, draws))
            for name, weight in visit.weights.items():
                trained[name][n] = self.coordinates(name, start[name], part, visit)
                part.slice.put(name, rows[name][n], weight)
                rows[name][n] = torch.where(trained[name][n], rows[name][n], start[name])
            seconds.append(time.perf_counter() - began)
        means, took = (torch.tensor(numbers, dtype=torch.float64) for numbers in (losses, seconds))
        parts = {f"shared/{name}": mask for name, mask in trained.items() if not mask.all()}
        return Uploads.of(cohort, [{} for _ in state["r"]], rows, means, took, parts)

    def coordinates(self, name: str, whole: Tensor, part: NarrowModel, visit: Visit) -> Tensor:
        """Which coordinates of a tensor a client has trained."""
        mask = part.slice.mask(name, whole)
        if self.own_classes and name.startswith(f"{HEAD}."):
            mask[~classes_of(visit, len(whole)).to(mask.device)] = False
        return mask

    def cost(self, L_n: int, t: int, rank: int | None = None, width: float | None = None) -> ClientCost | None:
        """Return what a client pays in round t; None for one that takes no part."""
        g = _rate(self.setup, self.rates, L_n, width)
        return None if g is None else self.price(g)

    def at(self, state: State, size: Size, client: int | None = None) -> Answer:
        """Return the slice of that width which a client would hold in the next round, as it would train it.

        Its outputs are divided where parts divide them.
        """
        part = self._part(size)
        return Answer(part.model, part.slice.of(state["shared"]))

    def running(self, size: Size) -> int:
        """Bytes that a device needs to answer one image with it."""
        return self._part(size).model.to_run(self.setup.image_size)

    def _part(self, size: Size) -> NarrowModel:
        return self.cuts.at(1.0 if size.width is None else size.width, int(self.setup.train["rounds"]))


def classes_of(visit: Visit, num_classes: int) -> Tensor:
    """(C,) bool: the classes of which a client has images."""
    return torch.bincount(visit.y(), minlength=num_classes) > 0


def averaged_slices(
    setup: Setup,
    name: str,
    rule: Rule,
    rates: Sequence[float],
    body: str = "pretrained",
    aggregator: Ref = "weighted_mean",
    objective: Ref = "cross_entropy",
    scale: bool = True,
    mask: bool = True,
) -> Method:
    """Every client trains the slice of its rate that the rule gives.

    Every coordinate becomes the mean over those that trained it, as HeteroFL does; others vary the rule.

    Args:
        setup: What the runner hands to a method.
        name: Of the method, for messages.
        rule: Which units a slice of a rate holds in a round.
        rates: The widths it offers.
        body: `pretrained`, as the backbone is, or `random`.
        aggregator: A reference to a component, or the function itself.
        objective: A reference to a component, or a function.
        scale: Divide the outputs of hidden layers by g in training.
        mask: Logits of classes that a client has no image of are 0 in its training, and its rows of the classifier are
            not averaged.
    """
    taken = offered(name, "rates", rates)
    cuts = Cuts(trainable(setup, body), rule, scale)
    loss = setup.component("objective", objective)

    def train(visit: Visit, part: NarrowModel, draws: Generator) -> float:
        there = classes_of(visit, setup.num_classes).to(setup.device)

        def loss_of(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor | float]:
            logits = part.model.logits(visit.weights, x)
            return loss([logits.masked_fill(~there, 0.0) if mask else logits], y, visit.t), visit.pull()

        return fit(setup, loss_of, [visit.weights], visit.batches(), visit.steps)

    def price(part: NarrowModel) -> ClientCost:
        return price_of(setup, part.model, OnLogits(loss))

    return widthwise(setup, cuts, taken, train, price, aggregator, own_classes=mask)
