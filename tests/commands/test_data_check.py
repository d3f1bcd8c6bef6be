"""`fedbench data list` and `check`: what is said of data sets that are here, packed, wrong or missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from layouts import cifar10, cifar100, domainnet, nicopp, tar_gz, tiny_imagenet, write
from shelves import as_json, data, findings, flat

from fedbench.data.archive import md5

pytestmark = pytest.mark.usefixtures("folders")


def test_help_names_the_exceptions_that_download(tmp_path):
    said = flat(data("--help", cwd=tmp_path))
    assert "downloads nothing. The exceptions are the data set hf" in said and "and fashion_mnist" in said


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


def test_ways_to_a_data_set_are_told(tmp_path):
    [entry] = [entry for entry in as_json("list", cwd=tmp_path) if entry["name"] == "fashion_mnist"]
    assert entry["status"] == "missing" and entry["ways"][0].startswith("pip install 'fedbench-heft[datasets]'")
    said = flat(data("check", "fashion_mnist", cwd=tmp_path, code=2))
    assert "fetches it from the Hub" in said


def test_data_set_of_a_stranger_needs_no_source(tmp_path):
    plugin = Path(__file__).parents[1] / "tiny_plugin.py"
    found = {entry["name"]: entry for entry in as_json("list", "--plugin", plugin, cwd=tmp_path)}
    assert found["dots"]["status"] == "needs nothing" and found["dots"]["root"] is None
    assert "every image can be read" in data("check", "dots", "--plugin", plugin, cwd=tmp_path)
    assert "keeps nothing in the cache" in data("prepare", "dots", "--plugin", plugin, cwd=tmp_path)


def test_check_of_a_whole_data_set_is_fine(tmp_path):
    nicopp(tmp_path / "data/nicopp")
    said = findings("nicopp", cwd=tmp_path)
    assert {level for level, _ in said} == {"ok"}
    assert ("ok", "dim: 4 training and 2 test images") in said and ("ok", "every image can be read") in said


def test_check_without_names_takes_what_is_here(tmp_path):
    nicopp(tmp_path / "data/nicopp")
    said = data("check", cwd=tmp_path)
    absent = "Not here: cifar10, cifar100, domainnet, emoji6, fashion_mnist, tiny_imagenet, vader_domains, wordnet."
    assert said.startswith("nicopp\n") and absent in flat(said)


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
from fedbench.data import DataPart, DataSource, root_of
from fedbench_plugins.datasets import cifar

PART = DataPart(("cifar-10-batches-bin/test_batch.bin",), "own.tar.gz", md5="MD5", size="2 kB")
SOURCE = DataSource("https://example.org", (PART,), counts={"all": (10, 10)})


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


def test_unreadable_images_that_are_to_be_skipped_are_as_they_were_wanted(tmp_path):
    nicopp(tmp_path / "data/nicopp")
    write(tmp_path / "data/nicopp/NICO_DG/dim/airplane/dim 0001.jpg", "no image")
    image = tmp_path / "data/nicopp/NICO_DG/rock/airplane/rock 0001.jpg"
    image.unlink()
    image.symlink_to("gone")
    said = findings("nicopp", "--set", "unreadable=skip", cwd=tmp_path)
    [(_, told)] = [finding for finding in said if finding[0] == "note"]
    assert told.startswith("2 of 36 images cannot be read and are left out:")
    assert "dim 0001.jpg: not an image" in told and f"{image.name}: a link that leads nowhere" in told
    assert "2 of 36 images cannot be read and were left out" in data(
        "prepare", "nicopp", "--image-size", 32, "--set", "unreadable=skip", cwd=tmp_path
    )
    wrong = [text for level, text in findings("nicopp", cwd=tmp_path, code=2) if level == "WRONG"]
    assert len(wrong) == 1 and "2 of 36 images cannot be read (`unreadable: skip` leaves them out)" in wrong[0]
    for words in (("check", "--image-size", 32), ("prepare", "--image-size", 32)):
        said = flat(data(words[0], "nicopp", *words[1:], "--set", "unreadable=skpi", cwd=tmp_path, code=2))
        assert 'got "skpi"' in said and 'did you mean "skip"?' in said


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


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("lost", " broke: KeyError"),
        ("torn", " broke: ZeroDivision"),
        ("nothing", ": what is registered must return a fedbench.types.Dataset, not NoneType"),
    ],
)
def test_broken_data_set_of_a_stranger_is_one_line_that_names_it(tmp_path, name, why):
    (tmp_path / "broken.py").write_text(BROKEN)
    said = f"the dataset '{name}' of {tmp_path / 'broken.py'}{why}"
    [(level, told)] = findings(name, "--plugin", "broken.py", cwd=tmp_path, code=2)
    assert level == "WRONG" and told.startswith(said)
    assert said in data("prepare", name, "--plugin", "broken.py", cwd=tmp_path, code=2)


ODD = """
import numpy as np
from fedbench import hookimpl
from fedbench.types import Dataset, Images, Splits

