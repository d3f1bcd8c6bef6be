"""fedbench/report/budget.py: numbers with units as people write them."""

from __future__ import annotations

import pytest

from fedbench.errors import UserError
from fedbench.report.budget import amount_of, quantity


def test_numbers_as_people_and_tables_write_them():
    said = {
        "80": (80, ""), "-6.2": (-6.2, ""), "12,345": (12345, ""), "1e6": (1e6, ""), "2G": (2e9, ""), "80 %": (80, "%"),
        "8.31 MB": (8.31e6, "bytes"), "9 B": (9, "bytes"), "1.5gb": (1.5e9, "bytes"), "44 GFLOPs": (4.4e10, "flops"),
        "2kWh": (7.2e6, "joules"), "7.58 kJ": (7580, "joules"), "3 min 05 s": (185, "seconds"), "1h": (3600, "seconds"),
    }  # fmt: skip
    assert {text: tuple(quantity(text) or ()) for text in said} == {t: pytest.approx(q) for t, q in said.items()}
    assert not any(map(quantity, ["", "ab", "85.0–87.0", "3 of 5", "1.2.3", "better (<1)", "3 parsecs", "nan", "inf"]))


def test_an_amount_may_leave_out_its_unit_and_has_no_other():
    assert amount_of("2GB", "bytes", "--budget") == amount_of("2e9", "bytes", "--budget") == 2e9
    assert amount_of("90min", "seconds", "--budget") == amount_of("1h 30min", "seconds", "--budget") == 5400
    for wrong in ("2s", "0", "-1", "much", ""):
        with pytest.raises(UserError, match="^--budget: '.*' is no amount of bytes. Write 100MB, for example."):
            amount_of(wrong, "bytes", "--budget")
