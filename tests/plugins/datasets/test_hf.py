"""The data set `hf`, with the real library over local data sets: tables, folders of images, and a hub out of reach."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from layouts import jpeg, write

from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench_plugins.datasets import hf

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def offline(tmp_path, monkeypatch):
    """Caches of the test's own, and no network."""
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    for module in (datasets.config, sys.modules["huggingface_hub"].constants):
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")


PICTURE = datasets.Image()
CLASS = datasets.ClassLabel(names=["cat", "dog"])


def table(folder: Path, split: str, columns: dict[str, list], **features) -> Path:
    """One split as a Parquet file, as the Hub stores it."""
    data = datasets.Dataset.from_dict(columns, datasets.Features(features))
    folder.mkdir(parents=True, exist_ok=True)
    data.to_parquet(folder / f"{split}.parquet")
    return folder


def cells(*shades: int) -> list[dict]:
    return [{"bytes": jpeg(shade), "path": None} for shade in shades]


@pytest.fixture
def pets(tmp_path) -> str:
    """Four training images and two for testing, in the columns `img` and `what`, and in `where` a domain."""
    for split, shades in (("train", (0, 40, 80, 120)), ("test", (160, 200))):
        columns = {
            "img": cells(*shades),
            "what": [row % 2 for row in range(len(shades))],
            "where": ["yard" if row < 1 else "house" for row in range(len(shades))],
        }
        table(tmp_path / "pets", split, columns, img=PICTURE, what=CLASS, where=datasets.Value("string"))
    return str(tmp_path / "pets")


def shades(images) -> list[int]:
    return [round(float(x[0].mean()), -1) for x in images.x]


def test_columns_are_found_and_images_come_with_their_labels(pets):
    data = hf.make(8, pets)
    assert data.domains == ("all",) and data.classes == ("cat", "dog")
    splits = data.load()
    assert splits.train.y.tolist() == [0, 1, 0, 1] and shades(splits.train) == [0, 40, 80, 120]
    assert splits.test.y.tolist() == [0, 1] and shades(splits.test) == [160, 200]


def test_column_of_domains(pets):
    data = hf.make(8, pets, domain="where")
    assert data.domains == ("house", "yard") and data.load().train.domain.tolist() == [1, 0, 0, 0]


def test_column_without_named_classes_counts_its_values(pets):
    data = hf.make(8, pets, label="where")
    assert data.classes == ("house", "yard") and data.load().test.y.tolist() == [1, 0]


def test_parts_of_a_split(pets):
    data = hf.make(8, pets, train="train[:50%]", test="train[50%:]")
    assert shades(data.load().train) == [0, 40] and shades(data.load().test) == [80, 120]
    assert data.fingerprint not in {
        hf.make(8, pets).fingerprint,
        hf.make(8, pets, train="test", test="train[50%:]").fingerprint,
    }


@pytest.mark.parametrize(
    ("train", "test", "shared"),
    [
        ("train[:75%]", "train[50%:]", "train[2:3]"),
        ("train[:2]", "test+train[:25%]", "train[0:1]"),
        ("all", "test", "test[0:2]"),
    ],
)
def test_splits_that_share_rows_are_refused(pets, train, test, shared):
    assert f"share the rows {shared}; a model is not tested on its training" in refused(pets, train=train, test=test)


def test_slices_beside_each_other_are_fine(pets):
    splits = hf.make(8, pets, train="train[:60%]", test="train[60%:]+test").load()
    assert (len(splits.train), len(splits.test)) == (2, 4)


def test_fingerprint_follows_the_images_and_not_the_place(pets, tmp_path):
    first = hf.make(8, pets).fingerprint
    shutil.copytree(pets, tmp_path / "copy")
    assert hf.make(8, str(tmp_path / "copy")).fingerprint == first == hf.make(8, pets).fingerprint
    table(Path(pets), "test", {"img": cells(160, 201), "what": [0, 1]}, img=PICTURE, what=CLASS)
    assert hf.make(8, pets).fingerprint != first


