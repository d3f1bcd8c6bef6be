"""Frames: DataFrames of results whose attrs say what they show, the one form that every format renders."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas

from fedbench.errors import UserError
from fedbench.report.grouping import Place
from fedbench.results.scores import HIGHER, LOWER, higher_is_better, is_fraction, measure
from fedbench.words import human_bytes, human_flops, human_joules, lasting, meant, roughly, three_digits

PLACE = Place._fields  # the columns that say which leaderboard a row belongs to
DASH = "–"


def cells(found: pandas.DataFrame) -> dict[str, list[Any]]:
    """By column, the cells as Python's own values; a blank is None."""
    bare = pandas.DataFrame(found)  # without attrs, which pandas would copy with every column
    columns = {str(name): column for name, column in bare.items()}
    return {
        name: [None if blank else cell for cell, blank in zip(column.tolist(), column.isna(), strict=True)]
        for name, column in columns.items()
    }


def records(found: pandas.DataFrame) -> list[dict[str, Any]]:
    """The rows, by column; a blank is None."""
    columns = cells(found)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def tables(found: pandas.DataFrame) -> dict[tuple[str, ...], list[int]]:
    """The positions of the rows of each table, by the values of `by`."""
    positions: dict[tuple[str, ...], list[int]] = {}
    keys = pandas.DataFrame(found)[found.attrs["by"]].astype(str)
    for i, key in enumerate(keys.itertuples(index=False, name=None)):
        positions.setdefault(key, []).append(i)
    return positions if found.attrs["by"] else {(): list(range(len(found)))} if len(found) else {}


def with_attrs(found: pandas.DataFrame, rows: pandas.DataFrame | None = None, **attrs: Any) -> pandas.DataFrame:
    """The same frame, or other rows in its place, with its attrs but for these."""
    made = (found if rows is None else rows).copy(deep=False)
    about: dict[Any, Any] = {**found.attrs}
    made.attrs = about | attrs
    return made


def _column(values: list[Any]) -> Any:
    """Numbers as numbers, whole ones also where some are missing; everything else as it is."""
    kinds = {type(value.item() if isinstance(value, np.generic) else value) for value in values} - {type(None)}
    if kinds == {int}:
        return pandas.array(values, dtype="Int64" if None in values else "int64")
    if kinds and kinds <= {int, float}:
        return pandas.array(values, dtype="float64")
    return pandas.Series(values, dtype="bool" if kinds == {bool} and None not in values else object)


@dataclass(frozen=True)
class Format:
    """How a column is shown.

    Args:
        title: its heading; the column's name otherwise.
        unit: one of UNITS.
        best: "high" or "low" where one is better, "metric" where the metric decides.
        part: the table it stands in, where one table is too wide; "" for a column that only programs need.
        left: whether its words begin below each other.
    """

    title: str = ""
    unit: str = "text"
    best: str = ""
    part: str = "score"
    left: bool = False


def probability(p: float | None) -> str:
    """Three decimals, or that it is smaller."""
    if p is None or p != p:
        return ""
    return "<0.001" if p < 0.0005 else f"{p:.3f}"


def number(value: float, metric: str, signed: bool = False) -> str:
    """A score, in percent where the metric is a fraction."""
    sign, times, usual = "+" if signed else "", *((100, ".1f") if is_fraction(metric) else (1, ".3f"))
    return f"{times * value:{sign}{measure(metric).format or usual}}"


# By unit, how a value is written; "score" and "points" depend on the metric.
UNITS: Mapping[str, Callable[[Any], str]] = {
    "text": str,
    "int": "{:.0f}".format,
    "count": "{:,.0f}".format,
    "bytes": human_bytes,
    "flops": human_flops,
    "gflops": three_digits,
    "joules": human_joules,
    "seconds": lasting,
    "cell seconds": three_digits,
    "flops a second": lambda value: human_flops(value).removesuffix("FLOPs"),
    "estimate": lambda value: roughly(value) if value else "",
    "share": "{:.0%}".format,
    "small share": "{:.1%}".format,
    "crossed": lambda value: human_bytes(value) if value else DASH,
    "decimal": "{:.2f}".format,
    "rank": "{:g}".format,
    "p": probability,
    "yes": lambda value: "yes" if value else "",
    "names": lambda value: value if isinstance(value, str) else ", ".join(value),
}

