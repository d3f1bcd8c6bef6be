"""Numbers as people write them and as tables print them: 80, 80 %, 1.5 GB, 2 TFLOPs, 3 min 05 s, 2kWh."""

from __future__ import annotations

import re
from typing import NamedTuple

from fedbench.report.absences import DASH
from fedbench.report.budget import PREFIXES, TIMES, WATT_HOUR
from fedbench.report.page import Column, Shown

NUMBER = r"[+-]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"
KINDS = {"b": "bytes", "flops": "flops", "j": "joules", "wh": "joules"}
PERCENT = ("%", "points")  # units of columns whose values are fractions and whose texts are percent
EXAMPLES = {
    "%": "80 or 80%", "points": "0.5", "bytes": "100MB", "flops": "2TFLOPs", "joules": "2kWh", "seconds": "1h 30min",
    "": "80",
}  # fmt: skip


class Quantity(NamedTuple):
    """number: in percent, bytes, FLOPs, joules or seconds, as `kind` says ("%", "bytes", ...; "" for a bare number)."""

    number: float
    kind: str = ""


def quantity(text: str) -> Quantity | None:
    """None for what is no number."""
    text = text.strip()
    if found := re.fullmatch(rf"({NUMBER})\s*(%?)", text):
        return Quantity(_float(found[1]), found[2])
    if found := re.fullmatch(rf"({NUMBER})\s*([kKMGTPE]?)(B|b|FLOPs|flops|FLOPS|J|Wh)", text):
        kind, hours = KINDS[found[3].lower()], WATT_HOUR if found[3] == "Wh" else 1
        return Quantity(_float(found[1]) * PREFIXES[found[2].lower()] * hours, kind)
    if found := re.fullmatch(rf"({NUMBER})\s*([kMGTP])", text):
        return Quantity(_float(found[1]) * PREFIXES[found[2].lower()])
    return _lasting(text)


def _lasting(text: str) -> Quantity | None:
    """`90 s`, `1h 30min`, `2.1 days`."""
    if not re.fullmatch(rf"(?:{NUMBER}\s*[a-z]+\s*)+", text):
        return None
    parts = re.findall(rf"({NUMBER})\s*([a-z]+)", text)
    if not all(unit in TIMES for _, unit in parts):
        return None
    return Quantity(sum(_float(number) * TIMES[unit] for number, unit in parts), "seconds")


def _float(text: str) -> float:
    return float(text.replace(",", ""))


def kind_of(column: Column) -> str:
    """The unit of a column: the one it has, or that of the first number in it."""
    if column.unit or column.part == "name":
        return column.unit
    return next((found.kind for cell in column.cells if (found := quantity(cell.text))), "")


def number_of(column: Column, cell: Shown) -> float | None:
    """What a cell says, in the units that people read (percent): the exact value where the column has it, else what is
    printed. None for words and blanks."""
    if cell.value is not None:
        return 100 * cell.value if column.unit in PERCENT else cell.value
    found = None if column.part == "name" else quantity(cell.text)
    return found.number if found else None


def value_of(column: Column, cell: Shown) -> float | str | None:
    """What programs are given: fractions, bytes, FLOPs, joules, seconds, else the text; None for a blank or a dash."""
    if cell.whole:
        return cell.whole
    if cell.value is not None:
        return cell.value
    found = number_of(column, cell)
    if found is None:
        return None if cell.text in ("", DASH) else cell.text
    return found / 100 if kind_of(column) in PERCENT else found
