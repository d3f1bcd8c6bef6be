"""The data set `image_folder`, over real trees: good ones, oddly named ones and ones laid out wrongly."""

from __future__ import annotations

import io
import os
import socket
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


def test_a_table_is_told_which_data_set_takes_it(tmp_path):
    (tmp_path / "texts.csv").write_text("text,label\n")
    with pytest.raises(UserError, match="texts.csv is a table, .*; `text_table` takes texts"):
        make(32, root=str(tmp_path / "texts.csv"))


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


def test_files_that_may_be_images_and_are_not_taken_are_counted_and_named(root):
    assert make(8, str(root)).notes == ()
    for name in ("a.jfif", "b.avif", "c.JFIF", "notes.txt", "table.csv"):
        write(root / "photo/dog" / name)
    (note,) = make(8, str(root)).notes
    assert note.startswith("3 files that may be images are not taken: 1 .avif, 2 .jfif, such as photo/dog/a.jfif; ")
    write(root / "photo/loose.jfif")
    write(root / "top.ppm")
    assert make(8, str(root)).notes[0].startswith("5 files that may be images are not taken: 1 .avif, 3 .jfif, 1 .ppm")
    for file in (root / "art/cat").iterdir():
        file.rename(file.with_suffix(".ppm"))
    said = make(8, str(root)).notes
    assert "11 .ppm" in said[1] and said[0] == "classes that a domain lacks: 'art' lacks 'cat'"


def test_one_class_in_two_unicode_forms_is_one_class(root):
    """As where one half of a tree was copied by a file system that decomposes names."""
    (root / "art/cat").rename(root / "art/caf\xe9")
    (root / "photo/cat").rename(root / "photo/cafe\u0301")
    whole = make(8, str(root))
    assert len(whole.classes) == 2 and "caf\xe9" in whole.classes
    for given in ("caf\xe9", "cafe\u0301"):
        assert make(8, str(root), classes=[given, "dog"]).classes == (given, "dog")
    write(root / "art/cafe\u0301/1.jpg")
    assert "twice (letters and accents are encoded in another Unicode form)" in refused(root)


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
        make(8, str(root), **options).load()
    return str(caught.value)


def test_a_domain_may_lack_a_class_and_that_is_noted(root):
    """As a hospital that never saw a disease."""
    for image in (root / "art" / "dog").iterdir():
        image.unlink()
    write(root / "photo" / "bird" / "1.png", 7)
    write(root / "photo" / "bird" / "2.png", 8)
    data = make(8, str(root))
    assert data.classes == ("bird", "cat", "dog")
    assert data.notes == ("classes that a domain lacks: 'art' lacks 'bird', 'art' lacks 'dog'",)
    for images, kinds in ((data.load().train, 4), (data.load().test, 4)):
        found = set(zip(images.domain.tolist(), images.y.tolist(), strict=True))
        assert len(found) == kinds and not found & {(0, 0), (0, 2)}


def test_a_lone_image_is_trained_on(root):
    before = make(8, str(root)).load()
    write(root / "art" / "bird" / "1.png", 250)
    data = make(8, str(root))
    assert 250 in shades(data.load().train) and shades(data.load().test) == shades(before.test)
    assert data.notes[-1] == "classes of one image in a domain, which is trained on: art/bird"


def test_a_tree_of_lone_images_has_nothing_to_test_with(tmp_path):
    for name in ("a", "b"):
        write(tmp_path / "t" / "d" / name / "1.png")
    assert "has one image of each class; training and test need one each" in refused(tmp_path / "t")


SPLIT = {
    "on top": "{split}/{domain}/{name}",
    "on top, in one domain": "{split}/{name}",
    "in every domain": "{domain}/{split}/{name}",
}


@pytest.mark.parametrize("where", SPLIT)
@pytest.mark.parametrize("test", ["test", "Val", "validation", "testing"])
def test_folders_called_as_splits_are_splits(tmp_path, where, test):
    """Nobody trains on images of a test folder, and no client is called train."""
    for s, split in enumerate(("train", test)):
        for d, domain in enumerate(("day", "night")):
            for c, name in enumerate(("cat", "dog")):
                for i in range(3):
                    folder = tmp_path / "t" / SPLIT[where].format(split=split, domain=domain, name=name)
                    write(folder / f"{domain}{i}.png", 120 * s + 60 * d + 30 * c + i)
    if where != "in every domain":
        (tmp_path / "t" / "annotations").mkdir()
    data = make(8, str(tmp_path / "t"))
    splits = data.load()
    assert data.domains == (("all",) if "one domain" in where else ("day", "night")) and data.classes == ("cat", "dog")
    assert [len(splits.train), len(splits.test)] == [12, 12]
    assert max(shades(splits.train)) < 120 <= min(shades(splits.test))
    assert data.notes == (f"'train' is taken for training and {test!r} for tests",)
    assert make(8, str(tmp_path / "t"), split_seed=1).fingerprint == data.fingerprint


