"""fedbench/results.py with index, atomic and schema: real files, and real processes that are killed."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys

import pytest
from factories import eval_rows, layer_row, prefix_rounds, round_row, write_cell, write_suite
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedbench.errors import UserError
from fedbench.results import (
    content_hash,
    load,
    load_results,
    merge_index,
    prepare_folder,
    read_index,
    read_manifest,
    read_rows,
    refuse_links,
    write_manifest,
    write_rows,
)
from fedbench.results.atomic import write_atomically
from fedbench.results.expected import Expected, read_expected, write_expected
from fedbench.results.index import Entry

VALUES = {6: {"a": 0.5, "b": 0.25}, 12: {"a": 0.75, "b": 0.5}}


def entry(method: str = "fedra", seed: int = 0, scenario: str = "mixed", cell: str = "c") -> Entry:
    return Entry(scenario, method, "", seed, cell, "micro_vit", "strokes6", "paper")


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
int16, int32, int64 = (st.integers(-(2 ** (b - 1)), 2 ** (b - 1) - 1) for b in (16, 32, 64))
eval_row = st.fixed_dictionaries(
    {
        "round": int32,
        "split": text,
        "domain": text,
        "client": int32,
        "metric": text,
        "value": st.floats(allow_nan=False),
        "examples": int64,
    }
)
rounds_row = st.fixed_dictionaries(
    {
        "round": int32,
        "client": int32,
        "domain": text,
        "capacity": int16,
        "layers": st.lists(int16, max_size=13),
        "examples": int64,
        "steps": int32,
        "arrived": st.booleans(),
        "loss": st.floats(allow_nan=False),
        "bytes_down": int64,
        "bytes_up": int64,
        "flops": int64,
        "memory_bytes": int64,
        "seconds": st.floats(allow_nan=False),
    }
)


layers_row = st.fixed_dictionaries(
    {
        "round": int32,
        "layer": int16,
        "holders": int32,
        "update_norm": st.floats(allow_nan=False),
        "client_update_norm": st.floats(allow_nan=False),
        "aggregation_error": st.floats(allow_nan=False),
        "product_norm": st.floats(allow_nan=False),
    }
)


uploads_row = st.fixed_dictionaries({"round": int32, "client": int32, "corrupted": text, "rejected": text})


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


def test_a_cell_without_refused_uploads_has_no_such_file_and_an_empty_table(tmp_path):
    folder = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES))
    without = content_hash(tmp_path)
    (cell,) = load([tmp_path])
    assert cell.uploads.num_rows == 0 and cell.uploads.column_names == ["round", "client", "corrupted", "rejected"]
    write_rows(folder, "uploads", [{"round": 1, "client": 0, "corrupted": "nan", "rejected": "not finite"}])
    (cell,) = load([tmp_path])
    assert cell.uploads.num_rows == 1 and content_hash(tmp_path) != without


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


def test_manifest_comes_back_with_its_version(tmp_path):
    write_manifest(tmp_path, {"status": "failed", "reason": "Umlaut: \u00e4", "config": {"seed": 3}})
    assert read_manifest(tmp_path) == {
        "result_version": 1,
        "status": "failed",
        "reason": "Umlaut: \u00e4",
        "config": {"seed": 3},
    }
    assert read_manifest(tmp_path / "other") is None


def test_unknown_status_and_nan_are_refused(tmp_path):
    with pytest.raises(ValueError, match="'done' is not one of running"):
        write_manifest(tmp_path, {"status": "done", "config": {}})
    with pytest.raises(ValueError, match="JSON"):
        write_manifest(tmp_path, {"status": "finished", "config": {}, "seconds": float("nan")})
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from fedbench.results.atomic import write_atomically

def half(path):
    path.write_text("half of the new te")
    os.kill(os.getpid(), signal.SIGKILL)

write_atomically(Path(sys.argv[1]), half)
"""


