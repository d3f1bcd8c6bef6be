"""Images that a table or one's own lists name: what they make, and one clear line for what is wrong with them."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from command import fedbench
from PIL import Image

from fedbench.errors import UserError
from fedbench_plugins.datasets.image_folder import make as image_folder
from fedbench_plugins.datasets.image_table import make
from fedbench_plugins.datasets.listed import image_lists


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))


def draw(file: Path, shade: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (shade, 100, 200)).save(file)


@pytest.fixture
def rows(tmp_path) -> list[dict]:
    """Forty images of two classes in two domains, by ten patients; each is of a shade of its own."""
    found = []
    for i in range(40):
        draw(tmp_path / "scans" / f"{i}.png", i)
        found.append(
            {"path": f"scans/{i}.png", "label": "ny"[i % 2], "domain": "ab"[i // 20], "group": f"patient {i // 4}"}
        )
    return found


def table(folder: Path, name: str, rows: list[dict]) -> str:
    file = folder / name
    if file.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    elif file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with file.open("w", newline="") as opened:
            writer = csv.DictWriter(opened, rows[0], delimiter="\t" if file.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    return str(file)


def without(rows: list[dict], *columns: str) -> list[dict]:
    return [{name: value for name, value in row.items() if name not in columns} for row in rows]


def shades(images) -> list[int]:
    return images.x[:, 0, 0, 0].tolist()


def test_one_table_is_the_same_data_set_in_every_format(tmp_path, rows):
    made = [make(8, table(tmp_path, f"t{end}", rows)) for end in (".csv", ".tsv", ".jsonl", ".parquet")]
    assert len({dataset.fingerprint for dataset in made}) == 1
    assert made[0].domains == ("a", "b") and made[0].classes == ("n", "y") and not made[0].texts
    splits = made[0].load()
    for half in (splits.train, splits.test):
        for shade, y, domain in zip(shades(half), half.y, half.domain, strict=True):
            assert (y, domain) == (shade % 2, shade // 20)
    assert sorted(shades(splits.train) + shades(splits.test)) == list(range(40))


def test_columns_that_are_there_are_taken_and_that_is_noted(tmp_path, rows):
    data = make(8, table(tmp_path, "t.csv", rows))
    assert data.notes == (
        "the column 'domain' is taken for domains (`domain: false` leaves it out)",
        "the column 'group' is taken for groups (`group: false` leaves it out)",
        "groups that stay together: 10",
    )
    alone = make(8, table(tmp_path, "t.csv", rows), domain=False, group=False)
    assert alone.domains == ("all",) and alone.notes == () and alone.load().train.group is None


def test_a_patient_is_on_one_side_of_the_split(tmp_path, rows):
    for seed in range(4):
        splits = make(8, table(tmp_path, "t.csv", rows), split_seed=seed).load()
        train, test = ({shade // 4 for shade in shades(half)} for half in (splits.train, splits.test))
        assert not train & test and len(test) == 2, "two of ten patients are a fifth"
        assert Counter((shade % 2, shade // 20) for shade in shades(splits.test)) == {
            (y, d): 2 for y in (0, 1) for d in (0, 1)
        }
        numbers = splits.train.group.tolist()
        assert len(set(zip(numbers, [s // 4 for s in shades(splits.train)], strict=True))) == len(set(numbers)) == 8


def test_groups_follow_the_images_that_can_be_read(tmp_path, rows):
    (tmp_path / "scans/7.png").write_text("not an image")
    with pytest.raises(UserError, match=r"scans/7\.png: not an image"):
        make(8, table(tmp_path, "t.csv", rows)).load()
    splits = make(8, table(tmp_path, "t.csv", rows), unreadable="skip").load()
    known = dict(zip(splits.train.group.tolist(), [shade // 4 for shade in shades(splits.train)], strict=True))
    assert splits.skipped == ("scans/7.png",) and len(splits.train.group) == len(splits.train)
    assert [known[number] for number in splits.train.group.tolist()] == [shade // 4 for shade in shades(splits.train)]


def test_without_groups_a_fifth_of_each_class_and_domain_is_tested(tmp_path, rows):
    splits = make(8, table(tmp_path, "t.csv", without(rows, "group"))).load()
    assert Counter(zip(splits.test.y.tolist(), splits.test.domain.tolist(), strict=True)) == {
        (y, d): 2 for y in (0, 1) for d in (0, 1)
    }
    other = make(8, table(tmp_path, "t.csv", without(rows, "group")), split_seed=1)
    assert shades(other.load().test) != shades(splits.test)


def test_a_column_or_files_are_the_splits(tmp_path, rows):
    rows = [{**row, "split": "test" if i % 5 == 0 else "train"} for i, row in enumerate(without(rows, "group"))]
    by_column = make(8, table(tmp_path, "t.csv", rows))
    (tmp_path / "two").mkdir()
    for split in ("train", "test"):
        table(tmp_path / "two", f"{split}.csv", without([row for row in rows if row["split"] == split], "split"))
    by_file = make(8, str(tmp_path / "two"), images="..")
    for dataset in (by_column, by_file):
        assert shades(dataset.load().test) == [0, 5, 10, 15, 20, 25, 30, 35]
    assert by_file.fingerprint == by_column.fingerprint, "where the files lie is no part of it"


def test_paths_begin_at_the_table_or_at_a_folder(tmp_path, rows):
    named = [{**row, "path": Path(row["path"]).name} for row in rows]
    assert shades(make(8, table(tmp_path, "t.csv", named), images="scans").load().train)
    full = [{**row, "path": str(tmp_path / row["path"])} for row in rows]
    assert len(make(8, table(tmp_path, "t.csv", full)).load().train) == 32


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("t.csv", "path,label\nscans/0.png,x\nscans/./0.png,y\n", {}, "t.csv:3: scans/0.png is listed already, at"),
        ("t.csv", "path,label\nscans/0.png,x\nscans/77.png,y\n", {}, "t.csv:3: {root}/scans/77.png is not there (1 of"),
        ("t.csv", "path,label\nscans\\0.png,x\n", {}, "are missing); write / in place of \\"),
        ("t.csv", "path,label\n ,x\n", {}, "t.csv:2: column 'path' is empty"),
        ("t.csv", "path,label\nscans/0.png,\n", {}, "t.csv:2: column 'label' is empty"),
        ("t.csv", "file,label\nscans/0.png,x\n", {}, "t.csv:1: no column 'path'; it has: file, label"),
        ("t.csv", "path;label\nscans/0.png;x\n", {}, "t.csv:1: its columns are separated by ';'; save it with commas"),
        ("t.csv", "path,label,group\nscans/0.png,x,\n", {}, "t.csv:2: column 'group' is empty"),
        (
            "t.csv",
            "path,label,split\nscans/0.png,x,dev\n",
            {},
            "t.csv:2: column 'split' must be train or test",
        ),
        ("t.csv", "path,label\nscans/0.png,q\n", {"classes": ["x", "z"]}, "t.csv:2: unknown label 'q'"),
        ("t.csv", "path,label\nscans/0.png,q\n", {"domain": "label"}, "the column 'label' is given twice"),
        ("t.csv", "path,label\nscans/0.png,x\nscans/1.png,y\n", {}, "no class has two different images"),
        ("t.csv", "path,label,group\nscans/0.png,x,1\nscans/2.png,x,1\n", {}, "no class has images of two groups"),
        ("t.csv", "path,label,label\nscans/0.png,x,x\n", {}, "t.csv:1: the column 'label' stands there 2 times"),
        ("t.csv", "path,label,split\nscans/0.png,x,test\n", {}, "has test rows alone; both train and test are needed"),
        ("t.jsonl", '{"path": "scans/0.png", "label": 1}\n{"path": 3}\n', {}, "t.jsonl:2: no column 'label'"),
        ("t.jsonl", '{"path": ["scans/0.png"], "label": 1}\n', {}, "t.jsonl:1: column 'path' must hold text, not"),
        ("t.txt", "scans/0.png 0", {}, "is no table that is read: its name must end in .csv"),
    ],
)
def test_a_fault_is_one_line_with_file_and_row(tmp_path, rows, name, content, options, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError) as raised:
        make(8, str(tmp_path / name), **options)
    assert message.replace("{root}", str(tmp_path)) in str(raised.value) and "\n" not in str(raised.value)


def test_labels_that_a_reader_joins_are_named_and_one_class_is_refused(tmp_path, rows):
    joined = [{**row, "label": ["1", 1][i % 2]} for i, row in enumerate(without(rows, "group", "domain"))]
    data = make(8, table(tmp_path, "t.jsonl", joined))
    assert data.notes == ('labels that are written in several ways and taken for one: 1 ("1", 1)',)
    done = fedbench("data", "check", "image_table", "--root", "t.jsonl", cwd=tmp_path)
    assert done.exit_code == 2 and "it has the one class '1'" in done.output


# Lists as PACS and Office-Home have them


def lists(root: Path) -> None:
    """Labels begin with 1, as those of PACS do."""
    for d, domain in enumerate(("art_painting", "sketch")):
        lines = []
        for i in range(20):
            name = ("dog", "guitar")[i % 2]
            draw(root / "kfold" / domain / name / f"pic_{i // 4}_{i}.png", 20 * d + i)
            lines.append(f"{domain}/{name}/pic_{i // 4}_{i}.png {1 + i % 2}\n")
        (root / f"{domain}_train_kfold.txt").write_text("".join(lines[4:]))
        (root / f"{domain}_crossval_kfold.txt").write_text("".join(lines[:4]))
        (root / f"{domain}_test_kfold.txt").write_text("".join(lines))


def test_lists_of_a_path_and_a_label_a_line_are_read(tmp_path):
    lists(tmp_path)
    data = image_lists(8, str(tmp_path), "*_train_kfold.txt", "*_crossval_kfold.txt", images="kfold")
    assert data.domains == ("art_painting", "sketch") and data.classes == ("dog", "guitar")
    splits = data.load()
    assert shades(splits.test) == [0, 1, 2, 3, 20, 21, 22, 23] and splits.test.y.tolist() == [0, 1] * 4
    assert splits.test.domain.tolist() == [0] * 4 + [1] * 4 and len(splits.train) == 32


def test_lists_without_a_split_are_split_by_class_and_domain_or_by_group(tmp_path):
    lists(tmp_path)
    splits = image_lists(8, str(tmp_path), ["*_test_kfold.txt"], images="kfold").load()
    assert Counter(zip(splits.test.y.tolist(), splits.test.domain.tolist(), strict=True)) == {
        (y, d): 2 for y in (0, 1) for d in (0, 1)
    }
    data = image_lists(8, str(tmp_path), "*_test_kfold.txt", images="kfold", group="pic_([0-9])")
    train, test = ({shade % 20 // 4 for shade in shades(half)} for half in (data.load().train, data.load().test))
    assert data.notes == ("groups that stay together: 5",) and len(test) == 1 and not train & test


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": "*.csv"}, "has no list '*.csv'"),
        ({"train": "/tmp/*"}, "is no pattern of names below"),
        ({"train": "*_kfold.txt", "images": "kfold"}, "is listed already, at"),
        ({"train": "*_test_kfold.txt", "test": "*_crossval_kfold.txt", "images": "kfold"}, "_crossval_kfold.txt:1: "),
        ({"train": "*_test_kfold.txt", "images": "none"}, "art_painting_test_kfold.txt:1: "),
        ({"train": "odd.txt", "images": "kfold"}, "odd.txt:1: expected <domain>/<class>/<file>, not 'dog/1.png'"),
        ({"train": "wrong.txt", "images": "kfold"}, "wrong.txt:2: label 1 is 'guitar' here and 'dog' at"),
    ],
)
def test_a_list_that_does_not_fit_is_named(tmp_path, options, message):
    lists(tmp_path)
    (tmp_path / "odd.txt").write_text("dog/1.png 0\n")
    (tmp_path / "wrong.txt").write_text("sketch/dog/pic_0_0.png 1\nsketch/guitar/pic_0_1.png 1\n")
    with pytest.raises(UserError) as raised:
        image_lists(8, str(tmp_path), **options)
    assert message in str(raised.value) and "\n" not in str(raised.value)


# Groups of a folder, by names


def test_a_pattern_keeps_images_of_a_folder_together(tmp_path):
    for d, domain in enumerate(("day", "night")):
        for i in range(20):
            draw(tmp_path / "tree" / domain / "ab"[i % 2] / f"p{i // 4}-{i}.png", 20 * d + i)
    root = str(tmp_path / "tree")
    plain, grouped = image_folder(8, root), image_folder(8, root, group="^p[0-9]+")
    assert image_folder(8, root, group=None).fingerprint == plain.fingerprint != grouped.fingerprint
    train, test = ({s % 20 // 4 for s in shades(half)} for half in vars(grouped.load()).values() if half)
    assert len(test) == 1 and not train & test and len(grouped.load().test) == 8
    assert grouped.notes == ("groups that stay together: 5",)
    assert len(np.unique(grouped.load().train.group)) == 4
    with pytest.raises(UserError, match="no class has images of two groups"):
        image_folder(8, root, group="p")
    for split, domain in (("train", "day"), ("test", "night")):
        (tmp_path / "tree" / domain).rename(tmp_path / "tree" / split)
    assert image_folder(8, root, group="^p[0-9]+").notes[-1] == (
        "groups that are in both training and test data: p0, p1, p2, p3, p4"
    )
