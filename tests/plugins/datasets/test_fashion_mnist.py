"""fashion_mnist: from tiny files of our own, from a Hub that is none, and from the real files where they are."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
from layouts import fashion_mnist as lay_out
from layouts import garments, idx, write
from PIL import Image

from fedbench.data.decode import resized
from fedbench.errors import DataMissing, UserError
from fedbench_plugins.datasets import fashion_mnist, glyphs, hf

TRAIN = "train-images-idx3-ubyte"


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """A cache and a folder of data sets of the test's own, and no Hub."""
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FEDBENCH_DATA", str(tmp_path / "sets"))
    monkeypatch.setattr(fashion_mnist, "can_ask_hub", lambda: False)


def known(monkeypatch, train: int = 120, test: int = 60) -> None:
    """Have the data set take tiny files for the ones that were published."""
    halves = []
    for half, count in zip(fashion_mnist.HALVES, (train, test), strict=True):
        x, y = (hashlib.sha256(idx(part)).hexdigest() for part in garments(count))
        halves.append(dataclasses.replace(half, count=count, images_sha256=x, labels_sha256=y))
    monkeypatch.setattr(fashion_mnist, "HALVES", tuple(halves))


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """120 training and 60 test images, in the data set's own folder."""
    known(monkeypatch)
    return lay_out(tmp_path / "sets/fashion_mnist")


def refused(**options) -> str:
    with pytest.raises(UserError) as caught:
        fashion_mnist.make(28, **options)
    return str(caught.value)


def test_as_it_is_each_image_is_there_once_grey_in_three_channels(root):
    data = fashion_mnist.make(28)
    assert data.domains == ("all",) and data.classes[:2] == ("T-shirt/top", "Trouser") and len(data.classes) == 10
    splits = data.load()
    for images, count in ((splits.train, 120), (splits.test, 60)):
        x, y = garments(count)
        assert np.array_equal(images.x, np.repeat(x[:, None], 3, axis=1)) and np.array_equal(images.y, y)
        assert not images.domain.any()
    assert data.size == splits.train.x.nbytes + splits.test.x.nbytes


def test_images_are_resized_as_files_are(root):
    x = fashion_mnist.make(20, interpolation="bilinear").load().train.x
    picture = Image.fromarray(garments(8)[0][7]).convert("RGB")
    assert x.shape == (120, 3, 20, 20) and np.array_equal(x[7], resized(picture, 20, "bilinear"))


def test_in_six_styles_every_image_is_in_one_domain(root):
    data = fashion_mnist.make(16, styles=True)
    splits = data.load()
    assert data.domains == ("solid", "outline", "texture", "dim", "clutter", "sketch")
    for images, each in ((splits.train, 2), (splits.test, 1)):
        strata = np.stack([images.domain, images.y], axis=1)
        assert (np.unique(strata, axis=0, return_counts=True)[1] == each).all() and len(images) == 60 * each
        assert len(np.unique(images.x.reshape(len(images), -1), axis=0)) == len(images)
    colourful = np.ptp(splits.train.x.astype(int), axis=1).max(axis=(1, 2))
    assert (colourful > 0).any()  # painted, and not grey any more


def test_part_of_a_class_is_drawn_by_number(root):
    x, y = garments(120)
    part = [fashion_mnist.make(28, train_per_class=4, draw=draw).load().train for draw in (0, 0, 1)]
    for images in part:
        assert (np.bincount(images.y) == 4).all()
        assert {image[0].tobytes() for image in images.x} <= {image.tobytes() for image in x}
    assert np.array_equal(part[0].x, part[1].x) and not np.array_equal(part[0].x, part[2].x)
    few = fashion_mnist.make(16, styles=True, train_per_class=1).load()
    assert len(few.train) == 60 and len(few.test) == 60


