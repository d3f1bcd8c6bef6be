"""A table does not lie: whatever was changed in a results folder is found, or it says the same as before."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from random import Random

import pytest
from factories import eval_rows, round_row, write_cell
from samples import entry, rewrite, sealed

from fedbench.errors import UserError
from fedbench.report.leaderboards import leaderboards
from fedbench.report.records import to_json
from fedbench.results import (
    Found,
    content_hash,
    examine,
    load,
    load_results,
    merge_index,
    read_index,
    read_manifest,
    write_manifest,
)
from fedbench.results.documents import SEAL
from fedbench.results.files import described
from fedbench.results.index import MARK
from fedbench.results.loading import what_is_wrong
from fedbench.results.merge import merge
from fedbench.results.result import COMPARED

METHODS = {"fedra": 0.8, "allsmall": 0.5}
SENT = {"round": 1, "what": "adapters", "bytes_down": 4, "bytes_up": 2}


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
    (found,) = suite.glob(f"*-{method}-*-s{seed}-*")
    return found


def look(suite: Path) -> Found:
    return examine([suite]).read(COMPARED)


def table(found: Found) -> str:
    return to_json(leaderboards(found.results))


def blank(suite: Path) -> list[tuple[str, int]]:
    """The results without a number, by method and seed."""
    return [(r.entry.method, r.entry.seed) for r in look(suite).results if r.status == "damaged"]


def as_older(file: Path) -> None:
    """What an older fedbench would have written: no seals, no marks."""
    value = json.loads(file.read_text())
    del value[SEAL]
    for one in value.get("entries", ()):
        del one[MARK]
    file.write_text(json.dumps(value, indent=1))


@pytest.mark.parametrize("which", ["index.json", "manifest.json"])
def test_a_flipped_bit_is_found_or_changes_nothing(suite, which):
    file = suite / which if which == "index.json" else cell_of(suite) / which
    before, whole, chance = table(look(suite)), file.read_bytes(), Random(17)
    silent = 0
    for _ in range(100):
        place, bit = chance.randrange(len(whole)), chance.randrange(8)
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        try:
            if (found := look(suite)).wrong:
                continue
        except UserError:
            continue
        assert table(found) == before, (place, bit)
        silent += 1
    file.write_bytes(whole)
    assert table(look(suite)) == before
    assert silent < 10


def test_a_key_of_a_seal_cannot_be_hit_without_a_word(suite):
    """Without its seal a file passes for that of an older fedbench, which had no keys but a few."""
    for file in (suite / "index.json", cell_of(suite) / "manifest.json"):
        whole = file.read_text()
        for key in (SEAL, MARK):
            if f'"{key}": "' in whole:
                file.write_text(whole.replace(f'"{key}": "', f'"x{key}": "'))
                with pytest.raises(UserError):
                    load([suite])
        file.write_text(whole)
    load([suite])


def swapped(index: Path, *, marks: bool) -> None:
    value = json.loads(index.read_text())
    one, other = (next(e for e in value["entries"] if e["method"] == m and e["seed"] == 0) for m in METHODS)
    one["cell"], other["cell"] = other["cell"], one["cell"]
    index.write_text(json.dumps(sealed(value) if marks else value))


@pytest.mark.parametrize("older", [False, True])
def test_swapped_cells_are_left_out_and_the_others_stay(suite, older):
    if older:
        as_older(suite / "index.json")
    swapped(suite / "index.json", marks=False)
    found = look(suite)
    assert len(found.wrong) == 2 and all(line.startswith(f"{suite / 'index.json'}: mixed · ") for line in found.wrong)
    assert blank(suite) == [("fedra", 0), ("allsmall", 0)]
    (board,) = leaderboards(found.results)
    assert {row.method: [run.seed for run in row.runs] for row in board.rows} == {"fedra": [1], "allsmall": [1]}
    assert any("left out, because it is not as it was written" in note for note in board.notes)
    with pytest.raises(UserError, match=r"Delete it and run the whole suite again") if not older else nullcontext():
        read_index(suite)


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        {"id": "0" * 12},
        {"config__seed": 1},
        {"config__train__rounds": 40},
        {"fingerprints__data": "another"},
        {"versions__fedbench": "9"},
    ],
)
def test_a_manifest_of_another_configuration_than_its_id_is_left_out(suite, change, older):
    file = cell_of(suite) / "manifest.json"
    rewrite(file, **change)
    if older:
        as_older(file)
    (line,) = look(suite).wrong
    assert line.startswith(f"{file}: its id is ")
    assert blank(suite) == [("fedra", 0)]


def test_a_manifest_that_was_edited_without_its_seal_is_left_out(suite):
    file = cell_of(suite) / "manifest.json"
    file.write_text(file.read_text().replace('"seconds": 20.0', '"seconds": 2.0'))
    assert look(suite).wrong == [f"{file}: changed since it was written (its hash is another)"]


def test_a_reformatted_file_says_the_same(suite):
    for file in (suite / "index.json", cell_of(suite) / "manifest.json"):
        file.write_bytes(json.dumps(json.loads(file.read_text()), sort_keys=True).replace(", ", ",\r\n").encode())
    assert look(suite).wrong == []


def test_swapped_folders_are_told_by_the_id_in_their_name(suite):
    one, other = cell_of(suite, "fedra"), cell_of(suite, "allsmall")
    one.rename(suite / "aside")
    other.rename(one)
    (suite / "aside").rename(other)
    assert [line.partition(": it is of the cell ")[0] for line in look(suite).wrong] == [
        str(folder / "manifest.json") for folder in (one, other)
    ]


@pytest.mark.parametrize(("key", "value"), [("seed", 7), ("backbone", "other"), ("dataset", "other"), ("profile", "x")])
def test_an_entry_that_says_other_than_its_cell_is_left_out(suite, key, value):
    rewrite(suite / "index.json", **{f"entries__0__{key}": value})
    (line,) = look(suite).wrong
    assert f"its {key} is {value!r}" in line


def test_two_entries_of_one_name_are_both_left_out(suite):
    value = json.loads((suite / "index.json").read_text())
    value["entries"][1] |= {"seed": 0}
    (suite / "index.json").write_text(json.dumps(sealed(value)))
    assert "two entries have this name" in look(suite).wrong[0]
    assert blank(suite) == [("fedra", 0)]


def test_an_entry_that_was_taken_out_is_told(suite):
    value = json.loads((suite / "index.json").read_text())
    del value["entries"][0]
    (suite / "index.json").write_text(json.dumps(value))
    assert look(suite).wrong == [f"{suite / 'index.json'}: changed since it was written (its hash is another)"]


def test_a_label_may_be_called_as_the_suite_likes(suite):
    """`{name: allsmall, extends: fedra}`: the mark vouches for it."""
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
    swapped(suite / "index.json", marks=False)
    with pytest.raises(UserError, match="this entry was changed"):
        merge([suite], tmp_path / "new")
    with pytest.raises(UserError, match="this entry was changed"):
        merge_index(suite, "s", [])
    assert not (tmp_path / "new").exists()


def test_what_an_older_fedbench_wrote_is_read_as_ever(suite):
    before, hashed = table(look(suite)), content_hash(suite)
    for file in (suite / "index.json", *suite.glob("*/manifest.json")):
        as_older(file)
    assert look(suite).wrong == []
    assert (table(look(suite)), content_hash(suite)) == (before, hashed)
