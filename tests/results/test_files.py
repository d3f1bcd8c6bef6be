"""The files of a finished cell: whatever happens to one is seen, but for what may happen to it."""

from __future__ import annotations

import pytest
from factories import eval_rows, write_cell

from fedbench.errors import UserError
from fedbench.results import content_hash, load, read_manifest, write_manifest
from fedbench.results.files import cleared, damage, described, set_aside
from fedbench.results.merge import merge
from fedbench.simulation.state import TENSORS, save


@pytest.fixture
def cell(tmp_path):
    """A finished cell whose manifest describes its files."""
    folder = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({1: {"solid": 0.5, "dim": 0.25}}), layers=[])
    save(folder, {"method": {"x": 1}})
    write_manifest(folder, {**read_manifest(folder), "files": described(folder)})
    return folder


@pytest.mark.parametrize("name", ["eval.parquet", TENSORS])
def test_any_changed_bit_cut_or_addition_is_damage(cell, name):
    manifest, content = read_manifest(cell), (cell / name).read_bytes()
    assert damage(cell, manifest) == {}
    for i in range(0, 8 * len(content), 101):
        spoilt = bytearray(content)
        spoilt[i // 8] ^= 1 << i % 8
        (cell / name).write_bytes(spoilt)
        assert damage(cell, manifest) == {name: "torn (its hash is another)"}
    for spoilt in (b"", content[:-1], content + b"x"):
        (cell / name).write_bytes(spoilt)
        assert damage(cell, manifest) == {name: f"torn ({len(spoilt)} bytes, and not {len(content)})"}
    (cell / name).unlink()
    assert damage(cell, manifest) == ({name: "missing"} if name.endswith(".parquet") else {})


def test_a_table_with_a_changed_bit_is_refused_and_not_read_as_other_numbers(cell):
    content = bytearray((cell / "eval.parquet").read_bytes())
    content[8] ^= 1
    (cell / "eval.parquet").write_bytes(content)
    (result,) = load([cell])
    with pytest.raises(UserError, match="eval.parquet: torn .its hash is another"):
        result.eval  # noqa: B018


@pytest.mark.parametrize("name", ["eval.parquet", "layers.parquet"])
def test_what_is_damaged_is_neither_hashed_nor_merged(cell, name, tmp_path):
    """Numbers that nobody computed would make a hash like any other, and a cell that passes for a result."""
    content = bytearray((cell / name).read_bytes())
    content[8] ^= 1
    for spoil in (lambda: (cell / name).write_bytes(content), (cell / name).unlink):
        spoil()
        for use in (lambda: content_hash(cell.parents[1]), lambda: merge([cell.parents[1]], tmp_path / "new")):
            with pytest.raises(UserError, match=f"{name}: (torn .its hash is another|missing)"):
                use()
    assert not (tmp_path / "new").exists()


def test_a_cell_of_an_older_fedbench_needs_its_tables_alone(tmp_path):
    folder = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({1: {"solid": 0.5}}))
    manifest = read_manifest(folder)
    assert "files" not in manifest and damage(folder, manifest) == {}
    (folder / "rounds.parquet").write_bytes(b"")
    assert damage(folder, manifest) == {"rounds.parquet": "missing or empty"}


def test_what_is_damaged_is_set_aside_and_what_is_half_written_deleted(cell):
    (cell / "eval.parquet").write_bytes(b"torn")
    (cell / "rounds.parquet").unlink()
    (cell / ".layers.parquet.0123456789abcdef.tmp").touch()
    told = cleared(cell, read_manifest(cell))
    (kept,) = cell.glob(".*")
    assert kept.read_bytes() == b"torn" and kept.name.startswith(".torn-eval.parquet-")
    assert told[0].endswith(f"Set aside as {kept.name}.") and str(cell / "eval.parquet") in told[0]
    assert told[1] == f"{cell / 'rounds.parquet'}: missing."
    assert cleared(cell, {**read_manifest(cell), "status": "running"}) == []


def test_what_is_set_aside_never_hides_another(cell):
    places = set()
    for i in range(3):
        (cell / "x").write_text(str(i))
        places.add(set_aside(cell / "x", cell))
    assert sorted(place.read_text() for place in places) == ["0", "1", "2"]


def test_the_hashes_of_files_are_no_part_of_what_a_cell_says(cell):
    before, manifest = content_hash(cell), read_manifest(cell)
    del manifest["files"]
    write_manifest(cell, {**manifest, "torn": ["something"]})
    assert content_hash(cell) == before