KEPT_AS = {
    "share": "fraction",
    "small share": "fraction",
    "%": "fraction",
    "crossed": "bytes",
    "cell seconds": "seconds",
    "estimate": "seconds",
}  # units of UNITS
PLAIN = ("text", "int", "count", "decimal", "rank", "p", "yes", "names")  # of UNITS, what is no unit

DOMAIN = Format("", "score", "metric", "domain")
ONE_OF_MANY = Format("", "score", "metric", "")  # a domain that tables leave out
_HIDDEN = Format(part="")
FORMATS: Mapping[str, Format] = {
    **dict.fromkeys(("status", "ranked", "metric", "split", "p_sign_flip", "interval", "resource"), _HIDDEN),
    "method": Format(part="name"),
    "client": Format(part="name"),
    "device": Format(part="name"),
    "role": Format(left=True),
    "mean": Format("average", "score", "metric"),
    "std": Format("sd", "score", "", ""),
    "ci_low": Format("95 % interval", "score"),
    "ci_high": Format("95 % interval, high", "score", part=""),
    "group": Format(left=True),
    "collapsed": Format("collapsed", "int", "low", left=True),
    "n_seeds": Format("seeds", "int", part=""),
    "n_draws": Format("draws", "int", part=""),
    "worst": Format("worst", "score", "metric"),
    "quartile": Format("lower quartile", "score", "metric"),
    "median_domain": Format("median domain", "score", "metric"),
    "client_sd": Format("client sd", "score", "low"),
    "worst_clients": Format("worst 10 %", "score", "metric"),
    "gap": Format("gap", "points", "metric", "gap"),
    "gap_low": Format("gap, 95 % interval", "points", part="gap"),
    "gap_high": Format("gap, 95 % interval, high", "points", part=""),
    "gap_p": Format("gap, p", "p", "low", ""),
    "gap_q": Format("gap, q", "p", "low", ""),
    "verdict": Format(part="gap", left=True),
    "within": _HIDDEN,
    "round": Format("round", part=""),
    "spent": Format("spent", "bytes", "low", "cost"),
    "bytes": Format("down + up", "bytes", "low", "cost"),
    "gflops": Format("GFLOPs", "gflops", "low", "cost"),
    "memory_min": Format("memory min/med/max", "bytes", "low", "cost"),
    "memory_median": Format("memory med", "bytes", "low", ""),
    "memory_max": Format("memory max", "bytes", "low", ""),
    "server_gflops": Format("srv GFLOPs", "gflops", "low", "cost"),
    "server_memory": Format("srv memory", "bytes", "low", "cost"),
    "simulated": Format("simulated", "seconds", "low", "cost"),
    "energy": Format("energy", "joules", "low", "cost"),
    "epsilon": Format("ε", "decimal", "low", "cost"),
    "difference": Format("difference", "points", "metric"),
    "p": Format("p", "p", "low"),
    "q": Format("q", "p", "low"),
    "mean_rank": Format("mean rank", "decimal", "low"),
}
# Other names that a column may be asked for by.
ALIASES = {
    "average": "mean", "interval": "ci_low", "memory": "memory_max", "traffic": "bytes", "seeds": "n_seeds",
    "gamma star": "gamma", "cover": "coverage",
}  # fmt: skip
# Columns that stand in the cell of another one: the spread of a mean, the ends of an interval.
WITH = {
    "std": "mean", "ci_high": "ci_low", "gap_high": "gap_low", "memory_median": "memory_min",
    "memory_max": "memory_min", "rounds_std": "rounds", "within": "verdict",
}  # fmt: skip


