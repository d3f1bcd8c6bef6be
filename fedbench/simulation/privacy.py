"""Differential privacy of uploads: updates of a bounded norm, Gaussian noise, and the epsilon that follows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedbench.errors import NotApplicable
from fedbench.families.aggregation import client_weights
from fedbench.method import Method
from fedbench.models.param_paths import Values, mapped, places, started, trainers
from fedbench.seeding import generator
from fedbench.types import Cohort, Plan, Uploads

Rows = Sequence[Mapping[str, Any]]
DELTA = 1e-5  # unless the suite says otherwise


@dataclass(frozen=True)
class Privacy:
    """The privacy of clients, one client with all its examples being the unit.

    A client's update w_n - w_start, of all tensors that it trains together, is scaled down to the norm C = `clip`.

    - Central: the server, which is trusted, adds Gaussian noise of deviation z C max_n p_nj to each coordinate j of the
      mean sum_n p_nj w_nj, where p_nj are the shares of the clients that trained it and came back, and z is `noise`. An
      upload of zeros in place of client n's moves the mean of all coordinates together by at most 1 / z deviations,
      whoever holds which layers: sum_j (p_nj u_nj / (z C max_m p_mj))^2 <= |u_n|^2 / (z C)^2.
    - Local: every client adds noise of deviation z C to each coordinate of its own update. Any other update in its
      place moves what it sends by at most 2 / z deviations.

    The mean of uploads that all have the same noise added is the mean with that noise, so that central noise is added
    to each of them, and methods and aggregators know nothing of it.

    Attributes:
        clip: C.
        noise: z.
        local: Whether clients add the noise.
        seed: The cell's, from which the noise follows.
        weights: By what the server weighs clients, for central noise.
    """

    clip: float
    noise: float
    local: bool
    seed: int
    weights: str

    @classmethod
    def of(cls, config: Mapping[str, Any], method: Method) -> Privacy | None:
        """What the configuration of a cell says; None where it says nothing. Raises NotApplicable."""
        given = config.get("privacy")
        if not given:
            return None
        local = given.get("local", False)
        if method.alone:
            raise NotApplicable("privacy covers clients that send one update of a model a round and keep no tensors")
        if method.forward:
            raise NotApplicable("privacy adds noise to weights, and clients here send none")
        if not local and (method.averages is None or "feddyn" in (config["train"].get("regularizer") or {})):
            raise NotApplicable("central privacy covers weighted means of uploads alone; `privacy: {local: true}` any")
        return cls(given["clip"], given["noise"], local, config["seed"], method.averages or "uniform")

    @torch.no_grad()
    def of_clients(self, up: Uploads, start: Values, plan: Plan, cohort: Cohort, t: int) -> Uploads:
        """What clients send: as they were, unless they add the noise."""
        if not self.local:
            return up
        up = self._clipped(up, start, plan)
        chance = {n: generator(self.seed, t, client, "privacy") for n, client in enumerate(cohort.ids)}

        def noisy(place: str, rows: Tensor) -> Tensor:
            if not len(rows):
                return rows
            deviation = self.noise * self.clip
            noise = torch.stack([_gaussian(rows[0], chance[n]) for n in trainers(plan, place)]) * deviation
            return rows + (noise * up.coordinates.get(place, 1)).to(rows.dtype)

        return replace(up, **_in_order(noisy, up))

    @torch.no_grad()
    def of_server(self, up: Uploads, start: Values, plan: Plan, cohort: Cohort, t: int) -> Uploads:
        """What the server averages of what it has received: as it is, unless the server adds the noise."""
        if self.local:
            return up
        up, chance = self._clipped(up, start, plan), generator(self.seed, t, use="privacy")
        weights = client_weights(cohort, self.weights) * up.arrived

        def noisy(place: str, rows: Tensor) -> Tensor:
            if not len(rows):
                return rows
            trained = up.coordinates.get(place, torch.ones(1, dtype=torch.bool, device=rows.device))
            own = weights[trainers(plan, place)].to(rows.device).view(-1, *[1] * (rows.dim() - 1)) * trained
            shares = own.amax(0) / own.sum(0).where(own.sum(0) > 0, 1.0)  # the largest of each coordinate
            noise = self.noise * self.clip * shares * _gaussian(rows[0], chance)
            return rows + (noise * trained).to(rows.dtype)

        return replace(up, **_in_order(noisy, up))

    def _clipped(self, up: Uploads, start: Values, plan: Plan) -> Uploads:
        """The uploads with no update longer than `clip`. What is not finite stays so, and is refused."""
        begun, squares = dict(places(start)), torch.zeros(len(plan.M), dtype=torch.float64)
        own: dict[str, Tensor] = {}
        for place, rows in sorted(places({"r": up.r, "shared": up.shared})):
            if not len(rows):  # of what a node does not hold it does not know the start
                continue
            own[place] = started(begun[place], plan, place, rows.dim() - 1)
            update = rows.double() - own[place].double()
            for n, row in zip(trainers(plan, place), update, strict=True):  # so that a client alone has the same bits
                squares[n] += row.square().sum().cpu()
        factors = self.clip / squares.sqrt()

        def shortened(place: str, rows: Tensor) -> Tensor:
            if place not in own:
                return rows
            factor = factors[trainers(plan, place)].to(rows.device, rows.dtype).view(-1, *[1] * (rows.dim() - 1))
            return torch.where(factor < 1, own[place] + factor * (rows - own[place]), rows)

        return replace(up, **mapped(shortened, {"r": up.r, "shared": up.shared}))


def _in_order(change: Any, up: Uploads) -> dict[str, Any]:
    """change(place, rows) of every tensor, in an order of places that no engine decides."""
    found = {place: change(place, rows) for place, rows in sorted(places({"r": up.r, "shared": up.shared}))}
    return mapped(lambda place, rows: found[place], {"r": up.r, "shared": up.shared})


def _gaussian(like: Tensor, chance: torch.Generator) -> Tensor:
    """Standard Gaussian numbers in that shape, float64, the same on any device."""
    return torch.randn(like.shape, generator=chance, dtype=torch.float64).to(like.device)


@dataclass
class PrivacyLoss:
    """What the rounds so far have cost the client that sent most often.

    Attributes:
        settings: The `privacy` of a configuration, or None.
        sends: Called with a client's row of rounds.parquet; whether it has sent its upload, whatever came of that.
        sent: By client, from how many rounds the server has used an upload, or seen one that has its noise.
    """

    settings: Mapping[str, Any] | None
    sends: Callable[[Mapping[str, Any]], bool] = lambda row: bool(row["arrived"])
    sent: Counter[int] | None = None

    def rows(self, t: int, own: Rows, so_far: Rows) -> list[dict[str, Any]]:
        """The row of privacy.parquet of round t, from 0.

        Args:
            own: The rows of the round's clients, as in rounds.parquet.
            so_far: Those of all rounds up to this one, which are counted once, where a cell begins or goes on.
        """
        if not self.settings:
            return []
        new = so_far if self.sent is None else own
        local = self.settings.get("local")
        counts = (row["client"] for row in new if row["arrived"] or local and self.sends(row))
        self.sent = (self.sent or Counter()) + Counter(counts)
        return [{"round": t + 1, "epsilon": self.epsilon(max(self.sent.values(), default=0))}]

    def epsilon(self, rounds: int) -> float:
        """The epsilon of a client of whom the uploads of so many rounds count."""
        assert self.settings is not None
        sensitivity = 2.0 if self.settings.get("local") else 1.0
        return epsilon(sensitivity * math.sqrt(rounds) / self.settings["noise"], self.settings.get("delta", DELTA))


def epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon with which Gaussian noise is (epsilon, delta)-private, where data move by `mu` deviations.

    It is exact (Balle and Wang, ICML 2018, arXiv 1805.06530, Theorem 8): delta = Phi(mu / 2 - epsilon / mu) - e^epsilon
    Phi(-mu / 2 - epsilon / mu). k rounds with mu each are one with sqrt(k) mu, also where a round's noise follows from
    what the rounds before have shown (Dong et al., 2022, arXiv 1905.02383, Corollary 3.3).
    """
    from scipy.optimize import brentq  # which takes a while, and most cells go without
    from scipy.special import log_ndtr

    if mu == 0:
        return 0.0

    def excess(eps: float) -> float:
        return float(math.exp(log_ndtr(mu / 2 - eps / mu)) - math.exp(eps + log_ndtr(-mu / 2 - eps / mu)) - delta)

    if excess(0.0) <= 0:
        return 0.0
    most = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))  # by zero-concentrated privacy
    return float(brentq(excess, 0.0, most, xtol=1e-12))
