"""The federated data of a cell: its images, the clients that have them, and the splits that are scored separately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fedbench.data.checked import doubts, fault_of_clients, fault_of_data, loaded, refusal
from fedbench.data.heldout import dealt, proxy_of, without_validation
from fedbench.errors import UserError
from fedbench.registry.facts import mismatch
from fedbench.registry.registry import Registry
from fedbench.results.scores import VALIDATION
from fedbench.seeding import numpy_generator
from fedbench.simulation.batches import NORMALIZE, Inputs, Pixels, TokenIds
from fedbench.simulation.failure_reason import check_command
from fedbench.simulation.federation import Federation, refuse_idle
from fedbench.simulation.next_tokens import Continuations, fitting, most_tokens
from fedbench.types import CLASSIFICATION, GLOBAL, NEXT_TOKEN, Client, Clients, Dataset, Images, Texts

if TYPE_CHECKING:
    from fedbench.models.backbone import Source
    from fedbench.models.tokens import Continuing

TEST = "test"  # what is scored next to VALIDATION, as results call it
MOST_BY_CLIENT = 100_000  # clients whose validation images are evaluated one by one: a row each in every evaluation


@dataclass(frozen=True)
class EvalSplit:
    """Positions (n,) in the test split, or of validation images in the training split, and how the results call
    them."""

    domain: str
    indices: np.ndarray
    client: int = GLOBAL
    split: str = TEST


class FederatedData:
    """The images or texts and the clients of a cell: a function of its configuration, whatever method is tried there.

    Attributes:
        train, test: all of them.
        proxy: the server's own, by their positions.
        federation: the clients over the rounds.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        registry: Registry,
        dataset: Dataset,
        num_layers: int,
        source: Source,
        device: str = "cpu",
        clients: Sequence[Client] | None = None,
    ) -> None:
        """The data of a configuration.

        Args:
            num_layers: L of the backbone.
            source: the backbone, whose normalisation or tokenizer they go through.
            clients: where they are dealt already.

        Raises UserError.
        """
        self.config, self.seed, self.dataset = config, config["seed"], dataset
        self.splits = splits = loaded(dataset, config["data"]["name"])
        if dataset.task == NEXT_TOKEN and source.tokenizer is not None:
            self.splits = splits = fitting(splits, source, config)
        known = registry.catalogue.components["dataset"].get(config["data"]["name"])  # None: blank, without its plugin
        self._official = bool(known and known.source)
        if clients is None:
            self._refuse_images(registry)
        halves = (splits.train, splits.test)
        self.train, self.test = (inputs_of(split, config, source, device, dataset.task) for split in halves)
        self.train.augment = config["data"].get("augment", ())
        if clients is None:
            ref = config["data"]["partition"]
            partition = registry.make("partition", ref)
            self.proxy = proxy_of(splits.train, config["data"].get("proxy"), self.seed)
            clients = dealt(partition, splits.train, len(dataset.domains), self.seed, self.proxy)
            if fault := fault_of_clients(clients, len(splits.train)):
                hint = check_command(registry.catalogue.find("partition", ref["name"]))
                raise UserError(f"the partition {ref['name']!r} cannot be used: {fault}{hint}")
            refuse_idle(clients := Clients.of(clients))
            validation = config["evaluation"].get("validation")
        else:  # what was dealt to whom is not known, and one image stands for the server's
            self.proxy, validation = np.arange(1 if config["data"].get("proxy") else 0), None
        self._everything = registered = Clients.of(clients)
        kept, self._held = without_validation(splits.train, registered, validation, self.seed)
        self.federation = Federation(config, kept, num_layers, self.train)

    def _refuse_images(self, registry: Registry) -> None:
        """Raises UserError for images and labels with which nothing could be computed."""
        if fault := fault_of_data(self.splits, self.dataset, self.by_client):
            name = self.config["data"]["name"]
            raise refusal(name, fault + check_command(registry.catalogue.find("dataset", name)))

    def doubts(self) -> list[str]:
        """What is wrong with the data, and no reason to compute nothing, a sentence each."""
        return doubts(self.splits, self.dataset, self._official, self.by_client)

    @property
    def by_client(self) -> bool:
        """Whether every client is tested separately, on images like its own."""
        return bool(self.config["evaluation"].get("by", "domain") == "client")

    @cached_property
    def eval_splits(self) -> list[EvalSplit]:
        """What is scored separately: the test images of each domain, or of each client, then the validation images. The
        test images of each client are the same with and without what it has held out. Raises UserError."""
        train, test, clients = self.splits.train, self.splits.test, self._everything
        validation = of_validation(self.dataset, train, self._held, self.by_client)
        if not self.by_client:
            return of_domains(self.dataset, test) + validation
        draw = numpy_generator(self.seed, use="test images of clients")
        return of_clients(self.dataset, train, test, clients, draw) + validation

    @property
    def sizes(self) -> list[int]:
        """How many images each of them has."""
        return [len(split.indices) for split in self.eval_splits]


