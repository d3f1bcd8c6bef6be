"""fedbench/results/tables.py: a cell's tables, written and read back, and what is no row of one."""

from __future__ import annotations

import math

import pytest
from factories import eval_rows, layer_row, round_row, write_cell
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from samples import VALUES

from fedbench.errors import UserError
from fedbench.results import content_hash, load, load_results, read_rows, write_rows
from fedbench.results.columns import SIMULATED
from fedbench.results.tables import to_table

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
int16, int32, int64 = (st.integers(0, 2 ** (b - 1) - 1) for b in (16, 32, 64))
rounds, clients = st.integers(1, 10**7), st.integers(0, 10**7)
eval_row = st.fixed_dictionaries(
    {
        "round": rounds,
        "split": text,
        "domain": text,
        "client": clients,
        "metric": text,
        "value": st.floats(allow_nan=False),
        "examples": int64,
    }
)
rounds_row = st.fixed_dictionaries(
    {
        "round": rounds,
        "client": clients,
        "domain": text,
        "capacity": int16,
        "layers": st.lists(int16, max_size=13),
        "trained_layers": st.lists(int16, max_size=13),
        "rank": st.none() | int16,
        "examples": int64,
        "steps": int32,
        "arrived": st.booleans(),
        "loss": st.floats(allow_nan=False),
        "bytes_down": int64,
        "bytes_up": int64,
        "flops": int64,
        "memory_bytes": int64,
        "workspace_bytes": int64,
        "seconds": st.floats(allow_nan=False),
        **dict.fromkeys(SIMULATED, st.none() | st.floats(allow_nan=False)),
    }
)


layers_row = st.fixed_dictionaries(
    {
        "round": rounds,
        "layer": int16,
        "holders": int32,
        "update_norm": st.floats(allow_nan=False),
        "client_update_norm": st.floats(allow_nan=False),
        "aggregation_error": st.floats(allow_nan=False),
        "product_norm": st.floats(allow_nan=False),
    }
)


uploads_row = st.fixed_dictionaries({"round": rounds, "client": clients, "corrupted": text, "rejected": text})


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(eval_row, max_size=5),
    clients=st.lists(rounds_row, max_size=5),
    layers=st.lists(layers_row, max_size=5),
    uploads=st.lists(uploads_row, max_size=5),
)
def test_rows_come_back_as_they_were_written(tmp_path, rows, clients, layers, uploads):
    for kind, written in (("eval", rows), ("rounds", clients), ("layers", layers), ("uploads", uploads)):
        write_rows(tmp_path, kind, written)
        assert read_rows(tmp_path, kind) == written


def test_cell_of_an_older_fedbench_says_how_to_get_its_layers(tmp_path):
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES))
    (old,) = load([tmp_path])
    assert old.eval.num_rows and old.rounds.num_rows and len(load_results(tmp_path))
    with pytest.raises(UserError, match=r"layers\.parquet: there is none.*\n.*--force"):
        _ = old.layers


def test_content_covers_the_layers_where_they_are(tmp_path):
    folder = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES))
    without = content_hash(tmp_path)
    hashes = []
    for error in (0.5, float("nan"), 0.5):
        write_rows(folder, "layers", [layer_row(1, 0, aggregation_error=error)])
        hashes.append(content_hash(tmp_path))
    assert hashes[0] == hashes[2] and len({without, *hashes}) == 3


BESIDE = ("workspace_bytes",)


@pytest.mark.parametrize("came_later", [BESIDE, (*BESIDE, *SIMULATED), ("trained_layers", "rank", *BESIDE, *SIMULATED)])
def test_a_table_without_the_columns_that_came_later_says_the_same(tmp_path, came_later):
    folder = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES))
    now, rows = content_hash(tmp_path), read_rows(folder, "rounds")
    old = to_table("rounds", rows).drop_columns(list(came_later))
    parquet.write_table(old, folder / "rounds.parquet")
    assert read_rows(folder, "rounds") == rows and content_hash(tmp_path) == now
    for change in ({"rank": 2}, {"trained_layers": []}, {"workspace_bytes": 1}, {"energy": 0.0}):
        write_rows(folder, "rounds", [rows[0] | change, *rows[1:]])
        assert content_hash(tmp_path) != now
    parquet.write_table(old.drop_columns("loss"), folder / "rounds.parquet")
    with pytest.raises(UserError, match="its columns are not those"):
        read_rows(folder, "rounds")


