"""A cell at work: a method in a scenario with one seed, from its resolved configuration to its rows."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedbench.devices.fitting import offered
from fedbench.engine.cohort import can_train
from fedbench.engine.cohort import train as train_together
from fedbench.engine.microbatching import ROWS
from fedbench.engine.process_group import ALONE, ProcessGroup
from fedbench.engine.sequential import train as train_one_by_one
from fedbench.engine.shortcuts import fast
from fedbench.errors import UserError
from fedbench.method import Method, Setup, State
from fedbench.models.adapter import LowRank
from fedbench.models.backbone import Blocks, Plain, Source, body_of, copy_of
from fedbench.models.codec import codec_of
from fedbench.models.optimizer import Rates
from fedbench.registry.registry import Registry, dataset_of
from fedbench.seeding import generator, global_generator, seed_of
from fedbench.simulation.checkpoint import Progress
from fedbench.simulation.coding import coded_up, through_codecs
from fedbench.simulation.evaluation import Deployment, Evaluation
from fedbench.simulation.failure_reason import checked, checked_metric, checked_round, plugin_fault
from fedbench.simulation.faults import Guard, received
from fedbench.simulation.federated_data import TEST, FederatedData
from fedbench.simulation.federation import Federation
from fedbench.simulation.next_tokens import metrics_fault
from fedbench.simulation.privacy import Privacy
from fedbench.simulation.round_records import RoundRecords, Rows
from fedbench.simulation.state import ClientStore, keys_of, taken_apart
from fedbench.types import NEXT_TOKEN, Client, Cohort, Dataset, Job, Plan, Scenario, Uploads

Config = Mapping[str, Any]


def source_of(config: Mapping[str, Any], registry: Registry, load: bool = True) -> Source:
    """The backbone of a cell. What of it is random (`pretrained: false`) is drawn by the seed. Raises UserError."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(config["seed"], use="backbone"))
        source: Source = registry.make("backbone", config["backbone"], load=load)
    return source


