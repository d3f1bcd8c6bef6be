"""A table does not lie: whatever was changed in a results folder is found, and the suite or the cell is left out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

import factories
import pytest
from command import fedbench
from factories import eval_rows, round_row, write_cell
from samples import entry, rewrite, sealed

from fedbench.errors import UserError
from fedbench.report.leaderboards import leaderboards
from fedbench.results import (
    Loaded,
    content_hash,
    examine,
    load,
    load_results,
    merge_index,
    read_manifest,
    write_manifest,
)
from fedbench.results.columns import COLUMNS
from fedbench.results.files import described
from fedbench.results.loading import what_is_wrong
from fedbench.results.merge import merge
from fedbench.results.pack import pack

METHODS = {"fedra": 0.8, "allsmall": 0.5}
SENT = {"round": 1, "what": "adapters", "bytes_down": 4, "bytes_up": 2}
EDITS = 10_000


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The suite s: two methods, two seeds, all files described."""
    suite = tmp_path_factory.mktemp("truth") / "r" / "s"
    for method, value in METHODS.items():
        for seed in (0, 1):
            rows, rounds = eval_rows({2: {"a": value + seed / 100}}), [round_row(1, 0, [0])]
            cell = write_cell(suite, method, seed, evaluation=rows, rounds=rounds, exchange=[SENT])
            write_manifest(cell, {**read_manifest(cell), "files": described(cell)})
    return suite


@pytest.fixture
def suite(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / "r" / "s"))


def cell_of(suite: Path, method: str = "fedra", seed: int = 0) -> Path:
    return factories.cell_of(suite, method, seed)


def look(suite: Path) -> Loaded:
    return examine([suite]).read(COLUMNS)


def blank(suite: Path) -> list[tuple[str, int]]:
    """The results without a number, by method and seed."""
    return [(r.entry.method, r.entry.seed) for r in look(suite).results if r.status == "damaged"]


def edited(suite: Path, times: int, seed: int) -> list[str]:
    """The single-byte edits of the files of a suite that nobody notices."""
    files = sorted(file for file in suite.rglob("*") if file.suffix in (".json", ".parquet"))
    chance, unnoticed = Random(seed), list[str]()
    for _ in range(times):
        file = chance.choice(files)
        whole = file.read_bytes()
        place, value = chance.randrange(len(whole)), chance.randrange(1, 256)
        file.write_bytes(whole[:place] + bytes([whole[place] ^ value]) + whole[place + 1 :])
        wrong = look(suite).wrong
        if not wrong or not all(file.name in line for line in wrong):
            unnoticed.append(f"{file}: byte {place} ^ {value}: {wrong}")
        file.write_bytes(whole)
    return unnoticed


@pytest.mark.parametrize(("packed", "times"), [(True, 50), (False, 20)])
def test_an_edit_of_any_byte_is_found_and_names_its_file(suite, packed, times):
    if packed:
        pack(suite)
    assert edited(suite, times, 17) == []
    assert look(suite).wrong == []


@pytest.mark.slow
def test_no_edit_of_ten_thousand_passes_unnoticed(suite):
    pack(suite)
    assert edited(suite, EDITS, 23) == []


def test_a_suite_that_was_changed_is_left_out_the_others_are_shown_and_the_exit_code_says_so(suite):
    write_cell(suite.parent / "t", "fedra", evaluation=eval_rows({2: {"a": 0.5}}))
    pack(suite)
    (table,) = suite.glob("eval-*.parquet")
    table.write_bytes(table.read_bytes()[:-1] + b"X")
    done = fedbench("compare", suite.parent, cwd=suite)
    assert done.exit_code == 1
    assert "50.0" in done.stdout and "80" not in done.stdout
    assert f"{table}: checksum mismatch" in done.stderr


def test_a_manifest_of_another_configuration_than_its_id_is_left_out(suite):
    file = cell_of(suite) / "manifest.json"
    for change in ({"id": "0" * 12}, {"config__seed": 1}, {"fingerprints__data": "x"}, {"versions__torch": "9"}):
        whole = file.read_bytes()
        rewrite(file, **change)
        (line,) = look(suite).wrong
        assert line.startswith(f"{file}: its id is ")
        assert blank(suite) == [("fedra", 0)]
        file.write_bytes(whole)


