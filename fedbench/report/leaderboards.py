"""Results -> leaderboards, one for every scenario, variant, backbone and data set: a pure function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedbench.errors import UserError
from fedbench.report.absences import ABSENCES
from fedbench.report.board import Leaderboard, Row
from fedbench.report.budget import PAID, Budget, cheapest, check_known, paid, read_budget
from fedbench.report.cost import cost, mean_cost
from fedbench.report.evidence import concluded
from fedbench.report.grouping import by_label, registered, settings, unknown
from fedbench.report.headings import Place
from fedbench.report.measures import AT, Run, check_direction, metrics, run, score
from fedbench.report.notes import notes
from fedbench.results import Result


def leaderboards(
    results: Sequence[Result],
    metric: str = "accuracy",
    at: str = "final",
    baseline: str | None = None,
    split: str = "test",
    roles: Mapping[str, str] | None = None,
    equivalent: float | None = None,
) -> list[Leaderboard]:
    """One leaderboard for each suite, scenario, variant, backbone, data set and profile, in the first order.

    Runs whose settings differ in anything but the seed never enter one mean: they make leaderboards of their own. A
    capacity list is compared without its order, because suites rotate it with the seed. at: "final", the last round
    evaluated; "best", each seed's round with the best average on validation images; "last4", the mean of the last four
    evaluated rounds; "bytes=2GB", "flops=1e15", "joules=2kWh", the last evaluated round by which all clients together
    had spent no more, or for "seconds=1h" the server had waited no longer, and without an amount, what the cheapest
    method spends in all. baseline: a method, or None for a leaderboard's ceiling, by the roles that methods have.
    equivalent: points below which methods may be called equal, None for 1 where the metric is in percent. Raises:
    UserError for a metric or a baseline that no result has, for "best" where a finished cell has no validation images,
    and for any other `at`.
    """
    budget = read_budget(at)
    if budget is None and at not in AT:
        raise UserError(unknown("round", at, (*AT, *PAID)))
    if budget:
        check_known(results, budget.what)
    check_direction(results, metric)
    if baseline is not None and baseline not in {r.entry.method for r in results}:
        raise UserError(unknown("method", baseline, [r.entry.method for r in results]))
    boards = [
        _leaderboard(by_label(group), variant, metric, split, budget or at, baseline, roles or {})
        for variant, group in settings(results)
    ]
    if any(r.status == "finished" for r in results) and not any(row.runs for board in boards for row in board.rows):
        have = {name for r in results if r.status == "finished" for name in r.metrics}
        if budget is None or metric not in have:
            raise UserError(unknown("metric", metric, sorted(have)))
    return concluded(boards, equivalent)


def _ceiling(ceilings: Sequence[str], roles: Mapping[str, str]) -> str:
    """The label of the ceiling, one of its own name before one that extends it; "" where there is none, or many."""
    found = [label for label in ceilings if label in roles] or ceilings
    return found[0] if len(found) == 1 else ""


def _leaderboard(
    cells: Mapping[str, Sequence[Result]],
    variant: str,
    metric: str,
    split: str,
    at: str | Budget,
    baseline: str | None,
    roles: Mapping[str, str],
) -> Leaderboard:
    """Without conclusions, which are drawn from all leaderboards together."""
    ceilings = [label for label, part in cells.items() if roles.get(registered(part)) == "ceiling"]
    baseline = baseline or _ceiling(ceilings, roles)
    told = []
    if isinstance(at, Budget) and at.amount is None and (least := cheapest(cells, at.what)):
        at = replace(at, amount=least[1])
        told = [f"the budget is what {least[0]} spends in all its rounds"]
    runs = {label: _runs(part, metric, split, at) for label, part in cells.items()}
    rows = [
        _row(label, name, metric, cells[label], seeds, label not in ceilings)
        for label, named in runs.items()
        for name, seeds in (named or {metric: []}).items()
    ]
    domains = dict.fromkeys(domain for row in rows for r in row.runs for domain in r.domains)
    first = next(iter(cells.values()))[0]
    e = first.entry
    return Leaderboard(
        place=Place(first.suite, e.scenario, variant, e.backbone, e.dataset, e.profile),
        metric=metric,
        split=split,
        at=at.what if isinstance(at, Budget) else at,
        budget=at.amount if isinstance(at, Budget) else None,
        baseline=baseline if runs.get(baseline, {}).get(metric) else None,
        domains=tuple(domains),
        rows=rows,
        notes=told + notes(cells, rows, metric, at if isinstance(at, Budget) else None),
    )


def _runs(results: Sequence[Result], metric: str, split: str, at: str | Budget) -> dict[str, list[Run]]:
    """The finished runs of one method, by metric: the asked one first, then its second outputs."""
    found: dict[str, list[Run]] = {}
    for r in results:
        if r.status == "finished":
            for name in sorted(metrics(r.digest.scores, metric, split), key=len):
                if one := _run(r, name, split, at):
                    found.setdefault(name, []).append(one)
    return found


def _run(result: Result, metric: str, split: str, at: str | Budget) -> Run | None:
    """None where the first test comes after the budget is spent, or where it is not known what was spent. Raises
    UserError where no round can be chosen."""
    if not isinstance(at, Budget):
        try:
            return run(result.digest.scores, result.entry.seed, metric, split, at)
        except UserError as error:
            raise UserError(f"{result.folder}: {error}") from None
    spent = paid(result, at.what)
    if spent is None:
        return None
    found = run(result.digest.scores, result.entry.seed, metric, split, "final", spent.until(at.amount or 0.0))
    return found and replace(found, spent=spent.by(found.round))


def _row(label: str, name: str, metric: str, results: Sequence[Result], runs: Sequence[Run], eligible: bool) -> Row:
    costs = [c for r in results if r.status == "finished" and (c := cost(r))]
    spreads = [r.spread for r in runs if r.spread is not None]
    worst_clients = [r.worst_clients for r in runs if r.worst_clients is not None]
    over_clients = bool(runs) and len(spreads) == len(runs)
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
        spread=score(spreads) if over_clients else None,
        worst_clients=score(worst_clients) if over_clients else None,
        cost=mean_cost(costs),
        ranked=eligible and name == metric,
    )


def _status(results: Sequence[Result]) -> str:
    return min((r.status for r in results), key=list(ABSENCES).index)
