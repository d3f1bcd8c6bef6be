"""fedbench/results/kept.py: what is kept of a large folder says what its files say, or is not believed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from factories import eval_rows, round_row, write_cell
from samples import rewrite

from fedbench.report.html.data import Asked, gather
from fedbench.report.leaderboards import leaderboards
from fedbench.report.records import to_json
from fedbench.results import examine, kept, read_manifest, store, write_manifest
from fedbench.results import result as reading
from fedbench.results.digest import PARTS
from fedbench.results.files import described
from fedbench.results.kept import Keeping
from fedbench.results.result import COMPARED

REFERENCE = Path(__file__).parents[2] / "results/reference"
SENT = {"round": 1, "what": "adapters", "bytes_down": 4, "bytes_up": 2}


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    """A cache of its own; folders of any size are kept, and files that were just written."""
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept, "LEAST", 1)
    monkeypatch.setattr(kept, "SETTLED", -(2**62))


def look(*paths, trusting=True):
    return examine(paths, keeping=Keeping(trusting)).read(COMPARED)


def unread(monkeypatch):
    """From now on no manifest is read, and no table of those that are digested."""
    read = reading.checked_table

    def beside(kind, *given):
        assert kind not in COMPARED, f"read {kind} of {given}"
        return read(kind, *given)

    def never(folder):
        raise AssertionError(f"read {folder}")

    monkeypatch.setattr(reading, "checked_table", beside)
    monkeypatch.setattr("fedbench.results.loading.read_manifest", never)


def parts(results):
    """All that a digest says; the values of scores by their bits."""
    for result in results:
        if result.status == "finished":
            found = {name: result.digest.part(name) for name in PARTS}
            found |= {"layout": found["layout"].columns, "values": [value.hex() for value in found["values"]]}
            yield result.entry.key, json.loads(json.dumps(found))


@pytest.mark.parametrize("name", ["devices", "fedv_table2_cifar10"])  # clocks, energy, servers; clients' scores
def test_what_is_kept_says_what_tables_and_manifests_say(name, monkeypatch):
    path = REFERENCE / name
    plain = examine([path])
    said, told = list(parts(plain.results)), to_json(leaderboards(plain.results, at="bytes"))
    look(path)
    unread(monkeypatch)
    found = look(path).results
    assert [result.manifest for result in found] == [result.manifest for result in plain.results]
    assert list(parts(found)) == said and said
    assert to_json(leaderboards(found, at="bytes")) == told


@pytest.mark.slow  # the pages of 823 cells, three times over
def test_all_numbers_are_equal_with_what_is_kept_and_without(monkeypatch):
    plain = gather(examine([REFERENCE]).read(COMPARED).results, Asked())
    assert gather(look(REFERENCE).results, Asked()) == plain  # just made
    unread(monkeypatch)
    assert gather(look(REFERENCE).results, Asked()) == plain  # read back


@pytest.fixture
def suite(tmp_path):
    """Two methods, two seeds, all files described, and kept."""
    folder = tmp_path / "r" / "s"
    for method, value in (("fedra", 0.8), ("allsmall", 0.5)):
        for seed in (0, 1):
            rows, rounds = eval_rows({2: {"a": value + seed / 100}}), [round_row(1, 0, [0])]
            cell = write_cell(folder, method, seed, evaluation=rows, rounds=rounds, exchange=[SENT])
            write_manifest(cell, {**read_manifest(cell), "files": described(cell)})
    assert look(folder).wrong == []
    return folder


def cell_of(suite, method="fedra", seed=0):
    (found,) = suite.glob(f"*-{method}-*-s{seed}-*")
    return found


def scores(found):
    return {(r.entry.method, r.entry.seed): r.digest.scores.values[0] for r in found.results if r.status == "finished"}


def flipped(file):
    """One bit of it, in place, its time put back."""
    whole, at = bytearray(file.read_bytes()), file.stat()
    whole[len(whole) // 2] ^= 1
    with open(file, "rb+") as opened:
        opened.write(whole)
    os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))


@pytest.mark.parametrize("kind", ["eval", "rounds", "exchange"])
def test_a_table_that_was_edited_is_found_though_its_time_was_put_back(suite, kind):
    flipped(cell_of(suite) / f"{kind}.parquet")
    for _ in range(2):  # what is wrong is not kept
        found = look(suite)
        assert [line.split(": ")[0] for line in found.wrong] == [str(cell_of(suite) / f"{kind}.parquet")]
        assert ("fedra", 0) not in scores(found) and len(scores(found)) == 3


def test_other_tables_than_those_that_were_digested_are_read(suite):
    (cell_of(suite) / "exchange.parquet").unlink()
    assert len(look(suite).wrong) == 1
    shutil.copyfile(cell_of(suite, seed=1) / "exchange.parquet", cell_of(suite) / "exchange.parquet")
    assert look(suite).wrong == []
    shutil.copyfile(cell_of(suite) / "exchange.parquet", cell_of(suite) / "server.parquet")
    assert "server.parquet" in look(suite).wrong[0]


def test_a_manifest_that_changed_is_read(suite):
    rewrite(cell_of(suite) / "manifest.json", seconds=7.5)
    found = look(suite)
    assert found.wrong == [] and sorted(r.manifest["seconds"] for r in found.results) == [7.5, 20.0, 21.0, 21.0]
    rewrite(cell_of(suite) / "manifest.json", config__seed=5)
    assert "its id is" in look(suite).wrong[0]
    (cell_of(suite) / "manifest.json").unlink()
    assert "no manifest.json" in look(suite).wrong[0]


def test_cells_that_changed_places_are_not_taken_for_each_other(suite):
    one, other = cell_of(suite), cell_of(suite, "allsmall")
    one.rename(suite / "x")
    other.rename(one)
    (suite / "x").rename(other)
    found = look(suite)
    assert len(found.wrong) == 2 and scores(found) == {("fedra", 1): 0.81, ("allsmall", 1): 0.51}


def test_what_is_kept_elsewhere_torn_or_by_other_code_is_not_believed(suite, monkeypatch, tmp_path):
    (file,) = (tmp_path / "cache" / "results").iterdir()
    whole, before = file.read_bytes(), scores(look(suite))
    for content in (whole[:-1], whole.replace(b"finished", b"finishec"), whole[:50], b"", b"[]\n", b"x" * 99):
        assert content != whole
        file.write_bytes(content)
        assert store.read_store(file, suite, store.code_at_work()) == {}
        assert scores(look(suite)) == before and file.read_bytes() == whole
    assert store.read_store(file, suite.parent, store.code_at_work()) == {}
    monkeypatch.setattr(kept, "code_at_work", lambda: "another")
    assert store.read_store(file, suite, "another") == {} and scores(look(suite)) == before
    assert store.read_store(file, suite, "another").keys() == {cell.name for cell in suite.glob("mixed-*")}


def test_a_copy_of_a_folder_is_read_for_itself_and_a_folder_that_is_gone_is_forgotten(suite, tmp_path):
    shutil.copytree(suite, tmp_path / "r" / "t")
    assert scores(look(tmp_path / "r" / "t")) == scores(look(suite))
    assert len(list((tmp_path / "cache" / "results").iterdir())) == 2
    shutil.rmtree(suite)
    write_cell(tmp_path / "r" / "t", "fedra", 2, evaluation=eval_rows({2: {"a": 0.9}}))
    assert scores(look(tmp_path / "r"))["fedra", 2] == 0.9
    assert len(list((tmp_path / "cache" / "results").iterdir())) == 1


def test_verifying_reads_what_stamps_cannot_tell(suite, monkeypatch):
    """As where a disk has lost a bit: no stamp says so."""
    stamps = {str(cell): kept.stamp_of(str(cell)) for cell in suite.glob("mixed-*")}
    flipped(cell_of(suite) / "eval.parquet")
    monkeypatch.setattr(kept, "stamp_of", stamps.__getitem__)
    assert look(suite).wrong == []
    assert len(look(suite, trusting=False).wrong) == 1
    assert len(look(suite).wrong) == 1  # and what was believed before is not believed any more


def test_files_that_were_just_written_and_small_folders_are_not_kept(suite, monkeypatch):
    monkeypatch.setattr(kept, "SETTLED", 2 * 10**9)
    rewrite(cell_of(suite) / "manifest.json", seconds=7.5)
    for _ in range(2):
        assert [r.known is None for r in examine([suite], keeping=Keeping()).results].count(True) == 1
        assert len(scores(look(suite))) == 4
    monkeypatch.setattr(kept, "LEAST", 5)
    assert look(suite).kept == {}


def test_a_cache_that_cannot_be_written_only_costs_time(suite, tmp_path):
    shutil.rmtree(tmp_path / "cache" / "results")
    (tmp_path / "cache" / "results").write_text("in the way")
    assert len(scores(look(suite))) == 4


def test_cells_that_end_meanwhile_are_added(suite, tmp_path, monkeypatch):
    write_cell(suite, "depthfl", evaluation=eval_rows({2: {"a": 0.7}}))
    assert len(scores(look(suite))) == 5
    unread(monkeypatch)
    assert len(scores(look(suite))) == 5