def test_swapped_folders_are_told_by_the_id_in_their_name(suite):
    one, other = cell_of(suite, "fedra"), cell_of(suite, "allsmall")
    one.rename(suite / "aside")
    other.rename(one)
    (suite / "aside").rename(other)
    assert [line.partition(": it is of the cell ")[0] for line in look(suite).wrong] == [
        str(folder / "manifest.json") for folder in (one, other)
    ]


def test_two_entries_of_one_name_are_refused(suite):
    value = json.loads((suite / "index.json").read_text())
    value["entries"][1] |= {"seed": 0}
    (suite / "index.json").write_text(sealed(value))
    (line,) = look(suite).wrong
    assert line == f"{suite / 'index.json'}: two entries have the name mixed · fedra ·  · 0"


def test_a_label_may_be_called_as_the_suite_likes(suite):
    """`{name: allsmall, extends: fedra}`."""
    merge_index(suite, "s", [entry("allsmall", 0, cell=cell_of(suite, "fedra").name)])
    assert look(suite).wrong == []


@pytest.mark.parametrize("kind", ["eval", "rounds", "exchange"])
@pytest.mark.parametrize("harm", ["other", "short", "gone", "untold"])
def test_a_table_that_is_not_the_one_described_is_left_out(suite, kind, harm):
    file, other = (cell_of(suite, "fedra", seed) / f"{kind}.parquet" for seed in (0, 1))
    if harm == "other":
        file.write_bytes(file.read_bytes()[:-1] + b"X")
    elif harm == "short":
        file.write_bytes(other.read_bytes()[:-20])
    elif harm == "gone":
        file.unlink()
    else:
        manifest = read_manifest(file.parent)
        del manifest["files"][file.name]
        write_manifest(file.parent, manifest)
    (line,) = look(suite).wrong
    assert line.startswith(f"{file}: ")
    assert blank(suite) == [("fedra", 0)]
    with pytest.raises(UserError, match=file.name):
        content_hash(suite)


@pytest.mark.parametrize("kind", ["cells", "eval", "rounds", "exchange"])
def test_a_packed_table_that_is_gone_or_another_is_found(suite, kind):
    pack(suite)
    (file,) = suite.glob(f"{kind}-*.parquet")
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    assert [line.partition(": ")[0] for line in look(suite).wrong] == [str(file)]
    file.unlink()
    assert look(suite).wrong == [f"{file}: missing, though index.json names it"]
    with pytest.raises(UserError, match=file.name):
        content_hash(suite)


def test_manifests_that_were_deleted_are_told_by_number(suite):
    for seed in (0, 1):
        (cell_of(suite, "fedra", seed) / "manifest.json").unlink()
    (line,) = look(suite).wrong
    assert line.startswith(f"{suite}: 2 cells with tables and no manifest.json: {cell_of(suite).name}, ")
    for reader in (content_hash, load_results, lambda folder: load([folder]), lambda f: merge([f], f.parent / "new")):
        with pytest.raises(UserError, match="2 cells with tables and no manifest"):
            reader(suite)
    assert not (suite.parent / "new").exists()


def test_many_lines_are_shortened():
    lines = what_is_wrong([f"cell {n}: torn" for n in range(30)]).splitlines()
    assert len(lines) == 23 and lines[-2] == "  ... and 10 more"


def test_a_cell_is_judged_by_its_own_files_alone(suite):
    (cell_of(suite, "allsmall") / "manifest.json").write_text("{")
    (result,) = load([cell_of(suite, "fedra")])
    assert result.status == "finished"


def test_two_keys_of_one_name_are_refused(suite):
    file = cell_of(suite) / "manifest.json"
    file.write_text(file.read_text().replace('"status":', '"status": "failed",\n "status":'))
    assert "the key 'status' stands there twice" in look(suite).wrong[0]


def test_a_damaged_shard_is_not_merged(suite, tmp_path):
    index = suite / "index.json"
    index.write_text(index.read_text().replace('"seed": 1', '"seed": 2'))
    with pytest.raises(UserError, match="checksum mismatch"):
        merge([suite], tmp_path / "new")
    with pytest.raises(UserError, match="checksum mismatch"):
        merge_index(suite, "s", [])
    assert not (tmp_path / "new").exists()


def test_a_leaderboard_says_what_is_left_out(suite):
    (cell_of(suite) / "eval.parquet").unlink()
    (board,) = leaderboards(look(suite).results)
    assert {row.method: [run.seed for run in row.runs] for row in board.rows} == {"fedra": [1], "allsmall": [0, 1]}
    assert any("left out, checksum mismatch" in note for note in board.notes)
