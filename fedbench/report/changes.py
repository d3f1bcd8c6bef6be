"""Changes: what differs between two results, method by method over seeds and cell by cell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import variance
from typing import Any

import pandas

from fedbench.errors import UserError
from fedbench.report.grouping import unknown
from fedbench.report.run_scores import AT, is_fraction, run
from fedbench.report.significance import margin_of
from fedbench.report.statistics.intervals import quantile
from fedbench.report.statistics.pairs import BETTER, WORSE, Pair, judged, paired
from fedbench.report.statistics.pairs import EQUAL as SAME
from fedbench.results.diff import (
    DAMAGED,
    DIFFERENT,
    EQUAL,
    GAINED,
    GROUP,
    KEY,
    LOST,
    NEITHER,
    CellSummary,
    Difference,
    settings,
)  # fmt: skip
from fedbench.results.metric_direction import higher_is_better, without_noise
from fedbench.results.score_digest import Said
from fedbench.results.status import GIVEN_UP

LEVEL = 0.05  # of seed noise
WITHIN, NOT_RUN = "within noise", "not run"
ORDER = (DIFFERENT, NOT_RUN, WITHIN, EQUAL)  # of verdicts


# Verdicts on single cells


class Noise:
    """How far apart two results may be and pass for the same: what seeds do anyway.

    The noise of a metric in a scenario is the standard deviation s over seeds, pooled over its methods with two seeds
    or more; where a scenario has none, over those of its suite. Two seeds of one method differ by sqrt(2) s; a
    difference up to t sqrt(2) s is within noise. t is the quantile of Student's distribution with the pooled degrees of
    freedom at which any of all differences that are judged is beyond it in 1 of 20 cases by chance (Bonferroni). The
    same seed on another machine should come much closer. Our definition.

    Args:
        cells: Finished ones, whose seeds say how large the noise is.
        judged: How many differences are judged.
    """

    def __init__(self, cells: Sequence[CellSummary], judged: int) -> None:
        self.judged = max(1, judged)
        by_group: dict[tuple[tuple[str, ...], str], dict[int, float]] = {}
        for cell in cells:
            for metric, value in cell.scores.scores.items():
                by_group.setdefault((cell.name[:4], metric), {})[cell.seed] = value
        self.pooled: dict[tuple[str, ...], tuple[float, int]] = {}  # (suite, scenario, variant or not, metric): sum, df
        for (group, metric), seeds in by_group.items():
            if len(seeds) > 1:
                df = len(seeds) - 1
                for place in ((*group[:3], metric), (group[0], metric)):
                    total, so_far = self.pooled.get(place, (0.0, 0))
                    self.pooled[place] = (total + df * variance(seeds.values()), so_far + df)

    def bound(self, cell: CellSummary, metric: str) -> float | None:
        """The largest difference within noise; None where no method has two seeds."""
        for place in ((*cell.name[:3], metric), (cell.suite, metric)):
            if place in self.pooled:
                total, df = self.pooled[place]
                return quantile(1 - LEVEL / self.judged, df) * math.sqrt(2 * total / df)
        return None


def verdicts(found: Sequence[Difference], noise_of: Sequence[CellSummary], equivalent: float = 0.0) -> pandas.DataFrame:
    """A verdict on each name that was finished before; what is different comes first, the largest difference on top.

    Args:
        found: As of `diff`.
        noise_of: Finished cells whose seeds say how large the noise is.
        equivalent: A difference of scores that may pass in any case, in percent where those are.

    Returns:
        By row: KEY, `id`, `verdict`, the `metric` that is farthest apart in bounds, its values `before` and `after`,
        their `difference`, `noise` (the largest difference within it, None where it is not known) and the `reason`.
    """
    found = [one for one in found if one.before and one.before.status == "finished"]
    apart = [one for one in found if one.change == DIFFERENT and one.after]
    noise = Noise(noise_of if apart else (), sum(len(one.after.scores.scores) for one in apart if one.after))
    rows = []
    for one in found:
        assert one.before is not None
        if one.change not in (EQUAL, DIFFERENT) or one.after is None:
            reason = one.fault or (how_it_ended(one) if one.after else "it was not computed")
            told = (NOT_RUN, "", None, None, None, None, reason)
        else:
            told = _judged(one.before, one.before.scores, one.after.scores, noise, equivalent)
        rows.append((*one.name, one.before.id, *told))
    columns = [*KEY, "id", "verdict", "metric", "before", "after", "difference", "noise", "reason"]
    frame = pandas.DataFrame(rows, columns=columns, dtype=object)
    keys = [(ORDER.index(row.verdict), -_size(row.difference or 0.0)) for row in rows_of(frame)]
    return frame.iloc[sorted(range(len(rows)), key=lambda i: keys[i])]


def _judged(cell: CellSummary, before: Said, after: Said, noise: Noise, equivalent: float) -> tuple[Any, ...]:
    """From `verdict` to `reason`. Bytes and FLOPs come from shapes: seeds have no part in them."""
    odd = [what for what in ("bytes", "flops") if getattr(before, what) != getattr(after, what)]
    if before.scores.keys() != after.scores.keys():
        odd.append("metrics")
    shown = "accuracy" if "accuracy" in before.scores else min(before.scores, default="")
    worst, bound, beyond = -1.0, noise.bound(cell, shown), False
    for metric in before.scores.keys() & after.scores.keys():
        limit = noise.bound(cell, metric)
        most = max(limit or 0.0, equivalent / 100 if is_fraction(metric) else equivalent)
        difference = abs(after.scores[metric] - before.scores[metric])
        beyond = beyond or not without_noise(difference) <= without_noise(most)
        share = difference / most if most else difference
        if share > worst and before != after:
            shown, worst, bound = metric, share, limit
    verdict = EQUAL if before == after else DIFFERENT if odd or beyond else WITHIN
    why = (
        f"other {' and '.join(odd)}" if odd else "one seed each: no noise is known" if beyond and bound is None else ""
    )
    old, new = before.scores.get(shown), after.scores.get(shown)
    gap = None if old is None or new is None else new - old
    return verdict, shown, old, new, gap, None if verdict == EQUAL else bound, why


# Two folders


@dataclass(frozen=True)
class Changes:
    """What differs between two folders.

    Attributes:
        before: The name of the first folder.
        after: The name of the second.
        margin: Below it differences of the metric are called equal.
        names: As of `diff`.
        measured: By place in `names`, for those in both with a result: the metric before and after.
        groups: A row for each method any of whose seeds has another result: GROUP, `n_seeds`, `before`, `after`, their
            `difference` seed by seed with its interval (`low`, `high`), `p`, `q` and `verdict`, and
            `same_id`.
        settings: As of `fedbench.results.diff.settings`.
    """

    before: str
    after: str
    metric: str
    margin: float | None
    names: Sequence[Difference]
    measured: Mapping[int, tuple[float | None, float | None]]
    groups: pandas.DataFrame
    settings: pandas.DataFrame

    @cached_property
    def telling(self) -> list[int]:
        """The places in (suite, scenario, variant) in which names differ."""
        return [i for i in range(3) if len({name.group[i] for name in self.names}) > 1]

    def called(self, name: Sequence[Any]) -> str:
        """A name for people; of a method over seeds without a seed."""
        seed = [f"seed {name[4]}"] if len(name) > 4 else []
        return " · ".join(filter(None, (*(name[i] for i in self.telling), name[3], *seed)))

    @cached_property
    def worse(self) -> list[str]:
        """Every method that is worse, and every cell that failed and had not before."""
        methods = [self.called(row[:4]) for row in rows_of(self.groups) if row.verdict == WORSE]
        lost = [n for n in self.names if n.change == LOST and n.after and n.after.status in GIVEN_UP]
        return methods + [f"{self.called(n.name)}: {n.after.status}" for n in lost if n.after]

    @property
    def different(self) -> int:
        """How many names have not the same result, or none, in both folders."""
        return sum(name.change not in (EQUAL, NEITHER) for name in self.names)

    @property
    def faults(self) -> list[str]:
        """What does not match its checksum."""
        return list(dict.fromkeys(name.fault for name in self.names if name.change == DAMAGED))


def changes(
    titles: tuple[str, str],
    found: Sequence[Difference],
    metric: str = "accuracy",
    at: str = "final",
    equivalent: float | None = None,
) -> Changes:
    """What the differences between two folders amount to.

    Raises:
        UserError: The folders share no name, no result that differs has the metric, or the round is none of AT.
    """
    if at not in AT:
        raise UserError(f"--changes takes the same round of both folders: --at {', '.join(AT[:-1])} or {AT[-1]}")
    both = [(one.before, one.after) for one in found if one.before and one.after]
    if not both:
        raise UserError(
            f"{titles[0]} and {titles[1]} share no name: no suite, scenario, sweep point, method and seed is in both"
        )
    apart = {one.group for one in found if one.change == DIFFERENT}
    measured = {
        i: (_score(one.before, metric, at), _score(one.after, metric, at))
        for i, one in enumerate(found)
        if one.change in (EQUAL, DIFFERENT) and one.group in apart
    }
    if measured and all(value is None for pair in measured.values() for value in pair):
        have = [name for i in measured for side in (found[i].before, found[i].after) for name in _metrics(side)]
        raise UserError(unknown("metric", metric, have))
    margin = margin_of(metric, equivalent)
    groups = _groups(found, measured, metric, margin)
    return Changes(
        *titles, metric, margin, found, measured, groups, settings((a.manifest, b.manifest) for a, b in both)
    )


def _score(one: CellSummary | None, metric: str, at: str) -> float | None:
    assert one is not None and one.result is not None
    found = run(one.result.digest.scores, one.seed, metric, "test", at)
    return found.average if found else None


def _metrics(one: CellSummary | None) -> Sequence[str]:
    return one.result.digest.scores.of_split("test") if one and one.result else ()


def _groups(
    found: Sequence[Difference],
    measured: Mapping[int, tuple[float | None, float | None]],
    metric: str,
    margin: float | None,
) -> pandas.DataFrame:
    """As of `Changes.groups`; what is worse comes first."""
    places: dict[tuple[str, ...], list[int]] = {}
    for i in measured:
        places.setdefault(found[i].group, []).append(i)
    pairs: dict[tuple[str, ...], Pair] = {}
    for group, seeds in places.items():
        old, new = ({found[i].name[4]: x for i in seeds if (x := measured[i][side]) is not None} for side in (0, 1))
        if pair := paired("after", new, "before", old):
            pairs[group] = pair
    (concluded,) = judged([list(pairs.values())], higher_is_better(metric), margin)
    rows = []
    for group, pair in zip(pairs, concluded, strict=True):
        shared = [values for i in places[group] if None not in (values := measured[i])]
        means = [math.fsum(values[side] or 0.0 for values in shared) / len(shared) for side in (0, 1)]
        facts = (pair.n, *means, pair.mean, pair.low, pair.high, pair.p, pair.q, pair.verdict)
        rows.append((*group, *facts, all(found[i].same_id for i in places[group])))
    columns = [
        *GROUP,
        "n_seeds",
        "before",
        "after",
        "difference",
        *("low", "high", "p", "q", "verdict"),
        "same_id",
    ]
    frame = pandas.DataFrame(rows, columns=columns, dtype=object)
    order = {WORSE: 0, BETTER: 1, SAME: 3}
    keys = [(order.get(row.verdict, 2), -_size(row.difference)) for row in rows_of(frame)]
    return frame.iloc[sorted(range(len(rows)), key=lambda i: keys[i])]


def rows_of(frame: pandas.DataFrame) -> list[Any]:
    """Named tuples."""
    return list(frame.itertuples(index=False))


def _size(difference: float) -> float:
    """How large a difference is; NaN is the largest."""
    return abs(difference) if math.isfinite(difference) else math.inf


def how_it_ended(name: Difference) -> str:
    """How the side without a result stands, and why."""
    side = name.before if name.change == GAINED else name.after
    assert side is not None
    reason = side.reason.strip().partition("\n")[0]
    return ": ".join(filter(None, (side.status, reason)))
