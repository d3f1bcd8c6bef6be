"""fedbench init --images: a suite on a folder of images that runs as it was written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command import fedbench
from PIL import Image

from fedbench.registry.registry import Registry
from fedbench.runner.runner import load


def fill(folder: Path, n: int = 4) -> None:
    folder.mkdir(parents=True)
    for i in range(n):
        pixels = np.random.default_rng([i, *folder.name.encode()]).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")


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
    assert "1 client for each of 2 domains" in said and "[12, 3]" in said
    assert "fedbench run pictures_study/suite.yaml" in said
    assert config["capacities"]["by_client"] == [12, 3] and config["data"]["root"] == "../pictures"
    assert (suite.name, len(suite.points())) == ("pictures_study", 15)


def test_classes_alone_are_one_domain_whose_images_are_dealt_to_six(tmp_path):
    for name in ("cat", "dog", "few"):
        fill(tmp_path / "pictures" / name, 1 if name == "few" else 8)
    fill(tmp_path / "others")
    said, config, _ = suite_of(tmp_path)
    assert "left out: few" in said and "6 clients" in said
    assert config["data"]["domains"] == ["pictures"] and config["data"]["classes"] == ["cat", "dog"]
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
        (("texts.csv",), "texts.csv", "texts.csv is a table, and images lie in a folder for each class; for texts"),
        (("a.zip",), "a.zip", "is a file; images lie in a folder for each class: DIR/class/image.jpg"),
        (("p/a/1.csv", "p/b/2.csv"), "p", "and there are 2 .csv; for texts there is the data set `text_table`"),
        (("p/1.jpg", "p/b/2.jpg"), "p", "p has 1 image in no class"),
        (("p/a/1.jpg", "p/b/c/2.jpg"), "p", "a has images, and b has folders of them"),
        (("p/a/1.jpg", "p/a/2.jpg", "p/b/1.jpg"), "p", "only 'a' has two images in every domain, and two classes"),
        (("p/a/1.jpg", "p/a/2.jpg", "p/b/1.jpg", "p/b/2.jpg"), "p", "a domain has 4 images, too few for 6 clients"),
    ],
)
def test_what_is_no_tree_of_images_is_told_with_what_to_do(tmp_path, files, given, said):
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("x")
    done = fedbench("init", "--images", given, cwd=tmp_path)
    assert done.exit_code == 2 and said in done.output, done.output
    assert not (tmp_path / "p_study").exists()


@pytest.mark.parametrize("words", [(), ("study", "--clients", 3)])
def test_without_images_a_folder_is_named_and_clients_are_not(tmp_path, words):
    done = fedbench("init", *words, cwd=tmp_path)
    assert done.exit_code == 2 and "--images DIR" in done.output
