"""Layout: a frame as pages of tables of text, which the terminal, Markdown, LaTeX and HTML print."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedbench.report.frames import DASH, PLACE, WITH, Format, Frame, format_in, is_blank, lists, number, written
from fedbench.report.headings import Place, headings
from fedbench.report.missing_values import ABSENCES
from fedbench.report.page import Column, Page, Shown, Table, View
from fedbench.report.run_scores import is_fraction
from fedbench.words import human_bytes

PARTS = ("name", "score", "gap", "cost", "domain")  # of a leaderboard, in order; domains come last and give way


def laid_out(found: Frame, form: str = "") -> View:
    """A frame as pages; without a word about what was filtered away.

    Args:
        found: the frame.
        form: the format it is for, one that people read.
    """
    attrs, rows = found.attrs, lists(found)
    by = attrs["by"]
    places: dict[tuple[str, ...], list[int]] = {}
    for i in range(len(found)):
        places.setdefault(tuple(str(rows[name][i]) for name in by), []).append(i)
    facts = {tuple(one["key"]): one for one in attrs["pages"]}
    known = [key for key in facts if key in places or not attrs.get("filtered")]
    order = [*known, *(key for key in places if key not in facts)]
    shared, titles = _titles(order, facts, by)
    pages = []
    for key, title in zip(order, titles, strict=True):
        part = {name: [values[i] for i in places.get(key, ())] for name, values in rows.items()}
        place = Place(*key) if tuple(by) == PLACE else None
        pages.append(_page(Part(attrs, part), facts.get(key, {}), title, place))
    return View(pages, attrs["legend"], found, attrs.get("sources", ()), shared)


@dataclass(frozen=True)
class Part:
    """The rows of a frame that one table shows. attrs: of the frame; cells: by column, those of these rows."""

    attrs: Mapping[Any, Any]
    cells: Mapping[str, Sequence[Any]]

    def of(self, column: str, otherwise: Any = None) -> Sequence[Any]:
        """The cells of a column; where there is none, as many of the other value."""
        return self.cells[column] if column in self.cells else [otherwise] * len(self)

    def __len__(self) -> int:
        return len(next(iter(self.cells.values()), ()))

    @property
    def metric(self) -> str:
        return str(self.attrs.get("metric", "accuracy"))


def _titles(
    keys: Sequence[tuple[str, ...]], facts: dict[tuple[str, ...], Any], by: Sequence[str]
) -> tuple[str, list[str]]:
    """What all tables share, and the title of each."""
    if tuple(by) == PLACE and keys:
        told = headings([Place(*key) for key in keys])
        return told.shared, list(told.titles)
    return "", [facts.get(key, {}).get("title") or " · ".join(filter(None, key)) for key in keys]


def _page(part: Part, facts: Mapping[str, Any], title: str, place: Place | None) -> Page:
    tables = _tables(part, facts.get("caption", "")) if len(part) else []
    tables[:1] = [replace(table, warning=facts.get("warning", "")) for table in tables[:1]]
    around = facts.get("notes", ()), facts.get("remarks", ())
    return Page(title, tables, *around, place, facts.get("above", ""))


def _tables(part: Part, caption: str) -> list[Table]:
    """One table, or where a frame has parts one for each of them."""
    columns = columns_of(part)
    names = [column for column in columns if column.part == "name"]
    ceiling = [role == "ceiling" for role in part.of("role")]
    faint = [i for i, ranked in enumerate(part.of("ranked", True)) if not ranked and not ceiling[i]]
    apart = 0 if part.attrs.get("sorted") else next((i for i, one in enumerate(ceiling) if not one), 0)
    parts: Mapping[str, str] = part.attrs.get("parts") or {}
    if not parts or part.attrs.get("columns"):
        return [Table(columns, caption, "", faint, apart)] if len(columns) > len(names) else []
    tables: list[Table] = []
    for name, told in parts.items():
        own = [column for column in columns if column.part == name]
        if own:
            text = " · ".join(filter(None, (told, caption if not tables else "")))
            tables.append(_without_blank_rows(Table([*names, *own], text, "", faint, apart)))
    return tables


def _without_blank_rows(table: Table) -> Table:
    """A table of some columns leaves out the rows that have nothing in them."""
    names = [column for column in table.columns if column.part == "name"]
    others = [column for column in table.columns if column.part != "name"]
    rows = [i for i in range(len(names[0].cells)) if any(column.cells[i].text not in ("", DASH) for column in others)]
    place = {row: i for i, row in enumerate(rows)}
    cut = [
        replace(c, cells=[c.cells[i] for i in rows], bold=place.get(-1 if c.bold is None else c.bold))
        for c in table.columns
    ]
    faint = [place[row] for row in table.faint if row in place]
    return replace(table, columns=cut, faint=faint, apart=sum(row < table.apart for row in rows))


def columns_of(part: Part) -> list[Column]:
    """The columns of one table that have anything in them, names first; or those that are asked for."""
    asked = part.attrs.get("columns")
    found = []
    for name in asked or part.cells:
        format = format_in(part.attrs, name)
        if name in part.attrs["by"] or (name in WITH and WITH[name] in part.cells) or not (asked or format.part):
            continue
        stays = asked or name == "mean"
        if not stays and all(map(is_blank, part.cells[name])):
            continue
        column = _column(part, name, format)
        if stays or any(cell.text for cell in column.cells):
            found.append(column)
    if asked:
        return [replace(column, part="name" if column.part == "name" else "score") for column in found]
    return sorted(found, key=lambda column: PARTS.index(column.part) if column.part in PARTS else len(PARTS))


def _column(part: Part, name: str, format: Format) -> Column:
    """A column with what the columns BESIDE it say in the same places."""
    values, none = part.cells[name], DASH if part.attrs.get("dashes") else ""
    if name in TOGETHER:
        facts = {"unit": format.unit, "metric": part.metric, "margin": part.attrs.get("margin", "")}
        rows = zip(values, *map(part.of, BESIDE[name]), strict=True)
        cells = [TOGETHER[name](*row, facts) for row in rows]
    else:
        cells = [Shown(written(value, format.unit, part.metric, none)) for value in values]
    bold = best_row(part) if name == "mean" else None
    left = format.left or format.unit == "names"
    return Column(format.title or name, format.part or "score", cells, left=left, bold=bold)


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


def _collapsed(seeds: float, of: float, facts: Facts) -> Shown:
    return Shown("" if is_blank(seeds) else f"{seeds:.0f} of {of:.0f} seeds collapsed")


def _role(role: str, facts: Facts) -> Shown:
    return Shown("" if role == "method" or is_blank(role) else role)


# Cells that say what several columns hold: how, and which columns.
TOGETHER: Mapping[str, Callable[..., Shown]] = {
    "mean": _mean, "ci_low": _interval, "gap_low": _interval, "memory_min": _memory, "rounds": _rounds,
    "verdict": _verdict, "collapsed": _collapsed, "role": _role,
}  # fmt: skip
BESIDE: Mapping[str, Sequence[str]] = {
    "mean": ("std", "status"), "ci_low": ("ci_high",), "gap_low": ("gap_high",), "rounds": ("rounds_std",),
    "memory_min": ("memory_median", "memory_max"), "verdict": ("within",), "collapsed": ("n_seeds",), "role": (),
}  # fmt: skip


def best_row(part: Part) -> int | None:
    """The row of the best mean among those that are ranked; None where fewer than two are."""
    means = part.of("mean")
    known = [i for i, ranked in enumerate(part.of("ranked", False)) if ranked and not is_blank(means[i])]
    if len(known) < 2:
        return None
    return (max if format_in(part.attrs, "mean").best == "high" else min)(known, key=lambda i: means[i])


def unit_of(metric: str) -> str:
    """`accuracy, %`, or the metric alone where it has no unit."""
    return f"{metric}, %" if is_fraction(metric) else metric
