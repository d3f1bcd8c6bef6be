"""What a line must be to be shown: a column, an operator, a number or a text. Nothing of it is ever executed."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from fedbench.errors import UserError
from fedbench.report.page import Column, Shown
from fedbench.report.selection.quantity import EXAMPLES, PERCENT, Quantity, kind_of, number_of, quantity
from fedbench.results.choice import without_noise

ORDERED: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
SIGNS = r">=|<=|!=|==|=|~|>|<"
GRAMMAR = re.compile(rf'\s*(?:"([^"]*)"|(.*?))\s*({SIGNS})\s*(?:"([^"]*)"|(.*?))\s*')
HOW = (
    "Write a column, one of > >= < <= = != ~ and a number or a text: 'accuracy > 80', 'memory <= 100MB', 'group ~ *a*'"
)
UNITS = {"%": "percent", "points": "percentage points", "": "numbers without a unit", "flops": "FLOPs"}


@dataclass(frozen=True)
class Condition:
    """column and value as they were written; sign: one of ORDERED, "=", "!=" or "~" (a glob); asked: all of it."""

    column: str
    sign: str
    value: str
    asked: str

    def holds(self, column: Column, cell: Shown) -> bool:
        """A blank fits nothing but `!=`. Raises: UserError for a value that this column cannot be compared with."""
        wanted = self._wanted(column)
        number = number_of(column, cell)
        if self.sign in ORDERED:
            assert wanted
            return number is not None and ORDERED[self.sign](without_noise(number), without_noise(wanted.number))
        if self.sign == "~":
            return fnmatchcase(cell.text.lower(), self.value.lower())
        if wanted and number is not None:
            printed = None if column.part == "name" else quantity(cell.text)
            told = (number, printed.number) if printed else (number,)
            equal = without_noise(wanted.number) in map(without_noise, told)
        else:
            equal = cell.text.lower() == self.value.lower()
        return equal == (self.sign == "=")

    def _wanted(self, column: Column) -> Quantity | None:
        """The number it compares with, None for a text."""
        wanted, kind = quantity(self.value), kind_of(column)
        if self.sign in ORDERED and not any(number_of(column, cell) is not None for cell in column.cells):
            if any(cell.text for cell in column.cells):
                raise UserError(f"--where '{self.asked}': '{column.title}' holds words: use =, != or ~ (a glob)")
            return wanted
        if wanted and wanted.kind and kind and wanted.kind != ("%" if kind in PERCENT else kind):
            raise UserError(
                f"--where '{self.asked}': '{column.title}' is in {UNITS.get(kind, kind)}: write {EXAMPLES[kind]}, say"
            )
        if wanted and kind == "%" and not wanted.kind and 0 < wanted.number < 1:
            raise UserError(
                f"--where '{self.asked}': '{column.title}' is in percent: write {100 * wanted.number:g}, or "
                f"{self.value}% if that little is meant"
            )
        return wanted


def condition(text: str) -> Condition:
    """Raises: UserError where it is none."""
    found = GRAMMAR.fullmatch(text)
    if not found:
        raise UserError(f"--where '{text}': no operator in it. {HOW}")
    quoted, bare, sign, text_quoted, text_bare = found.groups()
    column, value = (quoted or bare or "").strip(), text_bare if text_quoted is None else text_quoted
    sign = "=" if sign == "==" else sign
    if not column or (not value and text_quoted is None):
        raise UserError(f"--where '{text}': {'no value after it' if column else 'no column before it'}. {HOW}")
    if text_quoted is None and value[0] in "<>=!~":
        raise UserError(f"--where '{text}': no operator is written {sign}{value[0]}. {HOW}")
    if sign in ORDERED and quantity(value) is None:
        raise UserError(
            f"--where '{text}': '{value}' is no number. {HOW}. Several conditions are several --where; all must hold"
        )
    return Condition(column, sign, value, text)
