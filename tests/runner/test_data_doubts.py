"""What is wrong with data, said with one sentence by `data check`, `plan`, `run`, `init` and the board."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from command import TINY, fedbench, write_suite
from factories import eval_rows, write_cell
from PIL import Image

from fedbench.results import content_hash, read_manifest, write_manifest

REPEATED = "3 of 6 test images are training images too, pixel for pixel"
UNTRAINED = "no training image has the class 'dog'; 3 of 6 test images are of such a class"
ALONE = "it has the one class 'cat', and scores of one class are 100 % for all; two are needed"


def tree(folder, classes, copies):
    """Three images of each class in each split; copies: of how many classes the test images are training images."""
    for split, names in classes.items():
        for c, name in enumerate(names):
            (folder / split / name).mkdir(parents=True)
            for i in range(3):
                own = [c, i] if split == "train" or c < copies else [c, i, 9]
                pixels = np.random.default_rng(own).integers(0, 256, (8, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"{i}.png")


SETTINGS = {"data: dots": "data: {name: image_folder, root: pets}", "[2, 1]": "{cycle: [2]}"}
CASES = {
    "repeated": ({"train": ("cat", "dog"), "test": ("cat", "dog")}, 1, REPEATED),
    "untrained": ({"train": ("cat", "owl"), "test": ("cat", "dog")}, 0, UNTRAINED),
}


@pytest.mark.parametrize("case", CASES)
def test_every_command_says_it_in_the_same_words(tmp_path, case, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    classes, copies, said = CASES[case]
    tree(tmp_path / "pets", classes, copies)
    write_suite(
        tmp_path, "allsmall", {"data: dots": "data: {name: image_folder, root: pets}", "[2, 1]": "{cycle: [2]}"}
    )
    checked = fedbench("data", "check", "image_folder", "--root", "pets", "--json", cwd=tmp_path)
    assert checked.exit_code == 2
    wrong = [one["text"] for one in json.loads(checked.stdout)[0]["findings"] if one["level"] == "WRONG"]
    assert wrong == [said]
    planned = fedbench("plan", "tiny.yaml", "--plugin", TINY, cwd=tmp_path)
    assert planned.exit_code == 0 and f"Warning: image_folder: {said}\n" in planned.stderr, planned.output
    ran = fedbench("run", "tiny.yaml", "--plugin", TINY, "--jobs", 1, cwd=tmp_path, columns=200)
    assert ran.exit_code == 0 and f"Warning: image_folder: {said}\n" in ran.stderr, ran.output
    compared = fedbench("compare", "results/tiny", cwd=tmp_path)
    for board in (ran, compared):
        assert f"the data may be wrong: {said}" in re.sub(r"\s+", " ", board.stdout)
    begun = fedbench("init", "--images", "pets", "--clients", 1, cwd=tmp_path)
    assert begun.exit_code == 0 and f"WRONG: {said}" in begun.output, begun.output


def test_data_of_one_class_are_refused_by_every_command_in_the_same_words(tmp_path):
    tree(tmp_path / "pets", {"train": ("cat",), "test": ("cat",)}, 0)
    write_suite(
        tmp_path, "allsmall", {"data: dots": "data: {name: image_folder, root: pets}", "[2, 1]": "{cycle: [2]}"}
    )
    suite = ("tiny.yaml", "--plugin", TINY)
    ways = [("data", "check", "image_folder", "--root", "pets"), ("plan", *suite), ("run", *suite)]
    for words in (*ways, ("init", "--images", "pets")):
        done = fedbench(*words, cwd=tmp_path, columns=300)
        assert done.exit_code == 2 and ALONE in re.sub(r"\s+", " ", done.output), (words, done.output)
    assert not (tmp_path / "pets_study").exists() and not (tmp_path / "results").exists()


def test_a_doubt_is_no_part_of_a_result(tmp_path):
    """It follows from the fingerprint of the data; an older fedbench wrote none."""
    hashes = set()
    for name, more in (("one", {}), ("two", {"doubts": [REPEATED]})):
        cell = write_cell(tmp_path / name / "s", "fedra", evaluation=eval_rows({1: {"a": 0.5}}))
        write_manifest(cell, {**read_manifest(cell), **more})
        hashes.add(content_hash(tmp_path / name / "s"))
        board = fedbench("compare", tmp_path / name / "s", cwd=tmp_path).stdout
        assert (REPEATED in board) == bool(more)
    assert len(hashes) == 1