class Simulation:
    """One cell, built and ready to run: its method, its federation, its test and validation images.

    `run` computes all rounds, `state` is the method's last one, and `records` makes the rows of the tables.
    `references` has what the method asked for of the registry, each with its reference. A subclass whose clients are
    elsewhere says where in `deployed`, and replaces `_train`.

    Args:
        config: of the cell, resolved.
        registry: makes its components.
        device: `cpu`, `cuda`, or `meta`, which builds shapes alone, for `RoundRecords.totals`.
        source: the backbone where it is loaded already, for this simulation alone.
        dataset: where it is loaded already.
        clients: where images are dealt already.
        store: where clients' own tensors lie; by default a temporary folder that ends with the simulation.
        federated: where the images and the clients are known already.
        setup: makes the set-up of the method.
        fitting: whether clients that have devices keep every size, so that the method can be asked what it offers.

    Raises:
        UserError: for a configuration that cannot work.
        NotApplicable: where the method is none for this scenario.
    """

    deployed = ""

    def __init__(
        self,
        config: Config,
        registry: Registry,
        device: str = "cpu",
        source: Source | None = None,
        dataset: Dataset | None = None,
        clients: Sequence[Client] | None = None,
        store: ClientStore | None = None,
        federated: FederatedData | None = None,
        setup: Callable[..., Setup] = Setup,
        fitting: bool = False,
    ) -> None:
        self.config, self.seed, self.rounds = config, config["seed"], config["train"]["rounds"]
        self.device, self.fast, self.team = device, config["engine"] == "cohort", ALONE
        self.state: State | None = None
        self.references: list[tuple[Any, Mapping[str, Any]]] = []
        self.component = registry.catalogue.find("method", config["method"]["name"])
        self.store = store or ClientStore()
        self.source = source = source or source_of(config, registry, device != "meta")
        fits = bool(config.get("devices")) and not fitting  # whether sizes are to be found
        shapes = replace(source, model=copy_of(source.model)) if fits and device == "meta" else None
        self.dataset = dataset or dataset_of(config["data"], registry, source.image_size)
        origin = json.dumps(config["backbone"], sort_keys=True)
        self.model = body_of(source.model, origin, source.image_size)
        if self.dataset.task == NEXT_TOKEN:
            self.model.predict_tokens()
            self.model.origin = f"{origin} {NEXT_TOKEN}"
        self.federated = federated = federated or FederatedData(
            config, registry, self.dataset, self.model.num_layers, source, device, clients
        )
        self.train, self.proxy, self.federation = federated.train, federated.proxy, federated.federation
        if fits:
            self.federation = self._fitted(registry, shapes)
        self.by_client, self.left_out = federated.by_client, federated.splits.left_out
        self.records = RoundRecords(config, self.dataset, self.federation)
        self.guard, self.rates = Guard(config["train"].get("guard")), Rates(config["train"])
        self.method = self._method(registry, setup)
        self.privacy = Privacy.of(config, self.method)
        check_ranks(self.model, self.federation.scenario)
        self.evaluation = self._evaluation(registry)
        self.deployment = Deployment(self.method, self.federation, self.rounds - 1)

    def _evaluation(self, registry: Registry) -> Evaluation:
        metrics = {
            ref["name"]: checked_metric(registry.catalogue.find("metric", ref["name"]), registry.make("metric", ref))
            for ref in self.config["evaluation"]["metrics"]
        }
        scored = [self.federated.test, *([self.train] if self.config["evaluation"].get("validation") else [])]
        if fault := metrics_fault(metrics, self.dataset, scored):
            raise UserError(fault)
        images, test = self.config["evaluation"]["batch_size"], self.federated.test
        if self.fast and isinstance(self.model, Blocks) and self.device != "meta":
            self._keep(self.model)
        if self.fast and self.device == "cpu" and isinstance(self.model, Blocks):
            images = min(images, max(1, ROWS // self.model.tokens(test.size)))
        how = (metrics, images, self.fast, self.method.personal, self.train)
        return Evaluation(test, self.federated.eval_splits, *how, classes=self._answers)

    @property
    def _answers(self) -> int:
        """C, or of next tokens how many there are."""
        if self.model.predicts_tokens:
            return len(self.model.decoder.vocabulary)
        return len(self.dataset.classes)

    def _keep(self, model: Blocks) -> None:
        """Let the features of a frozen model be computed once for all rounds."""
        if model.reads_features(range(model.num_layers), []):
            for images in (self.train, self.federated.test):
                images.keep_features(model.pooled)

    def _method(self, registry: Registry, made: Callable[..., Setup]) -> Method:
        def component(kind: str, ref: Any) -> Any:
            if callable(ref):
                return ref
            ref = {"name": ref} if isinstance(ref, str) else ref
            found = registry.make(kind, ref, setup=setup)
            if self.device != "meta":
                found = checked(registry.catalogue.find(kind, ref["name"]), found)
            self.references.append((found, ref))
            return found

        ref = self.config["adapter"]
        setup = made(
            backbone=self.model,
            adapter=attaching(lambda: registry.make("adapter", ref), ref, self.seed),
            engine=self._train,
            scenario=self.federation.scenario,
            train=self.rates.train,
            num_classes=self._answers,
            image_size=self.federated.train.size,
            seed=self.seed,
            component=component,
            device=self.device,
            profile=self.config["profile"],
            fold=self.fast and self.config["precision"] == "fp32",  # W + s B A in bf16 loses what is small next to W
            by_client=self.by_client,
            precision=self.precision,
            receive=self._receive_whole,
            store=self.store,
            proxy=self._proxy,
        )
        return registry.make("method", self.config["method"], setup=setup)

    def _fitted(self, registry: Registry, shapes: Source | None) -> Federation:
        """The clients with the largest of the sizes that fit their devices, for which the method is built from shapes.

        A ceiling's clients have the largest size whatever they need. Raises NotApplicable where nobody has one.
        """
        with torch.device("meta"):
            shapes = shapes or source_of(self.config, registry, load=False)
            given: dict[str, Any] = {"store": self.store, "federated": self.federated, "fitting": True}
            on_shapes = Simulation(self.config, registry, "meta", shapes, self.dataset, **given)
        with torch.device("cpu"):  # whatever device the caller builds on
            sizes = offered(on_shapes.method, self.federation.num_layers, self.rounds)
        found = self.federation.fits(sizes, None if self.component.role == "ceiling" else self.config)
        return self.federation.with_sizes(found)

    def _proxy(self) -> tuple[Tensor, Tensor] | None:
        """The server's own images, prepared as clients' are, with their labels; None where it has none."""
        if not len(self.proxy):
            return None
        if self.device == "meta":
            m = len(self.proxy)
            return self.train.example(m), torch.empty(m, dtype=torch.int64, device="meta")
        return self.train(self.proxy)

    @contextmanager
    def precision(self) -> Iterator[None]:
        """Around training steps and answers, and nothing else: fp32 as IEEE has it, TF32 nowhere; or torch's autocast,
        which must not keep rounded copies of what is trained."""
        rounded = self.config["precision"] == "bf16"
        cudnn: Any = torch.backends.cudnn  # whose stubs lack `conv` and `rnn`
        kinds = (torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn)
        before = [kind.fp32_precision for kind in kinds]
        for kind in kinds:
            kind.fp32_precision = "ieee"
        try:
            with torch.autocast(self.device, torch.bfloat16, enabled=rounded, cache_enabled=False):
                yield
        finally:
            for kind, precision in zip(kinds, before, strict=True):
                kind.fp32_precision = precision

    @property
    def processes(self) -> int:
        """How many processes can run it together: at most one for each client of a round."""
        together = self.fast and self.device == "cpu" and not self.method.alone and can_train(self.model)
        return max(1, len(self.federation.cohort(0))) if together else 1

    def _train(self, model: Blocks, start: dict[str, Any], plan: Plan, cohort: Cohort, job: Job) -> Uploads:
        """The engine, see `fedbench.engine`, and what of its uploads the server receives."""
        with self.precision():
            up = through_codecs(self._engine, model, start, plan, cohort, job)
        return self._receive(up, start, plan, cohort, job.t)

    def _engine(self, model: Blocks, start: dict[str, Any], plan: Plan, cohort: Cohort, job: Job) -> Uploads:
        """What clients have to send: what the engine has trained, with noise of their own where they add it."""
        of_a_round = (model, start, plan, cohort, job)
        up = train_together(*of_a_round, team=self.team) if self.fast else train_one_by_one(*of_a_round)
        return self.privacy.of_clients(up, start, plan, cohort, job.t) if self.privacy else up

    def _receive_whole(self, up: Uploads, start: Mapping[str, Any], plan: Plan, cohort: Cohort, t: int) -> Uploads:
        """The same of uploads that no engine has made, which come of `start` itself."""
        if codec := codec_of(self.config["train"].get("uploads")):
            up = coded_up(codec, up, start, start, plan, cohort, t, self.seed)
        return self._receive(up, start, plan, cohort, t)

    def _receive(self, up: Uploads, start: Mapping[str, Any], plan: Plan, cohort: Cohort, t: int) -> Uploads:
        """What the server has of uploads, through faults and guard, and with its noise."""
        up = received(up, start, plan, cohort, t, self.federation.faults, self.guard)
        return self.privacy.of_server(up, start, plan, cohort, t) if self.privacy else up

    def _test(self, state: State, t: int, tables: dict[str, Rows]) -> None:
        """Enter into the tables how good the models of a state are, after round t counted from 1."""
        with self.precision(), fast(self.model) if self.fast else nullcontext():
            answers = self.evaluation.answers(functools.partial(self.method.predictor, state), self.team)
            tables["eval"] += self.records.eval(t, self.evaluation.scored(answers))
        tables["answers"] += self.records.answers(t, self.evaluation, answers)

    def _deploy(self, state: State, t: int, tables: dict[str, Rows]) -> None:
        """Enter into the tables how good the model of a state is at every size, and what each client can run of it,
        after round t counted from 1."""
        tested, found = self.evaluation.only(TEST), {}
        sizes = self.deployment.sizes  # what they need is measured of the model as it is, not of its faster ways
        with self.precision(), fast(self.model) if self.fast else nullcontext():
            for one in sizes:
                answers = tested.answers(self.deployment.predictor(state, one), self.team)
                found[one.size] = tested.scored(answers)
                tables["sizes"] += self.records.sizes(t, one, found[one.size])
        tables["deployed"] += self.records.deployed(t, self.deployment, found)

    def _sweep(self, before: State, state: State) -> None:
        """Delete what clients kept before a round and not after it, once every process of the team has read it."""
        if keys_of(before) or keys_of(state):
            self.team.meet()
        self.store.sweep(state)

    def _refuse_unkept(self, state: State) -> None:
        """Raises UserError for a state that cannot be kept: now, not after the last round."""
        try:
            taken_apart(state)
        except UserError as error:
            raise plugin_fault(self.component, str(error), self.method.round) from error

    def run(
        self,
        on_round: Callable[[int, Rows], None] = lambda t, rows: None,
        team: ProcessGroup = ALONE,
        progress: Progress | None = None,
    ) -> tuple[Rows, Rows]:
        """All rounds; returns the rows of eval.parquet and of rounds.parquet, and leaves the last `state`. Raises
        Diverged; UserError for a state that cannot be kept.

        Args:
            team: the processes that run this simulation, each of them by this function; the first alone has the rows of
                layers.parquet.
            progress: where to go on, as if the rounds before had been computed just now; kept up to date but for
                `seconds`.
        """
        progress = progress or Progress()
        tables, records = progress.tables, self.records
        due, self.team = records.evaluated, team
        if team.rank:
            self.store.follow()
        state = self.method.init(generator(self.seed, use="init"))  # and the model is as it was then
        if progress.state is not None:
            state = progress.state
        for t in range(progress.round, self.rounds):
            cohort = records.clocked.cohort(t, self.method)
            before = state
            chance = generator(self.seed, t, use="round")
            self.rates.enter(t)
            state, report = checked_round(self.component, self.method, before, t, cohort, chance)
            if t == 0:
                self._refuse_unkept(state)
            clients = records.enter(tables, t, report)
            if not team.rank:
                tables["layers"] += records.layers(t, self.model, before, state, report)
            if t + 1 in due:
                self._test(state, t + 1, tables)
            if records.sized and t + 1 == self.rounds:
                self._deploy(state, t + 1, tables)
            progress.round, progress.state = t + 1, state
            self._sweep(before, state)
            del before, report  # the uploads of whole models are large, and the next round has its own
            on_round(t + 1, clients)
        self.state = state
        return tables["eval"], tables["rounds"]


def attaching(make: Callable[[], Callable[[Any], None]], ref: Mapping[str, Any], seed: int) -> Callable[[Any], None]:
    """What attaches an adapter to a model, whose origin names the adapter afterwards: what it costs without does not
    depend on that.

    Args:
        make: makes the adapter, once a method asks for it: the plugin of one that a method ignores is not imported.
        ref: its reference.
        seed: the cell's, from which follows what a module's constructor draws of frozen tensors.
    """
    made = functools.cache(make)

    def attached(model: Any) -> None:
        attach = made()
        with global_generator(seed, use="adapter"):
            attach(model)
        model.origin = f"{model.origin} {json.dumps(ref, sort_keys=True)}"

    return attached


def check_ranks(model: Blocks | Plain, scenario: Scenario) -> None:
    """Raises UserError where a client may be given more rank-one terms than the model's adapters have."""
    if scenario.ranks is None:
        return
    adapters: list[Callable[[], LowRank] | None] = [getattr(part, "low_rank", None) for part in model.modules()]
    R = max((low_rank().rank for low_rank in adapters if low_rank), default=None)
    if R is not None and scenario.ranks.max() > R:
        raise UserError(f"ranks: {scenario.ranks.max()} is above {R}, the largest rank of the adapters")
