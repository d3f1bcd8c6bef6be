"""Leaderboards: results by setting and method, with means over seeds, gaps and tie groups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from fedbench.errors import UserError
from fedbench.report.budget import PAID, Budget, Costs, cheapest, check_known, cost, mean_cost, read_budget
from fedbench.report.grouping import (
    UNRANKED,
    Place,
    by_label,
    draws_of,
    following_seed,
    registered,
    settings,
    unknown,
)
from fedbench.report.run_scores import ABSENCES, AT, MeanScore, RunScores, check_direction, metrics, notes, run, score
from fedbench.report.significance import groups_of, margin_of
from fedbench.report.statistics.pairs import Draws, Pair, by_draw, paired, turned, verdicts
from fedbench.results import Result
from fedbench.results.identity import mixed_settings, mixed_versions
from fedbench.results.scores import VALIDATION, higher_is_better, is_fraction, without_noise


@dataclass(frozen=True)
class Row:
    """One method, or a second output of one (output "last" for the metric `accuracy/last`).

    runs, domains, average and worst are over the finished seeds only (within the budget, where there is one); they
    are empty where there are none. results: all of the method, finished or not. spread and worst_clients are empty
    where clients were not tested, each on images of its own. status is "finished" as soon as one seed has finished.
    ranked: whether it may be better or worse than others; a ceiling, which nobody can realise, and a second output
    never are, and a constant answer only where each client is tested on its own images. role: one of ROLES. draws:
    by seed, the draw of sizes that it is a part of; the same on a whole leaderboard. gap: the paired difference of
    the averages to the baseline, as a row of `pairs`. group: letters; methods that share one are not significantly
    different.
    """

    method: str
    output: str
    metric: str
    status: str
    runs: Sequence[RunScores]
    domains: Mapping[str, MeanScore]
    average: MeanScore | None
    worst: MeanScore | None
    spread: MeanScore | None
    worst_clients: MeanScore | None
    results: Sequence[Result]
    ranked: bool = True
    role: str = "method"
    draws: Draws = field(default_factory=dict)
    gap: Pair | None = None
    group: str = ""

    @property
    def finished(self) -> dict[int, Result]:
        """The finished results by seed."""
        return {r.entry.seed: r for r in self.results if r.status == "finished"}

    @cached_property
    def cost(self) -> Costs | None:
        """Over all finished seeds; read when asked for, since a summary shows none."""
        return mean_cost([c for r in self.finished.values() if (c := cost(r))])

    @property
    def by_seed(self) -> dict[int, float]:
        """The average of every seed."""
        return {run.seed: run.average for run in self.runs}

    @property
    def by_draw(self) -> dict[int, float]:
        """The average of every draw, which is tested: of several seeds where these share one."""
        return by_draw(self.by_seed, self.draws)

    @property
    def label(self) -> str:
        return f"{self.method}/{self.output}" if self.output else self.method

    @property
    def round(self) -> int | str:
        """The round shown; where seeds differ (--at best, or a budget) all of them, as "8/12/9"."""
        rounds = [r.round for r in self.runs]
        return rounds[0] if len(set(rounds)) == 1 else "/".join(map(str, rounds))

    @property
    def spent(self) -> float | None:
        """What the clients had paid by that round, the mean over seeds; None where no budget is set."""
        spent = [r.spent for r in self.runs if r.spent is not None]
        return sum(spent) / len(spent) if spent else None


@dataclass(frozen=True)
class Leaderboard:
    """Methods in one setting.

    place: its variant also says what else sets it apart (train.rounds=3) where a suite was edited between two runs. at:
    one of AT, or what the budget is of. pairs: every two ranked methods, as of `verdicts`. margin: the difference below
    which they may be called equal, None for none.
    """

    place: Place
    metric: str
    split: str
    at: str
    budget: float | None
    baseline: str | None
    domains: Sequence[str]
    rows: Sequence[Row]
    notes: Sequence[str]
    pairs: Sequence[Pair] = ()
    margin: float | None = None

    @property
    def cells(self) -> dict[str, Sequence[Result]]:
        """The results by method."""
        return {row.method: row.results for row in self.rows}

    @property
    def warning(self) -> str:
        """What computed its finished cells in several versions or, of one method, in several ways; "" where nothing."""
        cells = [row.results for row in self.rows if row.role != "constant"]  # counts are the same in all versions
        done = [[r.manifest for r in part if r.status == "finished"] for part in cells]
        ways = (mixed_settings(part, self.metric) for part in done)
        mixed = "; ".join(dict.fromkeys(filter(None, (mixed_versions(m for part in done for m in part), *ways))))
        return f"Computed in different ways, which may change scores: {mixed}." if mixed else ""

    @cached_property
    def collapses(self) -> dict[str, dict[int, str]]:
        """By row, by seed, how those seeds collapsed that did, see `fedbench.results.scores.collapse`."""
        found: dict[str, dict[int, str]] = {}
        for row in self.rows:
            if row.role == "constant":  # it cannot do otherwise
                found[row.label] = {}
                continue
            cells = {seed: result for seed, result in row.finished.items() if seed in row.by_seed}
            found[row.label] = {s: how for s, r in cells.items() if (how := r.collapse(row.metric, self.split))}
        return found

    @property
    def by_client(self) -> bool:
        """Whether clients were tested, each on images of its own."""
        return any(row.spread for row in self.rows)

    @property
    def draws(self) -> Draws:
        """By seed, the draw of sizes that it is a part of: the replicates of all tests."""
        return self.rows[0].draws if self.rows else {}

    @property
    def replicate(self) -> str:
        """What is tested: a `seed`, or a `draw` of sizes that several seeds share."""
        return "draw" if any(seed != draw for seed, draw in self.draws.items()) else "seed"

    @property
    def by_seed(self) -> dict[str, dict[int, float]]:
        """By ranked method, the best first, its score by seed."""
        return {row.label: row.by_seed for row in self.contenders}

    @property
    def scores(self) -> dict[str, dict[int, float]]:
        """The same by replicate."""
        return {row.label: row.by_draw for row in self.contenders}

    @property
    def contenders(self) -> list[Row]:
        """The ranked rows that have a number, the best first."""
        return [r for r in self.shown if r.ranked and r.average and math.isfinite(r.average.mean)]

    @property
    def shown(self) -> list[Row]:
        """The rows as they are shown: ceilings, then the best mean first, a second output below its method, then those
        without a number."""
        sign = -1 if higher_is_better(self.metric) else 1
        means = {row.method: row.average.mean for row in self.rows if not row.output and row.average}

        def key(row: Row) -> tuple[bool, bool, float]:
            mean = means.get(row.method, math.nan)
            return row.role != "ceiling", not math.isfinite(mean), sign * without_noise(mean) if mean == mean else 0.0

        return sorted(self.rows, key=key)


def cell(row: Row, column: str) -> MeanScore | None:
    """The score of a row in a column: a domain, "average", "worst", "worst_clients" or "spread"."""
    parts = {"average": row.average, "worst": row.worst, "worst_clients": row.worst_clients, "spread": row.spread}
    return parts[column] if column in parts else row.domains.get(column)


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
    labelled = [(variant, by_label(group)) for variant, group in settings(results)]
    if baseline is not None:
        _check_baseline(baseline, results, [cells for _, cells in labelled])
    boards = [
        _leaderboard(cells, variant, metric, split, budget or at, baseline, roles or {}) for variant, cells in labelled
    ]
    if any(r.status == "finished" for r in results) and not any(row.runs for board in boards for row in board.rows):
        have = {name for r in results if r.status == "finished" for name in r.metrics()}
        if budget is None or metric not in have:
            raise UserError(unknown("metric", metric, sorted(have)))
    return [concluded(board, equivalent) for board in boards]


def _check_baseline(baseline: str, results: Sequence[Result], boards: Sequence[Mapping[str, Sequence[Result]]]) -> None:
    """Raises UserError where nothing is called so, or several rows of a leaderboard are, which differ in options."""
    if not any(baseline in cells for cells in boards) and baseline not in {r.entry.method for r in results}:
        raise UserError(unknown("method", baseline, [r.entry.method for r in results]))
    for cells in boards:
        rows = [label for label, part in cells.items() if part[0].entry.method == baseline]
        if baseline not in cells and rows:
            raise UserError(f"--baseline {baseline}: rows of that name differ in options; take one: {'; '.join(rows)}")


def _ceiling(ceilings: Sequence[str], roles: Mapping[str, str]) -> str:
    """The label of the ceiling, the first of its own name before one that extends it; "" where there is none, or where
    several extend one."""
    own = [label for label in ceilings if label in roles]
    return own[0] if own else ceilings[0] if len(ceilings) == 1 else ""


def _leaderboard(
    cells: Mapping[str, Sequence[Result]],
    variant: str,
    metric: str,
    split: str,
    at: str | Budget,
    baseline: str | None,
    roles: Mapping[str, str],
) -> Leaderboard:
    """Without conclusions."""
    played = {label: roles.get(registered(part), "method") for label, part in cells.items()}
    ceilings = [label for label, role in played.items() if role == "ceiling"]
    baseline = baseline or _ceiling(ceilings, roles)
    first_notes: list[str] = []
    methods = [label for label, role in played.items() if role == "method"]
    if isinstance(at, Budget) and at.amount is None and (least := cheapest(cells, at.what, methods)):
        at = replace(at, amount=least[1])
        first_notes = [f"the budget is what {least[0]} spends in all its rounds; --budget sets another"]
    followed = ", ".join(map(".".join, following_seed([r for part in cells.values() for r in part])))
    drawn = [f"drawn anew with each seed: {followed}"] if followed else []
    runs = {label: _runs(part, metric, split, at) for label, part in cells.items()}
    draws = draws_of((r.entry.seed, r.manifest["config"]) for part in cells.values() for r in part if r.manifest)
    rows = [
        _row(label, name, metric, cells[label], seeds, played[label], draws)
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
        notes=drawn + first_notes + notes(cells, rows, metric, at if isinstance(at, Budget) else None),
    )


def _runs(results: Sequence[Result], metric: str, split: str, at: str | Budget) -> dict[str, list[RunScores]]:
    """The finished runs of one method, by metric: the asked one first, then its second outputs."""
    found: dict[str, list[RunScores]] = {}
    for r in results:
        if r.status == "finished":
            for name in sorted(metrics(r, metric, split), key=len):
                if one := _run(r, name, split, at):
                    found.setdefault(name, []).append(one)
    return found


def _run(result: Result, metric: str, split: str, at: str | Budget) -> RunScores | None:
    """None where the first test comes after the budget is spent, or where it is not known what was spent. Raises
    UserError where no round can be chosen."""
    tested = result.scores(metric, split)
    if not isinstance(at, Budget):
        try:
            validated = result.scores(metric, VALIDATION) if at == "best" else None
            return run(tested, result.entry.seed, metric, at, validated=validated)
        except UserError as error:
            raise UserError(f"{result.folder}: {error}") from None
    spent = result.paid(at.what)
    if spent is None:
        return None
    found = run(tested, result.entry.seed, metric, "final", spent.until(at.amount or 0.0))
    return found and replace(found, spent=spent.by(found.round))


def _row(
    label: str,
    name: str,
    metric: str,
    results: Sequence[Result],
    runs: Sequence[RunScores],
    role: str,
    draws: Draws,
) -> Row:
    spreads = {r.seed: r.spread for r in runs if r.spread is not None}
    worst_clients = {r.seed: r.worst_clients for r in runs if r.worst_clients is not None}
    over_clients = bool(runs) and len(spreads) == len(runs)
    over = partial(score, draws=draws, fraction=is_fraction(metric))
    domains = dict.fromkeys(domain for r in runs for domain in r.domains)
    return Row(
        method=label,
        output=name[len(metric) + 1 :],
        metric=name,
        status=_status(results),
        runs=tuple(runs),
        domains={d: over({r.seed: r.domains[d] for r in runs if d in r.domains}) for d in domains},
        average=over({r.seed: r.average for r in runs}) if runs else None,
        worst=over({r.seed: r.worst for r in runs}) if runs else None,
        spread=score(spreads, draws) if over_clients else None,
        worst_clients=over(worst_clients) if over_clients else None,
        results=results,
        ranked=name == metric and (role not in UNRANKED or role == "constant" and over_clients),
        role=role,
        draws=draws,
    )


def _status(results: Sequence[Result]) -> str:
    return min((r.status for r in results), key=list(ABSENCES).index)


def concluded(board: Leaderboard, equivalent: float | None = None) -> Leaderboard:
    """The leaderboard with pairs, groups and gaps.

    Benjamini-Hochberg is over the pairs of its ranked methods, whatever else is shown. Pairs with a ceiling or a
    constant answer are a separate family: most of them differ for sure, which would make room for false discoveries
    among the others. Second outputs have no verdict, nor has what diverged.
    """
    margin, higher = margin_of(board.metric, equivalent), higher_is_better(board.metric)
    pairs = verdicts(board.by_seed, higher, margin, board.draws)
    groups = groups_of(board.scores, pairs)
    gaps = {}
    if base := next((row for row in board.rows if row.label == board.baseline), None):
        scores = {row.label: row.by_seed for row in board.rows}
        others = [row for row in board.rows if row.method != base.method]
        unranked = [(row.label, base.label) for row in others if not row.output and not (row.ranked and base.ranked)]
        ranked = [pair for pair in (*pairs, *map(turned, pairs)) if pair.other == base.label]
        judged = (*ranked, *verdicts(scores, higher, margin, board.draws, unranked))
        gaps = {gap.method: gap for gap in judged}
        untested = [(row.label, base.label) for row in others if row.label not in gaps]
        gaps |= {gap.method: gap for gap in paired(scores, board.draws, untested)}
    rows = [replace(row, gap=gaps.get(row.label), group=groups.get(row.label, "")) for row in board.rows]
    return replace(board, pairs=pairs, margin=margin, rows=rows)