def inputs_of(
    split: Images | Texts, config: Mapping[str, Any], source: Source, device: str, task: str = CLASSIFICATION
) -> Inputs:
    """The images or texts of a split as the backbone takes them. Raises UserError where it takes others."""
    if fault := mismatch(isinstance(split, Texts), source.tokenizer is not None, config):
        raise UserError(fault)
    if isinstance(split, Texts):
        assert source.tokenizer is not None
        most = most_tokens(config, source)
        if task == NEXT_TOKEN:
            return Continuations(split, cast("Continuing", source.tokenizer), most, device)
        return TokenIds(split, source.tokenizer, most, device)
    mean, std = NORMALIZE.get(config["data"]["normalize"], (source.mean, source.std))
    return Pixels(split, mean, std, device)


def of_domains(dataset: Dataset, test: Images | Texts) -> list[EvalSplit]:
    """The test images of each domain."""
    return [EvalSplit(name, np.flatnonzero(test.domain == d)) for d, name in enumerate(dataset.domains)]


def of_clients(
    dataset: Dataset, train: Images | Texts, test: Images | Texts, clients: Clients, generator: np.random.Generator
) -> list[EvalSplit]:
    """For each client, test images that are distributed as its training images are.

    The test images of every domain and class are dealt in random order to the clients, in random order too, in
    proportion to how many training images of that domain and class they have; cumulative numbers are rounded. Each
    goes to one client, or to nobody where no client has that class of that domain. A client that gets none is left
    out.

    Raises: UserError where nobody gets any.
    """
    train_owner, test_owner = np.full(len(train), -1), np.full(len(test), -1)
    train_owner[clients.indices] = np.repeat(np.arange(len(clients)), clients.sizes)
    trained, tested = (images.domain * len(dataset.classes) + images.y for images in (train, test))
    for kind in np.unique(tested):
        holders = train_owner[trained == kind]
        images, order = generator.permutation(np.flatnonzero(tested == kind)), generator.permutation(len(clients))
        held = np.bincount(holders[holders >= 0], minlength=len(clients))[order]
        if held.any():
            ends = np.rint(np.cumsum(held) * len(images) / held.sum())
            test_owner[images] = order[np.searchsorted(ends, np.arange(len(images)), side="right")]
    if (test_owner < 0).all():
        raise UserError("evaluation by client: no test image is of a domain and class that a client trains on")
    by_owner = np.argsort(test_owner, kind="stable")
    some, starts = np.unique(test_owner[by_owner], return_index=True)
    return [
        EvalSplit(dataset.domain_name(int(clients.domains[i])), own, i)
        for i, own in zip(some.tolist(), np.split(by_owner, starts[1:]), strict=True)
        if i >= 0
    ]


def of_validation(dataset: Dataset, train: Images | Texts, held: Clients | None, by_client: bool) -> list[EvalSplit]:
    """The validation images that clients hold out, client by client, or all of a domain; those that have any.

    held: the clients with them, positions in the training split. Raises UserError where too many clients would be
    validated one by one.
    """
    if held is None:
        return []
    if by_client:
        some = np.flatnonzero(held.sizes).tolist()
        if len(some) > MOST_BY_CLIENT:
            raise UserError(
                f"evaluation by client: {len(some):,} clients hold out validation examples, and at most "
                f"{MOST_BY_CLIENT:,} are evaluated one by one; evaluate by domain, or register fewer clients"
            )
        return [
            EvalSplit(dataset.domain_name(c.domain), c.indices, c.id, VALIDATION) for c in map(held.__getitem__, some)
        ]
    everybodys = np.sort(held.indices)
    domain = train.domain[everybodys]
    found = [EvalSplit(name, everybodys[domain == d], split=VALIDATION) for d, name in enumerate(dataset.domains)]
    return [split for split in found if len(split.indices)]
