"""The decoded-image cache, with real files and real processes: an entry is there whole or not at all."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from fedbench.data import cache_dir, cached
from fedbench.errors import UserError
from fedbench.types import Images, Splits


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def images(n: int, value: int = 0) -> Images:
    return Images(np.full((n, 3, 4, 4), value, np.uint8), np.arange(n), np.zeros(n, np.int64))


def plain(_new_array) -> Splits:
    return Splits(images(5, 7), images(2, 9), ("a/b.jpg",))


def never(_new_array) -> Splits:
    raise AssertionError("built again")


def entry_of(folder: Path) -> Path:
    [index] = (folder / "splits").glob("*/index.json")
    return index.parent


def python(code: str, **options) -> subprocess.Popen:
    """A process of its own that runs `code` with this process's environment and import path."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], env=env, text=True, **options)


def test_second_call_reads_what_the_first_built():
    first, second = cached("f", plain), cached("f", never)
    for splits in (first, second):
        assert isinstance(splits.train.x, np.memmap) and not splits.train.x.flags.writeable
        assert splits.train.x.shape == (5, 3, 4, 4) and (splits.train.x == 7).all() and (splits.test.x == 9).all()
        assert splits.train.y.tolist() == [0, 1, 2, 3, 4] and splits.train.y.dtype == np.int64
        assert splits.test.domain.tolist() == [0, 0] and splits.skipped == ("a/b.jpg",)


def test_images_written_in_place_are_not_copied(folder):
    def build(new_array):
        x = new_array("train_x", (5, 3, 4, 4))
        x[...] = 3
        build.inode = os.stat(x.filename).st_ino
        return Splits(Images(x, np.arange(5), np.zeros(5, int)), images(2))

    assert (cached("f", build).train.x == 3).all()
    assert (entry_of(folder) / "train_x.npy").stat().st_ino == build.inode


def test_first_rows_of_an_array_in_place_keep_their_pixels():
    def build(new_array):
        x = new_array("train_x", (5, 3, 4, 4))
        x[...] = np.arange(5, dtype=np.uint8)[:, None, None, None]
        return Splits(Images(x[:3], np.arange(3), np.zeros(3, int)), images(2))

    assert cached("f", build).train.x[:, 0, 0, 0].tolist() == [0, 1, 2]


def test_a_split_may_be_empty():
    assert len(cached("f", lambda _: Splits(images(3), images(0))).test) == 0


def test_fingerprints_do_not_share_an_entry():
    assert (cached("f", plain).train.x == 7).all()
    assert (cached("a name/with: odd signs", lambda _: Splits(images(1, 1), images(1, 1))).train.x == 1).all()


@pytest.mark.parametrize("name", ["index.json", "train_x.npy", "test_y.npy", "train_domain.npy"])
@pytest.mark.parametrize("harm", ["missing", "empty", "cut", "garbage"])
def test_torn_entry_is_rebuilt(folder, name, harm):
    cached("f", plain)
    file = entry_of(folder) / name
    content = file.read_bytes()
    file.unlink()
    if harm != "missing":
        file.write_bytes({"empty": b"", "cut": content[:-1], "garbage": os.urandom(len(content))}[harm])
    assert (cached("f", plain).train.x == 7).all()
    assert (cached("f", never).test.x == 9).all()


def test_changed_label_is_noticed(folder):
    cached("f", plain)
    np.save(entry_of(folder) / "train_y.npy", np.array([0, 1, 2, 3, 3]))
    assert cached("f", plain).train.y.tolist() == [0, 1, 2, 3, 4]


def test_pickled_array_is_not_opened(folder):
    cached("f", plain)
    np.save(entry_of(folder) / "train_y.npy", np.array([{}] * 5, dtype=object), allow_pickle=True)
    assert cached("f", plain).train.y.tolist() == [0, 1, 2, 3, 4]


def test_foreign_entry_is_rebuilt(folder):
    cached("f", plain)
    index = entry_of(folder) / "index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"fingerprint": "g"}))
    assert (cached("f", lambda _: Splits(images(1, 1), images(1, 1))).train.x == 1).all()


def test_memory_map_outlives_the_rebuilding_of_its_entry(folder):
    before = cached("f", plain)
    (entry_of(folder) / "index.json").unlink()
    cached("f", lambda _: Splits(images(1, 1), images(1, 1)))
    assert (before.train.x == 7).all()