def test_validation_images_next_to_test_images_are_left_out_and_that_is_noted(root):
    (root / "new").mkdir()
    for old, new in (("photo", "train"), ("art", "test")):
        (root / old).rename(root / new)
    (root / "new").rename(root / "val")
    write(root / "val" / "cat" / "1.png", 250)
    data = make(8, str(root))
    assert data.domains == ("all",) and len(data.load().train) == len(data.load().test) == 20
    assert data.notes[1] == "validation images are left out: val"
    chosen = make(8, str(root), domains=["train", "test"])  # who says so means it
    assert chosen.domains == ("train", "test") and len(chosen.load().train) == 32


@pytest.mark.parametrize(
    ("folders", "said"),
    [
        (("train/a", "test/a", "photo/a"), "has test, train, photo: some are called as splits are"),
        (("train/a", "val/a", "valid/a"), "has train, val, valid: some are called as splits are"),
        (("day/train/a", "day/test/a", "night/a"), "day has folders of splits, and night has none"),
        (("train", "test"), "train holds 1 image outside class folders"),
        (("cat/train", "cat/test"), "train holds 1 image outside class folders"),
    ],
)
def test_folders_of_splits_among_others_are_refused(tmp_path, folders, said):
    for folder in folders:
        write(tmp_path / "t" / folder / "1.png")
    assert said in refused(tmp_path / "t")


def test_one_domain_in_two_unicode_forms_is_found_and_two_of_them_are_refused(root):
    (root / "art").rename(root / "caf\xe9")
    for given in ("caf\xe9", "cafe\u0301"):
        assert make(8, str(root), domains=[given, "photo"]).domains == (given, "photo")
    write(root / "cafe\u0301/cat/1.png")
    assert "twice (letters and accents are encoded in another Unicode form)" in refused(root)


@pytest.mark.parametrize("left", ["__MACOSX", "@eaDir", "lost+found"])
def test_folders_that_a_system_leaves_behind_are_no_domains_and_no_classes(root, left):
    before = make(8, str(root)).fingerprint
    for folder in (root / left, root / "art" / left, root / "art" / "cat" / left):
        write(folder / "cat" / "1.png")
        write(folder / "1.png")
    assert make(8, str(root)).fingerprint == before


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
    assert "itself holds 1 image, such as cat.png; expected" in refused(flat)
    assert "art/cat holds 10 images outside class folders" in refused(root / "art")
    deep.mkdir()
    root.rename(deep / "train")
    assert "40 images lie one folder too deep, such as" in refused(deep)


def test_folder_without_images_is_named_and_can_be_left_out(root):
    (root / "splits" / "lists").mkdir(parents=True)
    message = refused(root)
    assert "splits holds no images" in message and "`domains`" in message
    assert make(8, str(root), domains=["art", "photo"]).domains == ("art", "photo")


def test_wrong_options_are_user_errors(root):
    assert "did you mean 'photo'?" in refused(root, domains=["foto"])
    assert "there are: art, photo" in refused(root, domains=["xyz"])
    for domains in ("art", [], ["art", "art"]):
        assert "expected a" in refused(root, domains=domains)
    for fraction in (0, 1, -0.1):
        assert "above 0 and below 1" in refused(root, test_fraction=fraction)


