"""What differs between two results folders, for people: what they were computed with, methods, single cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fedbench.report.absences import DASH
from fedbench.report.changes.found import Changes, Group, size, timed, times
from fedbench.report.changes.measured import COSTS, SECONDS
from fedbench.report.changes.names import (
    DAMAGED,
    DIFFERENT,
    EQUAL,
    GAINED,
    LOST,
    NEITHER,
    ONLY_AFTER,
    ONLY_BEFORE,
    Name,
)  # fmt: skip
from fedbench.report.changes.records import to_csv, to_json
from fedbench.report.changes.settings import cut
from fedbench.report.columns import around, between, exact, point, scored, step, subtracted
from fedbench.report.measures import is_fraction
from fedbench.report.page import Column, Page, Shown, Table, View
from fedbench.report.pairs import probability
from fedbench.words import counted, shortened, three_digits

MOST = 40  # lines of a table; csv and json have all
NAME = 40  # letters of a name at the beginning of a line, before they are numbered instead
TOLD = 6  # names in a sentence
FAULTS = 3  # lines on what is damaged, of which the command tells more


def view(found: Changes) -> View:
    """A page on what both folders were computed with, one on methods, one on the cells that differ under one id."""
    legend = _legend(found)
    pages = [page for page in (_heading(found), _methods(found), _cells(found)) if page]
    return View(pages, legend, partial(to_csv, found), partial(to_json, found), comments=legend)


def _heading(found: Changes) -> Page:
    both = [name for name in found.names if name.before and name.after]
    columns = [
        Column("differs", "name", [Shown(s.what) for s in found.settings], least=24),
        Column("before", "score", [Shown(cut(s.before)) for s in found.settings], left=True),
        Column("after", "score", [Shown(cut(s.after)) for s in found.settings], left=True),
        Column("in", "score", [Shown(f"{s.names} of {len(both)}", value=s.names) for s in found.settings]),
    ]
    tables = [Table(columns, "what they were computed with, in names of both")] if found.settings else []
    return Page(f"{found.before} -> {found.after}", tables, _notes(found), _counts(found, both))


def _counts(found: Changes, both: Sequence[Name]) -> list[str]:
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
    if not found.settings:
        lines.append("versions, machines, data and configurations are the same")
    done = timed([name for name in both if name.both])
    if ratio := times(done):
        lines.append(f"wall time of {counted(len(done), 'name')} computed in both: {_ratio(ratio)} as long")
    return lines


def _notes(found: Changes) -> list[str]:
    """What is in one of them alone, and what was not as it was written."""
    notes = []
    for kind, what in ((LOST, "finished before, no result now"), (GAINED, "no result before, finished now")):
        names = [name for name in found.names if name.change == kind]
        if names:
            told = [f"{found.called(name)} ({_ended(name)})" for name in names]
            notes.append(f"{what}: {shortened(told, TOLD)}")
    for kind, title in ((ONLY_BEFORE, found.before), (ONLY_AFTER, found.after)):
        if groups := Counter(name.group for name in found.names if name.change == kind):
            first = {name.group: name for name in reversed(found.names) if name.change == kind}
            told = [f"{found.called(first[g]).rpartition(' · ')[0]} ({counted(n, 'seed')})" for g, n in groups.items()]
            notes.append(f"{counted(sum(groups.values()), 'name')} only in {title}: {shortened(told, TOLD)}")
    more = len(found.faults) - FAULTS
    return [*notes, *found.faults[:FAULTS], *([f"... and {more} more that are not as they were written"] * (more > 0))]


def _ended(name: Name) -> str:
    """How the cell without a result stands, and why."""
    result = name.after if name.change == LOST else name.before
    if result is None:
        return ""
    reason = (result.manifest.get("reason") or "").strip().partition("\n")[0]
    return result.status + (f": {reason}" if reason else "")


def _methods(found: Changes) -> Page | None:
    """Over seeds, whatever their ids; what is worse first."""
    groups = found.groups
    if not groups:
        return None
    shown = groups[:MOST]
    told, names = _called(found, shown)
    verdicts = Counter(group.pair.verdict for group in groups)
    counts = ", ".join(f"{n} {verdict}" for verdict, n in verdicts.items())
    caption = f"{found.metric}{', %' if is_fraction(found.metric) else ''} · after minus before, seed by seed: {counts}"
    return Page("methods over seeds", [Table(_lines(found, shown, names), caption)], _more(groups), told)


def _lines(found: Changes, groups: Sequence[Group], names: Sequence[str]) -> list[Column]:
    metric = found.metric
    columns = [
        Column("method", "name", [Shown(name) for name in names], least=NAME),
        Column("seeds", "score", [exact(g.pair.n, str) for g in groups]),
        Column("before", "score", [point(g.before, metric) for g in groups], least=6, **scored(metric)),
        Column("after", "score", [point(g.after, metric) for g in groups], **scored(metric)),
        Column("difference", "score", [step(g.pair.mean, metric) for g in groups], **subtracted(metric)),
    ]
    if any(g.pair.low is not None for g in groups):
        columns.append(around([between(g.pair, metric) for g in groups], "gap"))
        columns.append(Column("q", "gap", [exact(g.pair.q, probability) for g in groups], best="low"))
    columns.append(Column("verdict", "gap", [Shown(g.pair.verdict) for g in groups], left=True))
    columns.append(Column("seconds", "gap", [exact(g.times, _ratio) for g in groups], best="low"))
    return columns


def _cells(found: Changes) -> Page | None:
    """The names whose ids are equal and whose results are not: what a run should have computed again, to the bit."""
    places = [i for i, name in enumerate(found.names) if name.change == DIFFERENT and name.same_id]
    if not places:
        return None
    apart = {i: _apart(*found.measured[i]) for i in places}
    places.sort(key=lambda i: _size(found, i), reverse=True)
    shown = places[:MOST]
    told, names = _called(found, [found.names[i] for i in shown])
    differ = {key for i in shown for key in apart[i]}
    measures = [key for key in _keys(found, shown) if key in differ]
    columns = [
        Column("cell", "name", [Shown(name) for name in names], least=NAME),
        *(
            Column(key, "score", [_difference(found, i, key, apart[i]) for i in shown], 9, **_unit(key))
            for key in measures
        ),
        Column("differs in", "gap", [Shown(", ".join(found.names[i].parts)) for i in shown], left=True),
    ]
    caption = f"{counted(len(places), 'cell')} · after minus before; of costs, how many times as much"
    return Page("cells of one id with another result", [Table(columns, caption)], _more(places), told)


def _keys(found: Changes, places: Sequence[int]) -> list[str]:
    """What was measured in any of these names: metrics, then costs."""
    keys = dict.fromkeys(key for i in places for side in found.measured[i] for key in side)
    return sorted(keys, key=lambda key: COSTS.index(key) if key in COSTS else -1)


def _called(found: Changes, shown: Sequence[Name | Group]) -> tuple[list[str], list[str]]:
    """(what numbers mean, the lines' names): where names are long, their settings are numbered, on all pages alike."""
    names = [found.called(one) for one in shown]
    if all(len(name) <= NAME for name in names):
        return [], names
    places = {setting: i for i, setting in enumerate(dict.fromkeys(map(found.setting, found.names)), 1)}
    here = {found.setting(one) for one in shown}
    seeds = [f", seed {one.seed}" if isinstance(one, Name) else "" for one in shown]
    told = [f"({i}): {setting}" for setting, i in places.items() if setting in here]
    return told, [f"{one.method} ({places[found.setting(one)]}){seed}" for one, seed in zip(shown, seeds, strict=True)]


def _apart(before: Mapping[str, float], after: Mapping[str, float]) -> list[str]:
    """The measures that are not the same; of time every one is another."""
    keys = dict.fromkeys((*before, *after))
    return [key for key in keys if key == SECONDS or _unlike(before.get(key), after.get(key))]


def _unlike(one: float | None, other: float | None) -> bool:
    return one != other and not (one is not None and other is not None and one != one and other != other)


def _size(found: Changes, place: int) -> tuple[float, float]:
    """By the metric first, then by the largest share of any measure."""
    before, after = found.measured[place]
    keys = before.keys() & after.keys() - {SECONDS}
    shares = [
        size((after[key] - before[key]) / (abs(before[key]) or 1.0)) for key in keys if _unlike(before[key], after[key])
    ]
    both = (found.metric in before, found.metric in after)
    metric = size(after[found.metric] - before[found.metric]) if all(both) else float(any(both))
    return metric, max(shares, default=0.0)


def _difference(found: Changes, place: int, key: str, apart: Sequence[str]) -> Shown:
    """A blank where the measure is the same; a word where only one side has it."""
    before, after = (side.get(key) for side in found.measured[place])
    if key not in apart:
        return Shown("")
    if before is None or after is None:
        return Shown("only after" if before is None else "only before")
    if key in COSTS:
        return exact(after / before if before else None, _ratio, DASH)
    return step(after - before, key)


def _unit(key: str) -> dict[str, Any]:
    return {} if key in COSTS else subtracted(key)


def _ratio(times: float) -> str:
    return f"×{three_digits(times)}"


def _more(lines: Sequence[object]) -> list[str]:
    more = len(lines) - MOST
    return [f"... and {more} more: --format csv and json have all, --scenario and --method choose"] if more > 0 else []


def _legend(found: Changes) -> list[str]:
    told = []
    if found.groups:
        told.append(
            "methods over seeds: those any of whose cells has another result; interval and p: Student's t over the "
            "paired differences, from three seeds on. verdict: better or worse where q <= 0.05 (q: p after "
            "Benjamini-Hochberg over all lines), else equal where the interval lies within the margin of zero"
            f"{_margin(found)}; not told: none of these. seconds: how many times as long."
        )
    if any(name.same_id and name.change == DIFFERENT for name in found.names):
        told.append("cells of one id have the same configuration, versions and data, and should say the same.")
    told.append(
        "before is the first folder, after the second; a name is suite, scenario, sweep point, method and seed."
    )
    return [*told, "--boards prints the leaderboards of both."]


def _margin(found: Changes) -> str:
    return f" ({(100 if is_fraction(found.metric) else 1) * found.margin:.4g})" if found.margin else ""
