"""What a results folder may not do: name something outside of it, or lead there by a link."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from click.testing import CliRunner
from factories import eval_rows, write_cell
from samples import VALUES, sealed

from fedbench.cli import main
from fedbench.errors import UserError
from fedbench.results import read_index, read_manifest, write_manifest
from fedbench.results.files import described
from fedbench.results.index import change_index
from fedbench.results.merge import merge
from fedbench.results.pack import pack


@pytest.fixture
def suite(tmp_path):
    cell = write_cell(tmp_path / "r" / "s", "fedra", evaluation=eval_rows(VALUES))
    (cell / "state.safetensors").write_bytes(b"state " * 20)
    write_manifest(cell, {**read_manifest(cell), "files": described(cell)})
    return tmp_path / "r" / "s"


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "..", ".hidden", "a/b", "a\\b", ""])
@pytest.mark.parametrize("part", ["suite", "cell", "table"])
def test_no_name_of_an_index_leads_elsewhere(suite, part, name):
    pack(suite)
    file = suite / "index.json"
    value = json.loads(file.read_text())
    if part == "suite":
        value["suite"] = name
    elif part == "cell":
        value["entries"][0]["cell"] = name
    else:
        value["tables"]["eval"]["file"] = name
    file.write_text(sealed(value))
    with pytest.raises(UserError, match="is not the name of a cell, a table or a suite"):
        read_index(suite)


def test_reproduce_writes_nothing_outside_of_its_results(suite, tmp_path):
    value = json.loads((suite / "index.json").read_text())
    (suite / "index.json").write_text(sealed(value | {"suite": "../../evil"}))
    done = CliRunner().invoke(main, ["reproduce", str(suite), "--results", str(tmp_path / "a" / "b")])
    assert done.exit_code == 2 and "'../../evil' is not the name of a cell" in done.output
    assert not (tmp_path / "evil").exists()


def into_new(suite):
    merge([suite], suite.parent.parent / "new")


@pytest.mark.parametrize(("command", "kind"), [(pack, "folder"), (pack, "file"), (pack, "pipe"), (into_new, "folder")])
def test_nothing_is_deleted_or_read_through_a_link(suite, tmp_path, command, kind):
    place = suite / "cells" / read_index(suite).entries[0].cell
    place.rename(tmp_path / "precious")
    if kind == "folder":
        place.symlink_to(tmp_path / "precious")
    else:
        (tmp_path / "precious").rename(place)
        (place / "output.txt").symlink_to(suite) if kind == "file" else os.mkfifo(place / "output.txt")
    with pytest.raises(UserError, match="a link|a pipe"):
        command(suite)
    assert (place / "eval.parquet").is_file() and not (tmp_path / "new").exists()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("harm", [b"stale " * 20, b"short", b""])
def test_a_state_that_is_not_the_one_of_its_manifest_is_not_merged(suite, tmp_path, packed, harm):
    if packed:
        pack(suite)
    (state,) = suite.rglob("state.safetensors")
    state.write_bytes(harm)
    with pytest.raises(UserError, match=r"state.safetensors: torn(.|\n)*Nothing was written"):
        merge([suite], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_state_of_any_size_is_compared_with_its_hash(suite, tmp_path, monkeypatch):
    monkeypatch.setattr("fedbench.results.files.MOST_HASHED", 3)
    (state,) = suite.rglob("state.safetensors")
    state.write_bytes(b"stale " * 20)
    with pytest.raises(UserError, match="state.safetensors: torn"):
        merge([suite], tmp_path / "new")


def test_what_a_killed_packer_left_half_written_is_deleted_by_the_next(suite):
    for name in (f"cells-{'0' * 12}.parquet", f"eval-{'a' * 12}.parquet", "index.json"):
        (suite / f".{name}.{'f' * 16}.tmp").write_text("half")
    mine = [suite / ".mine.tmp", suite / ".notes.parquet.0123456789abcdef.tmp"]
    for file in mine:
        file.write_text("mine")
    pack(suite)
    assert sorted(suite.glob(".*.tmp")) == sorted(mine)


def test_a_name_that_is_changed_by_fedbench_itself_is_checked_too(suite):
    change_index(suite, "s", lambda index: replace(index, suite="../s"))
    with pytest.raises(UserError, match="is not the name of a cell"):
        read_index(suite)
