"""fedbench/words.py: numbers, lengths, lists and hints as people read them."""

from __future__ import annotations

import pytest

from fedbench.words import (
    clipped,
    counted,
    duration,
    human_bytes,
    human_flops,
    meant,
    mebibytes,
    memory,
    on_a_line,
    roughly,
    shortened,
    suggestion,
    three_digits,
    visible,
)


def test_units_for_people():
    assert [human_bytes(n) for n in (0, 999, 1000, 8_312_000, 123_456_789_000, 1.5e16)] == [
        *("0 B", "999 B", "1.00 kB", "8.31 MB", "123 GB", "15,000 TB"),
    ]
    assert [human_flops(n) for n in (12, 4567, 8.312e12, 3e21)] == [
        "12.0 FLOPs",
        "4.57 kFLOPs",
        "8.31 TFLOPs",
        "3,000 EFLOPs",
    ]
    assert [three_digits(x) for x in (0, 0.01234, 4.5678, 12345.6)] == ["0", "0.0123", "4.57", "12,346"]
    assert (memory(600_000_000), memory(4_200_000_000)) == ("600 MB", "4.2 GB")
    assert mebibytes(3 * 2**20 // 2) == "1.5 MiB"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.0, "0 s"),
        (0.0427, "0.043 s"),
        (0.997, "1.0 s"),
        (8.24, "8.2 s"),
        (9.97, "10 s"),
        (73.2, "73 s"),
        (130, "2.2 min"),
        (7000, "1.9 h"),
        (86400 * 2.5, "2.5 days"),
    ],
)
def test_a_length_is_told_in_two_digits(seconds, told):
    assert roughly(seconds) == told


def test_a_length_that_was_measured_is_told_to_the_second():
    assert [duration(s) for s in (8.24, 185, 7620)] == ["8.2 s", "3 min 05 s", "2 h 07 min"]
    assert [duration(s) for s in (59.94, 59.97, 119.7, 3599.8)] == ["59.9 s", "1 min 00 s", "2 min 00 s", "1 h 00 min"]


def test_lists_say_how_many_they_leave_out():
    assert (counted(1, "cell"), counted(0, "cell")) == ("1 cell", "0 cells")
    assert (counted(2000, "cell"), counted(2, "class")) == ("2,000 cells", "2 classes")
    assert shortened(["a", "b", "c"], 2) == "a, b and 1 more"
    assert shortened(["a", "b"], 2) == "a, b" and shortened([]) == ""


def test_a_long_name_keeps_both_ends():
    assert clipped("feature_skew", 12) == "feature_skew"
    assert [clipped(name, 7) for name in ("domain10", "domain11")] == ["dom…n10", "dom…n11"]
    assert [len(clipped("feature_skew", width)) for width in range(1, 13)] == list(range(1, 13))


def test_what_would_steer_a_terminal_is_written_out():
    assert visible("a\x1b[2Jb\x07\x9b\u202e") == r"a\x1b[2Jb\x07\x9b\u202e"
    assert visible("über\tall\n…") == "über\tall\n…"
    assert on_a_line("über\tall\n…\x1b") == r"über\tall\n…\x1b"


def test_a_wrong_name_gets_the_nearest_one_or_what_there_is():
    known = ["fedra", "exclusive"]
    assert meant("fedr", known) == "did you mean 'fedra'?"
    assert meant("xyz", known, "ask") == "ask"
    assert meant("FedRA", ["Fedra"]) == "did you mean 'Fedra'? (upper and lower case differ)"
    assert suggestion("FEDRA", known) == '; did you mean "fedra"? (upper and lower case differ)'
    assert suggestion("xyz", known, "there are") == "; there are: exclusive, fedra"
    assert suggestion("xyz", known, "") == suggestion("xyz", []) == ""
