"""Files that wait in memory and are written in the background: what is on the disk when, how much waits, what fails."""

import errno
import threading

import pytest
import torch

from fedbench.cell import writer as writing
from fedbench.cell.checkpoint import Checkpoints, Progress
from fedbench.cell.writer import Writer
from fedbench.errors import UserError


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "fedbench writer"]


@pytest.fixture
def disk(monkeypatch):
    """A disk that writes while `open` is set. written: the names, in order."""
    usual, opened, written = writing.write_atomically, threading.Event(), []
    opened.set()

    def slow(file, content):
        opened.wait(10)
        usual(file, content)
        written.append(file.name)

    monkeypatch.setattr(writing, "write_atomically", slow)
    opened.written = written
    return opened


def test_what_is_dropped_before_its_turn_is_never_written(tmp_path, disk):
    writer, files = Writer(most=100), [tmp_path / name for name in "abc"]
    for file in files:
        writer.put(file, b"x" * 10)
    assert not threads() and [writer.get(file) for file in files] == [b"x" * 10] * 3
    writer.keep({files[1]})
    assert writer.get(files[0]) is None
    writer.settle()
    writer.close()
    assert disk.written == ["b"] and writer.get(files[1]) is None and not threads()


def test_what_is_too_much_to_wait_is_written_the_oldest_first_while_others_are_put(tmp_path, disk):
    writer = Writer(most=100)
    disk.clear()
    for name in "abcd":
        writer.put(tmp_path / name, b"x" * 30)  # of others never more than 100 wait
    assert len(threads()) == 1 and not disk.written
    late = threading.Thread(target=writer.put, args=(tmp_path / "e", b"x" * 30))
    late.start()
    late.join(0.05)
    assert late.is_alive(), "a fifth would be too much"
    disk.set()
    late.join(10)
    assert not late.is_alive() and disk.written[:1] == ["a"]
    writer.settle()
    writer.close()
    assert disk.written == list("abcde") and not threads()


def test_a_file_that_is_being_written_is_neither_dropped_nor_waited_for_by_its_reader(tmp_path, disk):
    writer = Writer(most=10)
    disk.clear()
    writer.put(tmp_path / "a", b"x" * 30)
    while writer._busy is None:
        pass
    writer.keep(())
    assert writer.get(tmp_path / "a") == b"x" * 30
    disk.set()
    writer.close()
    assert (tmp_path / "a").read_bytes() == b"x" * 30 and not threads()


@pytest.mark.parametrize("then", ["put", "settle"])
def test_a_full_disk_reaches_whoever_calls_next(tmp_path, monkeypatch, then):
    def full(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fedbench.disk.settle", full)
    writer = Writer(most=10)
    with pytest.raises(UserError, match=r"a: cannot be written \(No space left on device\)"):
        writer.put(tmp_path / "a", b"x" * 30)
        writer.settle() if then == "settle" else writer.put(tmp_path / "b", b"x" * 30)
    assert writer.get(tmp_path / "a") == b"x" * 30 and not list(tmp_path.iterdir())
    writer.close()
    assert not threads()


def test_a_checkpoint_names_nothing_that_is_not_on_the_disk(tmp_path, monkeypatch):
    def full(file, content):
        raise UserError("full")

    checkpoints = Checkpoints(tmp_path, "0" * 12, "cpu")
    store = checkpoints.store
    first = Progress(1, {"clients": {"0": store.put({"w": torch.zeros(1)})}})
    checkpoints.write(first)
    store.check(first.state["clients"].values())
    second = Progress(2, {"clients": {"0": store.put({"w": torch.ones(1)})}})
    monkeypatch.setattr(writing, "write_atomically", full)
    with pytest.raises(UserError, match="full"):
        checkpoints.write(second)
    assert Checkpoints(tmp_path, "0" * 12, "cpu").latest() == (first, [])
