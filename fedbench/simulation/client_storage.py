"""What clients keep from one round to the next: frozen weights, and what the frozen model makes of their images."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedbench.types import ClientCost
from fedbench.types.client_cost import FROZEN


@dataclass
class Kept:
    """What one client has kept: the layers whose frozen weights it has, the positions of the images whose features it
    has, and the last round in which it took part, from 0."""

    layers: set[int] = field(default_factory=set)
    images: set[int] = field(default_factory=set)
    last: int | None = None


@dataclass
class ClientStorage:
    """What every client has kept so far, by a suite's `frozen_weights: cached` and `frozen_features: kept`.

    A client keeps the frozen weights of every layer that it ever held, and those outside the layers. Where nothing
    beneath the classifiers is trained, it keeps what they read of every image that it has trained on. Whoever is lost
    in a round has kept what it was sent.

    weights, features: whether clients keep them.
    """

    weights: bool = False
    features: bool = False
    of: dict[int, Kept] = field(default_factory=dict)

    @classmethod
    def said(cls, config: Mapping[str, Any]) -> ClientStorage:
        """What the configuration of a cell says, before the first round."""
        return cls(config.get("frozen_weights") == "cached", config.get("frozen_features") == "kept")

    @property
    def is_used(self) -> bool:
        """Whether clients keep anything."""
        return self.weights or self.features

    def keep(self, t: int, client: int, layers: Iterable[int], images: Iterable[int] = ()) -> None:
        """Note what a client keeps of round t."""
        kept = self.of.setdefault(client, Kept())
        kept.layers.update(layers)
        kept.images.update(images)
        kept.last = t

    def charged(
        self, t: int, client: int, cost: ClientCost, held: Collection[int], images: np.ndarray
    ) -> tuple[ClientCost, list[int]]:
        """What a client pays in round t, and the layers whose frozen weights it is sent; it keeps both.

        Args:
            held: the layers that it holds in this round.
            images: positions of those that it trains on.
        """
        kept = self.of.get(client, Kept())
        lacks, unseen = sorted(set(held) - kept.layers), set(images.tolist()) - kept.images
        if self.weights:
            missed = 0 if kept.last is None else t - kept.last
            cost = cost.with_frozen_sent(len(lacks), outside=kept.last is None, missed=missed)
        if self.features:
            cost = cost.with_features_kept(len(unseen))
        self.keep(t, client, lacks, unseen)
        return cost, lacks

    def stored(self, client: int, cost: ClientCost) -> int:
        """Bytes that a client has kept by now. cost: of its last round."""
        frozen, kept, bytes_kept = cost.frozen, self.of[client], 0
        if frozen and self.weights and any(one.what in FROZEN for one in cost.sent):
            bytes_kept += frozen.embedding + frozen.outside + len(kept.layers) * frozen.layer
        if frozen and self.features:
            bytes_kept += len(kept.images) * frozen.feature_bytes
        return bytes_kept

    def steady(self, cost: ClientCost) -> ClientCost:
        """What a client pays in a round that adds nothing to what it keeps."""
        if self.weights:
            cost = cost.with_frozen_sent(0, outside=False, missed=1)
        return cost.with_features_kept() if self.features else cost
