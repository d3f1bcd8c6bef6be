"""Filters of frames: which rows, which columns, in which order."""

from __future__ import annotations

import csv
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from fedbench.errors import UserError
from fedbench.report.budget import EXAMPLES, quantity
from fedbench.report.frames import ALIASES, WITH, Format, Frame, format_of, is_blank, written
from fedbench.report.run_scores import is_fraction
from fedbench.results.metric_direction import without_noise
from fedbench.words import meant, shortened

ORDERED: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
GRAMMAR = re.compile(r'\s*(?:"([^"]*)"|(.*?))\s*(>=|<=|!=|==|=|~|>|<)\s*"?([^"]*?)"?\s*')
HOW = "Write a column, one of > >= < <= = != ~ and a number or a text: 'accuracy > 80', 'memory <= 100MB'"
KINDS = {"score": "%", "points": "%", "share": "%", "gflops": "", "cell seconds": "seconds"}
PERCENT = ("score", "points", "share")


def chosen(found: Frame, where: Sequence[str] = (), sort: Sequence[str] = (), columns: Sequence[str] = ()) -> Frame:
    """The rows that fit all conditions, in order, with the columns that are asked for.

    Args:
        where: conditions such as `accuracy > 80`: a column, an operator, a value. Nothing is evaluated.
        sort: columns, the first counts most: the best first, or `COLUMN:asc`, `COLUMN:desc`.
        columns: names, several in one text with commas between them.

    Raises:
        UserError: for a column that the frame does not have, and for a condition that is none.
    """
    attrs, of = found.attrs, len(found)
    for text in where:
        found = found[_fits(found, text)]
    for text in reversed(sort):
        found = _sorted(found, text)
    if where:
        legend = [*attrs["legend"], f"{len(found)} of {of} lines fit: {', '.join(text.strip() for text in where)}."]
        found.attrs = {**attrs, "legend": legend, "filtered": True}
    if columns:
        found = _only(found, columns)
    return found


def _fits(found: Frame, text: str) -> list[bool]:
    match = GRAMMAR.fullmatch(text)
    if not match:
        raise UserError(f"--where '{text}': no operator in it. {HOW}")
    quoted, bare, sign, value = match.groups()
    name = (quoted or bare or "").strip()
    if not name or not value:
        raise UserError(f"--where '{text}': no {'value after' if name else 'column before'} the operator. {HOW}")
    column = column_of(found, name)
    format = format_of(found, column)
    wanted = quantity(value)
    cells = found[column].tolist()
    words = all(is_blank(cell) or isinstance(cell, str) for cell in cells)
    if sign in ORDERED and wanted is None:
        raise UserError(f"--where '{text}': '{value}' is no number. {HOW}. Several conditions are several --where")
    if sign in ORDERED and words and any(cells):
        raise UserError(f"--where '{text}': '{name}' holds words: use =, != or ~ (a glob)")
    if sign == "~" or words or wanted is None:
        test = fnmatchcase if sign == "~" else operator.eq
        hits = [test(_shown(found, cell, format).lower(), value.lower()) for cell in cells]
        return [hit != (sign == "!=") for hit in hits]
    _check_unit(found, format, name, wanted.kind, wanted.number, text)
    numbers = [None if is_blank(cell) else float(cell) * _times(found, format) for cell in cells]
    if sign in ORDERED:
        return [x is not None and ORDERED[sign](without_noise(x), without_noise(wanted.number)) for x in numbers]
    equal = [
        x is not None and (without_noise(x) == without_noise(wanted.number) or _shown(found, cell, format) == value)
        for x, cell in zip(numbers, cells, strict=True)
    ]
    return [one != (sign == "!=") for one in equal]


def _shown(found: Frame, cell: Any, format: Format) -> str:
    return written(cell, format.unit, found.attrs.get("metric", "accuracy"))


def _times(found: Frame, format: Format) -> int:
    """What people's numbers are larger by than the frame's: percent of a fraction."""
    fraction = format.unit == "share" or is_fraction(found.attrs.get("metric", "accuracy"))
    return 100 if format.unit in PERCENT and fraction else 1


def _check_unit(found: Frame, format: Format, name: str, kind: str, value: float, text: str) -> None:
    """Raises: UserError for a unit that the column does not have, and for a fraction in place of percent."""
    own = KINDS.get(format.unit, format.unit if format.unit in EXAMPLES else "")
    own = "" if own == "%" and _times(found, format) == 1 else own
    if kind and kind != own:
        unit = {"%": "percent", "": "numbers without a unit", "flops": "FLOPs"}.get(own, own)
        raise UserError(f"--where '{text}': '{name}' is in {unit}: write {EXAMPLES[own]}, for example")
    if format.unit == "score" and own == "%" and not kind and 0 < value < 1:
        raise UserError(f"--where '{text}': '{name}' is in percent: write {100 * value:g}, or {value:g}% for so little")


def _sorted(found: Frame, text: str) -> Frame:
    """Within each table; blanks last."""
    name, _, way = text.rpartition(":") if text.rpartition(":")[2] in ("asc", "desc") else (text, "", "")
    column = column_of(found, name.strip())
    falling = way == "desc" if way else format_of(found, column).best == "high"

    def key(i: int) -> tuple[Any, ...]:
        cell = found[column].iloc[i]
        if is_blank(cell):
            return (2,)
        return (1, str(cell).lower()) if isinstance(cell, str | list | tuple) else (0, -cell if falling else cell)

    places = sorted(range(len(found)), key=key)
    if way == "desc" and any(len(key(i)) == 2 and key(i)[0] == 1 for i in places):
        words = [i for i in places if key(i)[0] == 1][::-1]
        places = [i for i in places if key(i)[0] == 0] + words + [i for i in places if key(i)[0] == 2]
    found = found.iloc[places]
    found.attrs["sorted"] = True
    return found


def _only(found: Frame, columns: Sequence[str]) -> Frame:
    """The columns that tell tables and rows apart, then those that are asked for."""
    names = [name.strip() for text in columns for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not names or not all(names):
        raise UserError(f"--columns '{','.join(columns)}': a name is missing. Write --columns average,gflops,memory")
    keep = [name for name in found.columns if name in found.attrs["by"] or format_of(found, name).part == "name"]
    for name in names:
        column = column_of(found, name)
        main = WITH.get(column, column)
        main = main if name in (_bare(main), *ALIASES) or main == column else column
        keep += [main, *(other for other, of in WITH.items() if of == main and main != "verdict")]
    kept = [name for name in dict.fromkeys(keep) if name in found.columns]
    attrs = found.attrs
    hidden = [name for name in ("role", "ranked", "status") if name in found.columns and name not in kept]
    found = found[[*kept, *hidden]]
    found.attrs = {**attrs, "columns": kept}
    return found


def column_of(found: Frame, name: str) -> str:
    """A column by its name, its title or another name; case and signs do not count.

    Raises:
        UserError: where there is none.
    """
    metric = found.attrs.get("metric", "")
    titles = {column: format_of(found, column).title or column for column in found.columns}
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
    shown = [titles[column] for column in found.columns if column not in found.attrs["by"]]
    hint = meant(name, [*shown, *others], f"there are: {shortened(shown, 30)}")
    raise UserError(f"no column is called '{name}' here; {hint}")


def _bare(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def blank_columns(found: Frame, names: Iterable[str]) -> set[str]:
    """Those of the columns that hold nothing at all."""
    return {name for name in names if all(map(is_blank, found[name].tolist()))}