def test_hashes_of_unchanged_tables_are_remembered(pets, monkeypatch):
    first = hf.make(8, pets).fingerprint
    monkeypatch.setattr(hf.Rows, "_inside", lambda self, paths: pytest.fail("hashed again"))
    assert hf.make(8, pets).fingerprint == first


@pytest.fixture
def folder(tmp_path) -> Path:
    for split in ("train", "test"):
        for label in ("cat", "big dog"):
            write(tmp_path / "photos" / split / label / "a [1] ü.jpg", jpeg(100 if label == "cat" else 200))
    return tmp_path / "photos"


def test_folder_of_images_is_read_from_its_files(folder):
    data = hf.make(8, str(folder))
    assert data.classes == ("big dog", "cat") and sorted(shades(data.load().train)) == [100, 200]
    write(folder / "test/cat/a [1] ü.jpg", jpeg(30))
    changed = hf.make(8, str(folder))
    assert changed.fingerprint != data.fingerprint and 30 in shades(changed.load().test)


def test_unreadable_image_is_told_by_file_or_row(folder, pets):
    write(folder / "test/cat/a [1] ü.jpg", jpeg(30)[:200])
    write(folder / "test/cat/b.jpg", jpeg(30))
    with pytest.raises(UserError, match=r"1 of 5 images cannot be read .*\n.*photos/test/cat/a \[1\] ü\.jpg"):
        hf.make(8, str(folder)).load()
    bad = [{"bytes": b"no image", "path": None}, *cells(3, 4)]
    table(Path(pets), "test", {"img": bad, "what": [0, 0, 1]}, img=PICTURE, what=CLASS)
    with pytest.raises(UserError, match="row 0 of split 'test': not an image"):
        hf.make(8, pets).load()
    assert hf.make(8, pets, unreadable="skip").load().skipped == ("test/0",)


def refused(*words, **options) -> str:
    with pytest.raises(UserError) as caught:
        hf.make(8, *words, **options).load()
    return str(caught.value)


def test_columns_that_do_not_fit_are_told_with_what_there_is(pets, tmp_path):
    assert "column 'what' holds no images" in refused(pets, image="what")
    assert "has no column 'wat' for `label`; it has img (Image), what" in refused(pets, label="wat")
    assert "has no column 'wat' for `domain`" in refused(pets, domain="wat")
    for split in ("train", "test"):
        columns = {"one": cells(1, 2), "two": cells(3, 4), "kind": [0, 1]}
        table(tmp_path / "both", split, columns, one=PICTURE, two=PICTURE, kind=datasets.Value("int64"))
    both = str(tmp_path / "both")
    assert "2 columns are of type Image" in refused(both) and "set `image` to one of one (Image)" in refused(both)
    assert "no column is of type ClassLabel" in refused(both, image="two")
    assert hf.make(8, both, image="two", label="kind").classes == ("0", "1")


def test_unlabelled_rows_and_rows_without_image_are_told(pets):
    table(Path(pets), "test", {"img": cells(1, 2), "what": [-1, 1]}, img=PICTURE, what=CLASS)
    assert "1 of 2 rows of split 'test' have no whole number or text in 'what'" in refused(pets)
    table(Path(pets), "test", {"img": [None, *cells(2, 3)], "what": [0, 1, 0]}, img=PICTURE, what=CLASS)
    said = refused(pets)
    assert "1 of 7 images cannot be read" in said and "row 0 of split 'test': no image in column 'img'" in said
    assert hf.make(8, pets, unreadable="skip").load().skipped == ("test/0",)


