"""The data set `image_folder`, over real trees: good ones, oddly named ones and ones laid out wrongly."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedbench.errors import UserError
from fedbench_plugins.datasets.image_folder import make


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))


def write(path: Path, shade: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    Image.new("RGB", (10, 6), (shade, 100, 200)).save(buffer, "png")
    path.write_bytes(buffer.getvalue())


@pytest.fixture
def root(tmp_path) -> Path:
    """Two domains, two classes, ten images each, every image of its own shade."""
    for d, domain in enumerate(("photo", "art")):
        for c, name in enumerate(("dog", "cat")):
            for i in range(10):
                write(tmp_path / "tree" / domain / name / f"{i}.png", shade=100 * d + 50 * c + i)
    return tmp_path / "tree"


def test_domains_and_classes_are_the_sorted_folder_names(root):
    data = make(8, str(root))
    assert data.domains == ("art", "photo") and data.classes == ("cat", "dog")


def test_every_image_comes_once_with_its_own_label_and_domain(root):
    splits = make(8, str(root)).load()
    found = Counter()
    for images in (splits.train, splits.test):
        assert images.x.shape[1:] == (3, 8, 8) and images.x.dtype == np.uint8
        for shade, y, domain in zip(images.x[:, 0, 0, 0].tolist(), images.y, images.domain, strict=True):
            found[shade] += 1
            assert shade // 100 == {"photo": 0, "art": 1}[("art", "photo")[domain]]
            assert shade % 100 // 50 == {"dog": 0, "cat": 1}[("cat", "dog")[y]]
    assert len(found) == 40 and set(found.values()) == {1}


@pytest.mark.parametrize(("fraction", "tests"), [(0.2, 2), (0.5, 5), (0.01, 1), (0.99, 9)])
def test_every_class_of_every_domain_is_split_alike(root, fraction, tests):
    splits = make(8, str(root), test_fraction=fraction).load()
    for images, count in ((splits.test, tests), (splits.train, 10 - tests)):
        strata = Counter(zip(images.domain.tolist(), images.y.tolist(), strict=True))
        assert strata == {(d, c): count for d in (0, 1) for c in (0, 1)}


def shades(images) -> list[int]:
    return sorted(images.x[:, 0, 0, 0].tolist())


def test_split_follows_the_seed_and_nothing_else(root):
    first = make(8, str(root), split_seed=3)
    assert make(8, str(root), split_seed=3).fingerprint == first.fingerprint
    other = make(8, str(root), split_seed=4)
    assert other.fingerprint != first.fingerprint
    assert shades(other.load().test) != shades(first.load().test)


def test_split_of_a_domain_does_not_depend_on_the_others(root):
    both = make(8, str(root)).load().test
    alone = make(8, str(root), domains=["photo"]).load().test
    assert shades(alone) == [shade for shade in shades(both) if shade < 100]


def test_domains_option_chooses_and_orders(root):
    data = make(8, str(root), domains=["photo", "art"])
    assert data.domains == ("photo", "art")
    assert (data.load().train.x[data.load().train.domain == 0, 0, 0, 0] < 100).all()


def test_image_size_and_content_enter_the_fingerprint(root):
    first = make(8, str(root)).fingerprint
    assert make(9, str(root)).fingerprint != first
    write(root / "art" / "cat" / "0.png", shade=250)
    assert make(8, str(root)).fingerprint != first


def test_odd_names_and_suffixes_are_found_and_other_files_passed_over(root):
    for name in ("with space.PNG", "ünïcødé 画像.Png", "two.dots.JPEG", "quote'\".jpg"):
        write(root / "art" / "cat" / name)
    (root / "art" / "cat" / ".hidden.png").write_bytes(b"")
    (root / "art" / "cat" / "Thumbs.db").write_bytes(b"")
    (root / "art" / ".cache").mkdir()
    (root / "README.txt").write_text("about")
    splits = make(8, str(root)).load()
    assert len(splits.train) + len(splits.test) == 44 and not splits.skipped


def test_file_name_that_is_not_utf8(root):
    try:
        write(Path(str(root / "art" / "cat") + "/caf\udce9.png"))
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    splits = make(8, str(root)).load()
    assert len(splits.train) + len(splits.test) == 41


def test_home_is_understood(root, monkeypatch):
    monkeypatch.setenv("HOME", str(root.parent))
    assert make(8, "~/tree").domains == ("art", "photo")


def test_unreadable_image_fails_by_path_or_is_skipped(root):
    (root / "art" / "dog" / "3.png").write_text("not an image")
    with pytest.raises(UserError, match=r"1 of 40 images cannot be read .*\n.*art/dog/3\.png: not an image"):
        make(8, str(root)).load()
    assert make(8, str(root), unreadable="skip").load().skipped == ("art/dog/3.png",)


def refused(root: Path, **options) -> str:
    with pytest.raises(UserError) as caught:
        make(8, str(root), **options)
    return str(caught.value)


def test_missing_class_is_named_with_its_domain(root):
    for image in (root / "art" / "dog").iterdir():
        image.unlink()
    message = refused(root)
    assert "domain 'art' lacks class 'dog', which domain 'photo' has" in message


def test_single_image_cannot_be_split(root):
    write(root / "art" / "bird" / "1.png")
    write(root / "photo" / "bird" / "1.png")
    assert "art/bird has 1 image" in refused(root)


def test_missing_or_empty_root_tells_the_layout(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for name, found in (
        ("none", "does not exist"),
        ("empty", "holds no folders"),
        ("file", "is not a folder"),
    ):
        message = refused(tmp_path / name)
        assert found in message and "<root>/<domain>/<class>/" in message


def test_images_at_the_wrong_level_are_named(root):
    flat, deep = root.parent / "flat", root.parent / "deep"
    write(flat / "cat.png")
    assert "itself holds 1 images, such as cat.png; expected" in refused(flat)
    assert "art/cat holds 10 images outside class folders" in refused(root / "art")
    deep.mkdir()
    root.rename(deep / "train")
    assert "lies one folder too deep; expected" in refused(deep)


def test_folder_without_images_is_named_and_can_be_left_out(root):
    (root / "splits" / "lists").mkdir(parents=True)
    message = refused(root)
    assert "splits holds no images" in message and "`domains`" in message
    assert make(8, str(root), domains=["art", "photo"]).domains == ("art", "photo")


def test_wrong_options_are_user_errors(root):
    assert "did you mean 'photo'?" in refused(root, domains=["foto"])
    assert "there are: art, photo" in refused(root, domains=["xyz"])
    for domains in ("art", [], ["art", "art"]):
        assert "must be a list of different folder names" in refused(root, domains=domains)
    for fraction in (0, 1, -0.1):
        assert "between 0 and 1" in refused(root, test_fraction=fraction)
