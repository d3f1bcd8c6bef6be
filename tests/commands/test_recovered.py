"""Where the data of a source are here: where a results folder says, in the current folder, or where --root does."""

from __future__ import annotations

import shutil

import pytest
from command import TINY, fedbench, write_suite
from PIL import Image

from fedbench.commands.reproduce import places
from fedbench.data.sources import located
from fedbench.errors import UserError
from fedbench.results.diff import CellSummary


@pytest.fixture(scope="module")
def made(tmp_path_factory, own_cache):
    """Results of a suite whose root leads out of its own folder, and the page on them."""
    folder = tmp_path_factory.mktemp("made")
    for i, place in enumerate(("one/a", "one/b", "two/a", "two/b")):
        (folder / "pictures" / place).mkdir(parents=True)
        for k in range(3):
            Image.new("RGB", (8, 8), (40 * i, 60 * k, 0)).save(folder / "pictures" / place / f"{k}.png")
    (folder / "suites").mkdir()
    data = {"data: dots": "data: {name: image_folder, root: ../pictures}"}
    suite = write_suite(folder / "suites", "allsmall", data)
    assert fedbench("run", suite, "--plugin", TINY, "--results", "r", "--quiet", cwd=folder).exit_code == 0
    assert fedbench("report", "r", "--plugin", TINY, cwd=folder).exit_code == 0
    return folder


def reproduce(folder, source, *words):
    return fedbench("reproduce", source, "--plugin", TINY, "--quiet", *words, cwd=folder)


def test_a_results_folder_says_where_its_data_were(made, tmp_path):
    done = reproduce(tmp_path, made / "r")
    assert done.exit_code == 0 and "1 cell: 1 equal" in done.stdout, done.output


def test_a_page_is_told_where_its_data_are_and_names_them_until_then(made, tmp_path):
    page = made / "report.html"
    shutil.copytree(made / "pictures", tmp_path / "mine")
    refused = reproduce(tmp_path, page, "--no-run")
    assert refused.exit_code == 2 and "--root ../pictures=DIR" in refused.stderr and "Traceback" not in refused.output
    done = reproduce(tmp_path, page, "--root", "../pictures=mine")
    assert done.exit_code == 0 and "1 cell: 1 equal" in done.stdout, done.output
    assert str(made) not in page.read_text()
    assert reproduce(tmp_path, page, "--no-run", "--root", "mine").exit_code == 0


def cell(root, there=None):
    data = {"name": "image_folder", "root": root}
    manifest = {"config": {"data": data}}
    return CellSummary("s", "mixed", "", "fedra", 0, "id", "finished", manifest, root=there)


def test_a_page_leads_to_nothing_but_what_lies_in_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "here" / "pictures").mkdir(parents=True)
    (tmp_path / "private").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert places([cell("pictures"), cell(None)]) == {"pictures": str(tmp_path / "here" / "pictures")}
    for root in ("../private", "pictures/../../private", str(tmp_path / "private"), "~/private"):
        with pytest.raises(UserError, match="which a page is not followed to"):
            places([cell(root)])
        assert places([cell(root)], [f"{root}=pictures"]) == {root: str(tmp_path / "here" / "pictures")}
        assert places([cell(root)], ["~/private"]) == {root: str(tmp_path / "private")}
        assert places([cell(root, there="")])  # of a results folder, as of a suite


def test_a_folder_that_is_gone_is_looked_for_in_the_current_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    assert places([cell("a", str(tmp_path / "there"))]) == {"a": str(tmp_path / "there")}
    with pytest.raises(UserError, match=r"SOURCE names data in a, and .*/a does not exist; .* --root a=DIR"):
        places([cell("a", str(tmp_path / "gone"))])
    (tmp_path / "a").mkdir()
    assert places([cell("a", str(tmp_path / "gone"))]) == {"a": str(tmp_path / "a")}
    with pytest.raises(UserError, match="means several folders by a"):
        places([cell("a", str(tmp_path / "there")), cell("a", str(tmp_path / "a"))])


@pytest.mark.parametrize(
    ("roots", "given", "told"),
    [
        ((), "here", "SOURCE names no root"),
        (("a", "b"), "here", "say THERE=DIR; SOURCE names 2 roots: a, b"),
        (("a",), "a=gone", "/gone does not exist"),
    ],
)
def test_what_root_says_must_fit(tmp_path, monkeypatch, roots, given, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    with pytest.raises(UserError) as caught:
        places([cell(root) for root in roots], [given])
    assert told in str(caught.value)


def test_no_root_is_followed_of_which_nothing_is_said():
    with pytest.raises(UserError, match="not said where"):
        located({"name": "image_folder", "root": "/private"}, {"/elsewhere": "/here"})
    assert located({"name": "dots"}, {}) == {"name": "dots"}
