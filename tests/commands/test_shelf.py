"""`fedbench data`: what is said of data sets that are here, packed, wrong or missing; and a suite on one of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command import fedbench
from layouts import cifar10, cifar100, domainnet, nicopp, tar_gz, tiny_imagenet, write, zipped

import fedbench as package
from fedbench.data.archive import md5
from fedbench.registry.assets import Assets
from fedbench.results import read_rows
from fedbench.runs.plan import cells_of
from fedbench.runs.runner import load


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDBENCH_DATA", raising=False)


def data(*words: object, cwd: Path, code: int = 0) -> str:
    """What `fedbench data ...` says on a screen of 80 columns; only paths and mistakes are longer."""
    result = fedbench("data", *words, cwd=cwd, columns=80)
    assert result.exit_code == code, result.output
    lines = result.output.splitlines()
    if "--json" not in words and not lines[0].startswith("Error"):
        assert all(len(line) <= 80 or str(cwd) in line for line in lines)
    return result.output


def as_json(*words: object, cwd: Path, code: int = 0):
    return json.loads(data(*words, "--json", cwd=cwd, code=code))


def flat(text: str) -> str:
    return " ".join(text.split())


def test_help_names_the_one_exception_that_downloads(tmp_path):
    assert "downloads nothing. The one exception is the data set hf" in flat(data("--help", cwd=tmp_path))


# --- list ---------------------------------------------------------------------------------------------------------


def test_list_says_what_is_here(tmp_path):
    cifar10(tmp_path / "data/cifar10")
    root = cifar100(tmp_path / "data/cifar100")
    tar_gz(root / "cifar-100-binary.tar.gz", root / "cifar-100-binary")
    domainnet(tmp_path / "data/domainnet")
    (tmp_path / "data/domainnet/splits/real_test.txt").unlink()
    here = {entry["name"]: entry["status"] for entry in as_json("list", cwd=tmp_path)}
    expected = {
        "cifar10": "ready",
        "cifar100": "archive only",
        "domainnet": "incomplete",
        "nicopp": "missing",
        "strokes6": "needs nothing",
        "image_folder": "needs root",
        "hf": "needs path",
    }
    assert here.items() >= expected.items()
    said = data("list", cwd=tmp_path)
    assert all(name in said and status in said for name, status in here.items()) and "data/NAME" in said


def test_data_set_of_a_stranger_needs_no_source(tmp_path):
    plugin = Path(__file__).parents[1] / "tiny_plugin.py"
    found = {entry["name"]: entry for entry in as_json("list", "--plugin", plugin, cwd=tmp_path)}
    assert found["dots"]["status"] == "needs nothing" and found["dots"]["root"] is None
    assert "every image can be read" in data("check", "dots", "--plugin", plugin, cwd=tmp_path)
    assert "keeps nothing in the cache" in data("prepare", "dots", "--plugin", plugin, cwd=tmp_path)


# --- check --------------------------------------------------------------------------------------------------------


def findings(*words: object, cwd: Path, code: int = 0) -> list[tuple[str, str]]:
    [report] = as_json("check", *words, cwd=cwd, code=code)
    return [(finding["level"], flat(finding["said"])) for finding in report["findings"]]


def test_check_of_a_whole_data_set_is_fine(tmp_path):
    nicopp(tmp_path / "data/nicopp")
    said = findings("nicopp", cwd=tmp_path)
    assert {level for level, _ in said} == {"ok"}
    assert ("ok", "dim: 4 training and 2 test images") in said and ("ok", "every image can be read") in said


def test_check_without_names_takes_what_is_here(tmp_path):
    nicopp(tmp_path / "data/nicopp")
    said = data("check", cwd=tmp_path)
    assert said.startswith("nicopp\n") and "Not here: cifar10, cifar100, domainnet, tiny_imagenet." in said


def test_missing_data_set_is_told_and_ends_with_2(tmp_path):
    said = flat(data("check", "tiny_imagenet", cwd=tmp_path, code=2))
    assert "tiny-imagenet-200/wnids.txt" in said and "tiny-imagenet-200.zip (237 MB)" in said and "licence" in said
    assert not (tmp_path / "data").exists()


def test_numbers_that_are_not_the_official_ones_are_told(tmp_path):
    tiny_imagenet(tmp_path / "data/tiny_imagenet")
    said = findings("tiny_imagenet", cwd=tmp_path, code=2)
    assert ("WRONG", "all: 6 training and 2 test images; officially 100,000 and 10,000") in said
    domainnet(tmp_path / "data/domainnet")
    said = [text for level, text in findings("domainnet", cwd=tmp_path, code=2) if level == "WRONG"]
    assert len(said) == 12 and "clipart_train.txt has 6 lines, the official list 33,525" in said[0]


OWN = """
from fedbench import hookimpl
from fedbench.data import Part, Source, root_of
from fedbench_plugins.datasets import cifar

PART = Part(("cifar-10-batches-bin/test_batch.bin",), "own.tar.gz", md5="MD5", size="2 kB")
SOURCE = Source("https://example.org", (PART,), counts={"all": (10, 10)})