def test_texts_and_pairs_of_texts(tmp_path):
    words, rows = datasets.Value("string"), {"a": ["x", "y"], "b": ["1", "2"], "what": [0, 1]}
    place = table(tmp_path / "glue", "train", rows, a=words, b=words, what=CLASS)
    table(place, "test", {**rows, "a": ["x", "z"]}, a=words, b=words, what=CLASS)
    one, pairs = (hf.make(8, str(place), text=text) for text in ("a", ["a", "b"]))
    assert one.texts and one.classes == ("cat", "dog") and one.fingerprint != pairs.fingerprint
    assert one.load().test.text == ["x", "z"] and pairs.load().test.text == [("x", "1"), ("z", "2")]
    assert pairs.load().train.y.tolist() == [0, 1]
    table(place, "test", {**rows, "a": ["x", None]}, a=words, b=words, what=CLASS)
    assert "row 1 of split 'test' has no text in column 'a'" in refused(str(place), text="a")
    assert "has no column 'c' for `text`" in refused(str(place), text=["a", "c"])


def csv(folder: Path, train: str, test: str) -> str:
    """Texts and labels, a letter of text for each label."""
    folder.mkdir()
    for split, labels in (("train", train), ("test", test)):
        rows = "".join(f"{split} {i},{label}\n" for i, label in enumerate(labels.split()))
        (folder / f"{split}.csv").write_text(f"a,what\n{rows}")
    return str(folder)


def test_labels_that_the_library_reads_as_one_number_are_named(tmp_path):
    made = hf.make(8, csv(tmp_path / "numbers", "007 7 07 8", "7 08"), text="a", label="what")
    assert made.classes == ("7", "8")
    assert made.notes == (
        'labels that are written in several ways and taken for one: 7 ("007", "7", "07"), 8 ("8", "08")',
    )
    plain = hf.make(8, csv(tmp_path / "plain", "7 8", "7 8"), text="a", label="what")
    assert plain.notes == () and plain.load().train.y.tolist() == [0, 1]
    truth = hf.make(8, csv(tmp_path / "truth", "True true FALSE", "true False"), text="a", label="what")
    assert truth.classes == ("False", "True") and 'True ("True", "true"), False ("FALSE", "False")' in truth.notes[0]


def test_one_class_is_refused_with_the_labels_that_the_library_joined(tmp_path):
    path = csv(tmp_path / "one", "007 7 07", "7 007")
    ref = {"name": "hf", "path": path, "text": "a", "label": "what"}
    with pytest.raises(UserError, match="the one class '7', and scores of one class are 100 %.* taken for one"):
        Registry().make("dataset", ref, image_size=8)


def test_classes_in_two_unicode_forms_are_one(tmp_path):
    path = csv(tmp_path / "forms", "caf\xe9 cafe\u0301 tea", "cafe\u0301 tea")
    made = hf.make(8, path, text="a", label="what", domain="what")
    assert len(made.classes) == len(made.domains) == 2 and len(made.notes) == 2
    assert made.load().train.y.tolist()[0] == made.load().train.y.tolist()[1] == made.load().test.y.tolist()[0]


def test_what_cannot_be_loaded_is_told_with_what_was_wanted(pets, tmp_path):
    assert "cannot load split 'validation'" in refused(pets, test="validation")
    assert "config 'small': ValueError" in refused(pets, config="small")
    assert "a model is not tested on its training images" in refused(pets, test="train")
    assert "cannot load split 'train' of 'nobody/nothing'" in (said := refused("nobody/nothing"))
    assert "looked up on the Hub, which needs the network" in said
    assert "cannot load" in refused(str(tmp_path / "gone"))


def test_code_of_a_data_set_is_never_run(tmp_path):
    mark = tmp_path / "was run"
    write(tmp_path / "evil/evil.py", f"open({str(mark)!r}, 'w')\n")
    assert "cannot load" in refused(str(tmp_path / "evil"))
    assert "cannot load" in refused(str(tmp_path / "evil/evil.py"))
    assert not mark.exists()
    assert "Python pickles" in refused("pandas")


def test_without_the_library_the_extra_is_named(pets, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install 'fedbench-heft[datasets]'" in refused(pets)
