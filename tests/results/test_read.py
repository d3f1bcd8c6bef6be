"""fedbench/results/read.py: every name with its cell, and the rows of all cells, as frames."""

from __future__ import annotations

import math

import pytest
from factories import eval_rows, write_cell, write_suite
from samples import VALUES, entry

import fedbench
from fedbench.results import examine, merge_index, read
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


def test_every_table_is_joined_by_suite_and_id(tmp_path):
    suite = write_suite(tmp_path / "quick", seeds=(0, 1))
    loaded = read(suite)
    for kind in ("eval", "rounds"):
        frame = getattr(loaded, kind)
        assert list(frame.columns) == ["suite", "id", *COLUMNS[kind]]
        for row, result in zip(loaded.cells.itertuples(), load_all([suite]), strict=True):
            own = frame[(frame["suite"] == row.suite) & (frame["id"] == row.id)]
            assert len(own) == (len(getattr(result, kind)) if result.status == "finished" else 0)
    first = load_all([suite])[0]
    last = loaded.eval[(loaded.eval["id"] == first.entry.cell) & (loaded.eval["metric"] == "accuracy")]
    wanted = [v for v, m in zip(*(first.eval[n].to_pylist() for n in ("value", "metric")), strict=True)
              if m == "accuracy"]  # fmt: skip
    assert list(last["value"]) == wanted
    joined = loaded.cells.merge(loaded.eval, on=["suite", "id"])
    assert len(joined) == len(loaded.eval) and {*joined["method"]} == {
        r.entry.method for r in load_all([suite]) if r.status == "finished"
    }


def test_a_row_of_all_clients_has_no_client_and_others_have_integers(tmp_path):
    rows = [*eval_rows({1: {"a": 0.5}}), *eval_rows({1: {"b": 0.5}}, client=3)]
    write_cell(tmp_path / "s", "fedra", evaluation=rows)
    clients = read(tmp_path).eval["client"]
    assert str(clients.dtype) == "Int64" and clients.isna().tolist() == [True, False] and clients[1] == 3


def test_two_names_of_one_cell_have_one_id(tmp_path):
    cell = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES)).name
    merge_index(tmp_path / "s", "s", [entry("fedra_keep", scenario="table5", cell=cell)])
    loaded = fedbench.load(tmp_path)
    assert loaded.cells["id"].nunique() == 1 and len(loaded.cells) == 2
    assert set(loaded.eval["id"]) == set(loaded.cells["id"])


def test_one_cell_in_two_folders_is_told_apart_by_its_suite(tmp_path):
    for folder, value in (("one", 0.25), ("two", 0.75)):
        write_cell(tmp_path / folder / "s", "fedra", evaluation=eval_rows({1: {"a": value}}))
    found = read([tmp_path / "one", tmp_path / "two"])
    assert found.cells["id"].nunique() == 1
    assert found.cells.merge(found.eval, on=["suite", "id"])["value"].tolist() == [0.25, 0.75]


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
    assert list(frame.columns) == ["suite", "id", *(columns or COLUMNS["eval"])] and frame.empty
