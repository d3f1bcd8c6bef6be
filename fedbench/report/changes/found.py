"""Two results folders set against each other: the names, the methods over seeds, and what was not the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from fedbench.errors import UserError
from fedbench.report.changes.measured import is_copy, measures, seconds
from fedbench.report.changes.names import DAMAGED, DIFFERENT, EQUAL, LOST, Name, compared
from fedbench.report.changes.settings import Setting, settings
from fedbench.report.evidence import margin_of
from fedbench.report.grouping import unknown
from fedbench.report.measures import AT
from fedbench.report.statistics.pairs import BETTER, NOT_TOLD, WORSE, Pair, judged, paired
from fedbench.report.statistics.pairs import EQUAL as ALIKE
from fedbench.results import Result
from fedbench.results.choice import higher_is_better
from fedbench.results.status import GIVEN_UP

SIDES = ("before", "after")
Measured = Mapping[int, tuple[Mapping[str, float], Mapping[str, float]]]
ORDER = (WORSE, BETTER, NOT_TOLD, ALIKE)


@dataclass(frozen=True)
class Group:
    """A method in one setting, over the seeds that have a result in both folders.

    pair: after minus before of the metric, seed by seed. times: how many times as long its cells took, in all; None
    where no time is known. same_id: whether all its cells are the same ones.
    """

    suite: str
    scenario: str
    variant: str
    method: str
    before: float
    after: float
    pair: Pair
    times: float | None
    same_id: bool

    @property
    def group(self) -> tuple[str, str, str, str]:
        """As of `Name.group`."""
        return self.suite, self.scenario, self.variant, self.method


@dataclass(frozen=True)
class Changes:
    """What differs. before, after: the folders, as they are called; measured: of the names that are DIFFERENT, by their
    place in names, what was measured in either."""

    before: str
    after: str
    metric: str
    margin: float | None
    names: Sequence[Name]
    groups: Sequence[Group]
    settings: Sequence[Setting]
    measured: Measured

    @cached_property
    def telling(self) -> list[int]:
        """The places in (suite, scenario, variant) in which names differ."""
        return [i for i in range(3) if len({name.group[i] for name in self.names}) > 1]

    def setting(self, one: Name | Group) -> str:
        """Where a name stands, as far as that tells it from others; "" where all stand in one place."""
        return " · ".join(text for i in self.telling if (text := one.group[i]))

    def called(self, one: Name | Group) -> str:
        """A name for people."""
        seed = f"seed {one.seed}" if isinstance(one, Name) else ""
        return " · ".join(filter(None, (self.setting(one), one.method, seed)))

    @cached_property
    def worse(self) -> list[str]:
        """Every method that is worse, and every cell that failed and had not before."""
        found = [self.called(group) for group in self.groups if group.pair.verdict == WORSE]
        failed = [n for n in self.names if n.change == LOST and n.after and n.after.status in GIVEN_UP]
        return found + [f"{self.called(n)}: {n.after.status}" for n in failed if n.after]

    @property
    def different(self) -> int:
        """How many names have not the same result, or none, in both folders."""
        return sum(name.change not in (EQUAL, "no result") for name in self.names)

    @property
    def faults(self) -> list[str]:
        """What is not as it was written."""
        return list(dict.fromkeys(name.fault for name in self.names if name.change == DAMAGED))


def changes(
    titles: tuple[str, str],
    before: Sequence[Result],
    after: Sequence[Result],
    metric: str = "accuracy",
    at: str = "final",
    equivalent: float | None = None,
) -> Changes:
    """after set against before. Raises: UserError where they share no name, for a metric that none of the results
    that differ has, and for a round that is none of AT."""
    if at not in AT:
        raise UserError(f"--changes takes the same round of both folders: --at {', '.join(AT[:-1])} or {AT[-1]}")
    names = compared(before, after)
    if not any(name.before and name.after for name in names):
        raise UserError(
            f"{titles[0]} and {titles[1]} share no name: no suite, scenario, sweep point, method and seed is in both"
        )
    measured = {
        i: (measures(name.before, at), measures(name.after, at))
        for i, name in enumerate(names)
        if name.change == DIFFERENT and name.before and name.after
    }
    have = dict.fromkeys(key for both in measured.values() for one in both for key in one)
    if measured and metric not in have:
        raise UserError(unknown("metric", metric, have))
    margin = margin_of(metric, equivalent)
    groups = _groups(names, measured, metric, at)
    (told,) = judged([[group.pair for group in groups]], higher_is_better(metric), margin)
    groups = [replace(group, pair=pair) for group, pair in zip(groups, told, strict=True)]
    groups.sort(key=lambda group: (ORDER.index(group.pair.verdict), -size(group.pair.mean)))
    return Changes(*titles, metric, margin, names, groups, settings(names), measured)


def size(difference: float) -> float:
    """How large a difference is; one that is no number is the largest."""
    return abs(difference) if math.isfinite(difference) else math.inf


def _groups(names: Sequence[Name], measured: Measured, metric: str, at: str) -> list[Group]:
    """The methods any of whose seeds has another result, without verdicts."""
    groups: dict[tuple[str, str, str, str], list[int]] = {}
    for i, name in enumerate(names):
        if name.both:
            groups.setdefault(name.group, []).append(i)
    found = []
    for places in groups.values():
        if any(i in measured for i in places):
            here = [names[i] for i in places]
            values = [measured.get(i) or _same(names[i], at) for i in places]
            old, new = (
                {name.seed: both[side][metric] for name, both in zip(here, values, strict=True) if metric in both[side]}
                for side in (0, 1)
            )
            if pair := paired("after", new, "before", old):
                found.append(_group(here, old, new, pair))
    return found


def _same(name: Name, at: str) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Of a name whose result is the same: what was measured in either."""
    found = measures(name.before, at) if name.before else {}
    return found, found


def _group(names: Sequence[Name], old: Mapping[int, float], new: Mapping[int, float], pair: Pair) -> Group:
    seeds = old.keys() & new.keys()
    before, after = (math.fsum(values[seed] for seed in seeds) / len(seeds) for values in (old, new))
    return Group(*names[0].group, before, after, pair, times(names), all(name.same_id for name in names))


def times(names: Sequence[Name]) -> float | None:
    """How many times as long as before the cells behind these names took, in all; see `timed`."""
    old, new = (sum(seconds(one) for n in timed(names) if (one := getattr(n, side))) for side in SIDES)
    return new / old if old and new else None


def timed(names: Sequence[Name]) -> list[Name]:
    """Those of which neither result is a copy, which tells the time of another."""
    return [n for n in names if not any(is_copy(one) for side in SIDES if (one := getattr(n, side)))]
