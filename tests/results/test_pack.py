"""fedbench/results/pack.py: cells become rows of tables, whoever is killed when, and readers see no difference."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from command import fedbench
from factories import cell_of, eval_rows, layer_row, write_cell, write_suite
from samples import VALUES, entry

from fedbench.results import content_hash, load, merge_index, read_manifest, read_rows, write_manifest
from fedbench.results.files import described
from fedbench.results.lock import cell_lock, lock_file
from fedbench.results.pack import pack
from fedbench.results.read import table_frame

CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir")


def pack_and_die(folder: Path, left: int) -> int:
    """Pack a suite in a process that ends after so many changes on disk; its exit code, 9 where it came to that."""

    def watch(event: str, given: tuple) -> None:
        nonlocal left
        writes = event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR)
        if event in CHANGES or writes:
            left -= 1
            if left < 0:
                os._exit(9)

    pid = os.fork()
    if pid == 0:
        try:
            sys.addaudithook(watch)
            pack(folder)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def seen(folder: Path) -> list[tuple]:
    """All that readers find in a suite."""
    kinds = ("eval", "rounds", "exchange", "layers")
    return [
        (r.entry.key, r.status, r.manifest.get("seconds"), *(r.table(kind).to_pylist() for kind in kinds))
        if r.status == "finished"
        else (r.entry.key, r.status, r.manifest.get("reason"))
        for r in load([folder], candidates=True)
    ]


@pytest.fixture
def suite(tmp_path):
    folder = tmp_path / "r" / "s"
    for seed in (0, 1):
        rows = eval_rows({t: {d: v + seed / 100 for d, v in by.items()} for t, by in VALUES.items()})
        write_cell(folder, "fedra", seed, evaluation=rows, layers=[layer_row(1, 0)])
    write_cell(folder, "exclusive", status="not_applicable", reason="nobody")
    write_cell(folder, "depthfl", status="failed", reason="it broke")
    write_cell(folder, "allsmall", status="running")
    merge_index(folder, "s", [entry("fedra_keep", cell=cell_of(folder, "fedra").name)])
    return folder


def test_readers_see_packed_and_loose_cells_as_one(suite):
    before, hashed = seen(suite), content_hash(suite)
    assert pack(suite) == 3
    assert seen(suite) == before and content_hash(suite) == hashed
    assert {file.name.partition("-")[0] for file in suite.glob("*.parquet")} == {"cells", "eval", "rounds", "layers"}
    assert len(list(suite.glob("cells/*/manifest.json"))) == 2  # what has no result stays where people find it
    files = sorted(suite.rglob("*"))
    assert pack(suite) == 0 and sorted(suite.rglob("*")) == files


def test_whole_tables_join_packed_cells_and_those_of_a_run_that_goes_on(suite):
    """As a suite that is tuned first has them: its candidates are packed while the others report."""

    def told():
        results = load([suite])
        finished = [r for r in results if r.status == "finished"]
        return table_frame(results, "eval").to_dict("records"), [(r.entry.key, r.totals) for r in finished]

    pack(suite)
    write_cell(suite, "allsmall", evaluation=eval_rows(VALUES), layers=[layer_row(2, 1)])
    before = told()
    assert pack(suite) == 1 and told() == before


def test_the_manifest_and_the_rows_of_a_packed_cell_are_found_by_its_folder(suite):
    cell = cell_of(suite, "fedra", 1)
    manifest, rows = read_manifest(cell), read_rows(cell, "eval")
    pack(suite)
    assert not cell.exists() and read_rows(cell, "eval") == rows
    packed = read_manifest(cell)
    assert {name: packed[name] for name in manifest if name != "files"} == {
        name: value for name, value in manifest.items() if name != "files"
    }
    assert read_manifest(suite / "cells" / manifest["id"]) == packed


def test_a_part_of_a_manifest_that_is_called_as_one_of_a_name_is_packed_too(suite):
    (folder,) = {r.folder for r in load([suite]) if r.entry.key[1::2] == ("fedra", 1)}
    said = {"method": {"role": "ceiling", "paper": "Doe et al., 2026"}, "variant": None}
    write_manifest(folder, {**read_manifest(folder), **said})
    before = read_manifest(folder)
    pack(suite)
    after = read_manifest(folder)
    assert not folder.exists() and before.items() <= after.items() and after["method"] == said["method"]
    assert [r.manifest.get("method") for r in load([suite]) if r.entry.method == "fedra"] == [None, said["method"]]


def test_later_cells_come_to_those_that_are_packed(suite):
    pack(suite)
    rows, layers = eval_rows(VALUES), [layer_row(2, 1)]
    write_cell(suite, "allsmall", evaluation=rows, layers=layers)
    server = [{"round": 1, "flops": 3, "memory_bytes": 2}]
    write_cell(suite, "inclusivefl", 3, evaluation=rows, layers=layers, server=server)
    before, hashed = seen(suite), content_hash(suite)
    assert pack(suite) == 2
    assert seen(suite) == before and content_hash(suite) == hashed
    assert len(list(suite.glob("eval-*.parquet"))) == 1
    rows, cells = table_frame(load([suite]), "eval"), [r.entry.cell for r in load([suite])]
    assert rows["id"].drop_duplicates().tolist() == [id for id in dict.fromkeys(cells) if id in set(rows["id"])]


def test_a_cell_that_is_computed_again_takes_the_place_of_its_packed_one(suite):
    pack(suite)
    write_cell(suite, "fedra", 1, status="running")
    assert [r.status for r in load([suite]) if r.entry.key == ("mixed", "fedra", "", 1, None)] == ["running"]
    write_cell(suite, "fedra", 1, evaluation=eval_rows({1: {"a": 0.125}}), layers=[])
    before = seen(suite)
    assert pack(suite) == 1 and seen(suite) == before


def test_the_lock_files_of_packed_cells_go(suite):
    cells = [cell_of(suite, "fedra", seed) for seed in (0, 1)]
    for cell in cells:
        with cell_lock(cell):
            pass
    pack(suite)
    assert not any(lock_file(cell).exists() for cell in cells)


def test_a_cell_that_can_go_on_and_one_that_is_damaged_are_not_packed(suite):
    one, other = (cell_of(suite, "fedra", seed) for seed in (0, 1))
    (one / "checkpoint").mkdir()
    write_manifest(other, {**read_manifest(other), "files": described(other)})
    (other / "eval.parquet").write_bytes(b"torn")
    assert pack(suite) == 1
    assert (one / "eval.parquet").is_file() and (other / "eval.parquet").is_file()


def test_the_state_of_a_packed_cell_stays_and_is_known(suite):
    cell = cell_of(suite, "fedra", 0)
    (cell / "state.safetensors").write_bytes(b"state")
    write_manifest(cell, {**read_manifest(cell), "files": described(cell)})
    pack(suite)
    assert [file.name for file in cell.iterdir()] == ["state.safetensors"]
    assert list(read_manifest(cell)["files"]) == ["state.safetensors"]


def test_killed_before_any_change_on_disk_the_old_or_the_new_is_there_whole(tmp_path):
    """Of a suite of a packed cell and one that takes its place; before every fourth change where time is short."""
    suite = tmp_path / "r" / "s"
    write_cell(suite, "fedra", evaluation=eval_rows(VALUES), layers=[layer_row(1, 0)])
    pack(suite)
    write_cell(suite, "fedra", evaluation=eval_rows({1: {"a": 0.125}}), layers=[layer_row(2, 1)])
    killed_before_any_change(suite, tmp_path, every=4)


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, True])
def test_of_more_cells_too_the_old_or_the_new_is_there_whole(suite, tmp_path, again):
    """With and without packed cells that some of the new ones replace."""
    if again:
        pack(suite)
        write_cell(suite, "fedra", 1, evaluation=eval_rows({1: {"a": 0.125}}), layers=[])
        write_cell(suite, "allsmall", evaluation=eval_rows(VALUES), layers=[layer_row(2, 1)])
    killed_before_any_change(suite, tmp_path)


def killed_before_any_change(suite, tmp_path, every=1):
    before, hashed, changes = seen(suite), content_hash(suite), 0
    while True:
        folder = Path(shutil.copytree(suite, tmp_path / f"killed{changes}" / "s"))
        code = pack_and_die(folder, changes)
        assert seen(folder) == before, changes
        pack(folder)
        assert seen(folder) == before and content_hash(folder) == hashed, changes
        named = {"cells", "eval", "rounds", "layers"}
        assert {file.name.partition("-")[0] for file in folder.glob("*.parquet")} == named
        assert len(list(folder.glob("*.parquet"))) == len(named)
        if code == 0:
            break
        assert code == 9
        changes += every
    assert changes > 10


def test_the_command_packs_all_suites_of_a_folder(suite):
    write_suite(suite.parent / "t")
    hashed = content_hash(suite.parent)
    done = fedbench("pack", suite.parent, cwd=suite)
    assert done.exit_code == 0, done.output
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["s", "t"]
    assert content_hash(suite.parent) == hashed
    refused = fedbench("pack", suite.parent / "none", cwd=suite)
    assert refused.exit_code == 2 and "no fedbench results" in refused.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_a_message(suite):
    suite.chmod(0o500)
    done = fedbench("pack", suite, cwd=suite.parent)
    suite.chmod(0o700)
    assert done.exit_code == 2 and "cannot be written" in done.stderr
