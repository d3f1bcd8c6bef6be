"""What a cell has beside its model and its method: images, who has which of them, and what is tested by itself."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from fedbench.cell.federation import Federation
from fedbench.cell.pixels import NORMALIZE, Pixels
from fedbench.cell.shares import Share, of_clients, of_domains, of_validation
from fedbench.data.heldout import dealt, proxy_of, without_validation
from fedbench.registry.registry import Registry
from fedbench.seeding import numpy_generator
from fedbench.types import Client, Dataset


class World:
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
        clients: list[Client] | None = None,
    ) -> None:
        """num_layers: L of the backbone · normalised: mean and deviation that its images are brought to · clients:
        where they are dealt already. Raises UserError."""
        self.config, self.seed, self.dataset = config, config["seed"], dataset
        self.splits = splits = dataset.load()
        mean, std = NORMALIZE.get(config["data"]["normalize"], normalised)
        self.train, self.test = Pixels(splits.train, mean, std, device), Pixels(splits.test, mean, std, device)
        if clients is None:
            partition = registry.make("partition", config["data"]["partition"])
            self.proxy = proxy_of(splits.train, config["data"].get("proxy"), self.seed)
            clients = dealt(partition, splits.train, len(dataset.domains), self.seed, self.proxy)
            validation = config["evaluation"].get("validation")
        else:  # what was dealt to whom is not known, and one image stands for the server's
            self.proxy, validation = np.arange(1 if config["data"].get("proxy") else 0), None
        self._everything, (kept, self._held) = clients, without_validation(splits.train, clients, validation, self.seed)
        self.federation = Federation(config, kept, num_layers, self.train)

    @property
    def by_client(self) -> bool:
        """Whether every client is tested by itself, on images like its own."""
        return bool(self.config["evaluation"].get("by", "domain") == "client")

    @cached_property
    def shares(self) -> list[Share]:
        """What is scored by itself: the test images of each domain, or of each client, then the validation images. The
        test images of each client are the same with and without what it has held out. Raises UserError."""
        train, test, clients = self.splits.train, self.splits.test, self._everything
        validation = of_validation(self.dataset, train, clients, self._held, self.by_client)
        if not self.by_client:
            return of_domains(self.dataset, test) + validation
        draw = numpy_generator(self.seed, use="test images of clients")
        return of_clients(self.dataset, train, test, clients, draw) + validation

    @property
    def sizes(self) -> list[int]:
        """How many images each of them has."""
        return [len(share.indices) for share in self.shares]