def own(image_size, root=None):
    SOURCE.require("own", root_of("own", root))
    return cifar.cifar10(image_size, str(root_of("own", root)))


@hookimpl
def fedbench_register_datasets(register):
    register("own", own, source=SOURCE)
"""


def test_data_set_of_a_stranger_with_a_source_is_verified(tmp_path):
    archive = tar_gz(tmp_path / "data/own/own.tar.gz", cifar10(tmp_path / "data/own") / "cifar-10-batches-bin")
    (tmp_path / "own.py").write_text(OWN.replace("MD5", md5(archive)))
    words = ("own", "--plugin", "own.py", "--image-size", 8)
    assert "to unpack own.tar.gz" in flat(data("check", *words, cwd=tmp_path, code=2))
    assert "unpacked data/own/cifar-10-batches-bin" in data("prepare", *words, cwd=tmp_path)
    assert findings(*words, cwd=tmp_path) == [
        ("ok", "own.tar.gz has the official md5"),
        ("ok", "nothing is missing in data/own"),
        ("ok", "all: 10 training and 10 test images, the official numbers"),
        ("ok", "every image can be read"),
    ]
    archive.unlink()
    assert ("note", "checksum not compared: own.tar.gz (not there)") in findings(*words, cwd=tmp_path)


def test_unreadable_images_are_named(tmp_path):
    nicopp(tmp_path / "data/nicopp")
    write(tmp_path / "data/nicopp/NICO_DG/dim/airplane/dim 0001.jpg", "no image")
    wrong = [text for level, text in findings("nicopp", cwd=tmp_path, code=2) if level == "WRONG"]
    assert len(wrong) == 1 and "1 of 36 images cannot be read" in wrong[0]
    assert "dim/airplane/dim 0001.jpg: not an image" in wrong[0]


def test_wrong_list_and_wrong_checksum_are_told(tmp_path):
    write(tmp_path / "data/cifar10/cifar-10-binary.tar.gz", "no archive")
    wrong = [text for level, text in findings("cifar10", cwd=tmp_path, code=2) if level == "WRONG"]
    assert "has the md5" in wrong[0] and "official one is c32a1d4ab5d03f1284b67883e8d87530" in wrong[0]
    assert "to unpack cifar-10-binary.tar.gz: fedbench data prepare cifar10" in wrong[1]
    domainnet(tmp_path / "data/domainnet")
    write(tmp_path / "data/domainnet/splits/real_train.txt", "real/airplane/1.jpg one\n")
    assert any("real_train.txt:1: expected a path" in text for _, text in findings("domainnet", cwd=tmp_path, code=2))


def test_several_data_sets_are_checked_in_one_go(tmp_path):
    nicopp(tmp_path / "data/nicopp")
    reports = as_json("check", "nicopp", "cifar10", cwd=tmp_path, code=2)
    assert [report["name"] for report in reports] == ["nicopp", "cifar10"]
    assert "go with one NAME" in data("check", "nicopp", "cifar10", "--root", "x", cwd=tmp_path, code=2)


BROKEN = """
from fedbench import hookimpl
from fedbench.types import Dataset


def lost(image_size):
    raise KeyError("gone")


def torn(image_size):
    return Dataset(("all",), ("a", "b"), "torn", lambda: 1 / 0)


def nothing(image_size):
    return None


@hookimpl
def fedbench_register_datasets(register):
    for make in (lost, torn, nothing):
        register(make.__name__, make)
"""


@pytest.mark.parametrize(("name", "why"), [("lost", "KeyError"), ("torn", "ZeroDivision"), ("nothing", "Attribute")])
def test_broken_data_set_of_a_stranger_is_one_line_that_names_it(tmp_path, name, why):
    (tmp_path / "broken.py").write_text(BROKEN)
    said = f"the dataset '{name}' of {tmp_path / 'broken.py'} broke: {why}"
    [(level, told)] = findings(name, "--plugin", "broken.py", cwd=tmp_path, code=2)
    assert level == "WRONG" and told.startswith(said)
    assert said in data("prepare", name, "--plugin", "broken.py", cwd=tmp_path, code=2)


# --- prepare ------------------------------------------------------------------------------------------------------


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


# --- a suite ------------------------------------------------------------------------------------------------------

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


def test_suite_runs_on_a_real_data_set(tmp_path):
    (tmp_path / "real.yaml").write_text(SUITE.replace("ROOT", str(nicopp(tmp_path / "nico"))))
    package.run(tmp_path / "real.yaml", results=str(tmp_path / "r"))
    [cell] = (tmp_path / "r" / "real").glob("skew-fedra-*")
    assert {row["domain"] for row in read_rows(cell, "eval")} >= {"autumn", "dim", "grass", "outdoor", "rock", "water"}


def test_a_copy_elsewhere_gives_the_same_cells_unless_the_suite_says_root(tmp_path, monkeypatch, registry):
    def cell() -> str:
        (one,) = cells_of(load(tmp_path / "real.yaml", registry).points(), registry, Assets(registry))
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
