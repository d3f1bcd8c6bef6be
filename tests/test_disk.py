"""Files and folders that are there whole or not at all; what is kept comes back as it was, or not."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from fedbench.cli import main
from fedbench.disk import (
    cache_dir,
    hash_of_bytes,
    hash_of_file,
    hash_of_json,
    keep,
    kept,
    opened,
    put_in_place,
    remembered,
    try_folder,
    write_atomically,
)
from fedbench.errors import UserError
from fedbench.results.documents import read_json

VALUE = {"num_layers": 12, "texts": ["é", "\ud800", "a\nb"], "nothing": None, "deep": [[[0.1]]]}


def test_a_value_comes_back(tmp_path):
    keep(tmp_path / "new" / "a.json", VALUE)
    assert kept(tmp_path / "new" / "a.json") == VALUE
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["a.json"]


@given(st.data())
def test_a_changed_byte_or_a_missing_end_is_noticed(tmp_path_factory, data):
    file = tmp_path_factory.mktemp("kept") / "a.json"
    keep(file, VALUE)
    raw = file.read_bytes()
    place = data.draw(st.integers(0, len(raw) - 1))
    new = raw[:place] + bytes([raw[place] ^ 1 << data.draw(st.integers(0, 7))]) + raw[place + 1 :]
    file.write_bytes(data.draw(st.sampled_from([new, raw[:place]])))
    assert kept(file) is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", "null", "[" * 100_000, '{"sha256": "", "value": 1}'])
def test_what_keep_did_not_write_is_nothing(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    assert kept(tmp_path / "a.json") is None
    assert kept(tmp_path) is None and kept(tmp_path / "b.json") is None


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path):
    (tmp_path / "file").touch()
    keep(tmp_path / "file" / "a.json", VALUE)
    (tmp_path / "b.json").mkdir()
    keep(tmp_path / "b.json", VALUE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.json", "file"]


def test_failed_writer_removes_its_temporary_file(tmp_path):
    def broken(path):
        path.write_text("half")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write_atomically(tmp_path / "file", broken)
    assert list(tmp_path.iterdir()) == []


def test_hashes_of_one_content_are_one(tmp_path):
    write_atomically(tmp_path / "new" / "a", b'{"a": [1], "b": null}')
    assert hash_of_file(tmp_path / "new" / "a") == hash_of_bytes(b'{"a": [1], "b": null}')
    assert hash_of_json({"b": None, "a": (1,)}) == hash_of_file(tmp_path / "new" / "a")


def test_what_was_computed_once_is_read_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path))
    assert remembered("squares", {"of": 3}, lambda: 9) == remembered("squares", {"of": 3}, lambda: 0) == 9
    assert remembered("squares", {"of": 4}, lambda: 16) == 16
    assert len(list((tmp_path / "squares").iterdir())) == 2


def filled(place, text, old=None, error=None):
    with put_in_place(place, place.with_name("draft"), old) as draft:
        (draft / "file").write_text(text)
        if error:
            raise error


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path):
    place, old = tmp_path / "place", tmp_path / "old"
    filled(place, "one")
    with pytest.raises(OSError):  # it is not empty, and nobody said that it may go
        filled(place, "two")
    with pytest.raises(RuntimeError):
        filled(place, "two", old, RuntimeError("no more"))
    assert (place / "file").read_text() == "one"
    old.mkdir()  # of a process that was killed
    (old / "file").touch()
    filled(place, "two", old)
    assert (place / "file").read_text() == "two" and list(tmp_path.iterdir()) == [place]


def test_what_was_there_comes_back_where_the_new_folder_cannot_take_its_place(tmp_path, monkeypatch):
    place, old, rename = tmp_path / "place", tmp_path / "old", os.rename
    filled(place, "one")

    def failing(source, target):
        if Path(source).name == "draft":
            raise OSError("no more")
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError):
        filled(place, "two", old)
    assert (place / "file").read_text() == "one" and list(tmp_path.iterdir()) == [place]


def test_a_user_without_a_home_has_a_cache_too(monkeypatch):
    """As in a container that runs under a bare number."""
    for name in ("FEDBENCH_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert cache_dir() == Path(tempfile.gettempdir()) / f"fedbench-{os.getuid()}"
    monkeypatch.setenv("FEDBENCH_CACHE", "~nobody-of-that-name/cache")
    assert cache_dir() == Path("~nobody-of-that-name/cache").absolute()


def test_a_run_that_is_killed_while_it_tries_a_folder_leaves_nothing(tmp_path, monkeypatch):
    """As where there are no locks: what is tried there takes a while, or never ends."""
    seen = []
    monkeypatch.setattr(fcntl, "flock", lambda *given: seen.append(list(tmp_path.iterdir())))
    try_folder(tmp_path)
    assert seen == [[]]


@pytest.mark.parametrize("reader", [hash_of_file, kept, opened, lambda file: read_json(file, (), "")])
def test_a_pipe_or_a_device_is_not_waited_for(tmp_path, reader):
    os.mkfifo(tmp_path / "pipe")
    for file in (tmp_path / "pipe", Path("/dev/zero")):
        try:
            assert reader(file) is None
        except (OSError, UserError) as error:
            assert "not a regular file" in str(error)


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_pipe_is_no_suite(tmp_path, command):
    os.mkfifo(tmp_path / "suite.yaml")
    done = CliRunner().invoke(main, [command, str(tmp_path / "suite.yaml")])
    assert done.exit_code == 2 and "not a regular file" in done.output
