"""Changes: what differs between two results, method by method over seeds and cell by cell."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas

from fedbench.errors import UserError
from fedbench.report.frames import DASH, Format, Frame, frame, number, page
from fedbench.report.grouping import draws_of, unknown
from fedbench.report.layout import unit_of
from fedbench.report.run_scores import AT, is_fraction, run
from fedbench.report.significance import margin_of, margin_text
from fedbench.report.statistics.intervals import quantile
from fedbench.report.statistics.pairs import BETTER, WORSE, judged, paired
from fedbench.report.statistics.pairs import EQUAL as SAME
from fedbench.report.statistics.ranks import mean
from fedbench.results.columns import GIVEN_UP
from fedbench.results.diff import (
    DAMAGED,
    DIFFERENT,
    EQUAL,
    GAINED,
    GROUP,
    KEY,
    LOST,
    NEITHER,
    ONLY_AFTER,
    ONLY_BEFORE,
    CellSummary,
    ScoreDigest,
    settings,
)  # fmt: skip
from fedbench.results.metric_direction import higher_is_better, without_noise
from fedbench.words import counted, shortened

LEVEL = 0.05  # of seed noise
WITHIN = "within noise"
ORDER = (DIFFERENT, WITHIN, EQUAL)  # of verdicts on cells
MOST = 40  # lines of a table; csv and json have all
WIDE = 30  # letters of a value
NAMED = 6  # names in a sentence
FAULTS = 3  # lines on what is damaged, of which the command prints more

CSV_COLUMNS = (
    *KEY, "change", "same_id", "status_before", "status_after", "differs_in", "measure", "before", "after",
    "difference", "low", "high", "n_seeds", "p", "q", "verdict",
)  # fmt: skip
NOISE_LEGEND = (
    "equal: every score of every evaluated round to the bit, and bytes and FLOPs.",
    "within noise: farther apart than two seeds of a method are by chance is none of its scores; noise: how far that "
    "is, from the seeds of the first side.",
    "different: beyond that, or other bytes or FLOPs, which no seed changes.",
)
# The columns of all tables; each has those of its kind.
FORMATS = {
    **{name: Format(part="name") for name in ("differs", "method", "cell")},
    **{name: Format(name.removesuffix(" text"), left=True) for name in ("before text", "after text")},
    "in": Format("in"),
    "n_seeds": Format("seeds", "int"),
    **{name: Format(name, "score", "metric") for name in ("before", "after")},
    "ci_low": Format("95 % interval", "points"),
    **{f"cell {name}": Format(name) for name in ("before", "after", "difference", "noise")},
    **{f"cell {name}": Format(name, left=True) for name in ("verdict", "metric")},
    "verdict": Format(left=True),
    "differs_in": Format("differs in", "names"),
}


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
        rows = [(*cell.name, metric, value) for cell in cells for metric, value in cell.scores.scores.items()]
        scores = pandas.DataFrame(rows, columns=[*KEY, "metric", "value"]).drop_duplicates([*KEY, "metric"])
        seeds = scores.groupby([*GROUP, "metric"])["value"].agg(["var", "size"]).query("size > 1").reset_index()
        pooled = seeds.assign(df=seeds["size"] - 1, total=seeds["var"] * (seeds["size"] - 1))
        self.pooled: dict[tuple[Any, ...], tuple[float, int]] = {}  # (suite, scenario, variant or not, metric): sum, df
        for by in (["suite", "metric"], ["suite", "scenario", "variant", "metric"]):
            sums = pooled.groupby(by)[["total", "df"]].sum()
            self.pooled |= dict(zip(sums.index, sums.itertuples(index=False, name=None), strict=True))

    def bound(self, cell: CellSummary, metric: str) -> float | None:
        """The largest difference within noise; None where no method has two seeds."""
        for place in ((*cell.name[:3], metric), (cell.suite, metric)):
            if place in self.pooled:
                total, df = self.pooled[place]
                return quantile(1 - LEVEL / self.judged, df) * math.sqrt(2 * total / df)
        return None


def verdicts(apart: pandas.DataFrame, noise_of: Sequence[CellSummary], equivalent: float = 0.0) -> pandas.DataFrame:
    """A verdict on each name with another result; what is different comes first, the largest difference on top.

    Args:
        apart: Of `diff`, the rows of DIFFERENT.
        noise_of: Finished cells whose seeds say how large the noise is.
        equivalent: A difference of scores that may pass in any case, in percent where those are.

    Returns:
        By row: KEY, `id`, `verdict`, the `metric` that is farthest apart in bounds, its values `before` and `after`,
        their `difference`, `noise` (the largest difference within it, None where it is not known), the `reason`, and
        `differs_in` and `same_id` of `diff`.
    """
    noise = Noise(noise_of if len(apart) else (), sum(len(one.scores.scores) for one in apart["new"]))
    rows = []
    for one in apart.to_dict("records"):
        old: CellSummary = one["old"]
        judgement = _judged(old, old.scores, one["new"].scores, noise, equivalent)
        rows.append((*old.name, old.id, *judgement, one["differs_in"], one["same_id"]))
    judged_by = ("verdict", "metric", "before", "after", "difference", "noise", "reason")
    columns = [*KEY, "id", *judged_by, "differs_in", "same_id"]
    return _sorted(pandas.DataFrame(rows, columns=columns, dtype=object), ORDER.index)


def _judged(
    cell: CellSummary, before: ScoreDigest, after: ScoreDigest, noise: Noise, equivalent: float
) -> tuple[Any, ...]:
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
    unknown_noise = "one seed each: no noise is known" if beyond and bound is None else ""
    old, new = before.scores.get(shown), after.scores.get(shown)
    gap = None if old is None or new is None else new - old
    why = f"other {' and '.join(odd)}" if odd else unknown_noise
    return verdict, shown, old, new, gap, None if verdict == EQUAL else bound, why


def _sorted(found: pandas.DataFrame, order: Callable[[str], int]) -> pandas.DataFrame:
    """By verdict, then the largest difference first; NaN is the largest."""

    def size(difference: float | None) -> float:
        return -abs(difference or 0.0) if math.isfinite(difference or 0.0) else -math.inf

    keys = list(zip(map(order, found["verdict"]), map(size, found["difference"]), strict=True))
    return found.iloc[sorted(range(len(found)), key=lambda i: keys[i])]


def how_it_ended(row: Mapping[Any, Any]) -> str:
    """How the side without a result stands, and why. row: of `diff`."""
    side: CellSummary = row["old" if row["change"] == GAINED else "new"]
    return ": ".join(filter(None, (side.status, side.reason.strip().partition("\n")[0])))


# Two folders


@dataclass(frozen=True)
class Changes:
    """What differs between two folders.

    Attributes:
        before: The name of the first folder.
        after: The name of the second.
        margin: Below it differences of the metric are called equal.
        names: As of `diff`, with the metric `before` and `after` where both sides have a result and any seed of the
            method has another one.
        groups: A row for each method any of whose seeds has another result: GROUP, `n_seeds`, `before`, `after`, their
            `difference` seed by seed with its interval (`low`, `high`), `p`, `q`, `verdict` and
            `same_id`.
        cells: As of `verdicts`, of all names with another result.
        settings: As of `fedbench.results.diff.settings`.
    """

    before: str
    after: str
    metric: str
    margin: float | None
    names: pandas.DataFrame
    groups: pandas.DataFrame
    cells: pandas.DataFrame
    settings: pandas.DataFrame

    @cached_property
    def telling(self) -> list[int]:
        """The places in (suite, scenario, variant) in which names differ."""
        return [i for i, part in enumerate(KEY[:3]) if self.names[part].nunique() > 1]

    def called(self, name: Sequence[Any]) -> str:
        """A name for people; of a method over seeds without a seed."""
        seed = [f"seed {name[4]}"] if len(name) > 4 else []
        return " · ".join(filter(None, (*(name[i] for i in self.telling), name[3], *seed)))

    @cached_property
    def worse(self) -> list[str]:
        """Every method that is worse, and every cell that failed and had not before."""
        worse = self.groups[self.groups["verdict"] == WORSE]
        methods = [self.called(group) for group in worse[list(GROUP)].itertuples(index=False)]
        lost = self.names[(self.names["change"] == LOST) & self.names["status_after"].isin(GIVEN_UP)]
        statuses = zip(_keys(lost), lost["status_after"], strict=True)
        return methods + [f"{self.called(name)}: {status}" for name, status in statuses]

    @property
    def different(self) -> int:
        """How many names have not the same result, or none, in both folders."""
        return int((~self.names["change"].isin((EQUAL, NEITHER))).sum())

    @property
    def faults(self) -> list[str]:
        """What does not match its checksum."""
        return self.names["fault"][self.names["change"] == DAMAGED].unique().tolist()


def changes(
    titles: tuple[str, str],
    found: pandas.DataFrame,
    metric: str = "accuracy",
    at: str = "final",
    equivalent: float | None = None,
    noise_of: Sequence[CellSummary] = (),
) -> Changes:
    """What the differences between two folders amount to.

    Args:
        titles: Of both folders.
        found: As of `diff`.
        metric: That methods are compared by.
        at: The round that counts.
        equivalent: Points that may be called equal.
        noise_of: Cells whose seeds say how large noise is; those of the first folder if not given.

    Raises:
        UserError: The folders share no name, no result that differs has the metric, or the round is none of AT.
    """
    if at not in AT:
        raise UserError(f"compare changes takes the same round of both folders: --at {', '.join(AT[:-1])} or {AT[-1]}")
    both = found[found["same_id"].notna()]
    if both.empty:
        raise UserError(
            f"{titles[0]} and {titles[1]} share no name: no suite, scenario, sweep point, method and seed is in both"
        )
    apart = (found["change"] == DIFFERENT).groupby([found[part] for part in GROUP]).transform("any")
    computed = apart & found["change"].isin((EQUAL, DIFFERENT))
    for side, value in (("old", "before"), ("new", "after")):
        scores = [_score(one, metric, at) if there else None for one, there in zip(found[side], computed, strict=True)]
        found = found.assign(**{value: pandas.Series(scores, found.index, dtype=float)})
    if computed.any() and found[["before", "after"]].isna().all(axis=None):
        sides = [one for side in ("old", "new") for one in found[side][computed]]
        tested = [name for one in sides if one.result for name in one.result.scores.of_split("test")]
        raise UserError(unknown("metric", metric, tested))
    margin = margin_of(metric, equivalent)
    differing = settings((one.manifest, other.manifest) for one, other in zip(both["old"], both["new"], strict=True))
    noise_of = noise_of or found["old"][found["status_before"] == "finished"].tolist()
    cells = verdicts(found[found["change"] == DIFFERENT], noise_of, equivalent or 0.0)
    return Changes(*titles, metric, margin, found, _over_seeds(found[computed], metric, margin), cells, differing)


def _score(one: CellSummary, metric: str, at: str) -> float | None:
    if one.result is None:
        return None
    found = run(one.result.scores, one.seed, metric, "test", at)
    return found.average if found else None


def _over_seeds(names: pandas.DataFrame, metric: str, margin: float | None) -> pandas.DataFrame:
    """As of `Changes.groups`; what is worse comes first. names: KEY, same_id, before and after."""
    pairs, means, same_id, draws = {}, {}, {}, _draws(names)
    for group, seeds in names.groupby(list(GROUP), sort=False):
        old, new = (dict(zip(known["seed"], known[side], strict=True)) for side in ("before", "after")
                    for known in [seeds[seeds[side].notna()]])  # fmt: skip
        if pair := paired("after", new, "before", old, draws[group[:-1]]):
            pairs[group], same_id[group] = pair, bool(seeds["same_id"].all())
            shared = old.keys() & new.keys()
            means[group] = [mean({seed: side[seed] for seed in shared}, draws[group[:-1]]) for side in (old, new)]
    (concluded,) = judged([list(pairs.values())], higher_is_better(metric), margin)
    rows = [
        (
            *group,
            pair.seeds,
            *means[group],
            pair.mean,
            pair.low,
            pair.high,
            pair.p,
            pair.q,
            pair.verdict,
            same_id[group],
        )
        for group, pair in zip(pairs, concluded, strict=True)
    ]
    columns = [*GROUP, "n_seeds", "before", "after", "difference", "low", "high", "p", "q", "verdict", "same_id"]
    order = {WORSE: 0, BETTER: 1, SAME: 3}
    return _sorted(pandas.DataFrame(rows, columns=columns, dtype=object), lambda verdict: order.get(verdict, 2))


def _draws(names: pandas.DataFrame) -> dict[tuple[Any, ...], dict[int, int]]:
    """By suite, scenario and variant, the draws of `draws_of` on both sides together."""
    return {
        place: draws_of((one.seed, one.manifest["config"]) for one in [*cells["old"], *cells["new"]] if one.manifest)
        for place, cells in names.groupby(list(GROUP[:-1]), sort=False)
    }


# Frames


def for_programs(found: Changes) -> Frame:
    """A row for each name, then one for each method over seeds, whose seed is empty."""
    names = found.names.copy()
    names.loc[names["change"] != DIFFERENT, ["before", "after"]] = math.nan
    names["difference"] = names["after"] - names["before"]
    names = names.merge(found.cells[[*KEY, "verdict"]], how="left", on=list(KEY))
    rows = [*names.to_dict("records"), *found.groups.assign(change="over seeds").to_dict("records")]
    return frame(
        [{name: row.get(name) for name in CSV_COLUMNS} | {"measure": found.metric} for row in rows],
        CSV_COLUMNS,
        caption=f"{found.before} -> {found.after}",
        by=(),
        metric=found.metric,
        settings=found.settings.to_dict("records"),
        worse=found.worse,
    )


def for_people(found: Changes, every_cell: bool = False) -> Frame:
    """What both folders were computed with, methods over seeds, and cells that differ under one id; or every cell that
    differs, and methods where they have more than one."""
    both = found.names[found.names["same_id"].notna()]
    rows = settings_rows(found.settings, len(both))
    computed_with = "what they were computed with, in names of both" if rows else ""
    title = f"{found.before} -> {found.after}"
    pages = [page(("settings",), title=title, caption=computed_with, notes=_notes(found), remarks=_counts(found, both))]
    legend = []
    if len(found.groups) and not (every_cell and found.groups["n_seeds"].max() == 1):
        caption = f"{unit_of(found.metric)} · after minus before, seed by seed: {_sums(found.groups)}"
        pages.append(page(("methods",), title="methods over seeds", caption=caption, notes=_more(found.groups)))
        groups = found.groups[:MOST].rename(columns={"low": "ci_low", "high": "ci_high"}).drop(columns=["p", "same_id"])
        for row in groups.to_dict("records"):
            name = found.called([row.pop(part) for part in GROUP])
            rows.append({"table": "methods", **{str(column): value for column, value in row.items()}, "method": name})
        margin = margin_text(found.metric, found.margin)
        legend.append(
            "methods over seeds: those any of whose cells has another result; interval and p: Student's t over the "
            "paired differences, from three seeds on. verdict: better or worse where q <= 0.05 (q: p after "
            "Benjamini-Hochberg over all lines), else equal where the interval lies within the margin of zero"
            f"{f' ({margin})' if margin else ''}; inconclusive: none of these."
        )
    cells = found.cells if every_cell else found.cells[found.cells["same_id"].astype(bool)]
    if len(cells):
        title = "cells with another result" if every_cell else "cells of one id with another result"
        notes = [*reasons(cells, found.called), *_more(cells)]
        pages.append(page(("cells",), title=title, caption=_sums(cells), notes=notes))
        rows += verdict_rows(cells[:MOST], found.called)
        same = "cells of one id have the same configuration, versions and data, and should be equal."
        legend += [*([] if every_cell else [same]), *NOISE_LEGEND]
    names = "before is the first folder, after the second; a name is suite, scenario, sweep point, method and seed."
    legend += [names, "compare boards prints the leaderboards of both."]
    return changes_frame(rows, pages, legend, metric=found.metric)


def changes_frame(rows: Sequence[dict[str, Any]], pages: Sequence[Any], legend: Sequence[str], **attrs: Any) -> Frame:
    """A frame of `settings_rows`, `verdict_rows` and methods, a table for each kind."""
    methods = ("method", "n_seeds", "before", "after", "difference", "ci_low", "ci_high", "q", "verdict")
    cells = ("cell", *(f"cell {name}" for name in ("verdict", "metric", "before", "after", "difference", "noise")))
    columns = ("table", "differs", "before text", "after text", "in", *methods, *cells, "differs_in")
    caption = "What differs from the first to the second"
    return frame(rows, columns, caption=caption, by=("table",), pages=pages, formats=FORMATS, legend=legend, **attrs)


def settings_rows(found: pandas.DataFrame, cells: int) -> list[dict[str, Any]]:
    """What differs of so many cells."""

    def cut(value: str | None) -> str:
        text = value or DASH
        return text if len(text) <= WIDE else text[: WIDE - 1] + "…"

    return [
        {"table": "settings", "differs": what, "before text": cut(old), "after text": cut(new), "in": f"{n} of {cells}"}
        for what, old, new, n in found.itertuples(index=False)
    ]


def verdict_rows(found: pandas.DataFrame, called: Callable[[Sequence[Any]], str]) -> list[dict[str, Any]]:
    """Of `verdicts`. called: a name for people, by KEY."""
    several = found["metric"].nunique() > 1
    rows = []
    for name, row in zip(_keys(found), found.to_dict("records"), strict=True):
        cell = {"table": "cells", "cell": called(name), "cell verdict": row["verdict"], "differs_in": row["differs_in"]}
        cell |= {"cell metric": row["metric"]} if several else {}
        for value in ("before", "after", "difference", "noise"):
            signed = value == "difference"
            cell[f"cell {value}"] = "" if row[value] is None else number(row[value], row["metric"], signed)
        rows.append(cell)
    return rows


def reasons(found: pandas.DataFrame, called: Callable[[Sequence[Any]], str]) -> list[str]:
    """A sentence for each reason in `verdicts`."""
    return [
        f"{verdict}: {shortened([called(name) for name in _keys(rows)], 3)}: {why}"
        for (verdict, why), rows in found[found["reason"] != ""].groupby(["verdict", "reason"], sort=False)
    ]


def _keys(found: pandas.DataFrame) -> list[tuple[Any, ...]]:
    """The names of cells, by KEY."""
    return list(found[list(KEY)].itertuples(index=False, name=None))


def _sums(judged: pandas.DataFrame) -> str:
    """How often there is each verdict."""
    return ", ".join(f"{n} {verdict}" for verdict, n in Counter(judged["verdict"]).items())


def _counts(found: Changes, both: pandas.DataFrame) -> list[str]:
    """How many names have become what."""
    n = Counter(zip(both["change"], both["same_id"], strict=True))
    kinds = [
        (n[EQUAL, True], "equal"),
        (n[EQUAL, False], "equal under another id"),
        (n[DIFFERENT, True], "different under one id"),
        (n[DIFFERENT, False], "different under another id"),
        *((n[kind, True] + n[kind, False], kind) for kind in (LOST, GAINED, NEITHER, DAMAGED)),
    ]
    lines = [f"{counted(len(both), 'name')} in both: {', '.join(f'{k} {what}' for k, what in kinds if k)}"]
    if not len(found.settings):
        lines.append("versions, machines, data and configurations are the same")
    return lines


def _notes(found: Changes) -> list[str]:
    """What is in one of them alone, and what does not match its checksum."""
    notes = []
    for kind, what in ((LOST, "finished before, no result now"), (GAINED, "no result before, finished now")):
        some = found.names[found.names["change"] == kind].to_dict("records")
        if names := [f"{found.called(one['old'].name)} ({how_it_ended(one)})" for one in some]:
            notes.append(f"{what}: {shortened(names, NAMED)}")
    for kind, title in ((ONLY_BEFORE, found.before), (ONLY_AFTER, found.after)):
        only = found.names[found.names["change"] == kind]
        if groups := Counter(only[list(GROUP)].itertuples(index=False, name=None)):
            names = [f"{found.called(group)} ({counted(n, 'seed')})" for group, n in groups.items()]
            notes.append(f"{counted(sum(groups.values()), 'name')} only in {title}: {shortened(names, NAMED)}")
    more = len(found.faults) - FAULTS
    return [*notes, *found.faults[:FAULTS], *([f"... and {more} more that do not match their checksums"] * (more > 0))]


def _more(lines: pandas.DataFrame) -> list[str]:
    more = len(lines) - MOST
    return [f"... and {more} more: --format csv and json have all, --scenario and --method choose"] if more > 0 else []
