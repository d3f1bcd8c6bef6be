"""Lists of images: every line is understood or refused by file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from layouts import jpeg, write

from fedbench.data.lists import Lists, read_list
from fedbench.errors import UserError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))


def lines(tmp_path: Path, text: str | bytes) -> list[tuple]:
    write(tmp_path / "list.txt", text)
    return [tuple(line) for line in read_list(tmp_path / "list.txt")]


@pytest.mark.parametrize(
    ("line", "path", "label"),
    [
        ("a/b/c.jpg 0", "a/b/c.jpg", 0),
        ("a/hot air balloon/1 2 3.jpg 59", "a/hot air balloon/1 2 3.jpg", 59),
        ("a/b/c.jpg\t 007 \r", "a/b/c.jpg", 7),
        ("a/ü [2] 画\u2028\u00a0x.jpg 1", "a/ü [2] 画\u2028\u00a0x.jpg", 1),
        ("\ufeffa/b/c.jpg 3", "a/b/c.jpg", 3),
    ],
)
def test_label_is_the_last_field_and_the_path_all_before(tmp_path, line, path, label):
    assert lines(tmp_path, f"{line}\n\n") == [(1, path, label)]


def test_bytes_that_are_not_utf8_stay_what_they_are(tmp_path):
    assert lines(tmp_path, b"\n \na/caf\xe9.jpg 1") == [(3, "a/caf\udce9.jpg", 1)]


@pytest.mark.parametrize(
    "line", ["a/b/c.jpg", "a/b/c.jpg dog", "5", "a/b/c.jpg -1", "a/b/c.jpg 1.0", "a/b.jpg ²", f"a {'9' * 5000}"]
)
def test_line_of_another_form_is_named(tmp_path, line):
    with pytest.raises(UserError, match=r"list\.txt:2: expected a path and, last, a label such as 0, not"):
        lines(tmp_path, f"a/b/c.jpg 0\n{line}\n")


def test_list_that_names_nothing_or_is_not_there_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"list\.txt names no images"):
        lines(tmp_path, "\n\n")
    with pytest.raises(UserError, match=r"cannot read .*gone\.txt"):
        read_list(tmp_path / "gone.txt")


def lists(root: Path, train: str, test: str = "x/photo/cat/9.jpg 0\n", **options) -> Lists:
    """The lists of one domain, whose images are cats 0, 1 and 9 and dog 2."""
    for path in ("cat/0", "cat/1", "cat/9", "dog/2"):
        write(root / "photo" / f"{path}.jpg", jpeg(20 * int(path[-1])))
    write(root / "train.txt", train)
    write(root / "test.txt", test)
    return Lists(root, {"photo": (root / "train.txt", root / "test.txt")}, **{"classes": 2, **options})


def test_images_follow_the_lists_and_classes_the_folders(tmp_path):
    train = "x/photo/cat/1.jpg 0\nphoto/dog/2.jpg 1\n/elsewhere/photo/cat/0.jpg 0\n"
    data = lists(tmp_path, train).dataset(8, "bicubic", "fail")
    assert data.domains == ("photo",) and data.classes == ("cat", "dog")
    splits = data.load()
    assert splits.train.y.tolist() == [0, 1, 0] and splits.test.y.tolist() == [0]
    assert [round(float(x[0].mean()), -1) for x in splits.train.x] == [20, 40, 0]


def test_images_are_found_where_a_file_system_decomposed_their_names(tmp_path):
    write(tmp_path / "photo/chat/e\u0301te\u0301.jpg", jpeg(50))
    data = lists(tmp_path, "photo/chat/\xe9t\xe9.jpg 1\nphoto/cat/0.jpg 0\n").dataset(8, "bicubic", "fail")
    assert data.classes == ("cat", "chat") and len(data.load().train) == 2


def test_classes_that_nobody_has_are_kept_by_number(tmp_path):
    data = lists(tmp_path, "photo/dog/2.jpg 2\n", classes=4).dataset(8, "bicubic", "fail")
    assert data.classes == ("cat", "class 1", "dog", "class 3")


def test_larger_labels_are_left_out_or_refused(tmp_path):
    train = "photo/cat/1.jpg 0\nphoto/gone/7.jpg 2\n"
    assert len(lists(tmp_path, train, leave_out=True).dataset(8, "bicubic", "fail").load().train) == 1
    with pytest.raises(UserError, match=r"train\.txt:2: label 2, but the labels of 2 classes begin with 0"):
        lists(tmp_path, train).dataset(8, "bicubic", "fail")
    with pytest.raises(UserError, match=r"train\.txt names no image of the first 2 classes"):
        lists(tmp_path, "photo/dog/2.jpg 5\n", leave_out=True).dataset(8, "bicubic", "fail")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("art/cat/0.jpg 0", "expected photo/<class>/<file>, not 'art/cat/0.jpg'"),
        ("photo/0.jpg 0", "expected photo/<class>/<file>, not 'photo/0.jpg'"),
        ("photo/cat/.. 0", "expected photo/<class>/<file>"),
        ("photo/../1.jpg 0", "expected photo/<class>/<file>"),
        ("photo/dog/2.jpg 0", "label 0 is 'dog' here and 'cat' at {train}:1"),
        ("photo/cat/5.jpg 0", "photo/cat/5.jpg is not there (1 of 2 images of this list are missing)"),
        ("photo/cat/ 0", "expected photo/<class>/<file>"),
        ("photo/cat/0.jpg 0", "photo/cat/0.jpg is listed already, at {train}:1"),
        ("x/photo/cat/0.jpg 1", "photo/cat/0.jpg is listed already, at {train}:1"),
        ("photo/cat/1.jpg 1", "'cat' has the label 1 here and 0 at {train}:1"),
    ],
)
def test_line_that_does_not_fit_is_named(tmp_path, line, said):
    with pytest.raises(UserError) as caught:
        lists(tmp_path, f"photo/cat/0.jpg 0\n{line}\n").dataset(8, "bicubic", "fail")
    train = tmp_path / "train.txt"
    assert f"{train}:2: " in str(caught.value) and said.replace("{train}", str(train)) in str(caught.value)


@pytest.mark.parametrize("label", [0, 1])
def test_image_of_both_splits_is_named_with_both_places(tmp_path, label):
    test = f"photo/cat/9.jpg 0\n/elsewhere/photo/cat/0.jpg {label}\n"
    with pytest.raises(UserError) as caught:
        lists(tmp_path, "photo/cat/1.jpg 0\nphoto/cat/0.jpg 0\n", test).dataset(8, "bicubic", "fail")
    assert f"{tmp_path / 'test.txt'}:2: photo/cat/0.jpg is listed already, at {tmp_path / 'train.txt'}:2" in str(
        caught.value
    )


def test_label_of_a_folder_holds_in_every_domain(tmp_path):
    given = lists(tmp_path, "photo/cat/1.jpg 0\n")
    write(tmp_path / "art/cat/1.jpg", jpeg(3))
    write(tmp_path / "art.txt", "art/cat/1.jpg 1\n")
    both = Lists(tmp_path, {**given.files, "art": (tmp_path / "art.txt", tmp_path / "art.txt")}, 2)
    with pytest.raises(UserError, match=r"art\.txt:1: 'cat' has the label 1 here and 0 at .*train\.txt:1"):
        both.dataset(8, "bicubic", "fail")
