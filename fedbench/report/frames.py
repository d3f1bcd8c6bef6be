"""Frames: tables of results with a caption, the one form that every format renders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedbench.report.grouping import Place
from fedbench.report.run_scores import is_fraction
from fedbench.results.metric_direction import higher_is_better, measure
from fedbench.words import human_bytes, human_flops, human_joules, lasting, roughly, three_digits

PLACE = Place._fields  # the columns that say which leaderboard a row belongs to
DASH = "–"


@dataclass(frozen=True)
class Frame:
    """Columns of cells, and what they show. `fedbench.report.results` makes DataFrames of them; the command line goes
    without pandas, which takes half a second to import.

    Args:
        cells: by column, a cell for each row; a blank is None.
        attrs: `caption`, `metric`, `round`, `correction`; `legend`, a sentence for each column that needs one; `by`,
            the columns that tell its tables apart; `pages`, by those columns the title, the caption and the notes of
            each table; `formats`, how columns that only some results have are shown.
    """

    cells: Mapping[str, Sequence[Any]]
    attrs: dict[str, Any]

    def __len__(self) -> int:
        return len(next(iter(self.cells.values()), ()))

    def __getitem__(self, column: str) -> Sequence[Any]:
        return self.cells[column]

    @property
    def columns(self) -> list[str]:
        return list(self.cells)

    def records(self) -> list[dict[str, Any]]:
        """The rows, by column."""
        return [dict(zip(self.cells, row, strict=True)) for row in zip(*self.cells.values(), strict=True)]

    def rows(self, kept: Iterable[int]) -> Frame:
        """These rows, in this order, with attrs of their own."""
        places = list(kept)
        return Frame({name: [cells[i] for i in places] for name, cells in self.cells.items()}, dict(self.attrs))

    def tables(self) -> dict[tuple[str, ...], list[int]]:
        """The rows of each table, by the values of `by`."""
        found: dict[tuple[str, ...], list[int]] = {}
        for i in range(len(self)):
            found.setdefault(tuple(str(self.cells[name][i]) for name in self.attrs["by"]), []).append(i)
        return found


def _numbers(cells: list[Any]) -> list[Any]:
    """Whole numbers among fractions as fractions."""
    fractions = any(type(cell) is float for cell in cells)
    return [float(cell) if type(cell) is int else cell for cell in cells] if fractions else cells


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
    "bytes": human_bytes,
    "flops": human_flops,
    "gflops": three_digits,
    "joules": human_joules,
    "seconds": lasting,
    "cell seconds": three_digits,
    "flops a second": lambda value: human_flops(value).removesuffix("FLOPs"),
    "estimate": lambda value: roughly(value) if value else "",
    "share": "{:.0%}".format,
    "crossed": lambda value: human_bytes(value) if value else DASH,
    "decimal": "{:.2f}".format,
    "rank": "{:g}".format,
    "p": probability,
    "yes": lambda value: "yes" if value else "",
    "names": lambda value: value if isinstance(value, str) else ", ".join(value),
}

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
) -> Frame:
    """A frame of records.

    Args:
        rows: records; what one lacks is a blank.
        columns: those that are always there, in order; others of the rows follow.
        caption: what the frame shows.
        by: the columns that tell its tables apart.
        pages: a mapping for each table, see `page`.
        formats: of columns that FORMATS does not have.
        legend: sentences that explain columns.
        attrs: more of what the frame says, such as metric, round and correction.
    """
    rows = list(rows)
    names = list(dict.fromkeys([*columns, *(name for row in rows for name in row)]))
    facts = {"by": list(by), "pages": list(pages), "formats": dict(formats or {}), "legend": list(legend)}
    cells = {name: _numbers([row.get(name) for row in rows]) for name in names}
    return Frame(cells, {"caption": caption, **attrs, **facts})


def page(key: Sequence[Any], **facts: Any) -> dict[str, Any]:
    """What stands around one table of a frame.

    Args:
        key: the values of the frame's `by` in its rows.
        facts: title, caption, above (a sentence over the table), warning (another), notes, remarks.
    """
    return {"key": [str(part) for part in key], **facts}


def format_of(found: Frame, column: str) -> Format:
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
