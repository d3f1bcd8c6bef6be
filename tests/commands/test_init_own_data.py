"""fedbench init --images and --texts: a suite on data of one's own that runs as it was written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import fedbench
from PIL import Image

from fedbench.registry.registry import Registry
from fedbench.runner.runner import load

ONE_ROUND = ("--set", "train.rounds=1")


def fill(folder: Path, n: int = 4) -> None:
    folder.mkdir(parents=True)
    for i in range(n):
        draw(folder / f"{i}.png")


def draw(file: Path) -> None:
    """An image that is another for every path."""
    pixels = np.random.default_rng([*str(file).encode()]).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file)


def suite_of(cwd: Path, *words: object):
    done = fedbench("init", "--images", "pictures", *words, cwd=cwd)
    assert done.exit_code == 0, done.output
    registry = Registry()
    suite = load(cwd / "pictures_study/suite.yaml", registry)
    return done.output, suite.points()[0].config, suite


def test_domains_become_clients_and_what_was_chosen_is_said(tmp_path):
    for domain in ("day", "night"):
        for name in ("cat", "dog"):
            fill(tmp_path / "pictures" / domain / name)
    said, config, suite = suite_of(tmp_path)
    assert "2 domains (day, night), 2 classes (cat, dog), 16 images" in said
    assert "1 client for each of 2 domains" in said and "of micro_vit's 12 layers: day 12; night 3" in said
    assert "fedbench run pictures_study/suite.yaml" in said
    assert config["capacities"]["by_client"] == [12, 3] and config["data"]["root"] == "../pictures"
    assert (suite.name, len(suite.points())) == ("pictures_study", 15)


def test_classes_alone_are_one_domain_whose_images_are_dealt_to_six(tmp_path):
    for name in ("cat", "dog", "few"):
        fill(tmp_path / "pictures" / name, 1 if name == "few" else 8)
    fill(tmp_path / "others")
    said, config, _ = suite_of(tmp_path)
    assert "one image in a domain, which is trained on: pictures/few" in said and "6 clients" in said
    assert "3 classes (cat, dog, few), 17 images" in said
    assert config["data"]["domains"] == ["pictures"] and "classes" not in config["data"]
    assert config["capacities"]["by_client"] == [12, 10, 8, 7, 5, 3]


def test_clients_of_every_domain_are_large_and_small(tmp_path):
    for domain in ("day", "night"):
        for name in ("cat", "dog"):
            fill(tmp_path / "pictures" / domain / name, 26)
    said, config, _ = suite_of(tmp_path, "--clients", 4)
    assert "2 clients for each of 2 domains, whose classes differ" in said
    assert config["capacities"]["by_client"] == [12, 6, 9, 3]
    assert config["data"]["partition"]["name"] == "dirichlet"
    done = fedbench("init", "other", "--images", "pictures", "--clients", 5, cwd=tmp_path)
    assert done.exit_code == 2 and "2 domains have equally many clients each; give 4 or 6" in done.output


@pytest.mark.parametrize(
    ("files", "given", "said"),
    [
        ((), "nothing", "there is no such folder"),
        (("texts.csv",), "texts.csv", "texts.csv holds no rows"),
        (("texts.txt",), "texts.txt", "texts.txt is no table that is read: its name must end in .csv"),
        (("a.zip",), "a.zip", "is a file; images lie in a folder for each class: DIR/class/image.jpg"),
        (("p/a/1.csv", "p/b/2.csv"), "p", "and there are 2 .csv; for texts there is --texts FILE"),
        (("p/1.jpg", "p/b/2.jpg"), "p", "p has 1 image in no class"),
        (("p/a/1.jpg", "p/b/c/2.jpg"), "p", "a has images, and b has folders of them"),
        (("p/a/1.jpg", "p/a/2.jpg"), "p", "it has the one class 'a', and scores of one class are 100 % for all"),
        (("p/a/1.jpg", "p/b/1.jpg"), "p", "has one image of each class; training and test need one each"),
        (
            ("p/a/1.jpg", "p/a/2.jpg", "p/b/1.jpg", "p/b/2.jpg"),
            "p",
            "the domain 'p' has 4 images, and 6 clients need 12 at least; give fewer",
        ),
    ],
)
def test_what_is_no_tree_of_images_is_told_with_what_to_do(tmp_path, files, given, said):
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("x")
        if file.endswith(".jpg"):
            draw(tmp_path / file)
    done = fedbench("init", "--images", given, cwd=tmp_path)
    assert done.exit_code == 2 and said in done.output, done.output
    assert not (tmp_path / "p_study").exists()


def test_folders_of_splits_are_no_clients(tmp_path):
    for split, n in (("train", 8), ("test", 4)):
        for name in ("cat", "dog"):
            fill(tmp_path / "pictures" / split / name, n)
    said, config, _ = suite_of(tmp_path)
    assert "1 domain, 2 classes (cat, dog), 24 images" in said and "'train' is taken for training and 'test'" in said
    assert "6 clients" in said and "WRONG" not in said and config["data"]["domains"] is None


def test_domains_with_splits_in_them_are_taken_and_so_are_those_that_lack_classes(tmp_path):
    for domain, names in (("day", ("cat", "dog")), ("night", ("cat",))):
        for name in names:
            for split in ("train", "val"):
                fill(tmp_path / "pictures" / domain / split / name)
    said, config, suite = suite_of(tmp_path)
    assert "2 domains (day, night), 2 classes (cat, dog), 24 images" in said
    assert "classes that a domain lacks: 'night' lacks 'dog'" in said and len(suite.points()) == 15


def test_what_is_wrong_with_images_is_said(tmp_path):
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            fill(tmp_path / "pictures" / split / name, 6)
    for file in (tmp_path / "pictures/test/cat").iterdir():
        file.write_bytes((tmp_path / "pictures/train/cat" / file.name).read_bytes())
    (tmp_path / "pictures/train/dog/broken.png").write_text("x")
    said, _, _ = suite_of(tmp_path)
    assert "WRONG: 6 of 12 test images are training images too, pixel for pixel" in said
    assert "WRONG: 1 of 25 images cannot be read" in said


@pytest.mark.parametrize("words", [(), ("study", "--clients", 3)])
def test_without_images_a_folder_is_named_and_clients_are_not(tmp_path, words):
    done = fedbench("init", *words, cwd=tmp_path)
    assert done.exit_code == 2 and "--images DIR" in done.output


def table_of(file: Path, head: str, rows: int = 200) -> None:
    lines = (f"{i} is {('bad', 'good')[i % 2]},{i % 2},{('film', 'shop')[i % 4 // 2]}" for i in range(rows))
    file.write_text("\n".join([head, *lines]))


def suite_on_texts(cwd: Path, table: str, *words: object):
    """What is printed, and the suite; MiniLM is an extra, and stands for any backbone here."""
    done = fedbench("init", "--texts", table, *words, cwd=cwd)
    assert done.exit_code == 0, done.output
    file = cwd / f"{Path(table).stem}_study/suite.yaml"
    text = file.read_text()
    assert "\n  backbone: minilm_l6 " in text
    file.write_text(text.replace("minilm_l6", "micro_bert"))
    return done.output, load(file, Registry())


def test_a_table_of_texts_is_dealt_to_clients_of_its_domains(tmp_path):
    table_of(tmp_path / "reviews.csv", "text,label,domain")
    said, suite = suite_on_texts(tmp_path, "reviews.csv")
    config = suite.points()[0].config
    assert "2 domains (film, shop), 2 classes (0, 1), 200 texts" in said
    assert "160 training and 40 test texts\n" in said and "6 layers: film 6; shop 2" in said
    assert "pip install 'fedbench-heft[minilm]'" in said and "fedbench run reviews_study/suite.yaml" in said
    assert config["capacities"]["by_client"] == [6, 2]
    assert config["data"]["root"] == "../reviews.csv" and config["data"]["domain"] == "domain"
    assert (suite.name, len(suite.points())) == ("reviews_study", 15)


def images_table(folder: Path, head: str, domains: tuple[str, ...] = ("day", "night")) -> None:
    """Sixty images of two classes, by twelve patients; a row has path, class, domain and patient."""
    folder.mkdir()
    lines = [head]
    for i in range(60):
        draw(folder / f"{i}.png")
        lines.append(f"{i}.png,{('cat', 'dog')[i % 2]},{domains[i // 30]},p{i // 5}")
    (folder / "scans.csv").write_text("\n".join(lines))


def test_a_table_of_images_is_dealt_to_clients_of_its_domains(tmp_path):
    images_table(tmp_path / "own", "path,label,domain,group")
    done = fedbench("init", "--images", "own/scans.csv", cwd=tmp_path, columns=200)
    assert done.exit_code == 0, done.output
    assert "2 domains (day, night), 2 classes (cat, dog), 60 images" in done.output
    assert "training and" in done.output and "groups that stay together: 12" in done.output
    suite = load(tmp_path / "scans_study/suite.yaml", Registry())
    data = suite.points()[0].config["data"]
    assert (data["name"], data["root"], data["domain"], data["group"]) == (
        "image_table",
        "../own/scans.csv",
        "domain",
        "group",
    )
    assert data["image_size"] == 32 and len(suite.points()) == 15
    ran = fedbench("run", "scans_study/suite.yaml", "--method", "fedra", "--seed", 0, *ONE_ROUND, cwd=tmp_path)
    assert ran.exit_code == 0, ran.output


def test_columns_of_a_table_of_images_are_named(tmp_path):
    images_table(tmp_path / "own", "file,kind,place,patient")
    words = ("--images", "own/scans.csv", "--path", "file", "--label", "kind")
    assert fedbench("init", *words, "--clients", 3, cwd=tmp_path).exit_code == 0
    data = load(tmp_path / "scans_study/suite.yaml", Registry()).points()[0].config["data"]
    assert (data["path"], data["label"], data["domain"], data["group"]) == ("file", "kind", None, None)
    fill(tmp_path / "pictures/a")
    for given, said in (
        (("--images", "own/scans.csv"), "no column 'path'; it has: file, kind, patient, place; say --path COLUMN"),
        (("--images", "pictures", "--label", "kind"), "columns of --images TABLE; here images lie in a folder"),
        (("--texts", "own/scans.csv", "--path", "file"), "--path is a column of --images TABLE"),
    ):
        done = fedbench("init", *given, cwd=tmp_path, columns=200)
        assert done.exit_code == 2 and said in done.output, done.output


def test_the_other_kind_of_table_is_pointed_at(tmp_path):
    (tmp_path / "texts.csv").write_text("text,label\na,b\n")
    (tmp_path / "images.csv").write_text("path,label\na.png,b\n")
    for option, file, said in (
        ("--images", "texts.csv", "no column 'path'; it has: label, text; for texts there is --texts FILE"),
        ("--texts", "images.csv", "for images there is --images TABLE"),
    ):
        done = fedbench("init", option, file, cwd=tmp_path, columns=200)
        assert done.exit_code == 2 and said in done.output, done.output


def test_what_is_wrong_with_texts_is_said(tmp_path):
    rows = [("train", f"{i} is {'xyz'[i % 2]}", "xyz"[i % 2]) for i in range(40)]
    rows += [("test", text, label) for _, text, label in rows[:20]] + [("test", "new", "z")]
    (tmp_path / "t.csv").write_text("split,text,label\n" + "".join(f"{','.join(row)}\n" for row in rows))
    said, _ = suite_on_texts(tmp_path, "t.csv")
    assert "WRONG: 20 of 21 test texts are training texts too, word for word" in said
    assert "WRONG: no training text has the class 'z'; 1 of 21 test texts are of such a class" in said


def test_columns_of_a_table_are_named(tmp_path):
    table_of(tmp_path / "reviews.csv", "review,stars,shop")
    said, suite = suite_on_texts(tmp_path, "reviews.csv", "--text", "review", "--label", "stars", "--clients", 6)
    data = suite.points()[0].config["data"]
    assert (data["text"], data["label"], data["domain"], data["split"]) == ("review", "stars", None, None)
    assert "1 domain, 2 classes (0, 1), 200 texts" in said and "6 clients" in said
    assert data["partition"]["name"] == "dirichlet"


def test_columns_of_a_parquet_file_are_found_and_pairs_are_two_columns(tmp_path):
    rows = {"a": ["x", "y"] * 8, "b": ["z"] * 16, "label": [0, 1] * 8, "split": ["train"] * 12 + ["test"] * 4}
    pq.write_table(pa.table(rows), tmp_path / "pairs.parquet")
    _, suite = suite_on_texts(tmp_path, "pairs.parquet", "--text", "a", "--text", "b", "--clients", 2)
    data = suite.points()[0].config["data"]
    assert (data["text"], data["split"]) == (["a", "b"], "split")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--texts", "none.csv"), "--texts none.csv: there is no such file or folder"),
        (("--texts", "."), "holds no table: no file that ends in .csv, .tsv"),
        (("--texts", "reviews.csv"), "reviews.csv: no column 'label'; it has: domain, stars, text; say --label COLUMN"),
        (("--texts", "reviews.csv", "--label", "star"), 'did you mean "stars"?'),
        (("--texts", "reviews.csv", "--label", "stars", "--clients", 3), "give 2 or 4"),
        (
            ("--texts", "reviews.csv", "--label", "stars", "--clients", 120),
            "the domain 'film' has 100 texts, and 60 clients need 120",
        ),
        (("--texts", "reviews.csv", "--images", "."), "a suite has one data set"),
        (("study", "--label", "stars"), "are columns of --texts FILE"),
        (("reviews.csv",), "--texts reviews.csv writes a suite on its texts"),
        (("--texts", "few.csv", "--label", "stars"), "the domain 'shop' has no test text, and so no score"),
    ],
)
def test_what_is_no_table_of_texts_is_said_with_what_to_do(tmp_path, words, said):
    folder = tmp_path if "." not in words[1:2] else tmp_path / "empty"
    folder.mkdir(exist_ok=True)
    if folder == tmp_path:
        table_of(folder / "reviews.csv", "text,stars,domain")
        table_of(folder / "few.csv", "text,stars,domain", 6)
    done = fedbench("init", *words, cwd=folder)
    assert done.exit_code == 2 and said in done.output, done.output
    assert not list(folder.glob("*_study"))


def test_a_folder_may_be_called_as_a_word_of_the_template(tmp_path):
    for name in ("cat", "dog"):
        fill(tmp_path / "DATA" / name)
    done = fedbench("init", "--images", "DATA", "--clients", 4, cwd=tmp_path)
    assert done.exit_code == 0, done.output
    suite = load(tmp_path / "DATA_study/suite.yaml", Registry())
    assert suite.name == "DATA_study" and suite.points()[0].config["data"]["domains"] == ["DATA"]
