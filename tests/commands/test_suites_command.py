"""fedbench suites, and commands that take a shipped suite by its name."""

from contextlib import chdir
from pathlib import Path

import pytest
from command import TINY, fedbench, write_suite

from fedbench.registry.registry import Registry
from fedbench.runner.runner import load
from fedbench.suite.shipped import folder, listed, names


def test_every_shipped_suite_has_a_name_and_says_what_it_is_about():
    files = sorted(Path("suites").rglob("*.yaml"))
    assert sorted(file.name for file in files) == sorted(path.name for path in names().values())
    assert {"quickstart", "tuned/feature_skew", "papers/fedra/table1"} <= names().keys()
    assert all(len(facts["description"]) > 20 for facts in listed().values())


def test_show_prints_the_file():
    assert fedbench("suites", "show", "quickstart", cwd=".").output == Path("suites/quickstart.yaml").read_text("utf-8")


def test_a_name_takes_the_place_of_a_file(tmp_path):
    with chdir(tmp_path):
        assert load("quickstart", Registry()).name == "quickstart"


def test_a_file_of_that_name_comes_first(tmp_path):
    write_suite(tmp_path).rename(tmp_path / "quickstart")
    with chdir(tmp_path):
        assert load("quickstart", Registry([str(TINY)])).name == "tiny"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("quikstart", "did you mean quickstart?"),
        ("table1", "did you mean papers/fedra/table1?"),
        ("suites/tuned/feature_skew.yaml", "the shipped suite is called tuned/feature_skew"),
        ("nothing_like_it", "`fedbench suites list` has those"),
        ("nothing_like_it.yaml", "nothing_like_it.yaml: cannot be read"),
    ],
)
def test_what_is_neither_is_told(tmp_path, given, told):
    done = fedbench("plan", given, cwd=tmp_path)
    assert done.exit_code == 2
    assert told in done.output


def test_a_copy_reads_the_papers_numbers_beside_itself(tmp_path):
    target = tmp_path / "mine.yaml"
    assert fedbench("suites", "copy", "papers/fedra/table1", target, cwd=tmp_path).exit_code == 0
    assert target.read_text().startswith(f"# fedbench run {target}\n")
    assert "\nsuite: mine\n" in target.read_text()
    assert "{file: paper_tables.csv," in target.read_text()
    assert (tmp_path / "paper_tables.csv").read_bytes() == (folder() / "papers/paper_tables.csv").read_bytes()


def test_a_copy_overwrites_nothing_and_writes_nothing_half(tmp_path):
    (tmp_path / "paper_tables.csv").write_text("mine")
    done = fedbench("suites", "copy", "papers/fedra/table1", tmp_path, cwd=tmp_path)
    assert done.exit_code == 2 and "already there" in done.output
    assert [file.name for file in tmp_path.iterdir()] == ["paper_tables.csv"]


@pytest.mark.parametrize(
    ("words", "file", "name"),
    [
        ((), "quickstart.yaml", "quickstart"),
        (("my own.yaml",), "my own.yaml", "my_own"),
        (("there",), "there/quickstart.yaml", "quickstart"),
    ],
)
def test_a_copy_is_one_file_and_is_called_after_it(tmp_path, words, file, name):
    (tmp_path / "there").mkdir()
    assert fedbench("suites", "copy", "quickstart", *words, cwd=tmp_path).exit_code == 0
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == [tmp_path / file]
    assert load(tmp_path / file, Registry()).name == name


def test_a_copied_suite_is_the_suite_itself(tmp_path):
    fedbench("suites", "copy", "quickstart", "mine.yaml", cwd=tmp_path)
    registry = Registry()
    cells = [load(which, registry).points() for which in ("quickstart", tmp_path / "mine.yaml")]
    assert [cell.config for cell in cells[0]] == [cell.config for cell in cells[1]]
