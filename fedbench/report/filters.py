"""Filters of frames: which rows, which columns, in which order."""

from __future__ import annotations

import csv
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

from fedbench.errors import UserError
from fedbench.report.budget import EXAMPLES, Quantity, quantity
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
        found = found.rows(i for i, fits in enumerate(_fits(found, text)) if fits)
    for text in reversed(sort):
        found = _sorted(found, text)
    if where:
        legend = [*attrs["legend"], f"{len(found)} of {of} lines fit: {', '.join(text.strip() for text in where)}."]
        found.attrs.update(legend=legend, filtered=True)
    if columns:
        found = _only(found, columns)
    return found


def _fits(found: Frame, text: str) -> list[bool]:
    """Which rows fit a condition."""
    match = GRAMMAR.fullmatch(text)
    if not match:
        raise UserError(f"--where '{text}': no operator in it. {HOW}")
    quoted, bare, sign, value = match.groups()
    name = (quoted or bare or "").strip()
    if not name or not value:
        raise UserError(f"--where '{text}': no {'value after' if name else 'column before'} the operator. {HOW}")
    column = column_of(found, name)
    format, metric = format_of(found, column), found.attrs.get("metric", "accuracy")
    cells, wanted = found[column], quantity(value)
    shown = [written(cell, format.unit, metric) for cell in cells]
    words = all(is_blank(cell) or isinstance(cell, str) for cell in cells)
    if sign in ORDERED and wanted is None:
        raise UserError(f"--where '{text}': '{value}' is no number. {HOW}. Several conditions are several --where")
    if sign in ORDERED and words and any(cells):
        raise UserError(f"--where '{text}': '{name}' holds words: use =, != or ~ (a glob)")
    if sign == "~" or words or wanted is None:
        test = fnmatchcase if sign == "~" else operator.eq
        return [test(one.lower(), value.lower()) != (sign == "!=") for one in shown]
    fraction = format.unit == "share" or is_fraction(metric)
    times = 100 if format.unit in PERCENT and fraction else 1  # people write percent, frames have fractions
    _check_unit(format, times == 100, name, wanted, text)
    numbers = [None if is_blank(cell) else without_noise(float(cell) * times) for cell in cells]
    limit = without_noise(wanted.number)
    if sign in ORDERED:
        return [x is not None and ORDERED[sign](x, limit) for x in numbers]
    return [
        (x is not None and (x == limit or one == value)) != (sign == "!=")
        for x, one in zip(numbers, shown, strict=True)
    ]


def _check_unit(format: Format, percent: bool, name: str, wanted: Quantity, text: str) -> None:
    """Raises: UserError for a unit that the column does not have, and for a fraction in place of percent."""
    own = KINDS.get(format.unit, format.unit if format.unit in EXAMPLES else "")
    own = "" if own == "%" and not percent else own
    if wanted.kind and wanted.kind != own:
        unit = {"%": "percent", "": "numbers without a unit", "flops": "FLOPs"}.get(own, own)
        raise UserError(f"--where '{text}': '{name}' is in {unit}: write {EXAMPLES[own]}, for example")
    x = wanted.number
    if format.unit == "score" and own == "%" and not wanted.kind and 0 < x < 1:
        raise UserError(f"--where '{text}': '{name}' is in percent: write {100 * x:g}, or {x:g}% for so little")


def _sorted(found: Frame, text: str) -> Frame:
    """Within each table: numbers, then words, then blanks."""
    name, _, way = text.rpartition(":") if text.endswith((":asc", ":desc")) else (text, "", "")
    column = column_of(found, name.strip())
    falling = way == "desc" if way else format_of(found, column).best == "high"
    cells = found[column]
    blank = [i for i, cell in enumerate(cells) if is_blank(cell)]
    words = [i for i, cell in enumerate(cells) if i not in blank and isinstance(cell, str | list | tuple)]
    numbers = [i for i in range(len(cells)) if i not in blank and i not in words]
    numbers.sort(key=lambda i: -cells[i] if falling else cells[i])
    words.sort(key=lambda i: str(cells[i]).lower())
    found = found.rows([*numbers, *(words[::-1] if way == "desc" else words), *blank])
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
    hidden = [name for name in ("role", "ranked", "status") if name in found.columns and name not in kept]
    return Frame({name: found[name] for name in (*kept, *hidden)}, {**found.attrs, "columns": kept})


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