def test_error_of_a_build_passes_through_and_leaves_nothing(folder):
    with pytest.raises(ZeroDivisionError):
        cached("f", lambda _: 1 / 0)
    with pytest.raises(FileNotFoundError):
        cached("f", lambda _: Path("/no/such/image.jpg").read_bytes())
    assert [path.suffix for path in (folder / "splits").iterdir()] in ([], [".lock"])


@pytest.mark.parametrize(
    "wrong",
    [
        Images(np.zeros((2, 3, 4, 4), np.float64), np.arange(2), np.zeros(2, int)),
        Images(np.full((2, 3, 4, 4), 255, np.float32), np.arange(2), np.zeros(2, int)),
        Images(np.zeros((2, 4, 4, 3), np.uint8), np.arange(2), np.zeros(2, int)),
        Images(np.zeros((2, 3, 4, 4), np.uint8), np.arange(3), np.zeros(2, int)),
        Images(np.zeros((2, 3, 4, 4), np.uint8), np.arange(2), np.zeros(2)),
    ],
)
def test_wrong_shapes_and_types_are_the_plugin_authors_error(wrong):
    with pytest.raises(TypeError, match="test: "):
        cached("f", lambda _: Splits(images(2), wrong))


def _slow(_new_array) -> Splits:
    with open(os.environ["BUILDS"], "a") as log:
        log.write("built\n")
    time.sleep(0.2)
    return plain(None)


def _total(start) -> int:
    start.wait()
    return int(cached("f", _slow).train.x.sum())


def test_of_two_processes_one_builds(tmp_path, monkeypatch):
    monkeypatch.setenv("BUILDS", str(tmp_path / "builds"))
    context = multiprocessing.get_context("fork")
    start = context.Barrier(2)
    queue = context.Queue()
    workers = [context.Process(target=lambda: queue.put(_total(start))) for _ in range(2)]
    for worker in workers:
        worker.start()
    totals = [queue.get(timeout=30) for _ in workers]
    for worker in workers:
        worker.join(30)
    assert totals == [5 * 48 * 7] * 2
    assert (tmp_path / "builds").read_text() == "built\n"


def test_killed_build_leaves_a_cache_that_can_be_built(folder):
    worker = python(
        """
        import time
        from fedbench.data import cached
        def build(new_array):
            new_array("train_x", (50, 3, 4, 4))[:25] = 1
            print("halfway", flush=True)
            time.sleep(60)
        cached("f", build)
        """,
        stdout=subprocess.PIPE,
    )
    assert worker.stdout.readline() == "halfway\n"
    worker.send_signal(signal.SIGKILL)
    worker.wait(30)
    worker.stdout.close()
    assert list((folder / "splits").glob("*.tmp"))
    assert (cached("f", plain).train.x == 7).all()
    assert not list((folder / "splits").glob("*.tmp"))


def test_full_disk_is_told_before_a_page_is_written(folder):
    worker = python(
        """
        import resource
        from fedbench.data import cached
        from fedbench.errors import UserError
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            cached("f", lambda new_array: new_array("train_x", (5000, 3, 4, 4)))
        except UserError as error:
            print(error)
        """,
        stdout=subprocess.PIPE,
    )
    message, _ = worker.communicate(timeout=30)
    assert worker.returncode == 0
    assert "no room in the cache folder" in message and "FEDBENCH_CACHE" in message
    assert not list((folder / "splits").glob("*.tmp"))


def test_build_larger_than_the_free_space_is_refused_with_numbers():
    with pytest.raises(UserError, match=r"train_x needs 48,000,000,000,000,000 bytes and [\d,]+ are free"):
        cached("f", lambda new_array: new_array("train_x", (10**15, 3, 4, 4)))


def test_cache_folder_that_is_a_file_is_a_user_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"file/splits/.*: cannot be written .*FEDBENCH_CACHE"):
        cached("f", plain)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_cache_serves_what_it_has_and_refuses_the_rest(folder):
    cached("f", plain)
    (folder / "splits").chmod(0o555)
    try:
        assert (cached("f", never).train.x == 7).all()
        with pytest.raises(UserError, match="cannot write to the cache folder .*FEDBENCH_CACHE"):
            cached("g", plain)
    finally:
        (folder / "splits").chmod(0o755)


def test_cache_folder_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", "~/elsewhere")
    assert cache_dir() == Path.home() / "elsewhere"
    monkeypatch.delenv("FEDBENCH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "fedbench"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert cache_dir().is_absolute() and cache_dir().name == "fedbench"