def test_writer_killed_half_way_leaves_the_old_file(tmp_path):
    folder = write_cell(tmp_path / "suite", "fedra", evaluation=eval_rows(VALUES))
    before = (folder / "eval.parquet").read_bytes()
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder / "eval.parquet")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (folder / "eval.parquet").read_bytes() == before
    assert any(p.name.endswith(".tmp") for p in folder.iterdir())  # the half, where no reader looks
    assert len(load([tmp_path])) == 1
    assert load([folder])[0].eval.num_rows == 4


def test_failed_writer_removes_its_temporary_file(tmp_path):
    def broken(path):
        path.write_text("half")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write_atomically(tmp_path / "file", broken)
    assert list(tmp_path.iterdir()) == []


def test_new_entry_goes_behind_its_predecessor(tmp_path):
    suite = [entry(m) for m in ("inclusivefl", "depthfl", "fedra", "alllarge")]
    merge_index(tmp_path, "s", [suite[1]])
    merge_index(tmp_path, "s", [suite[3]])
    assert merge_index(tmp_path, "s", suite).entries == suite
    changed = entry("fedra", cell="another")
    assert merge_index(tmp_path, "s", [changed]).entries == [suite[0], suite[1], changed, suite[3]]
    assert read_index(tmp_path).entries == [suite[0], suite[1], changed, suite[3]]


def _merge_one(folder, seed):
    merge_index(folder, "s", [entry(seed=seed)])


def test_runs_side_by_side_lose_no_entry(tmp_path):
    workers = [multiprocessing.get_context("fork").Process(target=_merge_one, args=(tmp_path, s)) for s in range(12)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(e.seed for e in read_index(tmp_path).entries) == list(range(12))


def test_root_suite_and_cell_give_the_same_results(tmp_path):
    suite = write_suite(tmp_path / "results" / "quick", seeds=(0, 1))
    everything = load([tmp_path / "results"])
    assert [r.entry for r in load([suite])] == [r.entry for r in everything]
    assert len(load([tmp_path / "results", suite])) == len(everything) == 14
    one = load([everything[0].folder])
    assert [r.entry for r in one] == [everything[0].entry]


def test_two_names_for_one_cell(tmp_path):
    cell = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES)).name
    merge_index(tmp_path / "s", "s", [entry("fedra_keep", scenario="table5", cell=cell)])
    assert [(r.entry.scenario, r.entry.method) for r in load([tmp_path])] == [
        ("mixed", "fedra"),
        ("table5", "fedra_keep"),
    ]
    assert len(load([tmp_path / "s" / cell])) == 2


def test_cell_moved_out_of_its_suite_is_named_by_its_configuration(tmp_path, monkeypatch):
    cell = write_cell(tmp_path / "s", "fedra", 4, evaluation=eval_rows(VALUES))
    shutil.copytree(cell, tmp_path / "elsewhere" / cell.name)
    monkeypatch.chdir(tmp_path / "elsewhere" / cell.name)
    (result,) = load(["."])
    assert (result.suite, result.entry.method, result.entry.seed) == ("elsewhere", "fedra", 4)
    assert (result.entry.backbone, result.entry.dataset) == ("micro_vit", "strokes6")


def test_suites_of_one_name_are_kept_apart(tmp_path):
    for root in ("mine", "theirs"):
        write_cell(tmp_path / root / "s", "fedra", evaluation=eval_rows(VALUES))
    assert {r.suite for r in load([tmp_path / "mine", tmp_path / "theirs"])} == {
        f"s ({tmp_path / 'mine' / 's'})",
        f"s ({tmp_path / 'theirs' / 's'})",
    }


def test_entry_whose_cell_was_not_started_is_pending(tmp_path):
    merge_index(tmp_path / "s", "s", [entry()])
    assert [r.status for r in load([tmp_path])] == ["pending"]


def test_foreign_files_beside_results_are_ignored(tmp_path):
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES))
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "s" / "figure.png").write_bytes(b"\x89PNG")
    (tmp_path / "holiday").mkdir()
    assert len(load([tmp_path])) == 1


