"""Options that several commands share."""

from __future__ import annotations

import pytest

from fedbench.commands.choices import Bytes
from fedbench.errors import UserError


@pytest.mark.parametrize(
    ("text", "count"),
    [("600MB", 600e6), ("4GB", 4e9), ("4gb", 4e9), ("3.5 GiB", 3.5 * 2**30), ("1KiB", 1024), ("2TB", 2e12)],
)
def test_a_size_is_a_number_and_a_unit(text, count):
    assert Bytes().convert(text) == count


@pytest.mark.parametrize("text", ["", "4", "GB", "-1GB", "0MB", "4 G", "nanGB", "9999999999TB", "4GBit", "1e3MB"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(UserError, match="--memory-limit: expected a size such as 600MB"):
        Bytes().convert(text)
