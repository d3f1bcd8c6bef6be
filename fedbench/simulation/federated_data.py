"""What a cell has beside its model and its method: images, who has which of them, and what is tested by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fedbench.data.checked import fault_of_clients, fault_of_domains, fault_of_images, loaded, refusal
from fedbench.data.heldout import dealt, proxy_of, without_validation
from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.seeding import numpy_generator
from fedbench.simulation.batches import NORMALIZE, Pixels
from fedbench.simulation.eval_splits import EvalSplit, of_clients, of_domains, of_validation
from fedbench.simulation.failure_reason import check_command
from fedbench.simulation.federation import Federation, refuse_idle
from fedbench.types import Client, Clients, Dataset


class FederatedData:
    """The images and the clients of a cell: a function of its configuration, whatever method is tried there.

    train, test: all images · proxy: the server's own, by their positions · federation: the clients over the rounds.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        registry: Registry,
        dataset: Dataset,
        num_layers: int,
        normalised: tuple[Any, Any],
        device: str = "cpu",
        clients: Sequence[Client] | None = None,
    ) -> None:
        """num_layers: L of the backbone · normalised: mean and deviation that its images are brought to · clients:
        where they are dealt already. Raises UserError."""
        self.config, self.seed, self.dataset = config, config["seed"], dataset
        self.splits = splits = loaded(dataset, config["data"]["name"])
        if clients is None:
            self._refuse_images(registry)
        mean, std = NORMALIZE.get(config["data"]["normalize"], normalised)
        self.train, self.test = Pixels(splits.train, mean, std, device), Pixels(splits.test, mean, std, device)
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
        faults = [fault_of_images(getattr(self.splits, split), self.dataset, split) for split in ("train", "test")]
        if not any(faults) and not self.by_client:
            faults.append(fault_of_domains(self.splits.test, self.dataset))
        name = self.config["data"]["name"]
        for fault in filter(None, faults):
            raise refusal(name, fault + check_command(registry.catalogue.find("dataset", name)))

    @property
    def by_client(self) -> bool:
        """Whether every client is tested by itself, on images like its own."""
        return bool(self.config["evaluation"].get("by", "domain") == "client")

    @cached_property
    def shares(self) -> list[EvalSplit]:
        """What is scored by itself: the test images of each domain, or of each client, then the validation images. The
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
        return [len(share.indices) for share in self.shares]
