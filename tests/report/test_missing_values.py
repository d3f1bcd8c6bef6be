"""What stands in the place of a number: every status has its words."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fedbench.report.run_scores import ABSENCES, _seeds_of_the_suite
from fedbench.results.columns import DAMAGED, PENDING, STATUSES


def test_every_status_that_a_reader_meets_has_words():
    assert ABSENCES.keys() == {*STATUSES, PENDING, DAMAGED}
    assert all(all(absence) for status, absence in ABSENCES.items() if status != "finished")


@pytest.mark.parametrize(
    ("planned", "shown", "said"),
    [
        ((), {0, 1}, []),  # older results
        ((0,), {0}, []),
        ((0, 1, 2), {0, 1, 2}, ["3 of the suite's 3 seeds"]),
        ((0, 1, 2), {1}, ["2 of the suite's 3 seeds are missing (0, 2)"]),
        ((0, 1), {0, 1, 5}, ["2 of the suite's 2 seeds", "seed 5: added after the suite was first run"]),
    ],
)
def test_a_board_says_which_of_the_suites_seeds_it_has(planned, shown, said):
    packed = SimpleNamespace(index=SimpleNamespace(seeds=planned))
    result = SimpleNamespace(cells=SimpleNamespace(packed=packed))
    assert _seeds_of_the_suite({"fedra": [result, result]}, shown) == said