def frame(
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    caption: str,
    by: Sequence[str] = PLACE,
    pages: Sequence[Mapping[str, Any]] = (),
    formats: Mapping[str, Format] | None = None,
    legend: Iterable[str] = (),
    **attrs: Any,
) -> pandas.DataFrame:
    """A frame of records. Its `attrs` say what it shows and how each column is read, all that `style` needs.

    Args:
        rows: records; what one lacks is a blank.
        columns: those that are always there, in order; others of the rows follow.
        caption: what the frame shows.
        by: the columns that tell its tables apart.
        pages: a mapping for each table, see `page`.
        formats: of columns that FORMATS does not have.
        legend: sentences that explain columns.
        attrs: more of what the frame says, such as metric, round and correction.

    Returns:
        A DataFrame; integers of which some are missing are Int64. `attrs` have all of the above, the metric's
        `direction` (`higher` or `lower` is better) and the `units` of columns' numbers.
    """
    rows = list(rows)
    names = list(dict.fromkeys([*columns, *(name for row in rows for name in row)]))
    facts = {"by": list(by), "pages": list(pages), "formats": dict(formats or {}), "legend": list(legend)}
    found = pandas.DataFrame({name: _column([row.get(name) for row in rows]) for name in names}, columns=names)
    metric = attrs.get("metric", "")
    of_metric = {"metric": metric, "direction": HIGHER if higher_is_better(metric) else LOWER} if metric else {}
    about: dict[Any, Any] = {"caption": caption, **attrs, **of_metric, **facts}
    found.attrs = about | {"units": {name: unit for name in names if (unit := unit_in(about, name))}}
    return found


def unit_in(attrs: Mapping[Any, Any], column: str) -> str:
    """The unit of a column's numbers in the frame, `fraction` for what is shown in percent; "" where it has none."""
    unit = format_in(attrs, column).unit
    if unit in ("score", "points"):
        unit = measure(str(attrs.get("metric", "accuracy"))).unit
    return "" if unit in PLAIN else KEPT_AS.get(unit, unit)


def page(key: Sequence[Any], **facts: Any) -> dict[str, Any]:
    """What stands around one table of a frame.

    Args:
        key: the values of the frame's `by` in its rows.
        facts: title, caption, above (a sentence over the table), warning (another), notes, remarks.
    """
    return {"key": [str(part) for part in key], **facts}


def format_of(found: pandas.DataFrame, column: str) -> Format:
    """How a column is shown; `best` is resolved to "high", "low" or ""."""
    return format_in(found.attrs, column)


def format_in(attrs: Mapping[Any, Any], column: str) -> Format:
    """The same, of a frame's attrs."""
    one = attrs.get("formats", {}).get(column) or FORMATS.get(column, Format())
    if one.best == "metric":
        return replace(one, best="high" if higher_is_better(attrs.get("metric", "accuracy")) else "low")
    return one


def is_blank(value: Any) -> bool:
    """Whether a cell holds nothing: None, a number that is none, an empty text or list."""
    if value is None:
        return True
    return not value if isinstance(value, str | list | tuple) else bool(value != value)


def written(value: Any, unit: str, metric: str, none: str = "") -> str:
    """A value as people read it."""
    if is_blank(value):
        return none
    if unit in ("score", "points"):
        return number(value, metric, unit == "points")
    return UNITS[unit](value)


# Which columns and rows are shown


def chosen(found: pandas.DataFrame, sort: Sequence[str] = (), columns: Sequence[str] = ()) -> pandas.DataFrame:
    """The rows in order, with the columns that are asked for.

    Args:
        sort: columns, the first counts most: the best first, or `COLUMN:asc`, `COLUMN:desc`.
        columns: names, several in one text with commas between them.

    Raises:
        UserError: for a column that the frame does not have.
    """
    for text in reversed(sort):
        found = _sorted(found, text)
    if columns:
        found = _only(found, columns)
    return found


