"""What stands in the place of a number: every status has its words."""

from __future__ import annotations

from fedbench.report.standing import STANDINGS
from fedbench.results.status import DAMAGED, PENDING, STATUSES


def test_every_status_that_a_reader_meets_has_words():
    assert STANDINGS.keys() == {*STATUSES, PENDING, DAMAGED}
    assert all(all(standing) for status, standing in STANDINGS.items() if status != "finished")
