"""fedbench/results/read.py: every name with its cell, and the rows of all cells, as frames."""

from __future__ import annotations

import math

import pytest
from factories import eval_rows, write_cell, write_suite
from samples import VALUES, entry

import fedbench
from fedbench.results import examine, merge_index
from fedbench.results import load as load_all
from fedbench.results.columns import COLUMNS
from fedbench.results.read import table_frame


def test_cells_have_a_row_for_each_name_in_the_order_of_the_suite(tmp_path):
    suite = write_suite(tmp_path / "quick", seeds=(0, 1))
    cells = fedbench.load(suite).cells
    results = load_all([suite])
    assert list(cells["method"]) == [r.entry.method for r in results]
    assert list(cells["status"]) == [r.status for r in results]
    assert set(cells["suite"]) == {"quick"} and cells["candidate"].isna().all()
    assert cells["manifest"].iloc[0]["config"]["train"]["rounds"] == cells["rounds"].iloc[0] == 12


def test_the_rows_of_a_table_have_the_place_of_their_cell(tmp_path):
    suite = write_suite(tmp_path / "quick", seeds=(0, 1))
    loaded = fedbench.load(suite)
    for kind in ("eval", "rounds"):
        frame = getattr(loaded, kind)
        assert list(frame.columns) == ["place", *COLUMNS[kind]]
        for row, result in zip(loaded.cells.itertuples(), load_all([suite]), strict=True):
            own = frame[frame["place"] == row.place]
            assert len(own) == (len(getattr(result, kind)) if result.status == "finished" else 0)
    last = loaded.eval[(loaded.eval["place"] == 0) & (loaded.eval["metric"] == "accuracy")]
    wanted = [v for v, m in zip(*(load_all([suite])[0].eval[n].to_pylist() for n in ("value", "metric")), strict=True)
              if m == "accuracy"]  # fmt: skip
    assert list(last["value"]) == wanted


def test_two_names_of_one_cell_have_one_place(tmp_path):
    cell = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES)).name
    merge_index(tmp_path / "s", "s", [entry("fedra_keep", scenario="table5", cell=cell)])
    loaded = fedbench.load(tmp_path)
    assert list(loaded.cells["place"]) == [0, 0] and set(loaded.eval["place"]) == {0}


def test_what_was_not_started_or_is_not_as_written_has_no_rows(tmp_path):
    cell = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES))
    merge_index(tmp_path / "s", "s", [entry("depthfl", cell="c")])
    (cell / "eval.parquet").write_bytes(b"torn")
    with pytest.warns(UserWarning, match="left out") as warned:
        loaded = fedbench.load(tmp_path)
    assert list(loaded.cells["status"]) == ["damaged", "pending"] and loaded.eval.empty
    assert "eval.parquet" in loaded.cells["fault"][0] and loaded.cells["fault"][0] in str(warned[0].message)
    assert math.isnan(loaded.cells["seconds"][1])


@pytest.mark.parametrize("columns", [None, ["round", "value"]])
def test_a_table_without_rows_has_its_columns(tmp_path, columns):
    merge_index(tmp_path / "s", "s", [entry()])
    frame = table_frame(examine([tmp_path]).results, "eval", columns)
    assert list(frame.columns) == ["place", *(columns or COLUMNS["eval"])] and frame.empty