def test_every_option_makes_another_fingerprint_and_the_place_none(root, tmp_path):
    changes = [dict(styles=True), dict(train_per_class=3), dict(test_per_class=3), dict(draw=1)]
    changes.append(dict(interpolation="nearest"))
    first = fashion_mnist.make(28).fingerprint
    prints = {fashion_mnist.make(28, **change).fingerprint for change in changes}
    assert len(prints | {first, fashion_mnist.make(29).fingerprint}) == 7
    shutil.move(root, tmp_path / "moved")
    assert fashion_mnist.make(28, root=str(tmp_path / "moved")).fingerprint == first


def test_lines_run_along_the_edges_of_a_garment():
    picture = np.zeros((1, 28, 28), dtype=np.uint8)
    picture[0, 4:24, 8:20] = 200
    line = fashion_mnist.edges(picture)[0]
    centre = glyphs.FINE // 2
    assert line.shape == (glyphs.FINE, glyphs.FINE) and not line[centre, centre] and not line[:3].any()
    assert line[centre].sum() == 2 and line[:, centre].sum() == 2  # crossed once on either side


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"train_per_class": 13}, "train_per_class is 13, and there are 1 to 12 of a class"),
        ({"styles": True, "test_per_class": 2}, "there are 1 to 1 of a class in each of six styles"),
        ({"train_per_class": 0}, "train_per_class: expected a whole number of at least 1, or null, got 0"),
        ({"draw": -1}, "draw: expected a whole number of at least 0"),
        ({"interpolation": "cubic"}, "interpolation: expected"),
        ({"styles": True, "interpolation": "nearest"}, "not with styles"),
    ],
)
def test_options_that_cannot_be_are_told(root, options, told):
    assert told in refused(**options)


# --- where it lies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["", "FashionMNIST/raw", "raw"])
@pytest.mark.parametrize("packed", [True, False])
def test_files_are_found_packed_or_not_where_torchvision_lays_them_too(root, folder, packed, tmp_path):
    first = fashion_mnist.make(28).load().test.x
    for file in root.iterdir():
        content = file.read_bytes()
        name = file.name if packed else file.stem
        write(tmp_path / "other" / folder / name, content if packed else gzip.decompress(content))
    shutil.rmtree(tmp_path / "cache")
    assert np.array_equal(fashion_mnist.make(28, root=str(tmp_path / "other")).load().test.x, first)


def test_missing_data_set_is_told_with_every_way_to_it():
    with pytest.raises(DataMissing) as caught:
        fashion_mnist.make(28)
    said = str(caught.value)
    assert "github.com/zalandoresearch" in said and "fashion_mnist fetches it from the Hub" in said


def test_lacking_a_file_is_told_and_no_hub_is_asked(root, monkeypatch):
    monkeypatch.setattr(fashion_mnist, "can_ask_hub", lambda: True)
    (root / f"{TRAIN}.gz").unlink()
    assert "1 of 4 parts missing" in (said := refused()) and TRAIN in said


# --- files that are not what they should be -----------------------------------------------------------------------


def sides(*sides: int) -> bytes:
    return bytes([0, 0, 8, len(sides)]) + b"".join(side.to_bytes(4, "big") for side in sides)