def test_folder_without_results_says_what_was_looked_for_and_found(tmp_path):
    for name in ("b.txt", "a.txt"):
        (tmp_path / name).touch()
    with pytest.raises(UserError) as caught:
        load([tmp_path])
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}: no fedbench results. Looked for index.json here")
    assert "found a.txt, b.txt" in message and "fedbench run SUITE.yaml" in message


def test_path_that_is_missing_or_a_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        load([tmp_path / "none"])
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="a file, not a folder"):
        load([tmp_path / "file"])


@pytest.mark.parametrize("name", ["index.json", "manifest.json", "eval.parquet", "rounds.parquet"])
def test_torn_file_is_named_with_its_mend(tmp_path, name):
    cell = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES))
    path = (cell.parent if name == "index.json" else cell) / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UserError) as caught:
        for result in load([tmp_path / "s"]):
            result.eval, result.rounds  # noqa: B018
    assert str(path) in str(caught.value) and "run the suite again" in str(caught.value)


@pytest.mark.parametrize("name", ["index.json", "manifest.json"])
def test_other_version_is_refused(tmp_path, name):
    cell = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES))
    path = (cell.parent if name == "index.json" else cell) / name
    path.write_text(json.dumps(json.loads(path.read_text()) | {"result_version": 7}))
    with pytest.raises(UserError, match="result version 7, but this fedbench reads version 1"):
        load([tmp_path / "s"])


def test_table_of_another_version_or_another_program_is_refused(tmp_path):
    import pyarrow as pa
    from pyarrow.parquet import write_table

    cell = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES))
    table = load([tmp_path])[0].eval
    write_table(table.replace_schema_metadata({"fedbench.result_version": "9"}), cell / "eval.parquet")
    with pytest.raises(UserError, match="result version 9"):
        load([tmp_path])[0].eval  # noqa: B018
    write_table(pa.table({"x": [1]}, metadata={"fedbench.result_version": "1"}), cell / "eval.parquet")
    with pytest.raises(UserError, match="its columns are not those of a fedbench eval table"):
        load([tmp_path])[0].eval  # noqa: B018


def test_finished_cell_without_its_table_is_named(tmp_path):
    cell = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES))
    (cell / "eval.parquet").unlink()
    with pytest.raises(UserError, match="eval.parquet: the file is missing though its cell is recorded as finished"):
        load([tmp_path])[0].eval  # noqa: B018


def test_folder_full_of_foreign_files_is_refused_before_anything_is_written(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UserError, match=r"did not write \(thesis.tex\) and no index.json"):
        merge_index(tmp_path, "s", [entry()])
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_folder_of_a_run_killed_before_its_first_index_is_taken(tmp_path):
    write_manifest(tmp_path / "mixed-fedra-0", {"status": "running", "config": {}})
    (tmp_path / "mixed-depthfl-0").mkdir()
    prepare_folder(tmp_path)


def test_unwritable_folder_is_a_message(tmp_path):
    (tmp_path / "results").touch()  # a file in the way stops everyone, root too
    with pytest.raises(UserError, match="cannot be written .*--results DIR"):
        prepare_folder(tmp_path / "results" / "s")
    with pytest.raises(UserError, match="cannot be written"):
        write_manifest(tmp_path / "results", {"status": "running", "config": {}})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder_is_a_message(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="cannot be written"):
        prepare_folder(tmp_path / "s")


def test_hash_ignores_time_and_machine_and_order_but_no_value(tmp_path):
    def make(root: str, seconds: float, methods=("fedra", "depthfl"), value=0.75) -> str:
        folder = tmp_path / root / "s"
        for method in methods:
            rounds = [row | {"seconds": seconds} for row in prefix_rounds((2, 1), 2)]
            cell = write_cell(folder, method, evaluation=eval_rows({1: {"a": value}}), rounds=rounds)
            changed = {
                "seconds": seconds,
                "machine": {"cpu": str(seconds)},
                "started": str(seconds),
                "git": root,
            }
            write_manifest(cell, read_manifest(cell) | changed)
        return content_hash(folder)

    first = make("one", 0.5)
    assert make("two", 7.5, methods=("depthfl", "fedra")) == first
    assert content_hash(tmp_path / "one") == first
    assert make("three", 0.5, value=0.75000001) != first
    assert make("four", 0.5, methods=("fedra",)) != first


