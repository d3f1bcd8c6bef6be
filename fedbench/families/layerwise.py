"""Depth-allocated tuning: each client tunes the adapters of some layers; the server averages layer by layer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor

from fedbench import seeding
from fedbench.engine.forward import ForwardClient
from fedbench.errors import NotApplicable, UserError
from fedbench.families import allocation as alloc
from fedbench.families.batch_parts import is_mean, mixes_images, refuse_parts
from fedbench.families.deployed_submodel import DeployedSubmodel, SizesOf, SubmodelAnswer, deepest, depths
from fedbench.families.personal_params import FreshParams, Names, PersonalParams, known
from fedbench.families.regularizer import first_books, pull_of, refuse_feddyn, server_step
from fedbench.method import Method, Predict, Ref, Setup, State
from fedbench.models import cost
from fedbench.models.adapter import fold
from fedbench.models.backbone import HEAD, Blocks, in_layers, load
from fedbench.models.codec import refuse_coded
from fedbench.models.cost import Holding, holding_of, whole
from fedbench.models.forward_cost import ForwardPasses, forward_pricing
from fedbench.models.globalmodel import GlobalModel
from fedbench.models.lowrank import FROZEN, bytes_added, load_additions
from fedbench.models.tokens import over_tokens
from fedbench.types import ClientCost, Cohort, Exit, Job, Objective, Plan, Pull, Report, Uploads

ExitsOf = Callable[[int], list[Exit]]
Steps = Callable[[ForwardClient], float]  # takes a client's local steps; the mean loss
ByBatch = Callable[[Plan, Cohort, int], Callable[[int, int], Sequence[int]]]
Share = Callable[[Plan, State, int, Cohort, Generator], Plan]
Start = Callable[[State, Plan, Cohort, int], State]
PullOf = Callable[[Pull | None, State, Plan, Cohort], Pull | None]
Given = TypeVar("Given")


@dataclass(frozen=True)
class ForwardOnly:
    """How clients train by forward passes alone.

    Attributes:
        steps: Called as `steps(state, plan, cohort, t)` in every round; what takes a client's local steps.
        passes: What these steps cost.
    """

    steps: Callable[[State, Plan, Cohort, int], Steps]
    passes: ForwardPasses


def head_at_end(depth: int) -> list[Exit]:
    """One classifier, after the last layer a client holds."""
    return [Exit(depth, HEAD)]


def full_depth(model: Blocks, state: State) -> GlobalModel:
    """The global model: all L layers, then the head."""
    return GlobalModel(model, range(model.num_layers), head_at_end(model.num_layers))


def unchanged(given: Given, *_: Any) -> Given:
    """The state, or the plan, as it is."""
    return given


def layerwise(
    setup: Setup,
    allocation: Ref = "random",
    aggregator: Ref = "weighted_mean",
    objective: Ref = "cross_entropy",
    *,
    adapt: bool = True,
    depth_of: Callable[[int], int | None] = lambda L_n: L_n,
    exits_of: ExitsOf = head_at_end,
    share: Share = unchanged,
    start: Start = unchanged,
    pull: PullOf = unchanged,
    view: Callable[[State], State] = unchanged,
    predict: Callable[[Blocks, State], Predict] = full_depth,
    keeps: Names = (),
    fixed: Names = (),
    fresh: Names = (),
    sizes: SizesOf | None = None,
    at: SubmodelAnswer | None = None,
    whole_batches: bool = False,
    forward: ForwardOnly | None = None,
    by_batch: ByBatch | None = None,
) -> Method:
    """A depth-allocated method from its parts; the defaults are FedRA. Raises NotApplicable, UserError.

    Args:
        setup: What the runner hands to a method.
        allocation: A reference to a component, or a function.
        aggregator: A reference to a component, or a function.
        objective: A reference to a component, or a function.
        adapt: False trains classifiers alone.
        depth_of: Called as `depth_of(L_n)`; how many layers a client is given, None if it takes no part.
        exits_of: Called as `exits_of(depth)`; the classifiers of that depth.
        share: Called as `share(plan, state, t, cohort, generator)`; the plan, with what clients hold and train of their
            layers.
        start: Called as `start(state, plan, cohort, t)`; what clients start from.
        pull: Called as `pull(pull, state, plan, cohort)`; what they add to their losses in addition to the regulariser.
        view: Called as `view(state)`; what the global model is read from.
        predict: Called as `predict(model, state)`; how the model with that view answers.
        keeps: Patterns of names of tensors that every client trains and keeps (`*.lora_B`).
        fixed: Of those that everybody has from the first draw on, never trained or sent.
        fresh: Of those that every client draws in each round, not sent. `keeps`, `fixed` and `fresh` may be
            functions of the model.
        sizes: Called as `sizes(model)`; what it offers clients that have devices, by default the different
            depths of depth_of.
        at: Called as `at(model, state, layers, exits)`; how a client's model answers; by default, where the global one
            does, by the head at its end.
        whole_batches: Whether clients must compute a batch as a whole, because their loss is no mean over its images:
            `train.micro_batch` then splits none. An objective is tried for that in any case.
        forward: How clients train by forward passes alone, in place of the optimizer.
        by_batch: Called as `by_batch(plan, cohort, t)` in every round; which layers run in which batch (`Job.layers`).
    """
    model = _trainable(setup, adapt, exits_of)
    if forward:
        _refuse_what_needs_gradients(setup)
    kept, never, redrawn = (known(model, *of) for of in (("keeps", keeps), ("fixed", fixed), ("fresh", fresh)))
    if kept or redrawn:
        refuse_feddyn(setup, "corrects one global model, and here clients start from tensors of their own")
    refs = (("allocation", allocation), ("aggregator", aggregator), ("objective", objective))
    own = PersonalParams(setup.store, kept, setup.device) if kept else None
    drawn = FreshParams(model, redrawn, setup.seed if redrawn else 0)  # what reads no seed is priced once for all
    allocate, aggregate, loss = (setup.component(kind, ref) for kind, ref in refs)
    loss = over_tokens(loss) if model.predicts_tokens else loss
    made = Layerwise(
        setup=setup, model=model, allocate=allocate, aggregate=aggregate, objective=loss,
        depth_of=depth_of, exits_of=exits_of, share=share, start=start, pull=pull, view=view, predict=predict,
        own=own, fresh=drawn, fixed=never, whole_batches=whole_batches, forward=forward, by_batch=by_batch,
    )  # fmt: skip
    alone, offered = bool(kept), (sizes or depths(depth_of))(model)
    method = Method(
        made.init, made.round, made.predictor, made.cost,
        personal=alone, alone=alone, sizes=offered, holds=made.holds,
        averages=getattr(aggregate, "averages", None), allocates=made.trains,
        forward=forward is not None and not forward.passes.sends_weights, planned=made.planned if forward else None,
    )  # fmt: skip
    answer = at or (deepest if predict is full_depth else None)
    return made.handing(method, answer) if answer else method


def _refuse_what_needs_gradients(setup: Setup) -> None:
    """Raises NotApplicable for keys that say nothing to clients that compute forward passes alone."""
    why = "clients compute forward passes alone, and send what these give"
    refuse_coded(setup.train, ["uploads", "downloads"], why)
    if setup.train.get("regularizer"):
        raise NotApplicable("train.regularizer: nothing pulls clients that compute no gradient of their loss")


@dataclass(frozen=True, eq=False)
class Layerwise:
    """The method itself, of the parts that `layerwise` names: r_j of every layer and what is shared are the state.

    A state may have `frozen`, additions to the frozen weights by place (see `fedbench.models.lowrank`), and `added`,
    the rank of what came to them last, which is what is sent; aggregators set both.
    """

    setup: Setup
    model: Blocks
    allocate: Callable[..., Tensor]
    aggregate: Callable[..., State]
    objective: Objective
    depth_of: Callable[[int], int | None]
    exits_of: ExitsOf
    share: Share
    start: Start
    pull: PullOf
    view: Callable[[State], State]
    predict: Callable[[Blocks, State], Predict]
    own: PersonalParams | None
    fresh: FreshParams
    fixed: tuple[str, ...]
    whole_batches: bool
    forward: ForwardOnly | None = None
    by_batch: ByBatch | None = None

    def __post_init__(self) -> None:
        refuse_parts(self.setup.train, self.splits)
        check = getattr(self.aggregate, "check", None)
        if check is not None and not self.setup.scenario.fitting:  # who holds what is not known before
            with torch.device("cpu"):  # also where the model is but a shape
                check(self.smallest())

    def handing(self, method: Method, answer: SubmodelAnswer) -> Method:
        """The method, with what clients can run of its model."""
        handed = DeployedSubmodel(self.setup, self.model, self.plan, self.start, self.fresh, self.own, answer)
        return replace(method, at=handed.at, running=functools.cache(handed.running))

    def init(self, generator: Generator) -> State:
        """Return the state before the first round: adapters by layer, and classifiers."""
        L = self.model.num_layers
        self.model.draw(generator)
        return {
            "r": [_values(self.model.r(j)) for j in range(L)],
            "shared": _values(self.model.shared()),
            **alloc.nothing_known(L),
            "memory": {},
            **({"clients": {}} if self.own else {}),
            **first_books(self.setup.train.get("regularizer")),
        }

    def round(self, state: State, t: int, cohort: Cohort, generator: Generator) -> tuple[State, Report]:
        """M from the cohort's L_n, training of w_n on D_n, the mean per layer (FedRA v1, Eq. 3)."""
        plan, cohort = self.plan(state, t, cohort, generator)  # M, and which part of it each client trains
        begun, had = self.begun(state, t, plan, cohort)  # w^t; what clients keep for themselves in its place
        uploads = self.setup.engine(self.model, begun, plan, cohort, self.job(state, t, plan, cohort))  # w_n, on D_n
        report = Report(plan, cohort, uploads, self.prices(state, plan))
        if not uploads.arrived.any():
            return state, report
        seen, given, books = self.settled(state, begun, had, uploads, plan, cohort)  # what the server averages
        new = {**self.aggregate(state, given, seen, cohort), **books}  # w^(t+1), layer by layer over M's columns
        return alloc.remember(state, new, plan.trains[uploads.arrived]), report

    def begun(self, state: State, t: int, plan: Plan, cohort: Cohort) -> tuple[State, list[dict[str, Tensor]]]:
        """What clients start from, with rows of their own where they keep or draw tensors; and what each had kept."""
        begun = self.fresh.given(self.start(state, plan, cohort, t), plan, cohort, t)
        had = self.own.read(state, cohort) if self.own else []
        return (self.own.given(begun, had, plan) if self.own else begun), had

    def settled(
        self,
        state: State,
        begun: State,
        had: Sequence[Mapping[str, Tensor]],
        uploads: Uploads,
        plan: Plan,
        cohort: Cohort,
    ) -> tuple[Plan, Uploads, State]:
        """(plan, uploads) without what clients keep, which is put away, and new books.

        Under FedDyn w_n - h / a stands for w_n, so that a mean of them is FedDyn's step (`server_step`).
        """
        regularizer, registered = self.setup.train.get("regularizer"), len(self.setup.scenario.clients)
        given, books = server_step(regularizer, registered, state, begun, uploads, plan, cohort.ids)
        return self.own.taken(had, state, plan, cohort, given, books) if self.own else (plan, given, books)

    def prices(self, state: State, plan: Plan) -> list[ClientCost]:
        """What each client pays in this round."""
        return [self.price(holding_of(plan, n), added) for n, added in enumerate(bytes_added(state, plan))]

    def plan(self, state: State, t: int, cohort: Cohort, generator: Generator) -> tuple[Plan, Cohort]:
        """Who holds and trains what, of those who take part, and them."""
        depths = [self.depth_of(L_n) for L_n in cohort.capacities.tolist()]
        cohort = cohort.only([n for n, depth in enumerate(depths) if depth is not None])
        L_n = torch.tensor([depth for depth in depths if depth is not None], dtype=torch.int64)  # (N,)
        L, costs = self.model.num_layers, lambda: self.layer_costs
        more = {
            "ranks": lambda: None if cohort.ranks is None else cohort.ranks.clone(),
            "layer_memory": lambda: self.layer_memory.clone(),
            "memory_budgets": lambda: L_n * self.layer_memory.mean(),
        }
        made = alloc.draw(self.allocate, L_n, L, t, cohort.ids, state, generator, costs, more)
        plan = made if isinstance(made, Plan) else Plan(made, [])
        plan = replace(plan, exits=[self.exits_of(depth) for depth in plan.M.sum(1).tolist()])
        if self.fixed:
            plan = replace(plan, frozen=(*plan.frozen, *self.fixed), fixed=self.fixed)
        if self.fresh.names:
            plan = replace(plan, fresh=self.fresh.names)
        if self.own:
            plan = replace(plan, kept=(*plan.kept, *self.own.keeps))
        return self.share(plan, state, t, cohort, generator), cohort

    def job(self, state: State, t: int, plan: Plan, cohort: Cohort) -> Job:
        """How a client trains in round t."""
        train = self.setup.train
        pull = self.pull(pull_of(train.get("regularizer"), state, plan, cohort.ids), state, plan, cohort)
        how = (self.objective, pull, cost.micro_batch_of(train), cost.recomputes(train))
        coded = (train.get("uploads"), train.get("downloads"))
        forward = self.forward.steps(state, plan, cohort, t) if self.forward else None
        layers = self.by_batch(plan, cohort, t) if self.by_batch else None
        return Job(t, self.setup.seed, train["optimizer"], train["clip"], *how, *coded, forward, layers)

    def predictor(self, state: State, client: int | None = None) -> Predict:
        """Return the global model, or a client's where it keeps tensors."""
        seen = self.view(state)
        if self.own and client is not None:
            seen = self.own.of(seen, client)
        for j in range(self.model.num_layers):
            load(self.model.r(j), seen["r"][j])
        load(self.model.shared(), seen["shared"])
        load_additions(self.model, seen.get(FROZEN))
        if self.setup.fold:
            fold(self.model)
        return self.predict(self.model, seen)

    def cost(self, L_n: int, t: int, rank: int | None = None) -> ClientCost | None:
        """Of the plan that such a client alone would be given at first."""
        depth = self.depth_of(L_n)
        if depth is None:
            return None
        return self.price(whole(depth, self.exits_of(depth)) if self._plain else self._alone(L_n, t, rank))

    @functools.cached_property
    def _plain(self) -> bool:
        """Whether clients hold as many layers as they can, and train all of them.

        A client that can hold all layers is then given all of them, whatever the seed.
        """
        L = self.model.num_layers
        exact = getattr(self.allocate, "exact", True) and self.share is unchanged
        held = self._alone(L, 0, None) if exact else None
        return held is not None and held == whole(held.depth, self.exits_of(held.depth))

    def holds(self, L_n: int, t: int, rank: int | None = None) -> Sequence[int]:
        """Of the plan that such a client alone would be given in round t, its layers."""
        if self.depth_of(L_n) is None:
            return ()
        return self._plan_alone(L_n, t, rank).M[0].nonzero().flatten().tolist()

    def trains(self, cohort: Cohort, t: int, generator: Generator) -> Tensor:
        """(N, L) bool, the layers that each client of a round would train if nothing were known of earlier rounds."""
        return self._first_plan(cohort, t, generator).trains

    def planned(self, cohort: Cohort, t: int) -> list[ClientCost | None]:
        """What each client of a round would pay in the same way, where everybody takes part."""
        plan = self._first_plan(cohort, t, seeding.generator(self.setup.seed, t, use="price"))
        return [self.price(holding_of(plan, n)) for n in range(len(cohort))]

    def _first_plan(self, cohort: Cohort, t: int, generator: Generator) -> Plan:
        nothing = {**alloc.nothing_known(self.model.num_layers), "memory": {}}
        return self.plan(nothing, t, cohort, generator)[0]

    def _alone(self, L_n: int, t: int, rank: int | None) -> Holding:
        """What a client would hold if it were the only one, and the first; in a plan the same for all seeds."""
        return holding_of(self._plan_alone(L_n, t, rank), 0)

    def _plan_alone(self, L_n: int, t: int, rank: int | None) -> Plan:
        planned = self.setup.device == "meta" and not self.setup.scenario.fitting
        seed = 0 if planned else self.setup.seed
        L, r_n = self.model.num_layers, None if rank is None else torch.tensor([rank])
        one = Cohort([0], torch.tensor([L_n]), torch.ones(1), torch.ones(1), lambda n: iter(()), ranks=r_n)
        plan, _ = self.plan({**alloc.nothing_known(L), "memory": {}}, t, one, seeding.generator(seed, t, use="price"))
        return plan

    def smallest(self) -> Plan:
        """Return what clients hold in a round in which each has the least that the scenario may give it.

        Where there are many clients, some stand for all.
        """
        scenario, L = self.setup.scenario, self.model.num_layers
        who = scenario.some()
        L_n, even = torch.tensor(scenario.capacities[who, 0]), torch.ones(len(who))
        r_n = None if scenario.ranks is None else torch.tensor(scenario.ranks[who, 0])
        everybody = Cohort(who.tolist(), L_n, even, even, lambda n: iter(()), ranks=r_n)
        draw = seeding.generator(0, use="check")  # what reads no seed is checked, and priced, once for all
        return self.plan({**alloc.nothing_known(L), "memory": {}}, 0, everybody, draw)[0]

    @functools.cached_property
    def price(self) -> Callable[..., ClientCost]:
        """What a client pays that holds this, of whose frozen weights so many bytes are new; each measured once."""
        train, image_size, objective = self.setup.train, self.setup.image_size, self.objective
        if self.forward:
            return forward_pricing(self.model, objective, train, image_size, self.forward.passes)
        travel = cost.Travel((*self.fixed, *(self.own.keeps if self.own else ())), self.fresh.names)
        priced = cost.pricing(self.model, objective, train, image_size, travel)
        return priced if self.splits else lambda *given: replace(priced(*given), passes=())

    @functools.cached_property
    def splits(self) -> bool:
        """Whether batches can be computed in parts; asked where the suite has micro-batches alone."""
        train, exits = self.setup.train, len(self.exits_of(self.model.num_layers))
        if not train.get("micro_batch"):
            return True
        if self.whole_batches or mixes_images(self.model):
            return False
        return is_mean(self.objective, exits, self.setup.num_classes, train["rounds"])

    @functools.cached_property
    def layer_costs(self) -> Tensor:
        """(L,) float64, FLOPs of one image through each layer, measured where an allocation asks for it."""
        return cost.layer_costs(self.model, self.setup.image_size)

    @functools.cached_property
    def layer_memory(self) -> Tensor:
        """(L,) float64, bytes that each layer adds to what a client needs that trains it."""
        L = self.model.num_layers
        memory = [self.price(whole(depth, head_at_end(depth))).memory_bytes for depth in (1, 2)[:L]]
        return torch.full((L,), float(memory[-1] - sum(memory[:-1])), dtype=torch.float64)


def _trainable(setup: Setup, adapt: bool, exits_of: ExitsOf) -> Blocks:
    """The backbone with its adapters and every classifier that some depth has."""
    model = in_layers(setup.backbone)
    if model.predicts_tokens and not adapt:
        raise NotApplicable("it trains classifiers alone, and the head of next tokens is frozen")
    if adapt:
        setup.adapter(model)
    if model.predicts_tokens and model.decoder.vocabulary.requires_grad:
        raise UserError("the adapter trains the embeddings, which are the head of next tokens; that stays frozen")
    names = {exit.classifier for depth in range(1, model.num_layers + 1) for exit in exits_of(depth)}
    for name in sorted(names | {HEAD}):
        model.add_classifier(name, setup.num_classes)
    return model.to(setup.device).eval()


def _values(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in parameters.items()}
