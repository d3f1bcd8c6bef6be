"""One folder spelt in many ways, behind every option and argument that takes a path."""

from __future__ import annotations

import os
import shutil
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from command import TINY, fedbench, write_suite
from factories import eval_rows, write_cell
from PIL import Image

from fedbench.cli import main
from fedbench.commands.choices import SuiteFile
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
    texts = (f"{i} is {i % 2},{i % 2}" for i in range(60))
    (tmp_path / NAME / "texts.csv").write_text("\n".join(["text,label", *texts]))
    os.symlink(tmp_path / NAME, tmp_path / "link")
    return lambda how: SPELLINGS[how].format(name=NAME, cwd=tmp_path)


@pytest.mark.parametrize("how", SPELLINGS)
def test_results_mean_one_folder_however_it_is_spelt(tmp_path, spelt, how):
    given = spelt("whole") if how == "home" else spelt(how)
    hashes = {fedbench("compare", "hash", one, cwd=tmp_path).stdout.split()[0] for one in (given, spelt("whole"))}
    assert len(hashes) == 1


ORDINARY = ("home",)  # the others are what every command has Python's pathlib make of them


@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=[pytest.mark.slow] * (how not in ORDINARY)) for how in SPELLINGS]
)
def test_a_path_means_one_folder_however_it_is_spelt(tmp_path, spelt, how):
    path = spelt(how)
    given = spelt("whole") if how == "home" else path  # a shell expands arguments, and options behind a `=` not
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
        ("init", f"{given}/read", f"--texts={path}/texts.csv"): "read/suite.yaml",
        ("plugins", "new", "mine", "--kind", "metric", f"--into={path}/package"): "package/pyproject.toml",
    }
    for words, made in ways.items():
        done = fedbench(*words, cwd=tmp_path)
        assert done.exit_code == 0, (words, done.output)
        assert not made or os.path.exists(f"{spelt('whole')}/{made}"), words
    assert not (tmp_path / "~").exists()


@pytest.mark.slow
def test_paths_of_commands_that_need_finished_cells_begin_at_home_too(tmp_path, spelt):
    path, given = spelt("home"), spelt("whole")
    mine = f"--plugin={path}/mine.py"
    ways = {
        ("run", f"{given}/tiny.yaml", mine, f"--results={path}/r", "--jobs=1", "--quiet"): "r/tiny/index.json",
        ("reproduce", f"{given}/r", mine, f"--results={path}/again"): "again/tiny/index.json",
        (
            "export",
            f"{given}/r/tiny",
            "allsmall",
            mine,
            "--format=loralib",
            f"--out={path}/lora",
        ): "lora/config.json",
        ("init", f"{given}/own", f"--images={path}/tree"): "own/suite.yaml",
        ("choose", "--backbone=tiny", "--devices=phone_low", "--method=allsmall", mine, f"--accuracy={path}/r"): "",
        ("schema", f"--install={path}"): "suite.schema.json",
        ("devices", f"{given}/tiny.yaml", mine): "",
    }
    for words, made in ways.items():
        done = fedbench(*words, cwd=tmp_path)
        assert done.exit_code == 0, (words, done.output)
        assert not made or os.path.exists(f"{given}/{made}"), words
    refused = {
        ("tune", f"{given}/tiny.yaml", mine, f"--results={path}/r", f"-o{path}/t.yaml"): f"{given}/tiny.yaml: nothing",
        ("data", "prepare", "cifar10", f"--root={path}/c", f"--from={path}/no.tgz"): f"{NAME}/no.tgz",
    }
    for words, told in refused.items():
        done = fedbench(*words, cwd=tmp_path)
        assert done.exit_code == 2 and told in done.output and "~" not in done.output, (words, done.output)
    assert not (tmp_path / "~").exists()


def options_of_paths(group: click.Group = main) -> Iterator[str]:
    """The options and arguments of all commands that take a path."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from options_of_paths(command)
        for one in command.params:
            if isinstance(one.type, click.Path | SuiteFile) or one.metavar in ("DIR", "FILE", "PATH"):
                yield max(one.opts, key=len)


def test_every_option_that_takes_a_path_is_spelt_in_these_ways():
    assert set(options_of_paths()) == {
        *("--accuracy", "--from", "--images", "--install", "--into", "--out", "--output", "--plugin", "--results"),
        *("--root", "--texts", "cell", "file", "folder", "paths", "shards", "source", "suite"),
    }


@pytest.mark.parametrize(("there", "given"), [("NFC", "NFD"), pytest.param("NFD", "NFC", marks=pytest.mark.slow)])
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
