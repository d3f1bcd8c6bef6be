"""Folders and names of any letters: printed as they are, quoted in commands to copy, `~` expanded in every option."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess

import pytest
from command import TINY, fedbench, process, write_suite
from factories import eval_rows, write_cell
from PIL import Image

import fedbench as fedbench_api
from fedbench.words import meant, quoted, suggestion, unlike

ODD = ("runs[v2]", "a 'quoted' [/v2]", "runs [bold]x", ":cat: runs", "$HOME;ls")


RUN = ("a 'quoted' [/v2]",)  # the others are quoted and printed by the same functions


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in RUN)) for name in ODD])
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
    for given, way in (("cafe\u0301", "another Unicode form"), ("CAF\xc9", "upper and lower case")):
        refused = fedbench("compare", "s", "--method", given, cwd=tmp_path)
        assert refused.exit_code == 2 and way in refused.output
    assert fedbench("compare", "s", "--method", "caf\xe9 ", cwd=tmp_path).exit_code == 0  # as behind a comma


ODD_NAME = os.fsdecode(b"caf\xe9")  # of a file from an old system, or from an archive


def test_folders_and_suites_of_a_name_that_is_no_utf_8_are_run_and_shown_by_commands_that_can_be_copied(tmp_path):
    write_suite(tmp_path, "allsmall").rename(tmp_path / f"{ODD_NAME}.yaml")
    done = fedbench("run", f"{ODD_NAME}.yaml", "--plugin", TINY, "--results", ODD_NAME, "--quiet", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    copied = process("suites", "copy", "quickstart", f"{ODD_NAME}/copy.yaml", cwd=tmp_path)
    assert copied.returncode == 0 and r"run it with `fedbench run $'caf\351/copy.yaml'`" in copied.stdout
    assert (tmp_path / ODD_NAME / "copy.yaml").read_text().startswith(r"# fedbench run $'caf\351/copy.yaml'")
    shell = subprocess.run(["bash", "-c", rf"cat {quoted(f'{ODD_NAME}/copy.yaml')}"], cwd=tmp_path, capture_output=True)
    assert shell.stdout == (tmp_path / ODD_NAME / "copy.yaml").read_bytes()


def test_names_that_no_result_can_hold_are_refused_before_a_run_begins(tmp_path):
    """Those of a plugin's file, of a domain and of a class."""
    write_suite(tmp_path, "allsmall")
    shutil.copy(TINY, tmp_path / f"{ODD_NAME}.py")
    ways = {("plan", "tiny.yaml", "--plugin", f"{ODD_NAME}.py"): "the name of this file is not UTF-8"}
    for tree, names, noun in (("t", ("a", ODD_NAME), "domain"), ("u", (ODD_NAME, "a"), "class")):
        for label in (names[0], "b"):
            for domain in (names[1], "d"):
                (tmp_path / tree / domain / label).mkdir(parents=True, exist_ok=True)
                for k in range(2):
                    Image.new("RGB", (8, 8), (90 * k, 0, 0)).save(tmp_path / tree / domain / label / f"{k}.png")
        suite = tmp_path / f"{tree}.yaml"
        suite.write_text((tmp_path / "tiny.yaml").read_text().replace("dots", f"{{name: image_folder, root: {tree}}}"))
        ways["plan", f"{tree}.yaml", "--plugin", TINY] = f"the name of the {noun} 'caf\\udce9' is not UTF-8"
        ways["init", f"{tree}_study", "--images", tree] = "is not UTF-8"
    for words, told in ways.items():
        done = fedbench(*words, cwd=tmp_path)
        assert done.exit_code == 2 and told in done.output.replace("\udce9", "\\udce9"), done.output
    assert not list(tmp_path.glob("*_study"))
