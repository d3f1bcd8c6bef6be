"""fedbench/words.py: numbers as people read them."""

from __future__ import annotations

from fedbench.words import human_bytes, three_digits


def test_units_for_people():
    assert [human_bytes(n) for n in (0, 999, 1000, 8_312_000, 123_456_789_000)] == [
        *("0 B", "999 B", "1.00 kB", "8.31 MB", "123 GB"),
    ]
    assert [three_digits(x) for x in (0, 0.01234, 4.5678, 12345.6)] == ["0", "0.0123", "4.57", "12,346"]
