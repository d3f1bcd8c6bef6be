"""Filters of frames: which columns, and in which order rows stand."""

from __future__ import annotations

import csv
from collections.abc import Sequence

import pandas

from fedbench.errors import UserError
from fedbench.report.frames import ALIASES, WITH, cells, format_of, is_blank, with_attrs
from fedbench.words import meant, shortened


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
    words.sort(key=lambda i: str(values[i]).lower())
    found = found.iloc[[*numbers, *(words[::-1] if way == "desc" else words), *blank]]
    found.attrs["sorted"] = True
    return found


def _only(found: pandas.DataFrame, columns: Sequence[str]) -> pandas.DataFrame:
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
    return with_attrs(found[[*kept, *hidden]], columns=kept)


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
    shown = [titles[column] for column in found.columns if column not in found.attrs["by"]]
    hint = meant(name, [*shown, *others], f"there are: {shortened(shown, 30)}")
    raise UserError(f"no column is called '{name}' here; {hint}")


def _bare(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