def test_load_results_is_tidy(tmp_path):
    write_cell(tmp_path / "s", "fedra", 1, evaluation=eval_rows(VALUES))
    write_cell(tmp_path / "s", "exclusive", 1, status="not_applicable", reason="nobody")
    frame = load_results(tmp_path)
    assert list(frame.columns) == [
        *("suite", "scenario", "method", "variant", "seed", "backbone", "dataset", "profile"),
        *("round", "split", "domain", "client", "metric", "value", "examples"),
    ]
    assert len(frame) == 4 and set(frame["method"]) == {"fedra"}
    assert frame.query("round == 12")["value"].mean() == pytest.approx(0.625)


def test_load_results_of_nothing_finished_is_an_empty_table(tmp_path):
    write_cell(tmp_path / "s", "fedra", status="failed", reason="boom")
    assert load_results(tmp_path).empty


def test_reading_results_needs_neither_torch_nor_pandas(tmp_path):
    write_suite(tmp_path / "s", seeds=(0,))
    code = (
        "import io, sys; from rich.console import Console; from fedbench.results import load;"
        "from fedbench.compare import leaderboards; from fedbench.compare.tables import show;"
        "from fedbench.compare.formats import render;"
        f"boards = leaderboards(load([{str(tmp_path)!r}]));"
        "show(boards, Console(file=io.StringIO())); render(boards, 'csv');"
        f"boards = leaderboards(load([{str(tmp_path)!r}]), at='bytes');"
        "from fedbench.compare.traffic import sheet; [sheet(board) for board in boards];"
        "print([m for m in ('torch', 'pandas', 'scipy', 'filelock', 'timm') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_papers_numbers_are_read_back_as_they_were_written(tmp_path):
    row = dict(scenario="a", variant="", dataset="d", backbone="b", method="fedra", metric="average")
    write_expected(tmp_path, "s", [row | {"value_percent": 86.48, "rounds": 100}])
    assert read_expected(tmp_path) == [Expected(**row, value_percent=86.48, rounds=100)]
    write_expected(tmp_path, "s", [row | {"value_percent": 1}])
    assert [one.value_percent for one in read_expected(tmp_path)] == [1]
    write_expected(tmp_path, "s", [])  # the suite has none any more
    assert read_expected(tmp_path) == [] and not list(tmp_path.iterdir())
    assert read_expected(tmp_path / "elsewhere") == []


@pytest.mark.parametrize(
    ("rows", "told"),
    [([{"scenario": "a"}], "a number is not one of fedbench"), (3, "not one"), ([[]], "not one"), (None, "missing")],
)
def test_numbers_that_cannot_be_used_name_the_file_and_the_mend(tmp_path, rows, told):
    text = {"result_version": 1, "suite": "s"} | ({} if rows is None else {"expected": rows})
    (tmp_path / "expected.json").write_text(json.dumps(text))
    with pytest.raises(UserError, match=rf"(?s)expected\.json: .*{told}.*Delete it and run the suite again"):
        read_expected(tmp_path)


def rewrite(file, **changes):
    """A JSON file with other values at these dotted keys (`__` for the dot, `_0` for the first of a list)."""
    value = json.loads(file.read_text())
    for dotted, new in changes.items():
        *path, last = [0 if step == "0" else step for step in dotted.split("__")]
        part = value
        for step in path:
            part = part[step]
        part[last] = new
    file.write_text(json.dumps(value))


@pytest.fixture
def one_cell(tmp_path):
    suite = tmp_path / "results" / "s"
    return write_cell(suite, "fedra", evaluation=eval_rows(VALUES), layers=[layer_row(1, 0)])


@pytest.mark.parametrize("cell", ["..", ".", "", "../other/x", "a/b", "/etc", "\0", "x" * 256, "é" * 200, "a\\b"])
def test_an_entry_cannot_lead_out_of_its_suites_folder(one_cell, cell):
    rewrite(one_cell.parent / "index.json", entries__0__cell=cell)
    with pytest.raises(UserError, match="is not the name of a cell's folder"):
        load([one_cell.parent])


@pytest.mark.parametrize(
    "change", [{"cell": 3}, {"seed": "0"}, {"seed": True}, {"seed": 10**400}, {"method": None}, {"more": 1}]
)
def test_an_entry_of_other_types_is_refused(one_cell, change):
    rewrite(one_cell.parent / "index.json", **{f"entries__0__{key}": value for key, value in change.items()})
    with pytest.raises(UserError, match="an entry is not one of fedbench"):
        load([one_cell.parent])


@pytest.mark.parametrize("change", [{"suite": 3}, {"entries": 3}, {"entries": [3]}, {"entries": {"a": 1}}])
def test_an_index_of_other_types_is_refused(one_cell, change):
    rewrite(one_cell.parent / "index.json", **change)
    with pytest.raises(UserError, match="index.json"):
        load([one_cell.parent])


@pytest.mark.parametrize(
    "change",
    [
        {"status": "done"}, {"status": []}, {"config": 3}, {"reason": 3}, {"seconds": "long"}, {"seconds": 1e999},
        {"config__backbone": "vit"}, {"config__backbone__name": 3}, {"config__train__rounds": "many"},
        {"config__capacities": {"by_client": [1, "2"]}}, {"config__capacities": {"uniform": 3}}, {"config__seed": None},
        {"versions": []}, {"fingerprints": {"data": 3}},
    ],
)  # fmt: skip
def test_a_manifest_of_other_types_is_refused(one_cell, change):
    rewrite(one_cell / "manifest.json", **change)
    with pytest.raises(UserError, match="manifest.json: not (a manifest of fedbench|readable)"):
        read_manifest(one_cell)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * 100_000, "recursion"),
        ('{"a":' * 150 + "1" + "}" * 150, "deeper than 100"),
        ('{"a": ' + "9" * 5000 + "}", "digits"),
        ('{"a": NaN}', "NaN is no JSON"),
        ('{"a": "\\ud800"}', "surrogates"),
        ("3", "not a file of fedbench"),
    ],
)
def test_json_that_python_stumbles_over_is_refused(one_cell, text, told):
    (one_cell / "manifest.json").write_text(text)
    with pytest.raises(UserError, match=told):
        read_manifest(one_cell)


