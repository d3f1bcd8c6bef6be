"""Changes: what differs between two results, name by name, and what both were computed with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas

from fedbench.errors import UserError
from fedbench.report.frames import DASH, Format, frame, page, records
from fedbench.report.grouping import unknown
from fedbench.report.layout import unit_of
from fedbench.results import Result
from fedbench.results.diff import (
    CLOSE,
    DAMAGED,
    DIFFERENT,
    EQUAL,
    GAINED,
    KEY,
    LOST,
    NEITHER,
    ONLY_AFTER,
    ONLY_BEFORE,
    differences,
    name_of,
    settings,
)
from fedbench.words import counted, shortened

GROUP = list(KEY[:-1])
BROKEN = (DIFFERENT, LOST, DAMAGED)  # what makes two results unequal
MOST = 40  # lines of a table; csv and json have all
WIDE = 30  # letters of a value
NAMED = 6  # names in a sentence
FAULTS = 3  # lines on what is damaged, of which the command prints more

CSV_COLUMNS = (
    *KEY, "change", "same_id", "status_before", "status_after", "differs_in", "measure", "before", "after",
    "difference", "largest", "reason",
)  # fmt: skip
# The columns of all tables; each has those of its kind.
FORMATS = {
    **{name: Format(part="name") for name in ("differs", "method", "cell")},
    **{name: Format(name.removesuffix(" text"), left=True) for name in ("before text", "after text", "change")},
    "in": Format("in"),
    "n_seeds": Format("seeds", "int"),
    **{name: Format(name, "score", "metric") for name in ("before", "after")},
    **{name: Format(name, "points") for name in ("difference", "largest")},
    "differs_in": Format("differs in", left=True),
}


def changes(
    titles: tuple[str, str],
    before: Sequence[Result],
    after: Sequence[Result],
    metric: str = "accuracy",
    tolerance: float = 0.0,
) -> pandas.DataFrame:
    """A row for each name, as of `differences`; `broken` says whether any result differs, is lost or is damaged.

    Args:
        titles: Of both sides.
        before: The results of one side.
        after: Those of the other.
        metric: Whose scores are shown.
        tolerance: How far scores may be apart, in points where they are fractions.

    Raises:
        UserError: The two share no name, or no result that differs has the metric.
    """
    found = differences(before, after, metric, tolerance).assign(measure=metric)
    if found["same_id"].isna().all():
        raise UserError(
            f"{titles[0]} and {titles[1]} share no name: no suite, scenario, sweep point, method and seed is in both"
        )
    apart = found[found["change"].isin((CLOSE, DIFFERENT))]
    if len(apart) and apart[["before", "after"]].isna().all(axis=None):
        measured = [name for one in (*before, *after) if one.status == "finished" for name in one.metrics()]
        raise UserError(unknown("metric", metric, measured))
    manifests = {name_of(one): one.manifest for one in before}
    both = [(manifests[name], one.manifest) for one in after if (name := name_of(one)) in manifests]
    return frame(
        records(found),
        CSV_COLUMNS,
        caption=f"{titles[0]} -> {titles[1]}",
        by=(),
        metric=metric,
        titles=list(titles),
        settings=records(settings(both)),
        broken=bool(found["change"].isin(BROKEN).any()),
        faults=found["reason"][found["change"] == DAMAGED].unique().tolist(),
    )


def for_people(found: pandas.DataFrame) -> pandas.DataFrame:
    """The same in three tables: what both were computed with, methods over seeds, and the names that differ."""
    names = found
    both = names[names["same_id"].notna()]
    rows = settings_rows(found.attrs["settings"], len(both))
    computed_with = "how the shared cells were computed" if rows else ""
    title, notes = found.attrs["caption"], _notes(found, names)
    pages = [page(("settings",), title=title, caption=computed_with, notes=notes, remarks=_counts(both, bool(rows)))]
    apart = both[both["change"].isin((CLOSE, DIFFERENT))]
    unit = unit_of(found.attrs["metric"])
    touched = both.groupby(GROUP, sort=False).filter(lambda group: group.index.isin(apart.index).any())
    if len(touched) > touched.groupby(GROUP).ngroups:  # more than one seed
        pages.append(page(("methods",), title="methods", caption=f"{unit} · means over the seeds of both"))
        for name, seeds in touched.groupby(GROUP, sort=False):
            known = seeds.dropna(subset=["before", "after"])
            means = {what: known[what].mean() for what in ("before", "after", "difference")}
            row = {"table": "methods", "method": called(names, name), "n_seeds": len(known)}
            rows.append(row | means | {"largest": known["largest"].max()})
    if len(apart):
        more = len(apart) - MOST
        cut = [f"... and {more} more: --format csv and json have all, --scenario and --method choose"] * (more > 0)
        pages.append(page(("cells",), title="cells whose tables differ", caption=unit, notes=_reasons(names) + cut))
        ordered = apart.sort_values(["change", "largest"], key=_order, kind="stable")
        for row in records(ordered[:MOST]):
            values = {what: row[what] for what in ("change", "before", "after", "difference", "largest", "differs_in")}
            rows.append({"table": "cells", "cell": called(names, [row[part] for part in KEY]), **values})
    legend = [
        "equal: all tables say the same, timings aside. different: a score of an evaluated round is farther from the "
        "other side than the tolerance (--equivalent, 0 by default); within tolerance: none is.",
        "before, after: after the last round. largest: the largest difference of any score of that metric.",
        "before is the first folder, after the second; a name is suite, scenario, sweep point, method and seed.",
        "compare boards prints the leaderboards of both.",
    ]
    return changes_frame(rows, pages, legend, metric=found.attrs["metric"])


def changes_frame(
    rows: Sequence[dict[str, Any]], pages: Sequence[Any], legend: Sequence[str], **attrs: Any
) -> pandas.DataFrame:
    """A frame of `settings_rows`, methods and names, a table for each kind."""
    texts = ("differs", "before text", "after text", "in", "method", "cell", "change", "n_seeds")
    columns = ("table", *texts, "before", "after", "difference", "largest", "differs_in")
    caption = "What differs from the first to the second"
    return frame(rows, columns, caption=caption, by=("table",), pages=pages, formats=FORMATS, legend=legend, **attrs)


def settings_rows(found: Sequence[dict[str, Any]], cells: int) -> list[dict[str, Any]]:
    """What differs of so many cells. found: the records of `settings`."""

    def cut(value: str | None) -> str:
        text = value or DASH
        return text if len(text) <= WIDE else text[: WIDE - 1] + "…"

    return [
        {
            "table": "settings",
            "differs": one["what"],
            "before text": cut(one["before"]),
            "after text": cut(one["after"]),
            "in": f"{one['cells']} of {cells}",
        }
        for one in found
    ]


def called(names: pandas.DataFrame, name: Sequence[Any]) -> str:
    """A name for people, without what all have in common; of a method over seeds without a seed."""
    parts = [part for part, column in zip(name[:3], KEY[:3], strict=True) if names[column].nunique() > 1]
    seed = [f"seed {name[4]}"] if len(name) > 4 else []
    return " · ".join(filter(None, (*parts, name[3], *seed)))


def _order(column: pandas.Series) -> pandas.Series:
    """What differs first, then the largest difference."""
    return -column.fillna(0) if column.dtype == float else column.map([DIFFERENT, CLOSE, EQUAL].index)


def _counts(both: pandas.DataFrame, differ: bool) -> list[str]:
    """How many names have become what."""
    n = Counter(zip(both["change"], both["same_id"], strict=True))
    kinds = [
        (n[EQUAL, True], "equal"),
        (n[EQUAL, False], "equal under another id"),
        *((n[kind, True], f"{kind} under one id") for kind in (CLOSE, DIFFERENT)),
        *((n[kind, False], f"{kind} under another id") for kind in (CLOSE, DIFFERENT)),
        *((n[kind, True] + n[kind, False], kind) for kind in (LOST, GAINED, NEITHER, DAMAGED)),
    ]
    lines = [f"{counted(len(both), 'name')} in both: {', '.join(f'{k} {what}' for k, what in kinds if k)}"]
    return lines if differ else [*lines, "versions, machines, data and configurations are the same"]


def _reasons(names: pandas.DataFrame) -> list[str]:
    """Why names differ, where their metric does not say it."""
    some = names[names["change"].isin((CLOSE, DIFFERENT)) & (names["reason"].fillna("") != "")]
    return [
        f"{shortened([called(names, list(row)) for row in own[list(KEY)].itertuples(index=False)], 3)}: {why}"
        for why, own in some.groupby("reason", sort=False)
    ]


def _notes(found: pandas.DataFrame, names: pandas.DataFrame) -> list[str]:
    """What is in one of them alone, and what does not match its checksum."""
    notes = []
    for kind, what in ((LOST, "finished before, no result now"), (GAINED, "no result before, finished now")):
        some = names[names["change"] == kind].to_dict("records")
        if texts := [f"{called(names, [one[part] for part in KEY])} ({one['reason']})" for one in some]:
            notes.append(f"{what}: {shortened(texts, NAMED)}")
    for kind, title in zip((ONLY_BEFORE, ONLY_AFTER), found.attrs["titles"], strict=True):
        only = names[names["change"] == kind]
        if len(only):
            groups = Counter(only[GROUP].itertuples(index=False, name=None))
            texts = [f"{called(names, group)} ({counted(n, 'seed')})" for group, n in groups.items()]
            notes.append(f"{counted(len(only), 'name')} only in {title}: {shortened(texts, NAMED)}")
    faults = found.attrs["faults"]
    more = len(faults) - FAULTS
    return [*notes, *faults[:FAULTS], *([f"... and {more} more that do not match their checksums"] * (more > 0))]
