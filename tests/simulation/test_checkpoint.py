"""Checkpoints on disk: the newest that is whole comes back to the bit; what is torn is noticed and not used."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from fedbench.disk import hash_of_json
from fedbench.errors import UserError
from fedbench.simulation.checkpoint import CHECKPOINT, FACTS, NEXT, OLD, Checkpoints, Progress, forget
from fedbench.simulation.state import STRUCTURE, TENSORS
from fedbench.testing.setups import same

ID = "0123456789ab"
STATE = {"x": torch.tensor([-0.0, float("nan"), 1.5]), "odd": torch.ones(2, 3).T, "seen": [True, 2**60, 0.1, None]}


def progress_at(t):
    evaluation = [
        {"round": t, "split": "test", "domain": "d", "client": -1, "metric": "m", "value": 0.1, "examples": 3}
    ]
    tables = {**Progress().tables, "eval": evaluation}
    return Progress(t, {**STATE, "t": t}, tables, seconds=1.5 * t)


def written(folder, *rounds):
    checkpoints = Checkpoints(folder, ID, "cpu")
    checkpoints.latest()
    for t in rounds:
        checkpoints.write(progress_at(t))
    return folder / CHECKPOINT


def latest(folder, id=ID, device="cpu"):
    return Checkpoints(folder, id, device).latest()


def test_the_newest_comes_back_bit_for_bit(tmp_path):
    written(tmp_path, 1, 2, 3)
    found, refused = latest(tmp_path)
    assert same(vars(found), vars(progress_at(3))) and not refused
    assert found.state["x"][0].signbit() and found.state["odd"].is_contiguous()


def test_two_are_kept_and_no_more(tmp_path):
    folder = written(tmp_path, 1, 2, 3, 4, 5)
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]
    forget(tmp_path)
    assert not list(tmp_path.iterdir()) and latest(tmp_path) == (Progress(), [])


def test_numbers_go_on_growing_in_the_next_process(tmp_path):
    for t in range(1, 6):
        written(tmp_path, t)
        assert latest(tmp_path)[0].round == t


class Killed(Exception):
    """In place of a kill."""


def truncated(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flipped(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def emptied(file):
    file.write_bytes(b"")


def removed(file):
    file.unlink()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *((FACTS, damage) for damage in (truncated, flipped, emptied, removed)),
        *((name, flipped) for name in (TENSORS, STRUCTURE, "eval.parquet")),
        ("layers.parquet", removed),
    ],
)
def test_a_damaged_one_is_set_aside_and_the_one_before_is_used(tmp_path, name, damage):
    folder = written(tmp_path, 1, 2)
    newest = folder / ("a" if json.loads((folder / "a" / FACTS).read_text())["round"] == 2 else "b")
    damage(newest / name)
    found, (line,) = latest(tmp_path)
    assert found.round == 1
    assert str(newest) in line and "Set aside as .torn-" in line
    (kept,) = tmp_path.glob(".torn-*")
    assert kept.name in line and not newest.exists()
    assert latest(tmp_path)[1] == []  # told once


@pytest.mark.parametrize("kind", ["answers", "clock"])
def test_one_of_an_older_fedbench_is_without_a_table_that_came_later(tmp_path, kind):
    folder = written(tmp_path, 1)
    (place,) = folder.glob("*/")
    (place / f"{kind}.parquet").unlink()
    facts = json.loads((place / FACTS).read_text())
    del facts["files"][f"{kind}.parquet"]
    own = {key: value for key, value in facts.items() if key not in ("sha256", "result_version")}
    (place / FACTS).write_text(json.dumps({**facts, "sha256": hash_of_json(own)}))
    found, refused = latest(tmp_path)
    assert found.round == 1 and refused == [] and found.tables[kind] == [] and found.tables["eval"]


def test_any_flipped_bit_of_checkpoint_json_is_noticed_or_harmless(tmp_path):
    folder = written(tmp_path, 1)
    (file,) = folder.glob(f"*/{FACTS}")
    content = file.read_bytes()
    for i in range(0, 8 * len(content), 31):
        file.parent.mkdir(exist_ok=True)
        spoilt = bytearray(content)
        spoilt[i // 8] ^= 1 << i % 8
        file.write_bytes(spoilt)
        try:
            facts = Checkpoints(tmp_path, ID, "cpu")._facts(file.parent)
        except UserError:
            continue
        assert facts["number"] == facts["round"] == 1


def test_the_only_whole_one_is_not_replaced(tmp_path, monkeypatch):
    """Of two the newer is torn: a kill amid the next write leaves the older, which the cell went on from."""
    folder = written(tmp_path, 1, 2)
    (newest,) = (path for path in folder.iterdir() if json.loads((path / FACTS).read_text())["round"] == 2)
    truncated(newest / TENSORS)
    checkpoints = Checkpoints(tmp_path, ID, "cpu")
    assert checkpoints.latest()[0].round == 1
    rename = os.rename

    def killed(source, target):
        if Path(source).name == ".next":
            raise Killed
        rename(source, target)

    monkeypatch.setattr(os, "rename", killed)
    with pytest.raises(Killed):
        checkpoints.write(progress_at(3))
    monkeypatch.undo()
    assert latest(tmp_path)[0].round == 1


def test_with_both_damaged_the_cell_begins_anew(tmp_path):
    folder = written(tmp_path, 1, 2)
    for place in folder.iterdir():
        flipped(place / TENSORS)
    found, lines = latest(tmp_path)
    assert found == Progress() and len(lines) == 2
    written(tmp_path, 1)
    assert latest(tmp_path)[0].round == 1


def edited(**changes):
    def edit(folder):
        for file in folder.glob(f"*/{FACTS}"):
            file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    return edit


STRANGE = {
    "of another cell": (lambda folder: None, {"id": "f" * 12}, "of another id, 0123456789ab and not ffffffffffff"),
    "of another device": (lambda folder: None, {"device": "cuda"}, "of another device, cpu and not cuda"),
    "of another format": (edited(format=2), {}, "checkpoint format 2, but this fedbench reads format 1"),
    "of another version": (edited(result_version=99), {}, "result version 99, but this fedbench reads version"),
    "edited": (edited(round=2), {}, "torn (its hash is another)"),
    "no checkpoint": (lambda folder: [truncated(file) for file in folder.glob("*/*.json")], {}, "not readable as JSON"),
    "a file": (
        lambda folder: [place.rename(folder / "x") and place.touch() for place in folder.glob("?")],
        {},
        "cannot",
    ),
}


@pytest.mark.parametrize("name", STRANGE)
def test_one_that_is_not_this_cells_is_not_used(tmp_path, name):
    change, asked, told = STRANGE[name]
    change(written(tmp_path, 1))
    found, (line,) = latest(tmp_path, **asked)
    assert found == Progress() and told in line


def test_what_a_kill_left_half_written_is_cleared_without_a_word(tmp_path):
    folder = written(tmp_path, 1, 2)
    (folder / NEXT).mkdir()
    (folder / NEXT / TENSORS).write_bytes(b"half")
    (folder / "b").rename(folder / OLD)
    assert latest(tmp_path)[1] == []
    assert [path.name for path in folder.iterdir()] == ["a"]


def test_a_write_that_does_not_read_back_leaves_the_last_two(tmp_path, monkeypatch):
    written(tmp_path, 1, 2)
    checkpoints = Checkpoints(tmp_path, ID, "cpu")
    checkpoints.latest()
    monkeypatch.setattr("os.fsync", lambda number: os.ftruncate(number, 1))
    with pytest.raises(UserError):
        checkpoints.write(progress_at(3))
    monkeypatch.undo()
    found, refused = latest(tmp_path)
    assert (found.round, refused) == (2, [])


def test_one_that_is_killed_while_it_is_deleted_is_not_torn(tmp_path, monkeypatch):
    """A folder is deleted file by file; half of one would be a checkpoint that lacks some."""
    written(tmp_path, 1, 2)
    whole = shutil.rmtree

    def half(folder, **options):
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        for path in files[: len(files) // 2]:
            path.unlink()

    monkeypatch.setattr(shutil, "rmtree", half)
    forget(tmp_path)
    monkeypatch.setattr(shutil, "rmtree", whole)
    assert Checkpoints(tmp_path, ID, "cpu").latest() == (Progress(), [])
    forget(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_and_leaves_the_last(tmp_path, monkeypatch):
    written(tmp_path, 1)
    checkpoints = Checkpoints(tmp_path, ID, "cpu")
    checkpoints.latest()

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UserError, match="cannot be written .No space left on device"):
        checkpoints.write(progress_at(2))
    monkeypatch.undo()
    assert latest(tmp_path)[0].round == 1
