"""One folder spelt in many ways, behind every option and argument that takes a path."""

from __future__ import annotations

import os
import shutil
import unicodedata
from pathlib import Path

import pytest
from command import TINY, fedbench, write_suite
from factories import eval_rows, write_cell
from PIL import Image

from fedbench.disk import as_written

SPELLINGS = {
    "relative": "{name}",
    "dotted": "./{name}",
    "whole": "{cwd}/{name}",
    "a slash at the end": "{name}/",
    "doubled slashes": "{cwd}//{name}",
    "there and back": "{name}/../{name}",
    "home": "~/{name}",
    "a link": "link",
}
NAME = "a café, 100% [x]"


@pytest.fixture
def spelt(tmp_path, monkeypatch):
    """spelt(how): the results of one cell in that spelling."""
    monkeypatch.setenv("HOME", str(tmp_path))
    write_cell(tmp_path / NAME / "s", "fedra", evaluation=eval_rows({1: {"a": 0.5}, 2: {"a": 0.6}}))
    write_suite(tmp_path / NAME, "allsmall")
    shutil.copy(TINY, tmp_path / NAME / "mine.py")
    for i, place in enumerate(("one/a", "one/b", "two/a", "two/b")):
        (tmp_path / NAME / "tree" / place).mkdir(parents=True)
        for k in range(2):
            Image.new("RGB", (8, 8), (80 * k, 40 * i, 0)).save(tmp_path / NAME / "tree" / place / f"{k}.png")
    os.symlink(tmp_path / NAME, tmp_path / "link")
    return lambda how: SPELLINGS[how].format(name=NAME, cwd=tmp_path)


@pytest.mark.parametrize("how", SPELLINGS)
def test_a_path_means_one_folder_however_it_is_spelt(tmp_path, spelt, how):
    path = spelt(how)
    given = spelt("whole") if how == "home" else path  # a shell expands arguments, and options behind a `=` not
    hashes = {fedbench("compare", one, "--hash", cwd=tmp_path).stdout.split()[0] for one in (given, spelt("whole"))}
    assert len(hashes) == 1
    ways = {
        ("compare", given): "",
        ("report", given, f"-o{path}/page.html"): "page.html",
        ("plot", "curves", given, f"--out={path}/curves.svg"): "curves.svg",
        ("merge", given, f"--into={path}/merged"): "merged/s/index.json",
        ("pack", given): "s/index.json",
        ("plan", f"{given}/tiny.yaml", f"--plugin={path}/mine.py"): "",
        ("data", "check", "image_folder", f"--root={path}/tree"): "",
        ("suites", "copy", "quickstart", f"{given}/copied.yaml"): "copied.yaml",
        ("init", f"{given}/study"): "study/suite.yaml",
        ("plugins", "new", "mine", "--kind", "metric", f"--into={path}/package"): "package/pyproject.toml",
    }
    for words, made in ways.items():
        done = fedbench(*words, cwd=tmp_path)
        assert done.exit_code == 0, (words, done.output)
        assert not made or os.path.exists(f"{spelt('whole')}/{made}"), words
    assert not (tmp_path / "~").exists()


@pytest.mark.parametrize(("there", "given"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_what_is_read_is_found_where_a_file_system_changed_its_unicode_form(tmp_path, there, given):
    def name(form, text):
        return unicodedata.normalize(form, text)

    folder = tmp_path / name(there, "d\xe9p\xf4t")
    folder.mkdir()
    write_suite(folder, "allsmall").rename(folder / name(there, "caf\xe9.yaml"))
    shutil.copy(TINY, folder / name(there, "\xe9t\xe9.py"))
    write_cell(folder / "s", "fedra", evaluation=eval_rows({1: {"a": 0.5}}))
    suite, plugin = name(given, "d\xe9p\xf4t/caf\xe9.yaml"), name(given, "d\xe9p\xf4t/\xe9t\xe9.py")
    for words in (["plan", suite, "--plugin", plugin], ["compare", name(given, "d\xe9p\xf4t")]):
        done = fedbench(*words, cwd=tmp_path)
        assert done.exit_code == 0, done.output
    missing = Path(name(given, "d\xe9p\xf4t/n\xe9.txt"))
    assert as_written(tmp_path / missing) == folder / missing.name and as_written(missing) == missing
    assert os.listdir(tmp_path) == [folder.name]
