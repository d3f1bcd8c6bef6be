"""Scores of runs: one seed's values at the chosen round, and means over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbench.errors import UserError
from fedbench.report.statistics.pairs import Draws, by_draw, interval
from fedbench.results.scores import Tested, average, best_round, by_client, by_domain, higher_is_better, mean, spread

if TYPE_CHECKING:
    from fedbench.results import Result

AT = ("final", "best", "last4")
MANY_DOMAINS = 8  # of more, tables and figures show what SHARES says, unless each is asked for
SHARES = {"worst": 0.0, "quartile": 0.25, "median_domain": 0.5}  # see `among_domains`
UNCHOSEN = (
    "--at best needs validation examples, and this cell held none out: a round that is chosen by its test score "
    "flatters itself.\nSay `evaluation: {validation: 0.1}` in the suite and run it again, or take --at final."
)


def check_direction(results: Iterable[Result], metric: str) -> None:
    """Raises UserError where some results say that more of a metric is better, and others that less is."""
    name = metric.partition("/")[0]
    directions: dict[str, Result] = {}
    for result in results:
        if better := result.manifest.get("metrics", {}).get(name, {}).get("better"):
            directions.setdefault(better, result)
    if len(directions) > 1:
        text = " and ".join(f"{better} is better in {result.folder}" for better, result in directions.items())
        raise UserError(f"metric {name!r}: {text}; compare them apart")


@dataclass(frozen=True)
class RunScores:
    """One seed's values at the chosen round (for last4: their means over the last four evaluated rounds).

    clients: by (domain, client), client -1 for a global model. A domain's value is the global model's, or where every
    client is tested on images of its own, the plain mean over the domain's clients. average: the plain mean over
    domains, or then over clients, as in FedV. worst: the worst domain.
    spread: the standard deviation over clients (n: they are all there are, no sample). worst_clients: the mean of the
    worst tenth of clients. Both are None where clients are not tested. spent: what the clients had paid by this round,
    where a budget is set.
    """

    seed: int
    round: int
    clients: Mapping[tuple[str, int], float]
    domains: Mapping[str, float]
    average: float
    worst: float
    spread: float | None = None
    worst_clients: float | None = None
    spent: float | None = None


def metrics(result: Result, metric: str, split: str) -> list[str]:
    """`metric` and its second outputs (`accuracy/last`), as far as a finished cell has them, in its order."""
    return [name for name in result.metrics(split) if name == metric or name.startswith(f"{metric}/")]


def run(
    tested: Tested, seed: int, metric: str, at: str, until: float = math.inf, validated: Tested | None = None
) -> RunScores | None:
    """The values of one metric in one evaluation; None where it has none.

    Args:
        tested: the scores of one cell.
        seed: of the cell.
        metric: what they are of.
        at: one of AT; "best" is the round with the best average on validation images, of equal rounds the earliest.
        until: rounds after it are left out.
        validated: the scores on validation images, for "best".

    Raises:
        UserError: where the best round is asked for and there are no validation images.
    """
    rounds = sorted(t for t in tested if t <= until)
    if not rounds:
        return None
    if at == "best":
        chosen = {t: average(found) for t, found in (validated or {}).items() if t in rounds}
        if not chosen:
            raise UserError(UNCHOSEN)
        rounds = [best_round(chosen, metric)]
    else:
        rounds = rounds[-4:] if at == "last4" else rounds[-1:]
    values = [tested[t] for t in rounds]
    clients = {key: mean([found[key] for found in values if key in found]) for key in values[-1]}
    domains = by_domain(clients)
    worst = min if higher_is_better(metric) else max
    own = list(clients.values()) if by_client(clients) else []
    return RunScores(
        seed,
        rounds[-1],
        clients,
        domains,
        average(clients),
        worst(domains.values()),
        spread=spread(own) if own else None,
        worst_clients=worst_tenth(own, metric) if own else None,
    )


def curve(tested: Tested) -> dict[int, tuple[float, dict[str, float]]]:
    """The average, and the value of every domain, after each evaluated round, in order, as `RunScores` has them."""
    return {t: (average(found), by_domain(found)) for t, found in sorted(tested.items())}


def among_domains(domains: Mapping[str, float], metric: str, share: float) -> float:
    """The value that this share of the domains are at or below, or above where less is better; between two domains
    interpolated linearly. 0 is the worst domain, 0.25 the lower quartile and 0.5 the median."""
    worst_first = sorted(domains.values(), reverse=not higher_is_better(metric))
    whole, part = divmod(share * (len(worst_first) - 1), 1)
    low, high = worst_first[int(whole)], worst_first[min(int(whole) + 1, len(worst_first) - 1)]
    return low + part * (high - low)


def worst_tenth(clients: Sequence[float], metric: str) -> float:
    """The mean over the worst tenth of the clients, rounded down, and over one client at least.

    This is the "worst 10%" of Li et al., Fair Resource Allocation in Federated Learning (arXiv 1905.10497), Table 1.
    """
    worst_first = sorted(clients, reverse=not higher_is_better(metric))
    return mean(worst_first[: max(1, len(clients) // 10)])


@dataclass(frozen=True)
class MeanScore:
    """A mean over n seeds, or draws of several seeds; std is the sample standard deviation (n - 1), None for one.

    low, high: its 95 % interval, from three seeds on, of a fraction within 0 and 1. interval: "t" or "bca".
    """

    mean: float
    std: float | None
    n: int
    low: float | None = None
    high: float | None = None
    interval: str | None = None


def score(by_seed: Mapping[int, float], draws: Draws, fraction: bool = False) -> MeanScore:
    """The mean over seeds.

    Args:
        draws: where some are one replicate, see `by_draw`.
        fraction: whether its interval ends at 0 and 1, as scores do.
    """
    values = list(by_draw(by_seed, draws).values())
    around = interval(values)
    low, high, kind = (around.low, around.high, around.kind) if around else (None, None, None)
    if fraction and low is not None and high is not None:
        low, high = max(0.0, low), min(1.0, high)
    return MeanScore(mean(values), spread(values, 1) if len(values) > 1 else None, len(values), low, high, kind)
