"""Missing values: the word in the place of a number, and the sentence below the table that says why."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fedbench.report.budget import Budget, unknown
from fedbench.report.frames import DASH
from fedbench.results.columns import DAMAGED, HALVED, INTERRUPTED, PENDING
from fedbench.words import amount, span

if TYPE_CHECKING:
    from fedbench.results import Result


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
