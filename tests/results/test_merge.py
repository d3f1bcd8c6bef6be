"""Merging results folders: invented cells, real files."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from command import fedbench
from factories import eval_rows, layer_row, round_row, write_cell, write_suite
from samples import VALUES, rewrite

from fedbench.errors import UserError
from fedbench.results import content_hash, load, read_index, read_manifest, write_manifest, write_rows
from fedbench.results.index import read_expected, write_expected
from fedbench.results.lock import suite_lock
from fedbench.results.merge import merge
from fedbench.results.packed_tables import folder_of

NUMBER = dict(scenario="mixed", variant="", dataset="d", backbone="b", method="fedra", metric="average")


def cell(root: Path, method: str = "fedra", seed: int = 0, values=VALUES, **told) -> Path:
    rows = [round_row(1, 0, [], loss=float("nan"), seconds=told.pop("seconds", 1.0))]
    layers = [layer_row(1, 0, aggregation_error=float("nan"))]
    return write_cell(root / "s", method, seed, evaluation=eval_rows(values), rounds=rows, layers=layers, **told)


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return {str(f): (f.stat().st_mtime_ns if f.name != "index.json" else 0, f.read_bytes()) for f in files}


def test_shards_become_what_one_folder_would_be(tmp_path):
    for seed in (0, 1):
        for method in ("fedra", "allsmall"):
            cell(tmp_path / "one", method, seed)
            cell(tmp_path / f"shard{seed}", method, seed)
    (merged,) = merge([tmp_path / "shard0", tmp_path / "shard1" / "s"], tmp_path / "new" / "r")
    assert (merged.copied, merged.kept, merged.left) == (4, 0, 0)
    assert merged.content_hash == content_hash(tmp_path / "one") == content_hash(tmp_path / "new/r")
    assert not [p for p in (tmp_path / "new").rglob(".*") if p.suffix != ".lock"]


def test_a_second_time_changes_nothing(tmp_path):
    cell(tmp_path / "a", seed=0)
    cell(tmp_path / "b", seed=1)
    write_expected(tmp_path / "a/s", "s", [{**NUMBER, "value_percent": 50}])
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "r")
    before = snapshot(tmp_path)
    assert [(m.copied, m.kept) for m in merge([tmp_path / "a", tmp_path / "b"], tmp_path / "r")] == [(0, 2)]
    assert [(m.copied, m.kept) for m in merge([tmp_path / "r", tmp_path / "r/s"], tmp_path / "r")] == [(0, 2)]
    assert snapshot(tmp_path) == before
    assert [one.value_percent for one in read_expected(tmp_path / "r/s")] == [50]


def test_several_suites_are_merged_one_by_one(tmp_path):
    write_cell(tmp_path / "a/s", "fedra", evaluation=eval_rows(VALUES))
    write_cell(tmp_path / "b/t", "fedra", evaluation=eval_rows(VALUES))
    assert [m.suite for m in merge([tmp_path / "a", tmp_path / "b"], tmp_path / "r")] == ["s", "t"]
    assert len(load([tmp_path / "r"])) == 2


def test_the_order_of_the_suite_is_that_of_shards_that_name_all_of_it(tmp_path):
    write_suite(tmp_path / "all/s", packed=False)
    names = [entry.key for entry in read_index(tmp_path / "all/s").entries]
    for half in (0, 1):
        shutil.copytree(tmp_path / "all", tmp_path / f"half{half}")
        for entry in read_index(tmp_path / "all/s").entries[half::2]:
            shutil.rmtree(folder_of(tmp_path / f"half{half}/s", entry.cell))
    merge([tmp_path / "half1", tmp_path / "half0"], tmp_path / "r")
    assert [entry.key for entry in read_index(tmp_path / "r/s").entries] == names
    assert content_hash(tmp_path / "r") == content_hash(tmp_path / "all")


def test_equal_cells_that_differ_in_timings_alone_are_taken_once(tmp_path):
    cell(tmp_path / "a", seconds=1.0)
    other = cell(tmp_path / "b", seconds=2.0)
    write_manifest(other, {**read_manifest(other), "seconds": 9.0, "machine": {"cpu": "other"}})
    (merged,) = merge([tmp_path / "a", tmp_path / "b"], tmp_path / "r")
    assert merged.copied == 1
    assert read_manifest(tmp_path / "r/s/cells" / other.name)["seconds"] == 20.0, "the first one"


def test_an_equal_cell_keeps_the_folder_it_has(tmp_path):
    """Two names of one cell."""
    here, _ = cell(tmp_path / "a"), cell(tmp_path / "b")
    rewrite(tmp_path / "b/s/index.json", entries__0__method="same")
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "r")
    entries = read_index(tmp_path / "r/s").entries
    assert {entry.method: entry.cell for entry in entries} == {"fedra": here.name, "same": here.name}
    assert not [p.name for p in (tmp_path / "r/s/cells").glob("*") if p.is_dir()]


@pytest.mark.parametrize("where", ["shards", "into"])
def test_two_results_of_one_cell_are_a_conflict_that_names_both(tmp_path, where):
    one = cell(tmp_path / "a")
    other = cell(tmp_path / "b", values={**VALUES, 12: {"a": 0.75, "b": 0.625}})
    cell(tmp_path / "b", "allsmall")
    shards, into = ([tmp_path / "a", tmp_path / "b"], "r") if where == "shards" else ([tmp_path / "b"], "a")
    before = snapshot(tmp_path)
    with pytest.raises(UserError, match=r"(?s)differ in eval:\n.*Nothing was written") as told:
        merge(shards, tmp_path / into)
    assert str(one) in str(told.value) and str(other) in str(told.value)
    assert snapshot(tmp_path) == before and not (tmp_path / "r").exists()


def test_one_name_for_two_cells_is_a_conflict_that_says_what_differs(tmp_path):
    cell(tmp_path / "a")
    cell(tmp_path / "b", train__rounds=3)
    with pytest.raises(UserError, match=r"one name, two cells: they differ in config\.train:"):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "r")
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_what_is_not_finished_gives_way(tmp_path, order):
    roots = [tmp_path / name for name in ("finished", "failed", "running")]
    good = cell(roots[0])
    cell(roots[1], status="failed", reason="it broke")
    cell(roots[2], status="running")
    (roots[2] / "s/cells" / good.name / "checkpoint").mkdir()
    (merged,) = merge([roots[i] for i in order], tmp_path / "r")
    assert (merged.copied, merged.left) == (1, 0)
    assert read_manifest(tmp_path / "r/s/cells" / good.name)["status"] == "finished"
    for root in roots[:0:-1]:
        (merged,) = merge([roots[0]], root)
        assert merged.copied == 1 and content_hash(root) == content_hash(roots[0])
        assert not [p.name for p in (root / "s").iterdir() if p.suffix in (".old", ".merge")]


@pytest.mark.parametrize("status", ["failed", "timeout"])
def test_a_cell_that_can_go_on_does_not_give_way_to_one_that_failed(tmp_path, status):
    begun = cell(tmp_path / "r", status="interrupted")
    (begun / "checkpoint/a").mkdir(parents=True)
    cell(tmp_path / "a", status=status, reason="it broke")
    (merged,) = merge([tmp_path / "a"], tmp_path / "r")
    assert (merged.copied, merged.kept, merged.left) == (0, 0, 1)
    assert read_manifest(begun)["status"] == "interrupted" and (begun / "checkpoint/a").is_dir()
    (merged,) = merge([tmp_path / "a", tmp_path / "r"], tmp_path / "new")  # checkpoints are not copied
    assert merged.copied == 1 and read_manifest(tmp_path / "new/s" / begun.name)["status"] == status


def test_what_nobody_finished_is_left_to_a_run(tmp_path):
    name = cell(tmp_path / "a", status="running").name
    (merged,) = merge([tmp_path / "a"], tmp_path / "r")
    assert (merged.copied, merged.left) == (0, 1)
    assert not (tmp_path / "r/s" / name).exists()
    assert [result.status for result in load([tmp_path / "r"])] == ["pending"]


def test_links_and_hidden_files_of_a_shard_are_not_followed(tmp_path):
    (tmp_path / "secret").write_text("secret")
    shared = cell(tmp_path / "a")
    (shared / "link.txt").symlink_to(tmp_path / "secret")
    (shared / ".hidden").write_text("")
    (shared / "state.json").write_text("{}")
    merge([tmp_path / "a"], tmp_path / "r")
    files = {path.name for path in (tmp_path / "r/s/cells" / shared.name).iterdir()}
    assert files == {"state.json"}


@pytest.mark.parametrize("key", ["suite", "cell"])
@pytest.mark.parametrize("value", ["../out", "/out", ".hidden", "", 1])
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path, key, value):
    cell(tmp_path / "a")
    rewrite(tmp_path / "a/s/index.json", **{key if key == "suite" else "entries__0__cell": value})
    with pytest.raises(UserError, match="is not the name of a|not an index of fedbench"):
        merge([tmp_path / "a"], tmp_path / "r")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_foreign_folders_are_refused(tmp_path):
    one = cell(tmp_path / "a")
    (tmp_path / "r/s").mkdir(parents=True)
    (tmp_path / "r/s/thesis.tex").write_text("")
    for shard, into, told in (
        ("a", "r", "holds files that fedbench did not write (thesis.tex)"),
        ("r", "b", "no fedbench results"),
        ("gone", "b", "no fedbench results"),
        (one, "b", "no fedbench results"),
        ("a", "a/s", "--into takes a results folder"),
    ):
        with pytest.raises(UserError, match=re.escape(told)):
            merge([tmp_path / shard], tmp_path / into)
    assert not (tmp_path / "b").exists()
    assert os.listdir(tmp_path / "r/s") == ["thesis.tex"]


def test_constant_answers_must_agree_where_both_have_them(tmp_path):
    for root, share in (("a", 0.5), ("b", 1.0), ("older", None)):
        place = cell(tmp_path / root)
        if share:
            write_rows(
                place, "answers", [{"round": 1, "split": "test", "output": "", "examples": 3, "top_share": share}]
            )
    merge([tmp_path / "older", tmp_path / "a"], tmp_path / "r")
    with pytest.raises(UserError, match="two results of one cell differ in answers:"):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "r")


def test_a_finished_cell_without_its_tables_is_refused(tmp_path):
    (cell(tmp_path / "a") / "eval.parquet").unlink()
    with pytest.raises(UserError, match="eval.parquet: the file is missing"):
        merge([tmp_path / "a"], tmp_path / "r")


def test_two_sets_of_a_papers_numbers_are_refused(tmp_path):
    for seed, root in enumerate("ab"):
        cell(tmp_path / root, seed=seed)
        write_expected(tmp_path / root / "s", "s", [{**NUMBER, "value_percent": seed}])
    with pytest.raises(UserError, match="two sets of a paper's numbers"):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_nothing_is_merged_into_a_folder_in_which_a_run_is_at_work(tmp_path):
    cell(tmp_path / "a")
    busy = cell(tmp_path / "r", status="running")
    with suite_lock(tmp_path / "r/s", "fedbench run"), pytest.raises(UserError, match=r"s: `fedbench run` \(process"):
        merge([tmp_path / "a"], tmp_path / "r")
    assert read_manifest(busy)["status"] == "running"


def test_a_run_cannot_begin_where_results_are_merged_and_one_in_a_new_folder_loses_nothing(tmp_path, monkeypatch):
    cell(tmp_path / "a", seed=1)
    cell(tmp_path / "old")
    refused = []

    def meanwhile(suite):
        try:
            with suite_lock(suite.target, "fedbench run"):
                cell(suite.target.parent, "allsmall")
        except UserError as error:
            refused.append(str(error))
        return []

    monkeypatch.setattr("fedbench.results.merge._expected", meanwhile)
    merge([tmp_path / "a"], tmp_path / "old")
    assert "`fedbench merge` (process" in refused[0]
    with pytest.raises(UserError, match=r"new/s: a run began here .* Run `fedbench merge` again"):
        merge([tmp_path / "a"], tmp_path / "new")
    assert [entry.method for entry in read_index(tmp_path / "new/s").entries] == ["allsmall"]


def test_the_command_prints_what_compare_hash_prints(tmp_path):
    cell(tmp_path / "a")
    done = fedbench("merge", "a", "--into", "r", cwd=tmp_path)
    assert done.exit_code == 0, done.output
    counts, hashed = done.stdout.splitlines()
    assert counts == "s: 1 cell copied, 0 already there, 0 left to run"
    assert hashed == f"{content_hash(tmp_path / 'a')}  r/s"
    assert fedbench("compare", "hash", "r/s", "a", cwd=tmp_path).stdout.splitlines() == [
        hashed,
        hashed.replace("r/s", "a"),
    ]
    refused = fedbench("merge", "a", cwd=tmp_path)
    assert refused.exit_code == 2 and "--into" in refused.stderr


def test_a_table_that_older_versions_wrote_is_ignored_and_left_behind(tmp_path):
    """The reference results have tables `right`, which nothing reads any more."""
    source = Path("results/reference/skippable")
    assert list(source.glob("right-*.parquet")) and "right" not in read_index(source).tables
    (merged,) = merge([source], tmp_path)
    assert merged.content_hash == content_hash(source)
    assert not list(tmp_path.rglob("right*"))