def _sorted(found: pandas.DataFrame, text: str) -> pandas.DataFrame:
    """Within each table: numbers, then words, then blanks."""
    name, _, way = text.rpartition(":") if text.endswith((":asc", ":desc")) else (text, "", "")
    column = column_of(found, name.strip())
    falling = way == "desc" if way else format_of(found, column).best == "high"
    values = cells(found[[column]])[column]
    blank = [i for i, cell in enumerate(values) if is_blank(cell)]
    words = [i for i, cell in enumerate(values) if i not in blank and isinstance(cell, str | list | tuple)]
    numbers = [i for i in range(len(values)) if i not in blank and i not in words]
    numbers.sort(key=lambda i: -values[i] if falling else values[i])
    words.sort(key=lambda i: str(values[i]).lower(), reverse=way == "desc")
    found = found.iloc[[*numbers, *words, *blank]]
    found.attrs["sorted"] = True
    return found


def _only(found: pandas.DataFrame, columns: Sequence[str]) -> pandas.DataFrame:
    """The columns that tell tables and rows apart, then those that are asked for."""
    names = [name.strip() for text in columns for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not names or not all(names):
        raise UserError(f"--columns '{','.join(columns)}': a name is missing. Write --columns average,gflops,memory")
    keep = [name for name in found.columns if name in found.attrs["by"] or format_of(found, name).part == "name"]
    for name in names:
        domains = [c for c in found.columns if found.attrs.get("formats", {}).get(c) in (DOMAIN, ONE_OF_MANY)]
        if name == "domains" and domains:
            keep += domains
            continue
        column = column_of(found, name)
        main = WITH.get(column, column)
        main = main if name in (_bare(main), *ALIASES) or main == column else column
        keep += [main, *(other for other, of in WITH.items() if of == main and main != "verdict")]
    kept = [name for name in dict.fromkeys(keep) if name in found.columns]
    hidden = [name for name in ("role", "ranked", "status") if name in found.columns and name not in kept]
    legend = [text for text in found.attrs["legend"] if not (of := _explained(found, text)) or of & {*kept}]
    return with_attrs(found[[*kept, *hidden]], columns=kept, legend=legend)


def _explained(found: pandas.DataFrame, text: str) -> set[str]:
    """The columns whose titles, or their beginnings, stand before a colon in the sentences of a legend's entry."""
    headings = [part.rpartition(". ")[2] for part in text.split(": ")[:-1]]
    about = [_bare(name) for heading in headings for name in heading.split(", ")]
    titles = {name: _bare(format_of(found, name).title or name) for name in map(str, found.columns)}
    return {name for name, title in titles.items() if any(title.startswith(one) for one in about if one)}


def column_of(found: pandas.DataFrame, name: str) -> str:
    """A column by its name, its title or another name; case and signs do not count.

    Raises:
        UserError: where there is none.
    """
    metric = found.attrs.get("metric", "")
    titles = {column: format_of(found, column).title or column for column in map(str, found.columns)}
    others = {**ALIASES, metric: "mean"} if metric and "mean" in titles else ALIASES
    for column in found.columns:
        if name in (column, titles[column]):
            return str(column)
    bare = _bare(name)
    for column in found.columns:
        if bare and bare in (_bare(str(column)), _bare(titles[column])):
            return str(column)
    for other, column in others.items():
        if bare == _bare(other) and column in titles:
            return column
    usual = {column: other for other, column in reversed(others.items()) if other != metric}
    shown = [usual.get(c, c) for c in titles if c not in (*found.attrs["by"], *WITH) and format_of(found, c).part]
    hint = meant(name, [*shown, *titles.values(), *others], f"there are: {', '.join(shown)}")
    raise UserError(f"no column is called '{name}' here; {hint}")


def _bare(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