X = np.random.default_rng(0).integers(0, 256, (12, 3, 4, 4)).astype(np.uint8)


def images(x, classes=2):
    return Images(x, np.arange(len(x)) % classes, np.zeros(len(x), np.int64))


FLOAT = (X / 127.5 - 1).astype(np.float32)
LOADS = {
    "same": lambda: Splits(images(X), images(X)),
    "three": lambda: Splits(images(X[:8]), images(X[5:])),
    "one": lambda: Splits(images(X[:3]), images(X[2:])),
    "one_class": lambda: Splits(images(X[:6], 1), images(X[6:])),
    "untested": lambda: Splits(images(X[:6]), images(X[6:])),
    "all_one": lambda: Splits(images(X[:6], 1), images(X[6:], 1)),
    "alone": lambda: Splits(images(X[:6], 1), images(X[6:], 1)),
    "normalised": lambda: Splits(images(FLOAT[:6]), images(FLOAT[6:])),
    "short": lambda: Splits(Images(X[:6], np.arange(5) % 2, np.zeros(5, np.int64)), images(X[6:])),
    "a_pair": lambda: (images(X[:6]), images(X[6:])),
    "no_function": Splits(images(X[:6]), images(X[6:])),
}


def made(name):
    def make(image_size):
        classes = {"untested": ("a", "b", "c"), "alone": ("a",)}.get(name, ("a", "b"))
        return Dataset(("all",), classes, name, LOADS[name])

    return make


@hookimpl
def fedbench_register_datasets(register):
    for name in LOADS:
        register(name, made(name))
"""


@pytest.mark.parametrize(
    ("name", "level", "told"),
    [
        ("same", "WRONG", "12 of 12 test images are training images too, pixel for pixel"),
        ("one", "note", "1 of 10 test images are training images too, pixel for pixel"),
        ("three", "WRONG", "3 of 7 test images are training images too, pixel for pixel"),
        ("one_class", "WRONG", "no training image has the class 'b'; 3 of 6 test images are of such a class"),
        ("untested", "note", "no training image has the class 'c'"),
        ("all_one", "WRONG", "every training and test image has the class 'a', and scores of one class are 100 % for"),
        ("alone", "WRONG", "it has the one class 'a', and scores of one class are 100 % for all; two are needed"),
        ("normalised", "WRONG", "train.x looks normalised already: 3"),
        ("short", "WRONG", "train has 6 images but 5 labels"),
        ("a_pair", "WRONG", "the data set 'a_pair' cannot be used: `load` must return fedbench.types.Splits"),
        ("no_function", "WRONG", "the data set 'no_function' cannot be used: `load` must be a function"),
    ],
)
def test_what_is_odd_about_images_and_labels_is_told(tmp_path, name, level, told):
    (tmp_path / "odd.py").write_text(ODD)
    found = findings(name, "--plugin", "odd.py", cwd=tmp_path, code=2 if level == "WRONG" else 0)
    one, said = next(finding for finding in found if finding[0] != "ok")
    assert one == level and told in said