def test_tables_that_came_later_are_no_part_of_a_content_hash_and_older_cells_have_none(tmp_path):
    """So that a cell of an older fedbench, computed again, has the hash that it had."""
    folder = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES))
    without, kind = content_hash(tmp_path), "answers"
    row = {"round": 3, "split": "test", "output": "", "examples": 3, "top_share": 1.0}
    (cell,) = load([tmp_path])
    assert cell.table(kind).num_rows == 0 and cell.table(kind).column_names == [*row]
    write_rows(folder, kind, [row])
    (cell,) = load([tmp_path])
    assert cell.table(kind).to_pylist() == [row] and content_hash(tmp_path) == without


def test_a_cell_without_refused_uploads_has_no_such_file_and_an_empty_table(tmp_path):
    folder = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES))
    without = content_hash(tmp_path)
    (cell,) = load([tmp_path])
    uploads = cell.table("uploads")
    assert uploads.num_rows == 0 and uploads.column_names == ["round", "client", "corrupted", "rejected"]
    write_rows(folder, "uploads", [{"round": 1, "client": 0, "corrupted": "nan", "rejected": "not finite"}])
    (cell,) = load([tmp_path])
    assert cell.table("uploads").num_rows == 1 and content_hash(tmp_path) != without


def test_loss_of_a_client_that_did_nothing_may_be_nan(tmp_path):
    write_rows(tmp_path, "rounds", [round_row(1, 0, [], loss=float("nan"), arrived=False)])
    assert math.isnan(read_rows(tmp_path, "rounds")[0]["loss"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra": 1}, "missing or unknown columns extra"),
        ({"value": None}, "eval column value: row 0 holds no value"),
        ({"value": "much"}, "eval column value: not double"),
        ({"round": 1.5}, "eval column round: not int32"),
        ({"round": 2**31}, "eval column round: not int32"),
    ],
)
def test_row_that_does_not_fit_is_refused_and_nothing_is_written(tmp_path, change, message):
    rows = [eval_rows(VALUES)[0] | change]
    with pytest.raises(ValueError, match=message):
        write_rows(tmp_path, "eval", rows)
    assert list(tmp_path.iterdir()) == []


def test_row_without_a_column_is_refused(tmp_path):
    row = eval_rows(VALUES)[0]
    del row["examples"]
    with pytest.raises(ValueError, match="row 0: missing or unknown columns examples"):
        write_rows(tmp_path, "eval", [row])


def test_table_of_another_version_or_another_program_is_refused(tmp_path):
    import pyarrow as pa
    from pyarrow.parquet import write_table

    cell = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES))
    table = load([tmp_path])[0].eval
    write_table(table.replace_schema_metadata({"fedbench.result_version": "9"}), cell / "eval.parquet")
    with pytest.raises(UserError, match="result version 9"):
        load([tmp_path])[0].eval  # noqa: B018
    write_table(pa.table({"x": [1]}, metadata={"fedbench.result_version": "2"}), cell / "eval.parquet")
    with pytest.raises(UserError, match="its columns are not those of a fedbench eval table"):
        load([tmp_path])[0].eval  # noqa: B018


def foreign(file, change):
    """A table of ours with something in it that `write_rows` would not have written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(file)
    if change == "text":
        odd = pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
        )
        columns = [odd if name == "domain" else table[name].slice(0, 1) for name in table.column_names]
        table = pa.table(columns, schema=table.schema)
    else:
        rows = table.to_pylist()
        rows[0]["layers"] = [1, None]
        table = pa.Table.from_pylist(rows, schema=table.schema)
    pq.write_table(table, file)


@pytest.mark.parametrize(("kind", "change"), [("eval", "text"), ("rounds", "null")])
def test_values_that_would_be_met_later_are_found_at_once(one_cell, kind, change):
    foreign(one_cell / f"{kind}.parquet", change)
    with pytest.raises(UserError, match=f"{kind}.parquet"):
        read_rows(one_cell, kind)


def test_a_table_of_too_many_rows_is_not_read(one_cell, monkeypatch):
    monkeypatch.setattr("fedbench.results.tables.MOST_ROWS", 1)
    with pytest.raises(UserError, match="not a readable Parquet file .2 rows|not a readable Parquet file .4 rows"):
        read_rows(one_cell, "eval")
