"""fedbench/report/budget.py: amounts with units as people write them."""

from __future__ import annotations

import pytest

from fedbench.words import amount_of


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("bytes", {"12,345": 12345, "1e6": 1e6, "2G": 2e9, "8.31 MB": 8.31e6, "9 B": 9, "1.5gb": 1.5e9}),
        ("flops", {"44 GFLOPs": 4.4e10, "1e15": 1e15}),
        ("joules", {"2kWh": 7.2e6, "7.58 kJ": 7580}),
        ("seconds", {"3 min 05 s": 185, "1h": 3600, "5m": 300, "90": 90, "30k": 30_000}),
    ],
)
def test_numbers_as_people_and_tables_write_them(kind, said):
    assert {text: amount_of(text, kind) for text in said} == {t: pytest.approx(q) for t, q in said.items()}


@pytest.mark.parametrize("text", ["", "ab", "85.0–87.0", "3 of 5", "1.2.3", "3 parsecs", "nan", "inf", "80 %", "1e999"])
@pytest.mark.parametrize("kind", ["bytes", "seconds"])
def test_what_is_no_amount_is_refused(text, kind):
    with pytest.raises(ValueError, match=f"is not a length of time|is not an amount of {kind}"):
        amount_of(text, kind)


def test_an_amount_may_leave_out_its_unit_and_has_no_other():
    assert amount_of("2GB", "bytes") == amount_of("2e9", "bytes") == 2e9
    assert amount_of("90min", "seconds") == amount_of("1h 30min", "seconds") == 5400
    for wrong in ("2s", "0", "-1", "much", ""):
        with pytest.raises(ValueError, match="^'.*' is not an amount of bytes. Write 100MB, for example."):
            amount_of(wrong, "bytes")