@pytest.mark.parametrize(
    "change", [{"variant": None}, {"rounds": "3"}, {"std": []}, {"value_percent": 10**400}, {"source": 3}]
)
def test_a_papers_number_of_other_types_is_refused(tmp_path, change):
    row = {"scenario": "s", "variant": "", "dataset": "d", "backbone": "b", "method": "m", "metric": "average"}
    write_expected(tmp_path, "s", [{**row, "value_percent": 71.5, **change}])
    with pytest.raises(UserError, match="a number is not one of fedbench"):
        read_expected(tmp_path)


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
    monkeypatch.setattr("fedbench.results.schema.MOST_ROWS", 1)
    with pytest.raises(UserError, match="not a readable Parquet file .2 rows|not a readable Parquet file .4 rows"):
        read_rows(one_cell, "eval")


@pytest.mark.parametrize("name", ["index.json", ".index.json.lock", "cell", "cell/state.json"])
def test_a_link_in_a_suites_folder_is_not_written_through(tmp_path, name):
    (tmp_path / "precious").write_text("x")
    link = tmp_path / "s" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match=f"{name}: a link"):
        refuse_links(tmp_path / "s")
    assert (tmp_path / "precious").read_text() == "x"


def test_a_lock_that_cannot_be_taken_is_told(tmp_path):
    (tmp_path / ".index.json.lock").symlink_to(tmp_path / ".index.json.lock")
    with pytest.raises(UserError, match=r"\.index\.json\.lock: cannot be written"):
        merge_index(tmp_path, "s", [entry()])
