"""Pages: a frame as pages of tables of text, which the terminal, Markdown, LaTeX and HTML print.

A word stands in the place of a missing number, and below the table a sentence that says why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas

from fedbench.report.budget import Budget, unknown
from fedbench.report.frames import DASH, PLACE, WITH, Format, cells, format_in, is_blank, number, tables, written
from fedbench.report.grouping import Place, headings
from fedbench.results.columns import DAMAGED, HALVED, INTERRUPTED, PENDING
from fedbench.results.scores import measure
from fedbench.words import amount, human_bytes, span

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


PARTS = ("name", "score", "gap", "cost", "domain")  # of a leaderboard, in order; domains come last and give way
Cells = Mapping[str, Sequence[Any]]  # the values of some rows by column
Attrs = Mapping[Any, Any]  # what a frame says of itself


class Shown(NamedTuple):
    """A cell: its text, and the spread that follows it ("±1.3")."""

    text: str
    spread: str = ""


@dataclass(frozen=True)
class Column:
    """A column of cells, one a row.

    part: "name", or the table it stands in where one is too wide. left: words, which begin below each other. bold: the
    row of the best mean.
    """

    title: str
    part: str
    cells: Sequence[Shown]
    left: bool = False
    bold: int | None = None


@dataclass(frozen=True)
class Table:
    """Columns under a caption. faint: rows that stand back. ceilings: how many rows at the top have a rule below."""

    columns: Sequence[Column]
    caption: str = ""
    faint: Sequence[int] = ()
    ceilings: int = 0

    def __len__(self) -> int:
        return len(self.columns[0].cells)


@dataclass(frozen=True)
class Page:
    """Tables under one title.

    above: the conclusion, a sentence before the tables; warning: what to mind before reading a number. Below the tables
    stand remarks, then notes, which matter more. key: the values of the frame's `by`.
    """

    title: str
    tables: Sequence[Table]
    notes: Sequence[str]
    remarks: Sequence[str]
    key: tuple[str, ...]
    above: str
    warning: str


class Pages(NamedTuple):
    """The pages of a frame, and what all their titles have in common."""

    pages: Sequence[Page]
    shared: str = ""


def laid_out(found: pandas.DataFrame) -> Pages:
    """A frame as pages."""
    attrs, by, positions, columns = found.attrs, found.attrs["by"], tables(found), cells(found)
    facts = {tuple(one["key"]): one for one in attrs["pages"]}
    order = [*facts, *(key for key in positions if key not in facts)]
    if tuple(by) == PLACE and order:
        shared, titles = headings([Place(*key) for key in order])
    else:
        shared, titles = "", [facts.get(key, {}).get("title") or " · ".join(filter(None, key)) for key in order]
    pages = []
    for key, title in zip(order, titles, strict=True):
        one, at = facts.get(key, {}), positions.get(key, ())
        own = {name: [values[i] for i in at] for name, values in columns.items()}
        parts = _tables(attrs, own, one.get("caption", "")) if at else []
        above, warning = one.get("above", ""), one.get("warning", "")
        pages.append(Page(title, parts, one.get("notes", ()), one.get("remarks", ()), key, above, warning))
    return Pages(pages, shared)


def _tables(attrs: Attrs, cells: Cells, caption: str) -> list[Table]:
    """One table, or where a frame has parts one for each of them."""
    columns = _columns(attrs, cells)
    rows = len(next(iter(cells.values())))
    names = [column for column in columns if column.part == "name"]
    ceiling = [role == "ceiling" for role in cells.get("role", [""] * rows)]
    faint = [i for i, ranked in enumerate(cells.get("ranked", ())) if not ranked and not ceiling[i]]
    top = 0 if attrs.get("sorted") else next((i for i, one in enumerate(ceiling) if not one), 0)
    parts: Mapping[str, str] = attrs.get("parts") or {}
    if not parts or attrs.get("columns"):
        return [Table(columns, caption, faint, top)] if len(columns) > len(names) else []
    tables: list[Table] = []
    for name, what in parts.items():
        if own := [column for column in columns if column.part == name]:
            text = " · ".join(filter(None, (what, caption if not tables else "")))
            tables.append(_without_blank_rows(Table([*names, *own], text, faint, top)))
    return tables


def _without_blank_rows(table: Table) -> Table:
    """A table of some columns leaves out the rows that have nothing in them."""
    others = [column for column in table.columns if column.part != "name"]
    rows = [i for i in range(len(table)) if any(column.cells[i].text not in ("", DASH) for column in others)]
    position = {row: i for i, row in enumerate(rows)}
    cut = [
        replace(c, cells=[c.cells[i] for i in rows], bold=position.get(-1 if c.bold is None else c.bold))
        for c in table.columns
    ]
    faint = [position[row] for row in table.faint if row in position]
    return replace(table, columns=cut, faint=faint, ceilings=sum(row < table.ceilings for row in rows))


def _columns(attrs: Attrs, cells: Cells) -> list[Column]:
    """The columns of one table that have anything in them, names first; or those that are asked for."""
    asked = attrs.get("columns")
    found = []
    for name in asked or cells:
        format = format_in(attrs, name)
        if name in attrs["by"] or (name in WITH and WITH[name] in cells) or not (asked or format.part):
            continue
        stays = asked or name == "mean"
        if not stays and all(map(is_blank, cells[name])):
            continue
        column = _column(attrs, cells, name, format)
        if stays or any(cell.text for cell in column.cells):
            found.append(column)
    if asked:
        return [replace(column, part="name" if column.part == "name" else "score") for column in found]
    return sorted(found, key=lambda column: PARTS.index(column.part) if column.part in PARTS else len(PARTS))


def _column(attrs: Attrs, cells: Cells, name: str, format: Format) -> Column:
    """A column with what others say in the same places, by TOGETHER."""
    metric, none = str(attrs.get("metric", "accuracy")), DASH if attrs.get("dashes") else ""
    if name in TOGETHER:
        write, others = TOGETHER[name]
        facts = {"unit": format.unit, "metric": metric, "margin": attrs.get("margin", "")}
        rows = zip(cells[name], *(cells.get(other, [None] * len(cells[name])) for other in others), strict=True)
        shown = [write(*row, facts) for row in rows]
    else:
        shown = [Shown(written(value, format.unit, metric, none)) for value in cells[name]]
    bold = _best_row(attrs, cells) if name == "mean" else None
    return Column(format.title or name, format.part or "score", shown, format.left or format.unit == "names", bold)


def _best_row(attrs: Attrs, cells: Cells) -> int | None:
    """The row of the best mean among those that are ranked; None where fewer than two are."""
    means = cells["mean"]
    known = [i for i, ranked in enumerate(cells.get("ranked", ())) if ranked and not is_blank(means[i])]
    if len(known) < 2:
        return None
    return (max if format_in(attrs, "mean").best == "high" else min)(known, key=lambda i: means[i])


Facts = Mapping[str, str]  # the unit of a column, and the metric and the margin of its frame


def _mean(value: float, std: float | None, status: str | None, facts: Facts) -> Shown:
    """A score and its spread, or the word that says why there is none."""
    if is_blank(value):
        return Shown(ABSENCES[status].short or DASH if isinstance(status, str) and status else "")
    metric = facts["metric"]
    return Shown(number(value, metric), "" if is_blank(std) or std is None else f"±{number(std, metric)}")


def _interval(low: float, high: float | None, facts: Facts) -> Shown:
    if is_blank(low) or is_blank(high):
        return Shown("")
    between = " to " if facts["unit"] == "points" else DASH
    return Shown(between.join(written(end, facts["unit"], facts["metric"]) for end in (low, high)))


def _memory(low: float, middle: float | None, high: float | None, facts: Facts) -> Shown:
    """The weakest, the median and the largest client, with one unit where it is the same."""
    texts = [human_bytes(value) for value in (low, middle, high) if not is_blank(value) and value is not None]
    units = {text.rpartition(" ")[2] for text in texts}
    if len(units) == 1:
        return Shown("/".join(text.rpartition(" ")[0] for text in texts) + f" {units.pop()}")
    return Shown("/".join(text.replace(" ", "") for text in texts))


def _rounds(value: float, std: float | None, facts: Facts) -> Shown:
    if is_blank(value):
        return Shown("")
    return Shown(f"{value:.0f}") if is_blank(std) or std is None else Shown(f"{value:.1f}", f"±{std:.1f}")


def _verdict(verdict: str, within: bool | None, facts: Facts) -> Shown:
    """`better`, or `better (<1)` where the whole interval lies within the margin of equivalence."""
    if is_blank(verdict):
        return Shown("")
    small = within is True and verdict in ("better", "worse") and facts["margin"]
    return Shown(f"{verdict} (<{facts['margin']})" if small else verdict)


def _collapsed(seeds: float | None, of: float, facts: Facts) -> Shown:
    return Shown("" if is_blank(seeds) or not seeds else f"{seeds:.0f} of {of:.0f}")


def _role(role: str, facts: Facts) -> Shown:
    return Shown("" if role == "method" or is_blank(role) else role)


# Cells that say what several columns hold: how, and which other columns.
TOGETHER: Mapping[str, tuple[Callable[..., Shown], Sequence[str]]] = {
    "mean": (_mean, ("std", "status")),
    "ci_low": (_interval, ("ci_high",)),
    "gap_low": (_interval, ("gap_high",)),
    "memory_min": (_memory, ("memory_median", "memory_max")),
    "rounds": (_rounds, ("rounds_std",)),
    "verdict": (_verdict, ("within",)),
    "collapsed": (_collapsed, ("n_seeds",)),
    "role": (_role, ()),
}


def unit_of(metric: str) -> str:
    """`accuracy, %`, or the metric alone where it has no unit."""
    return ", ".join(filter(None, (metric, measure(metric).unit)))
