"""The federation of a cell: its registered clients, and the sizes and batches of those that take part in a round."""

from __future__ import annotations

import copy
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.devices.assignment import Dealt, devices_of, server_of
from fedbench.devices.fitting import Costs, Fit, Work, fitted
from fedbench.errors import NotApplicable, UserError
from fedbench.seeding import numpy_generator, seed_of
from fedbench.simulation.batches import Batch, Inputs
from fedbench.simulation.faults import Faults
from fedbench.simulation.state import ClientStorage
from fedbench.types import GLOBAL, MIXED, Client, ClientCost, Clients, Cohort, Device, Scenario, Size
from fedbench.words import counted

# A suite's key, and what one value is called.
KEYS = {"capacity": ("capacities", "depth"), "rank": ("ranks", "rank"), "width": ("widths", "width")}


class Federation:
    """The clients of one cell over its rounds; every draw is a function of (seed, round, client) alone."""

    def __init__(self, config: Mapping[str, Any], clients: Sequence[Client], num_layers: int, pixels: Inputs) -> None:
        self.clients, self.pixels = Clients.of(clients), pixels
        self.seed, self.train = config["seed"], config["train"]
        self.participation = config["participation"]
        self.num_layers = num_layers
        self.faults = Faults(config.get("faults", {}), self.seed)
        self.keeps = ClientStorage.said(config)
        refuse_idle(self.clients)
        self.fewest = self._batches(int(self.clients.sizes.min()))
        self.devices: Dealt[Device] | None = None
        self.server: Device | None = None
        self.fitted: Dealt[Size | None] | None = None
        if given := config.get("devices"):
            self.devices = devices_of(given, self.clients.domains, self.seed)
            self.server = server_of(given)
            self._give({"capacities": {"uniform": [1, num_layers]}, "widths": {"uniform": [0.0, 1.0]}}, True)
        else:
            self._give(config)

    def _give(self, given: Mapping[str, Any], fitting: bool = False) -> None:
        """Sizes to every client, by the keys of a configuration. fitting: whether those are yet to be found."""
        clients, L = self.clients, self.num_layers
        self.capacities = Sizes("capacity", given["capacities"], clients, self.seed, everybody=L)
        self.ranks = Sizes("rank", given["ranks"], clients, self.seed) if "ranks" in given else None
        self.widths = Sizes("width", given["widths"], clients, self.seed) if "widths" in given else None
        r_n, width = (sizes.ranges if sizes else None for sizes in (self.ranks, self.widths))
        self.scenario = Scenario(clients, self.capacities.ranges, L, self.train["rounds"], r_n, width, fitting)
        self.able, domains = self._with_a_size(), clients.domains
        self._able_by_domain = (
            [self.able[domains[self.able] == domain] for domain in np.unique(domains)]
            if "per_domain" in self.participation
            else []
        )

    def fits(self, sizes: Sequence[tuple[Size, Costs]], config: Mapping[str, Any] | None) -> Dealt[Size | None]:
        """The size that each client takes of these, with their costs, by what the configuration says must fit; without
        one everybody takes the last. Clients of one device that have equally many images do the same work."""
        assert self.devices is not None and self.server is not None
        held = self.clients.sizes
        kinds = self.devices.which.astype(np.int64) * (held.max() + 1) + held
        _, first, which = np.unique(kinds, return_index=True, return_inverse=True)
        some = first.tolist()
        devices, works = [self.devices[client] for client in some], [self.work(client) for client in some]
        sizes = [(size, [self.keeps.steady(cost) for cost in costs]) for size, costs in sizes]
        found = Dealt.of(fitted(sizes, Fit.of(config, self.server) if config else None, devices, works))
        return Dealt(found.kinds, found.which[which])

    def charged(self, client: int, cost: ClientCost) -> ClientCost:
        """What a client is charged, which has a device of its own, in parts of a batch as they fit there."""
        auto = self.devices is not None and self.train.get("micro_batch") == "auto"
        return cost.within(self.devices[client].memory) if auto and self.devices else cost

    def work(self, client: int, steps: int | None = None) -> Work:
        """What a client does in so many steps of a round, or in one in which nothing goes wrong."""
        steps = self.steps(client) if steps is None else steps
        images = self.images(client, steps)
        more_steps = self.personal_steps  # asked of few methods alone
        return Work(
            images,
            images - self.images(client, max(0, steps - 1)),
            lambda epochs: self.images(client, more_steps(client, epochs, steps)),
            steps,
        )

    @property
    def turnout(self) -> dict[str, Any] | None:
        """How many of the clients can take part, with how many of all training images, and how many of them have which
        size; None where clients have no devices."""
        if self.fitted is None:
            return None
        held, many = self.clients.sizes, np.bincount(self.fitted.which).tolist()
        had = [(size, count) for size, count in zip(self.fitted.kinds, many, strict=True) if size is not None]
        sizes: Counter[str] = Counter()
        for size, count in sorted(had, key=lambda one: one[0].order):
            sizes[str(size)] += count  # different ones may have one name
        return {
            "clients": len(self.able),
            "of_clients": len(held),
            "images": int(held[self.able].sum()),
            "of_images": int(held.sum()),
            "sizes": dict(sizes),
        }

    def with_sizes(self, fitted: Sequence[Size | None]) -> Federation:
        """The same clients with these sizes, one or None for each; who has none takes no part. For methods that look at
        everybody's sizes, those have the least size that anybody took. Raises NotApplicable where nobody has one."""
        made, dealt = copy.copy(self), Dealt.of(fitted)
        took = [size for size in dealt.kinds if size is not None]
        if not took:
            raise NotApplicable("no client's device can hold any size of the method")
        least = min(took, key=lambda size: size.order)
        all_of = [size or least for size in dealt.kinds]

        def of_each(values: Iterable[Any]) -> dict[str, np.ndarray]:
            return {"by_client": np.array(list(values))[dealt.which]}

        given = {"capacities": of_each(size.capacity for size in all_of)}
        if least.rank is not None:
            given["ranks"] = of_each(size.rank for size in all_of)
        if least.width is not None:
            given["widths"] = of_each(size.width for size in all_of)
        made.fitted = dealt
        made._give(given)
        return made

    def cohort(self, t: int) -> Cohort:
        """The clients of round t."""
        ids = self._sample(t)
        fates = [self.faults.fate(t, i, self.steps(i)) for i in ids]
        return Cohort(
            ids=ids,
            capacities=_numbers(self.capacities.of(t, i) for i in ids),
            num_examples=_numbers(map(self.clients.examples, ids)),
            steps=_numbers(fate.steps for fate in fates),
            batches=Batches(self, t, ids),
            arrives=_numbers(fate.arrives for fate in fates).bool(),
            ranks=_numbers(self.ranks.of(t, i) for i in ids) if self.ranks else None,
            widths=_numbers((self.widths.of(t, i) for i in ids), torch.float64) if self.widths else None,
        )

    def _with_a_size(self) -> np.ndarray:
        """(n,) int64: the clients that have a size and so can take part, in order."""
        if self.fitted is None or None not in self.fitted.kinds:
            return np.arange(len(self.clients))
        return np.flatnonzero(self.fitted.which != self.fitted.kinds.index(None))

    def _sample(self, t: int) -> list[int]:
        """The clients that take part in round t."""
        how, draw = self.participation, numpy_generator(self.seed, t, use="participation")
        if "per_domain" in how:
            chosen: list[int] = []
            for here in self._able_by_domain:
                chosen += draw.choice(here, size=min(how["per_domain"], len(here)), replace=False).tolist()
            return sorted(chosen)
        if "all" in how:
            return self.able.tolist()
        count = how["count"] if "count" in how else max(1, round(how["fraction"] * len(self.able)))
        return sorted(draw.choice(self.able, size=min(count, len(self.able)), replace=False).tolist())

    def steps(self, client: int, epochs: int | None = None) -> int:
        """What a client takes in a round in which nothing goes wrong: local_epochs, or so many, of its batches, at most
        max_steps; `smallest`: at most what the largest client does in local_epochs."""
        most, usual = self.train["max_steps"], self.train["local_epochs"]
        limit = usual * (self.fewest + 1) if self._by_smallest else most
        steps = (usual if epochs is None else epochs) * self._epoch(client)
        return steps if limit is None else min(steps, limit)

    def personal_steps(self, client: int, epochs: int, done: int) -> int:
        """The steps of `epochs` epochs that a client takes beyond the `done` ones of its usual steps: as large a
        part of them, and at least one if it has done any."""
        return max(1, self.steps(client, epochs) * done // self.steps(client)) if done and epochs else 0

    @property
    def _by_smallest(self) -> bool:
        """Whether the smallest client's batches limit everybody's: `smallest`, in a configuration also EACH_EPOCH."""
        return isinstance(self.train["max_steps"], str)

    def _batches(self, images: int) -> int:
        """How many batches a client's images are."""
        return math.ceil(images / self.train["batch_size"])

    def _epoch(self, client: int) -> int:
        """Its batches in one epoch; `smallest`: at most one more than the smallest client has (the FedRA authors'
        code)."""
        batches = self._batches(self.clients.examples(client))
        return min(batches, self.fewest + 1) if self._by_smallest else batches

    def images(self, client: int, steps: int) -> int:
        """How many images `steps` batches hold, short last batches counted as they are."""
        size, own, epoch = self.train["batch_size"], self.clients.examples(client), self._epoch(client)
        epochs, rest = divmod(steps, epoch)
        return epochs * min(epoch * size, own) + min(rest * size, own)

    def in_order(self, t: int, client: int) -> Iterator[np.ndarray]:
        """The positions of the images of each batch of a round: each epoch in a new order, cut off where `smallest`
        does so, the last batch of all its images short."""
        size, own = self.train["batch_size"], self.clients[client].indices
        epoch = self._epoch(client)
        for number in range(self.train["local_epochs"]):
            order = numpy_generator(self.seed, t, client, f"shuffle/{number}").permutation(own)
            for first in range(0, min(len(order), epoch * size), size):
                yield order[first : first + size]

    def trained_on(self, t: int, client: int, steps: int) -> np.ndarray:
        """The positions of the images of so many batches of a round."""
        return np.concatenate([self.clients[client].indices[:0], *itertools.islice(self.in_order(t, client), steps)])

    def batches(self, t: int, client: int, order: Iterable[np.ndarray], features: bool = False) -> Iterator[Batch]:
        """The batches of a client in round t.

        Args:
            t: The round.
            client: Whose batches, or GLOBAL.
            order: The positions of the images of each.
            features: Whether those are wanted, where they are kept. Images that change by chance have none.
        """
        if not self.pixels.augment:
            return map(self.pixels.features if features else self.pixels, order)
        seeds = (seed_of(self.seed, t, client, f"augmentation/{step}") for step in itertools.count())
        return map(self.pixels, order, seeds)

    def in_pool(self, t: int) -> Iterator[np.ndarray]:
        """The positions of the images of batches of round t, of the images of all clients in new orders without end."""
        size, everybodys = self.train["batch_size"], self.clients.indices
        for number in itertools.count():
            order = numpy_generator(self.seed, t, use=f"pool/{number}").permutation(everybodys)
            yield from (order[first : first + size] for first in range(0, len(order), size))


def refuse_idle(clients: Clients) -> None:
    """Raises UserError where a client has no images."""
    if idle := np.flatnonzero(clients.sizes == 0)[:5].tolist():
        raise UserError(f"the partition gave clients {idle} no training examples; every client needs one")


class Batches:
    """The batches (x, y) of the clients of a round: images, or to an engine that asks, features."""

    def __init__(self, federation: Federation, t: int, ids: Sequence[int]) -> None:
        self.federation, self.t, self.ids = federation, t, ids

    def __call__(self, n: int) -> Iterator[Batch]:
        return self._made(n)

    def features(self, n: int) -> Iterator[Batch]:
        """The same, as features where those are kept."""
        return self._made(n, features=True)

    def first(self, n: int) -> int:
        """How many images the first batch of client n has; no later one has more."""
        return self.federation.images(self.ids[n], 1)

    @property
    def image_size(self) -> int:
        """Pixels a side, or tokens of the longest text."""
        return self.federation.pixels.size

    def labels(self, n: int) -> Tensor:
        """(|D_n|,) int64: of all images of client n."""
        own = self.federation.clients[self.ids[n]].indices
        return self.federation.pixels.labels(own)

    def personal_steps(self, n: int, epochs: int, done: int) -> int:
        """See `Federation`."""
        return self.federation.personal_steps(self.ids[n], epochs, done)

    def only(self, rows: Sequence[int]) -> Batches:
        return type(self)(self.federation, self.t, [self.ids[n] for n in rows])

    @property
    def pooled(self) -> Batches:
        """Of one client that has the images of all."""
        return PooledBatches(self.federation, self.t, [GLOBAL])

    def _made(self, n: int, features: bool = False) -> Iterator[Batch]:
        order = self.federation.in_order(self.t, self.ids[n])
        return self.federation.batches(self.t, self.ids[n], order, features)


class PooledBatches(Batches):
    """The same of one client that has the images of all."""

    def first(self, n: int) -> int:
        return min(self.federation.train["batch_size"], len(self.federation.clients.indices))

    def labels(self, n: int) -> Tensor:
        """(sum of |D_n|,) int64: of the images of all clients."""
        return self.federation.pixels.labels(self.federation.clients.indices)

    def _made(self, n: int, features: bool = False) -> Iterator[Batch]:
        return self.federation.batches(self.t, GLOBAL, self.federation.in_pool(self.t), features)


def _numbers(values: Iterable[float], dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.tensor(list(values), dtype=dtype, device="cpu")  # also where the model is but a shape


class Sizes:
    """One size of every client; every draw is a function of (seed, round, client) alone.

    Attributes:
        what: `capacity`, `rank` or `width`.
        given: what the configuration says.
        everybody: the size that `all` means.
        ranges: (clients, 2) int64, of widths float64, not to be written to: the smallest and the largest size of each.

    Raises UserError where a client is given none.
    """

    def __init__(self, what: str, given: Mapping[str, Any], clients: Clients, seed: int, everybody: int = 0) -> None:
        self.what, self.seed = what, seed
        if "all" in given or "uniform" in given:
            own = np.array(given.get("uniform", (everybody, everybody)))
        else:
            own = self._of_each(given, clients)[:, None]
        self.ranges = np.broadcast_to(own, (len(clients), 2))

    def _of_each(self, given: Mapping[str, Any], clients: Clients) -> np.ndarray:
        """(clients,): the size of each, by its number or its domain."""
        key, one = KEYS[self.what]
        way = next(way for way in ("by_client", "cycle", "by_domain") if way in given)
        values = np.asarray(given[way])
        places = clients.domains if way == "by_domain" else np.arange(len(clients))
        places = places % len(values) if way == "cycle" else places
        if (mixed := places == MIXED).any():
            raise UserError(
                f"{key} by_domain: client {mixed.argmax()} has examples of several domains; give each client a {one}, "
                "{by_client: [...]}, or draw them, {uniform: [lowest, highest]}"
            )
        if (places >= len(values)).any():
            raise UserError(
                f"{key}: {counted(len(values), 'value')} for {counted(len(clients), 'client')}; give one for each"
            )
        return values[places]

    def of(self, t: int, client: int) -> float:
        """The size of a client in round t, a whole number but for widths."""
        low, high = self.ranges[client].tolist()
        if low == high:
            return float(low) if self.what == "width" else int(low)
        draw = numpy_generator(self.seed, t, client, self.what)
        return float(draw.uniform(low, high)) if self.what == "width" else int(draw.integers(int(low), int(high) + 1))
