"""fedbench/results/index.py: a paper's numbers in the index of a suite."""

from __future__ import annotations

import pytest

from fedbench.errors import UserError
from fedbench.results.documents import write_json
from fedbench.results.index import Expected, read_expected, write_expected


def test_a_papers_numbers_are_read_back_as_they_were_written(tmp_path):
    row = dict(scenario="a", variant="", dataset="d", backbone="b", method="fedra", metric="average")
    write_expected(tmp_path, "s", [row | {"value_percent": 86.48, "rounds": 100}])
    assert read_expected(tmp_path) == [Expected(**row, value_percent=86.48, rounds=100)]
    write_expected(tmp_path, "s", [row | {"value_percent": 1}])
    assert [one.value_percent for one in read_expected(tmp_path)] == [1]
    write_expected(tmp_path, "s", [])  # the suite has none any more
    assert read_expected(tmp_path) == []
    assert read_expected(tmp_path / "elsewhere") == []


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([{"scenario": "a"}], "an expected number is not one of fedbench"),
        (3, "expected is 3"),
        ([[]], "not one"),
        (None, "expected"),
    ],
)
def test_numbers_that_cannot_be_used_name_the_file_and_the_mend(tmp_path, rows, told):
    index = {"suite": "s", "entries": [], "searches": [], "tables": {}}
    write_json(tmp_path / "index.json", index | ({} if rows is None else {"expected": rows}))
    with pytest.raises(UserError, match=rf"(?s)index\.json: .*{told}.*Restore it from a copy"):
        read_expected(tmp_path)


@pytest.mark.parametrize(
    "change", [{"variant": None}, {"rounds": "3"}, {"std": []}, {"value_percent": 10**400}, {"source": 3}]
)
def test_a_papers_number_of_other_types_is_refused(tmp_path, change):
    row = {"scenario": "s", "variant": "", "dataset": "d", "backbone": "b", "method": "m", "metric": "average"}
    write_expected(tmp_path, "s", [{**row, "value_percent": 71.5, **change}])
    with pytest.raises(UserError, match="an expected number is not one of fedbench"):
        read_expected(tmp_path)
