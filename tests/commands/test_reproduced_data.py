"""Where reproduced cells find their data: where the suite was, or where --root says."""

from __future__ import annotations

import shutil

import pytest
from command import TINY, fedbench, write_suite
from PIL import Image


@pytest.fixture
def made(tmp_path, own_cache):
    """Results of a suite whose root leads out of its own folder."""
    folder = tmp_path / "made"
    for i, place in enumerate(("one/a", "one/b", "two/a", "two/b")):
        (folder / "pictures" / place).mkdir(parents=True)
        for k in range(3):
            Image.new("RGB", (8, 8), (40 * i, 60 * k, 0)).save(folder / "pictures" / place / f"{k}.png")
    (folder / "suites").mkdir()
    data = {"data: dots": "data: {name: image_folder, root: ../pictures}"}
    suite = write_suite(folder / "suites", "allsmall", data)
    assert fedbench("run", suite, "--plugin", TINY, "--results", "r", "--quiet", cwd=folder).exit_code == 0
    return folder


def reproduce(folder, source, *words):
    return fedbench("reproduce", source, "--plugin", TINY, "--quiet", *words, cwd=folder)


def test_data_are_looked_for_where_the_suite_was_or_where_root_says(made, tmp_path):
    done = reproduce(tmp_path, made / "r", "--no-run")
    assert done.exit_code == 0 and "are those of the source" in done.stdout, done.output
    (tmp_path / "there").mkdir()
    shutil.move(made / "pictures", tmp_path / "pictures")
    refused = reproduce(tmp_path, made / "r", "--no-run")
    assert refused.exit_code == 2 and "--root DIR says" in refused.stderr and "Traceback" not in refused.output
    done = reproduce(tmp_path, made / "r", "--root", "there")
    assert done.exit_code == 0 and "1 name in both: 1 equal" in done.stdout, done.output
