"""Folders and names of any letters: printed as they are, quoted in commands to copy, `~` expanded in every option."""

from __future__ import annotations

import re
import shlex
import shutil

import pytest
from command import TINY, fedbench, write_suite
from factories import eval_rows, write_cell

import fedbench as fedbench_api
from fedbench.cli import _expanded
from fedbench.words import meant, suggestion, unlike

ODD = ("runs[v2]", "runs[/v2]", "runs [bold]x", ":cat: runs", "a 'quoted' one", "$HOME;ls")


@pytest.mark.parametrize("name", ODD)
def test_a_run_prints_its_folder_as_it_is_and_commands_that_can_be_copied(tmp_path, name):
    write_suite(tmp_path, "allsmall")
    done = fedbench("run", "tiny.yaml", "--plugin", TINY, "--results", name, cwd=tmp_path, columns=200)
    assert done.exit_code == 0, done.output
    printed, again = re.search(r"^Results: (.*)    Again: (.*)$", done.stdout, re.MULTILINE).groups()
    assert printed == f"{name}/tiny" and (tmp_path / printed).is_dir()
    assert shlex.split(again) == ["fedbench", "compare", printed]
    shown = fedbench(*shlex.split(again)[1:], cwd=tmp_path)
    assert shown.exit_code == 0 and "allsmall" in shown.stdout


@pytest.mark.parametrize("name", ODD)
def test_data_and_suites_are_called_as_they_are(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir(parents=True)
    copied = fedbench("suites", "copy", "quickstart", folder / "mine.yaml", cwd=tmp_path)
    quoted = re.search(r"run it with `(.*)`", copied.stdout)[1]
    assert shlex.split(quoted) == ["fedbench", "run", str(folder / "mine.yaml")]
    missing = fedbench("data", "prepare", "digits", "--root", folder, cwd=tmp_path, columns=300).output
    assert "Traceback" not in missing


def test_home_is_expanded_behind_every_option_where_no_shell_does(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    write_cell(tmp_path / "home" / "s", "fedra", evaluation=eval_rows({1: {"a": 0.5}, 2: {"a": 0.6}}))
    ways = {
        ("report", str(tmp_path / "home" / "s"), "--output=~/page.html"): "page.html",
        ("report", str(tmp_path / "home" / "s"), "-o~/short.html"): "short.html",
        ("plot", "curves", str(tmp_path / "home" / "s"), "--out=~/curves.svg"): "curves.svg",
        ("merge", str(tmp_path / "home" / "s"), "--into=~/merged"): "merged/s/index.json",
    }
    for words, made in ways.items():
        done = fedbench(*words, cwd=tmp_path)
        assert done.exit_code == 0 and (tmp_path / "home" / made).is_file(), done.output
    assert not (tmp_path / "~").exists()


@pytest.mark.parametrize("words", [["compare"], ["report"], ["plan"], ["merge", "--into=~nobody-of-that-name/y"]])
def test_the_home_of_nobody_is_refused_in_words(tmp_path, words):
    refused = fedbench(*words, "~nobody-of-that-name/x", cwd=tmp_path)
    assert refused.exit_code == 2 and "~nobody-of-that-name" in refused.output and list(tmp_path.iterdir()) == []


def test_home_is_expanded_from_python_too(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    write_suite(tmp_path, "allsmall")
    shutil.copy(TINY, tmp_path / "mine.py")
    ran = fedbench_api.run("~/tiny.yaml", plugins=["~/mine.py"], results="~/r", quiet=True, jobs=1)
    assert (tmp_path / "r" / "tiny" / "index.json").is_file() and len(ran.cells) == 1
    for path in ("~/r", "~/r/*", "~/r/tiny"):
        assert len(fedbench_api.load(path).cells) == 1
    assert len(fedbench_api.load_results("~/r")) and list(work.iterdir()) == []


@pytest.mark.parametrize("name", ["a b.yaml", "it's.yaml", "$HOME.yaml"])
def test_the_first_line_of_a_copied_suite_is_a_command_to_copy(tmp_path, name):
    assert fedbench("suites", "copy", "quickstart", name, cwd=tmp_path).exit_code == 0
    first = (tmp_path / name).read_text().partition("\n")[0]
    assert shlex.split(first.removeprefix("# ")) == ["fedbench", "run", name]


@pytest.mark.parametrize("word", ["~/x", "--where=accuracy > ~", "group ~ *a*", "-~", "--set=data.root=~/x", "compare"])
def test_other_words_are_left_as_they_are(word):
    assert _expanded(word) == word


SAME = {
    ("cafe\u0301", "caf\xe9"): "another Unicode form",
    ("\ufb01ne", "fine"): "another Unicode form",
    ("fedra ", "fedra"): "spaces at an end",
    ("\u00a0fedra", "fedra"): "spaces at an end",
    ("FedRA", "fedra"): "upper and lower case",
}


@pytest.mark.parametrize(("given", "there"), SAME)
def test_names_that_look_the_same_have_their_difference_in_words(given, there):
    way = SAME[given, there]
    assert way in unlike(given, there) and unlike(there, there) == "" and unlike("fedar", there) == ""
    assert way in meant(given, [there, "other"]) and way in suggestion(given, [there, "other"])


def test_a_filter_says_how_the_name_it_means_is_spelt(tmp_path):
    write_cell(tmp_path / "s", "caf\xe9", evaluation=eval_rows({1: {"a": 0.5}}), label="caf\xe9")
    for given, way in (
        ("cafe\u0301", "another Unicode form"),
        ("CAF\xc9", "upper and lower case"),
        ("caf\xe9 ", "spaces"),
    ):
        refused = fedbench("compare", "s", "--method", given, cwd=tmp_path)
        assert refused.exit_code == 2 and way in refused.output
