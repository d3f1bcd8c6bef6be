"""`fedbench data prepare`: archives unpacked, images decoded once; and a suite on such a data set."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from layouts import cifar10, domainnet, nicopp, tar_gz, write, zipped
from shelves import as_json, data

from fedbench.registry.facts import CachedFacts
from fedbench.runner.cells import cells_of
from fedbench.runner.runner import load

pytestmark = pytest.mark.usefixtures("folders")


def test_prepare_unpacks_decodes_and_is_immediate_the_second_time(tmp_path):
    root = nicopp(tmp_path / "elsewhere")
    zipped(root / "NICO_DG.zip", root / "NICO_DG")
    zipped(root / "NICO_DG_official.zip", root / "NICO_DG_official")
    words = ("prepare", "nicopp", "--root", root, "--image-size", 16)
    said = data(*words, cwd=tmp_path)
    assert f"unpacked {root / 'NICO_DG'}\n" in said and "water           4 training        2 test images" in said
    cache = Path(said.splitlines()[-1].split(": ")[1])
    assert cache.is_dir() and "at 16 pixels, took" in said
    again = data(*words, cwd=tmp_path)
    assert "unpacked" not in again and f"there already: {cache}" in again
    facts = as_json(*words, cwd=tmp_path)
    assert facts["known"] and facts["cache"] == str(cache) and facts["images"]["dim"] == [4, 2]
    assert facts["size"] == sum(file.stat().st_size for file in cache.iterdir()) and facts["unpacked"] == []


@pytest.mark.parametrize("file", ["train_y.npy", "test_x.npy"])
def test_torn_cache_entry_is_not_said_to_be_there_already(tmp_path, file):
    nicopp(tmp_path / "data/nicopp")
    words = ("prepare", "nicopp", "--image-size", 8)
    cache = Path(as_json(*words, cwd=tmp_path)["cache"])
    whole = (cache / file).read_bytes()
    (cache / file).write_bytes(whole[:-1])
    assert "there already" not in data(*words, cwd=tmp_path) and (cache / file).read_bytes() == whole
    assert "there already" in data(*words, cwd=tmp_path)


def test_archive_with_a_wrong_checksum_is_unpacked_on_request_only(tmp_path):
    root = cifar10(tmp_path / "data/cifar10")
    tar_gz(root / "cifar-10-binary.tar.gz", root / "cifar-10-batches-bin")
    words = ("prepare", "cifar10", "--image-size", 8)
    said = data(*words, cwd=tmp_path, code=2)
    assert "the official one is c32a" in said and "--unverified" in said
    assert not (root / "cifar-10-batches-bin").exists()
    assert "all        10 training       10 test images" in data(*words, "--unverified", cwd=tmp_path)


def test_folder_without_what_it_should_hold_is_not_overwritten(tmp_path):
    root = cifar10(tmp_path / "data/cifar10")
    base = root / "cifar-10-batches-bin"
    shutil.copytree(base, tmp_path / "kept")
    tar_gz(root / "cifar-10-binary.tar.gz", base)
    write(base / "mine.txt", "mine")
    said = data("prepare", "cifar10", "--unverified", cwd=tmp_path, code=2)
    assert "is there without data_batch_1.bin; remove it" in said
    assert [file.name for file in base.iterdir()] == ["mine.txt"]


def test_prepare_takes_the_options_of_a_suite(tmp_path):
    domainnet(tmp_path / "data/domainnet")
    facts = as_json("prepare", "domainnet", "--set", "classes=345", "--image-size", 8, cwd=tmp_path)
    assert facts["images"]["real"] == [6, 3]
    for words, said in (
        (("domainnet", "--set", "clases=3"), 'has no option "clases"; did you mean "classes"?'),
        (("domainnet", "--set", "classes=many"), "classes: expected a whole number"),
        (("domainnet", "--set", "classes"), "expected OPTION=VALUE"),
        (("domainnet", "--set", "classes=[1"), "is not a YAML value"),
        (("strokes6", "--root", "x"), 'has no option "root"'),
        (("hf",), 'needs "path"'),
        (("cifar",), "did you mean 'cifar10'?"),
        (("cifar10",), "1 of 1 parts missing"),
    ):
        assert said in data("prepare", *words, cwd=tmp_path, code=2)


SUITE = """\
suite: real
defaults:
  backbone: micro_vit
  data: {name: nicopp, root: ROOT, image_size: 32, partition: by_domain}
  capacities: [12, 10, 8, 6, 4, 3]
  train: {rounds: 1, max_steps: 1, batch_size: 4}
scenarios:
  skew: {}
methods: [fedra]
"""


def test_a_copy_elsewhere_gives_the_same_cells_unless_the_suite_says_root(tmp_path, monkeypatch, registry):
    def cell() -> str:
        (one,) = cells_of(load(tmp_path / "real.yaml", registry).points(), registry, CachedFacts(registry))
        return one.id

    found = {}
    for place in ("here", "there"):
        root = nicopp(tmp_path / place / "nicopp")
        (tmp_path / "real.yaml").write_text(SUITE.replace("ROOT", str(root)))
        found[place, "root"] = cell()
        monkeypatch.setenv("FEDBENCH_DATA", str(tmp_path / place))
        (tmp_path / "real.yaml").write_text(SUITE.replace("root: ROOT, ", ""))
        found[place, "folder of data sets"] = cell()
    assert found["here", "root"] != found["there", "root"]
    assert found["here", "folder of data sets"] == found["there", "folder of data sets"]
