"""fedbench/results/differences.py: in what two results of one name differ."""

from __future__ import annotations

import shutil

import pytest
from factories import eval_rows, layer_row, round_row, write_cell

from fedbench.errors import UserError
from fedbench.results import load, read_manifest, write_manifest, write_rows
from fedbench.results.diff import differing
from fedbench.results.files import described

ROUNDS = [round_row(1, 0, [0])]


@pytest.fixture
def pair(tmp_path):
    """The folders of one cell and of its copy."""
    cell = write_cell(tmp_path / "a" / "s", "fedra", evaluation=eval_rows({1: {"a": 0.5}}), rounds=ROUNDS)
    write_manifest(cell, (read_manifest(cell) or {}) | {"files": described(cell)})
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    return cell, tmp_path / "b" / "s" / "cells" / cell.name


def apart(pair):
    (one,), (other,) = (load([cell.parents[1]]) for cell in pair)
    assert differing(one, other) == differing(other, one)
    return differing(one, other)


def rewrite(cell, kind, rows):
    """Another table, as if it had been computed."""
    write_rows(cell, kind, rows)
    write_manifest(cell, (read_manifest(cell) or {}) | {"files": described(cell)})


def test_a_copy_says_the_same_and_so_does_one_that_took_longer(pair):
    assert apart(pair) == ()
    rewrite(pair[1], "rounds", [round_row(1, 0, [0], seconds=99.0)])
    assert apart(pair) == ()


def test_the_tables_that_say_something_else_are_named(pair):
    rewrite(pair[1], "eval", eval_rows({1: {"a": 0.6}}))
    rewrite(pair[1], "rounds", [round_row(1, 0, [0], loss=2.0)])
    assert apart(pair) == ("eval", "rounds")


def test_a_table_that_one_of_them_lacks_differs_unless_it_would_be_empty_or_came_later(pair):
    rewrite(pair[1], "layers", [layer_row(1, 0)])
    rewrite(pair[1], "server", [])
    rewrite(pair[1], "answers", [{"round": 1, "split": "test", "output": "", "examples": 8, "top_share": 0.5}])
    assert apart(pair) == ("layers",)


def test_of_one_id_the_manifest_counts_too(pair):
    write_manifest(pair[1], (read_manifest(pair[1]) or {}) | {"reason": "edited"})
    assert apart(pair) == ("manifest",)


def test_two_tables_that_are_torn_alike_are_not_equal(pair):
    for cell in pair:
        file = cell / "eval.parquet"
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(UserError, match=r"eval\.parquet: torn"):
        apart(pair)
