"""fedbench/report/selection/condition.py: what a condition means, and what is said to one that means nothing."""

from __future__ import annotations

import pytest

from fedbench.errors import UserError
from fedbench.report.page import Column, Shown
from fedbench.report.selection.condition import condition
from fedbench.report.selection.quantity import quantity

ACCURACY = Column("average", "score", [Shown("80.0", "±1.2", 0.79961), Shown("failed"), Shown("")], unit="%")
MEMORY = Column("memory", "cost", [Shown("22.2 MB", value=22_204_416)], unit="bytes")
GROUP = Column("group", "score", [Shown("ab"), Shown("b")], left=True)
NAMES = Column("method", "name", [Shown("fedra"), Shown("12")])
NOISE = Column("average", "score", [Shown("80.0", value=sum([0.8] * 6) / 6)], unit="%")  # 0.7999999999999999
PRINTED = Column("took", "score", [Shown("3 min 05 s"), Shown("")])  # numbers that a view has as text alone
GAP = Column("gap", "gap", [Shown("-0.4", value=-0.004)], unit="points")


@pytest.mark.parametrize(
    "text, column, line, fits",
    [
        ("average > 79.9", ACCURACY, 0, True),
        ("average>80", ACCURACY, 0, False),  # by the number itself, not by what it is rounded to
        ("average = 80", ACCURACY, 0, True),  # but what is printed may be asked for
        ("average == 79.961%", ACCURACY, 0, True),
        ("average != 80", ACCURACY, 0, False),
        ("average < 100", ACCURACY, 1, False),  # a word is no number
        ("average = failed", ACCURACY, 1, True),
        ("average > 0", ACCURACY, 2, False),
        ("average != failed", ACCURACY, 2, True),
        ("memory <= 22.3MB", MEMORY, 0, True),
        ("memory < 22204416", MEMORY, 0, False),
        ("memory < 1 GB", MEMORY, 0, True),
        ("group ~ *a*", GROUP, 1, False),
        ("group ~ A?", GROUP, 0, True),
        ('"group" = "ab"', GROUP, 0, True),
        ("method = 12", NAMES, 1, True),
        ('method != ""', NAMES, 0, True),
        ("took < 4min", PRINTED, 0, True),
        ("took < 180", PRINTED, 0, False),
        ("took > 1s", PRINTED, 1, False),
        ("gap > -0.5", GAP, 0, True),
        ("gap >= 0.5", GAP, 0, False),
        ("average >= 80", NOISE, 0, True),
        ("average < 80", NOISE, 0, False),
        ("memory = 8.31MB", Column("memory", "cost", [Shown("8.31 MB", value=8_309_999)], unit="bytes"), 0, True),
    ],
)
def test_what_fits(text, column, line, fits):
    assert condition(text).holds(column, column.cells[line]) is fits


@pytest.mark.parametrize(
    "text, column, told",
    [
        ("average", None, "no operator in it. Write a column"),
        ("> 80", None, "no column before it"),
        ("average >", None, "no value after it"),
        ("average => 80", None, "no operator is written =>"),
        ("average > high", None, "'high' is no number"),
        ("average > 80 and memory < 3MB", None, "several conditions are several --where".capitalize()),
        ("average > __import__('os')", None, "is no number"),
        ("average > 0.8", ACCURACY, "is in percent: write 80, or 0.8% if that little is meant"),
        ("average > 3 MB", ACCURACY, "is in percent: write 80 or 80%"),
        ("memory > 5 s", MEMORY, "is in bytes: write 100MB"),
        ("group > 3", GROUP, "holds words: use =, != or ~"),
    ],
)
def test_what_means_nothing_is_told_with_what_would_be_right(text, column, told):
    with pytest.raises(UserError, match="--where") as raised:
        condition(text).holds(column, column.cells[0])
    assert told in str(raised.value)


def test_numbers_as_people_and_tables_write_them():
    said = {
        "80": (80, ""), "-6.2": (-6.2, ""), "12,345": (12345, ""), "1e6": (1e6, ""), "2G": (2e9, ""), "80 %": (80, "%"),
        "8.31 MB": (8.31e6, "bytes"), "9 B": (9, "bytes"), "1.5GB": (1.5e9, "bytes"), "44 GFLOPs": (4.4e10, "flops"),
        "2kWh": (7.2e6, "joules"), "7.58 kJ": (7580, "joules"), "3 min 05 s": (185, "seconds"), "1h": (3600, "seconds"),
    }  # fmt: skip
    assert {text: tuple(quantity(text) or ()) for text in said} == {t: pytest.approx(q) for t, q in said.items()}
    assert not any(map(quantity, ["", "ab", "85.0–87.0", "3 of 5", "1.2.3", "better (<1)", "3 parsecs", "nan", "inf"]))
