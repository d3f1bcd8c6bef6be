"""fedbench/results/index.py: a suite's folder and its index, shared by runs side by side and open to strangers."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from samples import entry, rewrite

from fedbench.errors import UserError
from fedbench.results import load, merge_index, prepare_folder, read_index, refuse_links, write_manifest


def test_new_entry_goes_behind_its_predecessor(tmp_path):
    suite = [entry(m) for m in ("inclusivefl", "depthfl", "fedra", "alllarge")]
    merge_index(tmp_path, "s", [suite[1]])
    merge_index(tmp_path, "s", [suite[3]])
    assert merge_index(tmp_path, "s", suite).entries == suite
    changed = entry("fedra", cell="another")
    assert merge_index(tmp_path, "s", [changed]).entries == [suite[0], suite[1], changed, suite[3]]
    assert read_index(tmp_path).entries == [suite[0], suite[1], changed, suite[3]]


def test_a_folder_keeps_the_seeds_that_its_suite_had_at_first(tmp_path):
    assert merge_index(tmp_path, "s", [entry("fedra")], seeds=[0, 1, 2]).seeds == [0, 1, 2]
    assert merge_index(tmp_path, "s", [entry("fedra", seed=5)], seeds=[0, 1, 2, 5]).seeds == [0, 1, 2]
    assert read_index(tmp_path).seeds == [0, 1, 2]
    merge_index(tmp_path / "older", "s", [entry("fedra")])
    assert "seeds" not in json.loads((tmp_path / "older" / "index.json").read_text())
    assert list(merge_index(tmp_path / "older", "s", [entry("depthfl")], seeds=[0]).seeds) == []


def test_an_entry_is_a_line_that_is_json_by_itself(tmp_path):
    suite = [replace(entry(m), shared={"ranks": {"by_client": [1, 2]}}) for m in ("fedra", "dé\nthfl")]
    merge_index(tmp_path, "s", suite)
    text = (tmp_path / "index.json").read_text(encoding="utf-8")
    lines = [line.strip().removesuffix(",") for line in text.split("\n") if '"method"' in line]
    assert [json.loads(line) for line in lines] == [one.facts for one in suite] == json.loads(text)["entries"]


def test_folder_full_of_foreign_files_is_refused_before_anything_is_written(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UserError, match=r"did not write \(thesis.tex\) and no index.json"):
        merge_index(tmp_path, "s", [entry()])
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_folder_of_a_run_killed_before_its_first_index_is_taken(tmp_path):
    write_manifest(tmp_path / "cells/0123456789ab", {"status": "running", "config": {}})
    (tmp_path / "cells/0123456789ac").mkdir()
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


@pytest.mark.parametrize("cell", ["..", ".", "", "../other/x", "a/b", "/etc", "\0", "x" * 256, "é" * 200, "a\\b"])
def test_an_entry_cannot_lead_out_of_its_suites_folder(one_cell, cell):
    rewrite(one_cell.parents[1] / "index.json", entries__0__cell=cell)
    with pytest.raises(UserError, match="is not the name of a cell"):
        load([one_cell.parents[1]])


@pytest.mark.parametrize(
    "change", [{"cell": 3}, {"seed": "0"}, {"seed": True}, {"seed": 10**400}, {"method": None}, {"more": 1}]
)
def test_an_entry_of_other_types_is_refused(one_cell, change):
    rewrite(one_cell.parents[1] / "index.json", **{f"entries__0__{key}": value for key, value in change.items()})
    with pytest.raises(UserError, match="not an index of fedbench"):
        load([one_cell.parents[1]])


@pytest.mark.parametrize("change", [{"suite": 3}, {"entries": 3}, {"entries": [3]}, {"entries": {"a": 1}}])
def test_an_index_of_other_types_is_refused(one_cell, change):
    rewrite(one_cell.parents[1] / "index.json", **change)
    with pytest.raises(UserError, match="index.json"):
        load([one_cell.parents[1]])


@pytest.mark.parametrize("name", ["index.json", ".index.json.lock", "cell", "cell/state.json"])
def test_a_link_in_a_suites_folder_is_not_written_through(tmp_path, name):
    (tmp_path / "precious").write_text("x")
    link = tmp_path / "s" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match=f"{name}: a link"):
        refuse_links(tmp_path / "s")
    assert (tmp_path / "precious").read_text() == "x"


def test_a_pipe_in_a_suites_folder_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / ".0123456789ab.claim")
    with pytest.raises(UserError, match="claim: a pipe or a device"):
        refuse_links(tmp_path)
