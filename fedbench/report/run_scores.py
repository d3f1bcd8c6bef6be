"""Scores of runs: one seed's values at the chosen round, and means over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbench.errors import UserError
from fedbench.report.statistics.intervals import interval
from fedbench.report.statistics.paired import Draws, by_draw
from fedbench.results.metric_direction import VALIDATION, best_round, higher_is_better, measure
from fedbench.results.scores import Scores, average, by_client, by_domain, mean, spread

if TYPE_CHECKING:
    from fedbench.results import Result

AT = ("final", "best", "last4")
UNCHOSEN = (
    "--at best needs validation examples, and this cell held none out: a round that is chosen by its test score "
    "flatters itself.\nSay `evaluation: {validation: 0.1}` in the suite and run it again, or take --at final."
)


def is_fraction(metric: str) -> bool:
    """Whether a metric is a fraction, which is shown in percent; a loss is shown as it is."""
    return measure(metric).unit == "%"


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


def metrics(scores: Scores, metric: str, split: str) -> list[str]:
    """`metric` and its second outputs (`accuracy/last`), as far as an evaluation has them, in its order."""
    return [name for name in scores.of_split(split) if name == metric or name.startswith(f"{metric}/")]


def run(scores: Scores, seed: int, metric: str, split: str, at: str, until: float = math.inf) -> RunScores | None:
    """The values of one metric (exactly that name) in one evaluation; None where it has none.

    at: one of AT; "best" is the round with the best average of that metric on validation images, of equal rounds the
    earliest · until: rounds after it are left out. Raises UserError where the best round is asked for and there are no
    validation images.
    """
    rounds = sorted(t for t in scores.tested(metric, split) if t <= until)
    if not rounds:
        return None
    if at == "best":
        validated = {t: average(scores.after(t, metric, VALIDATION)) for t in scores.tested(metric, VALIDATION)}
        if not (validated := {t: value for t, value in validated.items() if t in rounds}):
            raise UserError(UNCHOSEN)
        rounds = [best_round(validated, metric)]
    else:
        rounds = rounds[-4:] if at == "last4" else rounds[-1:]
    values = [scores.after(t, metric, split) for t in rounds]
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


def curve(scores: Scores, metric: str, split: str = "test") -> dict[int, tuple[float, dict[str, float]]]:
    """The average, and the value of every domain, after each evaluated round, in order, as `RunScores` has them; empty
    where there is no such metric."""
    return {t: (average(v), by_domain(v)) for t, v in sorted(scores.by_round(metric, split).items())}


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
    """The mean over seeds. draws: where some are one replicate, see `difference` · fraction: whether its interval ends
    at 0 and 1, as scores do."""
    values = list(by_draw(by_seed, draws).values())
    around = interval(values)
    low, high, kind = (around.low, around.high, around.kind) if around else (None, None, None)
    if fraction and low is not None and high is not None:
        low, high = max(0.0, low), min(1.0, high)
    return MeanScore(mean(values), spread(values, 1) if len(values) > 1 else None, len(values), low, high, kind)
