"""Changes as frames: settings, methods over seeds, single cells and their verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pandas

from fedbench.report.changes import Changes, how_it_ended, rows_of, verdicts
from fedbench.report.frames import DASH, Format, Frame, frame, number, page
from fedbench.report.layout import unit_of
from fedbench.report.significance import margin_text
from fedbench.results.diff import (
    DAMAGED,
    DIFFERENT,
    EQUAL,
    GAINED,
    KEY,
    LOST,
    NEITHER,
    ONLY_AFTER,
    ONLY_BEFORE,
    Difference,
    as_frame,
)  # fmt: skip
from fedbench.words import counted, shortened

MOST = 40  # lines of a table; csv and json have all
WIDE = 30  # letters of a value
TOLD = 6  # names in a sentence
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


def for_people(found: Changes) -> Frame:
    """What both folders were computed with, methods over seeds, and cells that differ under one id."""
    both = [name for name in found.names if name.before and name.after]
    groups = found.groups[:MOST]
    apart = [one for one in found.names if one.change == DIFFERENT and one.same_id]
    finished = [one.before for one in found.names if one.before and one.before.status == "finished"]
    cells = verdicts(apart, finished) if apart else None
    told = "what they were computed with, in names of both" if len(found.settings) else ""
    title = f"{found.before} -> {found.after}"
    pages = [page(("settings",), title=title, caption=told, notes=_notes(found), remarks=_counts(found, both))]
    rows = settings_rows(found.settings, len(both))
    if len(found.groups):
        counts = ", ".join(f"{n} {verdict}" for verdict, n in Counter(found.groups.verdict).items())
        caption = f"{unit_of(found.metric)} · after minus before, seed by seed: {counts}"
        pages.append(page(("methods",), title="methods over seeds", caption=caption, notes=_more(found.groups)))
        rows += [_method(found, row) for row in rows_of(groups)]
    if cells is not None:
        notes = [*reasons(cells, found.called), *_more(cells)]
        caption = counted(len(apart), "cell")
        pages.append(page(("cells",), title="cells of one id with another result", caption=caption, notes=notes))
        parts = {one.name: list(one.parts) for one in apart}
        names = [row[: len(KEY)] for row in rows_of(cells[:MOST])]
        listed = zip(verdict_rows(cells[:MOST], found.called), names, strict=True)
        rows += [{**row, "differs_in": parts[name]} for row, name in listed]
    return changes_frame(rows, pages, _legend(found), metric=found.metric)


def changes_frame(rows: Sequence[dict[str, Any]], pages: Sequence[Any], legend: Sequence[str], **attrs: Any) -> Frame:
    """A frame of `settings_rows`, `verdict_rows` and methods, a table for each kind."""
    methods = ("method", "n_seeds", "before", "after", "difference", "ci_low", "ci_high", "q", "verdict")
    cells = ("cell", *(f"cell {name}" for name in ("verdict", "metric", "before", "after", "difference", "noise")))
    columns = ("table", "differs", "before text", "after text", "in", *methods, *cells, "differs_in")
    caption = "What differs from the first to the second"
    return frame(rows, columns, caption=caption, by=("table",), pages=pages, formats=FORMATS, legend=legend, **attrs)


def for_programs(found: Changes) -> Frame:
    """A row for each name, then one for each method over seeds, whose seed is empty."""
    names = [row._asdict() for row in rows_of(as_frame(found.names))]
    for i, record in enumerate(names):
        old, new = found.measured.get(i, (None, None)) if record["change"] == DIFFERENT else (None, None)
        gap = None if old is None or new is None else new - old
        record |= {"measure": found.metric, "before": old, "after": new, "difference": gap}
    over = [{**row._asdict(), "change": "over seeds", "measure": found.metric} for row in rows_of(found.groups)]
    return frame(
        [{name: row.get(name) for name in CSV_COLUMNS} for row in (*names, *over)],
        CSV_COLUMNS,
        caption=f"{found.before} -> {found.after}",
        by=(),
        metric=found.metric,
        settings=found.settings.to_dict("records"),
        worse=found.worse,
    )


def settings_rows(found: pandas.DataFrame, cells: int) -> list[dict[str, Any]]:
    """What differs of so many cells."""
    return [
        {"table": "settings", "differs": row.what, "before text": _cut(row.before), "after text": _cut(row.after)}
        | {"in": f"{row.cells} of {cells}"}
        for row in rows_of(found)
    ]


def _cut(value: str | None) -> str:
    text = value or DASH
    return text if len(text) <= WIDE else text[: WIDE - 1] + "…"


def _counts(found: Changes, both: Sequence[Difference]) -> list[str]:
    """How many names have become what."""
    n = Counter((name.change, name.same_id) for name in both)
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
        if names := [f"{found.called(n.name)} ({how_it_ended(n)})" for n in found.names if n.change == kind]:
            notes.append(f"{what}: {shortened(names, TOLD)}")
    for kind, title in ((ONLY_BEFORE, found.before), (ONLY_AFTER, found.after)):
        if groups := Counter(name.group for name in found.names if name.change == kind):
            names = [f"{found.called(group)} ({counted(n, 'seed')})" for group, n in groups.items()]
            notes.append(f"{counted(sum(groups.values()), 'name')} only in {title}: {shortened(names, TOLD)}")
    more = len(found.faults) - FAULTS
    return [*notes, *found.faults[:FAULTS], *([f"... and {more} more that do not match their checksums"] * (more > 0))]


def _method(found: Changes, row: Any) -> dict[str, Any]:
    values = {"before": row.before, "after": row.after, "difference": row.difference, "ci_low": row.low}
    judged = {"ci_high": row.high, "q": row.q, "verdict": row.verdict, "n_seeds": row.n_seeds}
    return {"table": "methods", "method": found.called(row[:4]), **values, **judged}


def verdict_rows(found: pandas.DataFrame, called: Callable[[Sequence[Any]], str]) -> list[dict[str, Any]]:
    """Of `verdicts`. called: a name for people, by KEY."""
    several = len({row.metric for row in rows_of(found) if row.metric}) > 1
    rows = []
    for row in rows_of(found):
        values = {name: getattr(row, name) for name in ("before", "after", "difference", "noise")}
        texts = {
            f"cell {name}": "" if value is None else number(value, row.metric, name == "difference")
            for name, value in values.items()
        }
        metric = {"cell metric": row.metric} if several else {}
        rows.append({"table": "cells", "cell": called(row[: len(KEY)]), "cell verdict": row.verdict, **metric, **texts})
    return rows


def reasons(found: pandas.DataFrame, called: Any) -> list[str]:
    """A sentence for each reason in `verdicts`."""
    names: dict[tuple[str, str], list[str]] = {}
    for row in rows_of(found[found.reason != ""]):
        names.setdefault((row.verdict, row.reason), []).append(called(row[: len(KEY)]))
    return [f"{verdict}: {shortened(titles, 3)}: {why}" for (verdict, why), titles in names.items()]


def _more(lines: pandas.DataFrame) -> list[str]:
    more = len(lines) - MOST
    return [f"... and {more} more: --format csv and json have all, --scenario and --method choose"] if more > 0 else []


def _legend(found: Changes) -> list[str]:
    told = []
    if len(found.groups):
        margin = margin_text(found.metric, found.margin)
        told.append(
            "methods over seeds: those any of whose cells has another result; interval and p: Student's t over the "
            "paired differences, from three seeds on. verdict: better or worse where q <= 0.05 (q: p after "
            "Benjamini-Hochberg over all lines), else equal where the interval lies within the margin of zero"
            f"{f' ({margin})' if margin else ''}; inconclusive: none of these."
        )
    if any(name.same_id and name.change == DIFFERENT for name in found.names):
        told.append("cells of one id have the same configuration, versions and data, and should be equal.")
        told += NOISE_LEGEND
    told.append(
        "before is the first folder, after the second; a name is suite, scenario, sweep point, method and seed."
    )
    return [*told, "--boards prints the leaderboards of both."]