VALUES = bytes(120 * 784)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "holds 0 bytes, and should hold 94,096"),
        (idx(garments(120)[0])[:-1], "holds 94,095 bytes, and should hold 94,096"),
        (idx(garments(120)[0]) + b"\0", "holds more than 94,096 bytes, and should"),
        (gzip.compress(bytes(10**7), mtime=0), "holds more than 94,096 bytes once unpacked"),
        (gzip.compress(idx(garments(120)[0]), mtime=0)[:-9], "is damaged or cut short"),
        (b"\x1f\x8b" + bytes(50), "is damaged or cut short"),
        (b"\0\0\x09\x03" + sides(120, 28, 28)[4:] + VALUES, "begins with 00 00 09 03, which is no IDX file"),
        (b"\0\0\x08\0" + sides(120, 28, 28)[4:] + VALUES, "begins with 00 00 08 00"),
        (b"\0\0\x08\xff" + sides(120, 28, 28)[4:] + VALUES, "begins with 00 00 08 ff"),
        (sides(2**32 - 1, 28, 28) + VALUES, "says that it holds 4,294,967,295 x 28 x 28 values, and holds 94,080"),
        (sides(0, 28, 28) + VALUES, "says that it holds 0 x 28 x 28 values"),
        (sides(120, 56, 14) + VALUES, "holds values of shape (120, 56, 14)"),
        (sides(120, 28, 28) + VALUES, "is not Fashion-MNIST's: sha256 "),
    ],
)
def test_file_that_is_another_is_refused_with_the_reason(root, content, told):
    (root / f"{TRAIN}.gz").unlink()
    write(root / TRAIN, content)
    said = refused()
    assert told in said and str(root / TRAIN) in said


def test_file_that_changed_after_it_was_looked_at_is_refused_on_loading(root):
    data = fashion_mnist.make(28)
    write(root / f"{TRAIN}.gz", gzip.compress(sides(120, 28, 28) + VALUES))
    with pytest.raises(UserError, match="is not Fashion-MNIST's"):
        data.load()
    assert "is not Fashion-MNIST's" in refused()


# --- the Hub ------------------------------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """hub(columns) puts a stand-in on the place of the Hub: tables as it stores them, read by the real library."""
    datasets = pytest.importorskip("datasets")
    known(monkeypatch)
    monkeypatch.setattr(fashion_mnist, "can_ask_hub", lambda: True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    asked, load = [], hf.load

    def put(order=lambda count: range(count), label: str = "label") -> list:
        for half in fashion_mnist.HALVES:
            x, y = garments(half.count)
            rows = list(order(half.count))
            columns = {"image": [Image.fromarray(x[i]) for i in rows], label: [int(y[i]) for i in rows]}
            features = datasets.Features(
                {"image": datasets.Image(), label: datasets.ClassLabel(names=list(fashion_mnist.CLASSES))}
            )
            (tmp_path / "hub").mkdir(exist_ok=True)
            table = datasets.Dataset.from_dict(columns, features)
            table.to_parquet(tmp_path / f"hub/{half.split}.parquet")
        return asked

    def instead(path, config, split):
        asked.append((path, split))
        return load(str(tmp_path / "hub"), config, split)

    monkeypatch.setattr(hf, "load", instead)
    return put


def test_the_hub_is_asked_where_there_are_no_files_and_gives_the_same_cells(hub, tmp_path):
    asked = hub()
    data = fashion_mnist.make(28)
    assert not asked  # nothing is fetched before the pixels are needed
    fetched = data.load()
    assert asked == [("zalando-datasets/fashion_mnist", "train"), ("zalando-datasets/fashion_mnist", "test")]
    shutil.rmtree(tmp_path / "cache")
    lay_out(tmp_path / "sets/fashion_mnist")
    again = fashion_mnist.make(28)
    assert again.fingerprint == data.fingerprint and np.array_equal(again.load().train.x, fetched.train.x)
    assert len(asked) == 2


def test_other_images_of_the_hub_or_the_same_in_another_order_are_refused(hub):
    hub(order=lambda count: range(count - 1, -1, -1))
    with pytest.raises(UserError, match="on the Hub is not Fashion-MNIST's.*fetch the files instead"):
        fashion_mnist.make(28).load()


def test_columns_of_the_hub_that_are_called_otherwise_are_told(hub):
    hub(label="what")
    with pytest.raises(UserError, match="on the Hub is not what it was"):
        fashion_mnist.make(28).load()


def test_hub_out_of_reach_is_told_with_the_other_ways(hub):
    with pytest.raises(DataMissing, match="zalandoresearch(.|\n)*and the Hub does not help: hf: cannot load"):
        fashion_mnist.make(28).load()
