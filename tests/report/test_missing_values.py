"""What stands in the place of a number: every status has its words."""

from __future__ import annotations

from fedbench.report.missing_values import ABSENCES
from fedbench.results.columns import DAMAGED, PENDING, STATUSES


def test_every_status_that_a_reader_meets_has_words():
    assert ABSENCES.keys() == {*STATUSES, PENDING, DAMAGED}
    assert all(all(absence) for status, absence in ABSENCES.items() if status != "finished")
