"""Scores of runs: one seed's values at the chosen round, means over seeds, and why some are missing."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fedbench.errors import UserError
from fedbench.report.budget import Budget, unknown
from fedbench.report.frames import DASH
from fedbench.report.statistics.pairs import Draws, by_draw, interval
from fedbench.results.columns import DAMAGED, HALVED, INTERRUPTED, PENDING
from fedbench.results.scores import Tested, average, best_round, by_client, by_domain, higher_is_better, mean, spread
from fedbench.words import amount, span

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


class Absence(NamedTuple):
    """How a status is called in a table, and in the sentence below."""

    short: str
    long: str


# In the order in which several seeds are called: by the first that one of them has.
ABSENCES = {
    "finished": Absence("", ""),
    DAMAGED: Absence("damaged", "left out, checksum mismatch"),
    "failed": Absence("failed", "failed"),
    "timeout": Absence("timeout", "out of time"),
    HALVED: Absence("halved", "ended early, among the worse half of its candidates"),
    INTERRUPTED: Absence("unfinished", "interrupted"),
    "running": Absence("unfinished", "not finished (running or interrupted)"),
    PENDING: Absence("pending", "not started"),
    "not_applicable": Absence(DASH, "not applicable"),
}


def notes(
    cells: Mapping[str, Sequence[Result]], rows: Sequence[Any], metric: str, budget: Budget | None = None
) -> list[str]:
    """One sentence each: cells without a result, rows without the metric or within no budget, images that were left
    out, what is wrong with the data, clients that no size fits, unequal seeds.

    Args:
        cells: by method, its results.
        rows: rows of a leaderboard of these results.
        metric: what is compared.
        budget: what methods may spend, where there is one.
    """
    missing: dict[str, list[str]] = {}  # by why
    for label, results in cells.items():
        for which, why in _unfinished(results):
            missing.setdefault(why, []).append(f"{label}{which}")
    found: list[str] = []
    for row in rows:
        if row.status == "finished" and budget and not _paid(cells[row.method], budget):
            missing.setdefault(unknown(cells[row.method], budget.what), []).append(row.label)
        elif row.status == "finished" and (over := _over(cells[row.method], row, budget)):
            found.append(over)
        elif row.status == "finished" and not row.runs:
            found.append(f"{row.label}: has no {metric}")
    found = [f"{', '.join(who)}: {why}" for why, who in missing.items()] + found
    found += _left_out(r for results in cells.values() for r in results)
    doubts = (doubt for results in cells.values() for r in results for doubt in r.manifest.get("doubts", ()))
    found += [f"the data may be wrong: {doubt}" for doubt in dict.fromkeys(doubts)]
    found += _turnout(cells)
    counts = {row.label: [r.seed for r in row.runs] for row in rows if row.runs}
    if len(set(map(tuple, counts.values()))) > 1:
        text = "; ".join(f"{label} {', '.join(map(str, seeds))}" for label, seeds in counts.items())
        found.append(f"seeds are unequal ({text}): two methods are compared on the seeds both have")
    return found + _seeds_of_the_suite(cells, {seed for seeds in counts.values() for seed in seeds})


def _seeds_of_the_suite(cells: Mapping[str, Sequence[Result]], shown: Collection[int]) -> list[str]:
    """How many of the seeds that the suite had when it was first run stand in a table, and which do not belong to
    them; nothing for older results, which do not say, and for a suite of one seed that is there."""
    packed = [result.cells.packed for results in cells.values() for result in results if result.cells]
    said = {tuple(tables.index.seeds) for tables in packed if tables.index}
    planned = next(iter(said)) if len(said) == 1 else ()
    if not planned or not shown:
        return []
    lacking, further = sorted({*planned} - {*shown}), sorted({*shown} - {*planned})
    found = []
    if lacking:
        found.append(f"{len(lacking)} of the suite's {len(planned)} seeds are missing ({', '.join(map(str, lacking))})")
    elif len(planned) > 1:
        found.append(f"{len(planned)} of the suite's {len(planned)} seeds")
    if further:
        found.append(f"seed {', '.join(map(str, further))}: added after the suite was first run")
    return found


def _left_out(results: Iterable[Result]) -> Iterator[str]:
    """What the data lack; every row of a leaderboard has the same."""
    lacking = {(left["images"], left["of"]) for r in results if (left := r.manifest.get("left_out"))}
    for images, of in sorted(lacking):
        yield f"{images:,} of {of:,} images of the data set cannot be read and were left out (`unreadable: skip`)"


def _turnout(cells: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    """Which methods leave clients out because no size of theirs fits, how many, and what share of the images stood
    behind the others."""
    turnouts: dict[str, list[str]] = {}
    for label, results in cells.items():
        found = [one for r in results if r.status == "finished" and (one := r.manifest.get("turnout"))]
        if any(one["clients"] < one["of_clients"] for one in found):
            clients = span(one["clients"] for one in found)
            shares = span(round(100 * one["images"] / one["of_images"]) for one in found)
            text = f"{clients} of {found[0]['of_clients']} clients took part, with {shares} % of the examples"
            turnouts.setdefault(text, []).append(label)
    for text, labels in turnouts.items():
        yield f"{', '.join(labels)}: {text}; no size fits the others' devices"


def _unfinished(results: Sequence[Result]) -> Iterator[tuple[str, str]]:
    """(which seeds, why) of a method's cells without a result; which is empty for all of them."""
    reasons: dict[tuple[str, str], list[int]] = {}
    for r in results:
        if r.status != "finished":
            reason = (r.manifest.get("reason") or "").strip().partition("\n")[0]
            reasons.setdefault((r.status, reason), []).append(r.entry.seed)
    for (status, reason), seeds in reasons.items():
        which = "" if len(seeds) == len(results) else f" (seed {', '.join(map(str, seeds))})"
        long = ABSENCES[status].long
        repeated = reason.startswith(long)  # `interrupted after round 3 of 40`
        yield which, reason if repeated else long + (f": {reason}" if reason else "")


def _paid(results: Sequence[Result], budget: Budget) -> bool:
    """Whether it is known what some seed has spent."""
    return any(r.paid(budget.what) for r in results if r.status == "finished")


def _over(results: Sequence[Result], row: Any, budget: Budget | None) -> str:
    """Where the first test of some seed comes too late: when that was, by the cheapest of these seeds."""
    if budget is None:
        return ""
    shown = {r.seed for r in row.runs}
    late = []
    for r in results:
        if r.status != "finished" or r.entry.seed in shown:
            continue
        tested, spending = r.scores(row.metric), r.paid(budget.what)
        if tested and spending:
            late.append((spending.by(min(tested)), min(tested), r.entry.seed))
    if not late:
        return ""
    spent, first, _ = min(late)
    which = f" (seed {', '.join(str(seed) for *_, seed in sorted(late, key=lambda x: x[2]))})" if shown else ""
    return f"{row.label}{which}: over the budget: first tested after round {first}, at {amount(spent, budget.what)}"
