"""Pages: a frame as pages of tables of text, which the terminal, Markdown, LaTeX and HTML print."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas

from fedbench.report.frames import DASH, PLACE, WITH, Format, cells, format_in, is_blank, number, tables, written
from fedbench.report.grouping import Place, headings
from fedbench.report.run_scores import ABSENCES
from fedbench.results.scores import measure
from fedbench.words import human_bytes

if TYPE_CHECKING:
    pass


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
