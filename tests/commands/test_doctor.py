"""fedbench doctor tries what a run does: it writes and locks files in each folder, and starts a worker."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from itertools import islice

import pytest
from command import TINY, fedbench, write_suite

from fedbench.commands import doctor
from fedbench.commands.doctor import _folder, _worker
from fedbench.disk import cache_dir, locked_file, require_room, try_folder
from fedbench.errors import CannotWrite, UserError
from fedbench.processes import fork_server
from fedbench.results.lock import cell_lock, suite_lock


@pytest.fixture(params=["ENOLCK", "ENOSYS"])
def without_locks(request, monkeypatch):
    """A file system whose flock answers with an error, as some network ones do."""

    def refuse(*_):
        raise OSError(getattr(errno, request.param), "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)


def test_a_folder_without_locks_stops_a_run_in_one_line_with_its_path(tmp_path, without_locks):
    level, _, found, fix = _folder("cache", tmp_path / "cache", "set FEDBENCH_CACHE")
    assert level == "STOP" and str(tmp_path / "cache") in found and "no locks" in found and fix
    write_suite(tmp_path)
    done = fedbench("run", "tiny.yaml", "--plugin", TINY, "--results", "r", cwd=tmp_path)
    assert done.exit_code == 2 and not (tmp_path / "r").exists(), "refused before anything is computed"
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("Error:")]
    assert "no locks (flock)" in line and "r/tiny" in line and "--results DIR" in line


def test_the_cache_alone_is_named_where_it_alone_has_no_locks(tmp_path, monkeypatch):
    flock = fcntl.flock

    def refuse_in_cache(descriptor, *how):
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(cache_dir())):
            raise OSError(errno.ENOLCK, "No locks available")
        return flock(descriptor, *how)

    cache_dir().mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(fcntl, "flock", refuse_in_cache)
    with pytest.raises(CannotWrite, match=rf"{cache_dir()}: .*no locks.*FEDBENCH_CACHE"):
        require_room(tmp_path / "r")


@pytest.mark.parametrize("of", ["file", "cell", "suite"])
def test_every_lock_names_its_file_where_there_are_none(tmp_path, without_locks, of):
    locks = {
        "file": lambda: locked_file(tmp_path / "a.lock"),
        "cell": lambda: cell_lock(tmp_path / "s" / "cells" / "x-0123456789ab"),
        "suite": lambda: suite_lock(tmp_path / "s", "fedbench run"),
    }
    with pytest.raises(UserError, match=rf"{tmp_path}.*lock: the file system of this folder has no locks"), locks[of]():
        pass


def test_a_folder_that_takes_files_and_locks_is_left_as_it_was(tmp_path):
    try_folder(tmp_path / "to" / "come")
    assert list(tmp_path.iterdir()) == []
    assert _folder("results", tmp_path, "").level in ("ok", "note")


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "below", tmp_path / "file"):
        level, _, found, fix = _folder("results", place, "choose another with --results DIR")
        assert (level, fix) == ("STOP", "choose another with --results DIR") and str(place) in found


@pytest.mark.parametrize("folder", ["x" * 90, "y" * 60 + "/" + "z" * 60, "\u00e9" * 45])
def test_a_long_path_of_temporary_files_is_told_with_what_to_set(tmp_path, monkeypatch, folder):
    (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / folder))
    with pytest.raises(UserError, match=r"no socket can be made .* Set TMPDIR to a folder with a short path") as caught:
        fork_server.require_sockets()
    assert str(tmp_path / folder) in str(caught.value)
    monkeypatch.setattr(fork_server, "server_pid", lambda: 0)
    assert _worker().level == "STOP" and "TMPDIR" in _worker().found


def test_a_package_of_this_name_from_pypi_is_noted_with_the_fix(tmp_path, monkeypatch):
    for version in ("0.1.3", None):
        monkeypatch.setattr(
            doctor, "package_version", lambda name, other=version: other if name == "fedbench" else "1.0"
        )
        notes = [found for found in islice(doctor.checks((), str(tmp_path)), 3) if found.level == "note"]
        assert [(note.what, "0.1.3" in note.found) for note in notes] == ([("fedbench", True)] if version else [])
        assert all("pip uninstall fedbench &&" in note.fix and "fedbench-heft" in note.fix for note in notes)


def test_a_worker_starts_and_answers():
    assert _worker().level == "ok"
    fork_server.require_sockets()