def test_classes_are_chosen_and_ordered_as_domains_are(root):
    write(root / "art" / "bird" / "1.png")  # too few of it, and in one domain only
    write(root / "photo" / "bird" / "1.png")
    data = make(8, str(root), classes=["dog", "cat"])
    assert data.classes == ("dog", "cat") and len(data.load().train) + len(data.load().test) == 40
    dogs = data.load().train.x[data.load().train.y == 0, 0, 0, 0]
    assert set((dogs % 100 // 50).tolist()) == {0}
    assert shades(make(8, str(root), classes=["dog"]).load().test) == [
        shade for shade in shades(data.load().test) if shade % 100 < 50
    ]
    assert "no domain has an image of the class 'dgo'; did you mean \"dog\"?" in refused(root, classes=["cat", "dgo"])
    assert "write 7 in quotes" in refused(root, classes=[7, 8])
    assert "classes: expected a list of at least 1 different, each a folder's name" in refused(root, classes="dog")


def test_classes_left_out_are_the_data_set_it_was(root):
    """Cells of before there was the option keep their identity."""
    both = make(8, str(root), classes=["cat", "dog"]).fingerprint
    assert make(8, str(root)).fingerprint == both
    assert make(8, str(root), classes=["dog", "cat"]).fingerprint != both


def spoil(folder: Path) -> dict[str, str]:
    """What may stand under the name of an image and is none; and what is to be said of each."""
    (folder / "nowhere.png").symlink_to("gone/0.png")
    (folder / "loop.png").symlink_to("loop.png")
    os.mkfifo(folder / "fifo.png")
    (folder / "folder.png").mkdir()
    (folder / "empty.png").write_bytes(b"")
    (folder / "device.png").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as own:
        place = os.getcwd()
        os.chdir(folder)  # the path of a socket is at most 107 bytes long
        own.bind("socket.png")
        os.chdir(place)
    return {
        "nowhere": "a link that leads nowhere",
        "loop": "a link that leads back to itself",
        "fifo": "a FIFO, not a file",
        "folder": "a folder, not a file",
        "empty": "an empty file",
        "device": "a device, not a file",
        "socket": "a socket, not a file",
    }


def test_what_is_no_image_never_leaves_in_silence(root):
    """git-annex and DVC leave links that lead nowhere, and a FIFO would be waited for."""
    whole = make(8, str(root)).load()
    told = spoil(root / "art" / "cat")
    said = refused(root)
    assert "7 of 47 images cannot be read (`unreadable: skip` leaves them out):" in said
    for name, why in told.items():
        assert f"{root}/art/cat/{name}.png: {why}" in said
    data = make(8, str(root), unreadable="skip")
    splits = data.load()
    assert set(splits.skipped) == {f"art/cat/{name}.png" for name in told} and splits.listed == 47
    assert len(splits.train) + len(splits.test) == 40 == len(whole.train) + len(whole.test)
    assert {name: data.why(f"art/cat/{name}.png") for name in told} == told
    fingerprint = data.fingerprint
    assert make(8, str(root), unreadable="skip").fingerprint == fingerprint
    (root / "art" / "cat" / "nowhere.png").unlink()
    assert make(8, str(root), unreadable="skip").fingerprint != fingerprint


def test_a_class_without_a_readable_image_is_told_with_what_helps(root):
    for number in range(10):
        (root / "art" / "cat" / f"{number}.png").write_bytes(b"")
    said = refused(root, unreadable="skip")
    assert "2 of 2 images cannot be read there" in said and "another `split_seed` or `test_fraction`" in said


@pytest.mark.parametrize("permissions", [0o000, 0o200])
def test_image_that_may_not_be_read_is_told(root, permissions, monkeypatch):
    file = root / "art" / "cat" / "0.png"
    file.chmod(permissions)
    if os.access(file, os.R_OK):  # root may read anything
        real = Path.read_bytes

        def read_bytes(path: Path) -> bytes:
            if path == file:
                raise PermissionError(13, "Permission denied", str(path))
            return real(path)

        monkeypatch.setattr(Path, "read_bytes", read_bytes)
    assert f"{file}: Permission denied" in refused(root)
    assert make(8, str(root), unreadable="skip").load().skipped == ("art/cat/0.png",)


def test_all_faults_of_a_tree_are_told_in_one_call(root):
    write(root / "loose.png")
    write(root / "art" / "stray.png")
    write(root / "photo" / "dog" / "inner" / "1.png")
    write(root / "art" / "bird" / "1.png")
    (root / "sketch").symlink_to("gone")
    (root / "lists").mkdir()
    spoil(root / "photo" / "cat")
    (root / "clip").mkdir()
    write(root / "clip" / "cat" / "1.png")
    write(root / "clip" / "cat" / "2.png")
    said = refused(root)
    assert said.startswith(f"{root}: 6 faults; expected images in <root>/<domain>/<class>/")
    for fault in (
        "itself holds 1 image, such as loose.png",
        "art holds 1 image outside class folders, such as stray.png",
        "photo/dog/inner/1.png lies one folder too deep",
        "sketch is a link that leads nowhere, where a folder of images may be expected",
        "lists holds no images",
        "7 of 50 images cannot be read (`unreadable: skip` leaves them out): photo/cat/device.png (a device, not",
    ):
        assert fault in said
    assert "and 4 more" in said and "7 of 50" not in refused(root, unreadable="skip")
