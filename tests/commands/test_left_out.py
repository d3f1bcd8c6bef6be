"""What commands say of results that are not as they were written: the rest, the path of each, and exit code 1."""

from __future__ import annotations

import csv
import io
import shutil

import pytest
from click.testing import CliRunner
from factories import cell_of, eval_rows, round_row, write_cell

from fedbench.cli import main
from fedbench.results import read_manifest, write_manifest
from fedbench.results.files import described


@pytest.fixture
def suite(tmp_path):
    folder = tmp_path / "r" / "s"
    for method in ("fedra", "allsmall", "depthfl"):
        cell = write_cell(folder, method, evaluation=eval_rows({1: {"a": 0.5}}), rounds=[round_row(1, 0, [0])])
        write_manifest(cell, {**read_manifest(cell), "files": described(cell)})
    return folder


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)


@pytest.mark.parametrize("form", ["rich", "csv", "json"])
def test_compare_leaves_a_damaged_cell_blank(suite, form):
    assert run("compare", suite).exit_code == 0
    table, manifest = cell_of(suite, "fedra") / "eval.parquet", cell_of(suite, "depthfl") / "manifest.json"
    shutil.copy(cell_of(suite, "allsmall") / "rounds.parquet", table)
    manifest.write_text(manifest.read_text().replace('"rank": 8', '"rank": 9'))
    done = run("compare", suite, "--format", form)
    assert done.exit_code == 1
    assert f"{table}: torn" in done.stderr and f"{manifest}: checksum mismatch" in done.stderr
    assert "the checksum does not match" in done.stderr.splitlines()[0] and "Run the whole suite again" in done.stderr
    assert "allsmall" in done.stdout
    if form == "csv":
        rows = {row["method"]: row for row in csv.DictReader(io.StringIO(done.stdout))}
        for method in ("fedra", "depthfl"):
            assert rows[method]["status"] == "damaged" and rows[method]["mean"] == ""
    elif form == "rich":
        assert done.stdout.count("damaged") == 2


def test_a_table_of_nothing_believed_is_told_too(suite):
    for manifest in suite.glob("cells/*/manifest.json"):
        manifest.unlink()
    done = run("compare", suite)
    assert done.exit_code == 1 and "3 cells with tables and no manifest.json" in done.stderr


def test_a_hash_is_of_everything_or_says_of_what_it_is_not(suite):
    whole = run("compare", "hash", suite)
    assert (whole.exit_code, whole.stderr) == (0, "")
    shutil.rmtree(cell_of(suite, "depthfl"))
    less = run("compare", "hash", suite)
    assert less.exit_code == 0 and less.stderr == f"{suite}: no result of 1 cell is in it: 1 pending\n"
    assert less.stdout.split()[0] != whole.stdout.split()[0]
    (cell_of(suite, "fedra") / "manifest.json").unlink()
    none = run("compare", "hash", suite)
    assert none.exit_code == 2 and none.stdout == "" and "1 cell with tables and no manifest.json" in none.stderr


def test_plot_draws_the_rest(suite, tmp_path):
    pytest.importorskip("matplotlib")
    (cell_of(suite, "fedra") / "eval.parquet").write_bytes(b"")
    done = run("plot", "curves", suite, "--output", tmp_path / "p.svg")
    assert done.exit_code == 1 and "eval.parquet: torn" in done.stderr
    assert (tmp_path / "p.svg").stat().st_size > 0
