"""fedbench/report/images.py: two methods' trained models, test image by test image."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from command import fedbench
from factories import eval_rows, write_cell


def bits(wrong, t=12, output="", positions="these", images=40):
    right = np.ones(images, bool)
    right[list(wrong)] = False
    packed = np.packbits(right).tobytes()
    return {"round": t, "output": output, "images": images, "positions": positions, "bits": packed}


def cell(folder, method, seed=0, right=None, **options):
    evaluation = eval_rows({12: {"a": 0.5, "b": 0.5}})
    return write_cell(folder / "s", method, seed, evaluation=evaluation, right=right, **options)


@pytest.fixture
def folder(tmp_path):
    cell(tmp_path, "fedra", 0, [bits([0]), bits(range(30), output="last"), bits(range(20), t=3)])
    cell(tmp_path, "depthfl", 0, [bits(range(21))])
    cell(tmp_path, "fedra", 1, [bits([0, 1, 2])])
    cell(tmp_path, "depthfl", 1, [bits([2, 3])])
    return tmp_path


def images(folder, *options, names=("fedra", "depthfl"), **how):
    return fedbench("compare", "images", *names, "s", *options, cwd=folder, **how)


def test_a_line_for_each_seed_with_the_images_that_one_alone_has_right(folder):
    rows = list(csv.DictReader(io.StringIO(images(folder, "--format", "csv").stdout)))
    counted = [(r["seed"], r["images"], r["method_alone"], r["other_alone"], r["method_round"]) for r in rows]
    assert counted == [("0", "40", "20", "0", "12"), ("1", "40", "1", "2", "12")]
    p = [2 / 2**20, 1.0]
    assert [float(r["p"]) for r in rows] == pytest.approx(p)
    assert [float(r["q"]) for r in rows] == pytest.approx([2 * p[0], 1.0])
    assert [row["seed"] for row in json.loads(images(folder, "--format", "json").stdout)["rows"]] == [0, 1]


@pytest.mark.parametrize("width", [60, 80])
def test_people_read_whose_model_is_better_and_that_methods_are_another_thing(folder, width):
    text = images(folder, columns=width).output
    assert max(map(len, text.splitlines())) <= width
    words = " ".join(text.split())
    assert "not two methods" in words and "fedra" in words and "inconclusive" in words and "+50.0" in words
    for form in ("markdown", "latex"):
        assert "not two methods" in images(folder, "--format", form).stdout


def test_what_cannot_be_tested_is_said(folder):
    for seed, (ours, theirs) in enumerate(((None, [bits([1])]), ([bits([1])], [bits([1], positions="others")])), 2):
        cell(folder, "fedra", seed, ours)
        cell(folder, "depthfl", seed, theirs)
    words = " ".join(images(folder).output.split())
    assert "seed 2: it is not recorded which images fedra answered right" in words
    assert "seed 3: the two were tested on different images" in words


def test_mistakes(folder):
    cell(folder, "festa", scenario="other")
    for names, message in (
        (("fedra", "depthf"), "no method 'depthf' in these results. Did you mean 'depthfl'?"),
        (("fedra", "festa"), "no leaderboard has both fedra and festa"),
    ):
        done = images(folder, names=names)
        assert done.exit_code == 2 and message in done.output
    done = images(folder, "--at", "last4")
    assert done.exit_code == 2 and "mean over four" in done.output


def test_methods_that_share_no_seed(tmp_path):
    cell(tmp_path, "fedra", 0, [bits([0])])
    cell(tmp_path, "depthfl", 1, [bits([0])])
    assert "no seed has finished for both" in images(tmp_path).output
