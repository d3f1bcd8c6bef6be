"""Results -> leaderboards, one for every scenario, variant, backbone and data set: a pure function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedbench.compare.grouping import by_label, settings, unknown
from fedbench.compare.measures import (
    AT,
    Cost,
    Difference,
    Run,
    Score,
    cost,
    difference,
    higher_is_better,
    mean_cost,
    metrics,
    run,
    score,
)
from fedbench.errors import UserError
from fedbench.results import Result

# The gap is taken to this method unless another is named: where a suite has it, it is the papers' ceiling.
DEFAULT_BASELINE = "alllarge"


@dataclass(frozen=True)
class Row:
    """One method, or a second output of one (output "last" for the metric `accuracy/last`).

    runs, domains, average, worst and cost are over the finished seeds only and empty where there are none;
    gap is the paired difference of the averages to the baseline. status is "finished" as soon as one seed has
    finished.
    """

    method: str
    output: str
    metric: str
    status: str
    runs: Sequence[Run]
    domains: Mapping[str, Score]
    average: Score | None
    worst: Score | None
    gap: Difference | None
    cost: Cost | None

    @property
    def label(self) -> str:
        return f"{self.method}/{self.output}" if self.output else self.method

    @property
    def round(self) -> int | str:
        """The round shown; where seeds differ (--at best) all of them, as "8/12/9"."""
        rounds = [r.round for r in self.runs]
        return rounds[0] if len(set(rounds)) == 1 else "/".join(map(str, rounds))


@dataclass(frozen=True)
class Leaderboard:
    """Methods in one setting.

    variant also says what else sets it apart (train.rounds=3) where a suite was edited between two runs.
    """

    suite: str
    scenario: str
    variant: str
    backbone: str
    dataset: str
    profile: str
    metric: str
    split: str
    at: str
    baseline: str | None
    domains: Sequence[str]
    rows: Sequence[Row]
    notes: Sequence[str]

    @property
    def seeds(self) -> int:
        """The largest number of finished seeds of any row."""
        return max((len(row.runs) for row in self.rows), default=0)


def leaderboards(
    results: Sequence[Result],
    metric: str = "accuracy",
    at: str = "final",
    baseline: str | None = None,
    split: str = "test",
) -> list[Leaderboard]:
    """One leaderboard for each suite, scenario, variant, backbone, data set and profile, in the first order.

    Runs whose settings differ in anything but the seed never enter one mean: they make leaderboards of their
    own. A capacity list is compared without its order, because suites rotate it with the seed. at: "final",
    the last round evaluated; "best", the round with the best average, chosen on the same test data for each
    seed and so optimistic; "last4", the mean of the last four evaluated rounds. baseline: a method, or None
    for DEFAULT_BASELINE where a leaderboard has it. Raises: UserError for a metric or a baseline that no
    result has.
    """
    if at not in AT:
        raise UserError(unknown("round", at, AT))
    if baseline is not None and baseline not in {r.entry.method for r in results}:
        raise UserError(unknown("method", baseline, [r.entry.method for r in results]))
    boards = [
        _leaderboard(group, variant, metric, split, at, baseline or DEFAULT_BASELINE)
        for variant, group in settings(results)
    ]
    if any(r.status == "finished" for r in results) and not any(row.runs for board in boards for row in board.rows):
        have = {name for r in results if r.status == "finished" for name in r.eval["metric"].unique().to_pylist()}
        raise UserError(unknown("metric", metric, sorted(have)))
    return boards


def _leaderboard(group: Sequence[Result], variant: str, metric: str, split: str, at: str, baseline: str) -> Leaderboard:
    cells = by_label(group)
    runs = {label: _runs(part, metric, split, at) for label, part in cells.items()}
    ceiling = {r.seed: r.average for r in runs.get(baseline, {}).get(metric, ())}
    rows = [
        _row(label, name, metric, cells[label], seeds, {} if label == baseline else ceiling)
        for label, named in runs.items()
        for name, seeds in (named or {metric: []}).items()
    ]
    domains = dict.fromkeys(domain for row in rows for r in row.runs for domain in r.domains)
    e = group[0].entry
    return Leaderboard(
        suite=group[0].suite,
        scenario=e.scenario,
        variant=variant,
        backbone=e.backbone,
        dataset=e.dataset,
        profile=e.profile,
        metric=metric,
        split=split,
        at=at,
        baseline=baseline if ceiling else None,
        domains=tuple(domains),
        rows=rows,
        notes=_notes(cells, rows, metric),
    )


def _runs(results: Sequence[Result], metric: str, split: str, at: str) -> dict[str, list[Run]]:
    """The finished runs of one method, by metric: the asked one first, then its second outputs."""
    found: dict[str, list[Run]] = {}
    for r in results:
        if r.status == "finished":
            for name in sorted(metrics(r.eval, metric, split), key=len):
                found.setdefault(name, []).append(run(r.eval, r.entry.seed, name, split, at))
    return found


def _row(
    label: str,
    name: str,
    metric: str,
    results: Sequence[Result],
    runs: Sequence[Run],
    ceiling: Mapping[int, float],
) -> Row:
    finished = [r for r in results if r.status == "finished"] if runs else []
    costs = [c for r in finished if (c := _cost(r))]
    domains = dict.fromkeys(domain for r in runs for domain in r.domains)
    return Row(
        method=label,
        output=name[len(metric) + 1 :],
        metric=name,
        status=_status(results),
        runs=tuple(runs),
        domains={d: score([r.domains[d] for r in runs if d in r.domains]) for d in domains},
        average=score([r.average for r in runs]) if runs else None,
        worst=score([r.worst for r in runs]) if runs else None,
        gap=difference({r.seed: r.average for r in runs}, ceiling) if ceiling else None,
        cost=mean_cost(costs),
    )


def _cost(result: Result) -> Cost | None:
    return cost(result.rounds, result.manifest.get("seconds", 0.0), result.num_rounds)


def _status(results: Sequence[Result]) -> str:
    order = ("finished", "failed", "timeout", "interrupted", "running", "pending", "not_applicable")
    return min((r.status for r in results), key=order.index)


WORDS = {
    "failed": "failed",
    "timeout": "out of time",
    "not_applicable": "not applicable",
    "interrupted": "interrupted",
    "running": "not finished (running or interrupted)",
    "pending": "not started",
}


def _notes(cells: Mapping[str, Sequence[Result]], rows: Sequence[Row], metric: str) -> list[str]:
    """Why a number is missing, and what to mind when reading the others."""
    notes = []
    for label, results in cells.items():
        reasons: dict[tuple[str, str], list[int]] = {}
        for r in results:
            if r.status != "finished":
                reason = (r.manifest.get("reason") or "").strip().partition("\n")[0]
                reasons.setdefault((r.status, reason), []).append(r.entry.seed)
        for (status, reason), seeds in reasons.items():
            which = "" if len(seeds) == len(results) else f" (seed {', '.join(map(str, seeds))})"
            notes.append(f"{label}{which}: {WORDS[status]}" + (f": {reason}" if reason else ""))
    for row in rows:
        if row.status == "finished" and not row.runs:
            notes.append(f"{row.label}: has no {metric}")
    counts = {row.label: [r.seed for r in row.runs] for row in rows if row.runs}
    if len(set(map(tuple, counts.values()))) > 1:
        text = "; ".join(f"{label} {', '.join(map(str, seeds))}" for label, seeds in counts.items())
        notes.append(f"seeds are unequal ({text}): the gap pairs the seeds both have")
    return notes


def marks(board: Leaderboard) -> dict[tuple[int, str], str]:
    """What is "best" and "second" in every column: by (row position, domain | "average" | "worst").

    The baseline (a ceiling, as a rule, that nobody can realise) and second outputs are not eligible; with
    fewer than two rows left nothing is marked. Values that look the same in a table (one decimal of a
    percent) share their mark.
    """
    sign = 1 if higher_is_better(board.metric) else -1
    eligible = [i for i, row in enumerate(board.rows) if row.runs and not row.output and row.method != board.baseline]
    found: dict[tuple[int, str], str] = {}
    for column in (*board.domains, "average", "worst") if len(eligible) > 1 else ():
        values = {i: sign * round(s.mean, 3) for i in eligible if (s := cell(board.rows[i], column))}
        ranked = sorted(set(values.values()), reverse=True)[:2]
        for i, value in values.items():
            if value in ranked:
                found[i, column] = ("best", "second")[ranked.index(value)]
    return found


def cell(row: Row, column: str) -> Score | None:
    """The score of a row in a column: a domain, "average" or "worst"."""
    return row.average if column == "average" else row.worst if column == "worst" else row.domains.get(column)
