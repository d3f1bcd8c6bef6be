"""One folder spelt in many ways, behind every option and argument that takes a path."""

from __future__ import annotations

import json
import os
import re
import shutil
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import click
import pytest
from command import TINY, fedbench, write_suite
from factories import eval_rows, write_cell
from PIL import Image

from fedbench.cli import main
from fedbench.data import root_of
from fedbench.disk import as_written, at_home
from fedbench.errors import UserError
from fedbench.options import PathText, judged
from fedbench.options import Text as Words
from fedbench.registry.registry import Registry
from fedbench_plugins.backbones.micro import WEIGHTS, weights_file
from fedbench_plugins.datasets import text_table
from fedbench_plugins.datasets.image_table import make as image_table

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
        ("plot", "curves", given, f"--output={path}/curves.svg"): "curves.svg",
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
            f"--output={path}/lora",
        ): "lora/config.json",
        ("init", f"{given}/own", f"--images={path}/tree"): "own/suite.yaml",
        ("choose", "--backbone=tiny", "--devices=phone_low", "--method=allsmall", mine, f"--accuracy={path}/r"): "",
        ("devices", f"{given}/tiny.yaml", mine): "",
    }
    for words, made in ways.items():
        done = fedbench(*words, cwd=tmp_path)
        assert done.exit_code == 0, (words, done.output)
        assert not made or os.path.exists(f"{given}/{made}"), words
    refused = {
        ("data", "prepare", "cifar10", f"--root={path}/c", f"--from={path}/no.tgz"): f"{NAME}/no.tgz",
    }
    for words, told in refused.items():
        done = fedbench(*words, cwd=tmp_path)
        assert done.exit_code == 2 and told in done.output and "~" not in done.output, (words, done.output)
    assert not (tmp_path / "~").exists()


def parameters(group: click.Group = main, names: str = "") -> Iterator[tuple[str, click.Parameter]]:
    """The options and arguments of all commands, such as `plan --results`."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from parameters(command, f"{names}{name} ")
        yield from ((f"{names}{name} {max(one.opts, key=len)}", one) for one in command.params)


PATHS = {
    name: one
    for name, one in parameters()
    if isinstance(one.type, click.Path) or one.metavar in ("DIR", "FILE", "PATH")
}
WAYS = {
    "~/there": "{home}/there",
    "~": "{home}",
    "~/": "{home}/",
    "~//a/../b": "{home}//a/../b",
    "./~/there": "./~/there",
    "a~": "a~",
}


def test_every_option_that_takes_a_path_is_spelt_in_these_ways():
    assert {name.rpartition(" ")[2] for name in PATHS} == {
        *("--accuracy", "--from", "--images", "--into", "--output", "--plugin", "--results"),
        *("--from-plugin", "--home", "--salt", "--with"),
        *("--ca", "--data", "--key", "--superlink"),
        *("--root", "--texts", "cell", "file", "folder", "names", "paths", "shards", "source", "suite"),
    }


@pytest.mark.parametrize("way", WAYS)
def test_home_means_one_folder_to_every_option_that_is_a_path(tmp_path, monkeypatch, way):
    """Also in quotes, or in a notebook, where no shell puts it in."""
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.chdir(tmp_path)
    meant = WAYS[way].format(home=tmp_path / "me")
    assert {name: one.type.convert(way, one, None) for name, one in PATHS.items()} == dict.fromkeys(PATHS, meant)


def test_the_home_of_nobody_is_refused_by_every_option_unless_a_file_is_called_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for one in PATHS.values():
        with pytest.raises(UserError, match="~nobody-of-that-name/x: there is no such home"):
            one.type.convert("~nobody-of-that-name/x", one, None)
    (tmp_path / "~odd").touch()
    assert at_home("~odd") == "~odd"


def test_what_is_no_path_is_left_as_it_is():
    others = [one for name, one in parameters() if name not in PATHS and one.type is click.STRING]
    assert len(others) > 20 and {one.type.convert("~/x", one, None) for one in others} == {"~/x"}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with data, weights and results, and a current folder that has nothing of it."""
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "me").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "me"


def keys_of_paths() -> set[str]:
    """The options of components whose text is called a file or a folder, such as `dataset image_folder.root`."""
    return {
        f"{kind} {name}.{option}"
        for kind, named in Registry().catalogue.components.items()
        for name, component in named.items()
        for option, schema in component.takes.items()
        if re.search("folder(?!'s)|file|table", json.dumps(schema))
    }


def test_every_key_that_is_a_path_begins_at_home(home, monkeypatch):
    """What each component makes of it is tried below."""
    assert keys_of_paths() - {"dataset wordnet.files"} == {  # of which files of WordNet, by name
        "backbone hf.model",
        *(f"dataset {name}.root" for name in ("cifar10", "cifar100", "domainnet", "fashion_mnist", "image_folder")),
        *(f"dataset {name}.root" for name in ("nicopp", "text_table", "tiny_imagenet", "vader_domains", "wordnet")),
        *(f"dataset image_{name}.{option}" for name in ("lists", "table") for option in ("root", "images")),
        *(f"dataset instructions.{option}" for option in ("hub", "root", "tokenizer")),
        "dataset hf.path",
        "executor flower.superlink",
        "executor slurm.logs",
    }
    given = []

    @judged("any")
    def made(path: Annotated[str, PathText("a folder")] | None = None, other: Annotated[str, Words()] = "~/x"):
        given.append((path, other))

    for written in ("~/there", None, "~", "there"):
        made(written, other="~/y")
    assert given == [(f"{home}/there", "~/y"), (None, "~/y"), (str(home), "~/y"), ("there", "~/y")]
    with pytest.raises(UserError, match="no such home"):
        made("~nobody-of-that-name/x")


def test_weights_data_and_published_numbers_may_lie_at_home(home, monkeypatch):
    write_safe = WEIGHTS / "micro_vit-seed0.safetensors"
    shutil.copy(write_safe, home / "own.safetensors")
    (home / "t.csv").write_text("text,label\n" + "".join(f"{i},{i % 2}\n" for i in range(8)))
    (home / "sets").mkdir()
    for i in range(4):
        Image.new("RGB", (8, 8), (60 * i, 0, 0)).save(home / f"sets/{i}.png")
    (home / "i.csv").write_text("path,label\n" + "".join(f"{i}.png,{i % 2}\n" for i in range(4)))
    assert image_table(8, "~/i.csv", images="~/sets").classes == ("0", "1")
    assert weights_file("micro_vit", "~/own.safetensors", 0) == home / "own.safetensors"
    assert text_table.make("~/t.csv").classes == ("0", "1")
    monkeypatch.setenv("FEDBENCH_DATA", "~/sets")
    assert root_of("cifar10") == home / "sets/cifar10" and root_of("own", "~/sets") == home / "sets"
    for wrong in (lambda: root_of("own", "~nobody-of-that-name/x"), lambda: text_table.make("~nobody-of-that-name")):
        with pytest.raises(UserError, match="no such home"):
            wrong()


def test_a_text_model_may_lie_at_home(home, monkeypatch):
    text_models = pytest.importorskip("fedbench_plugins.backbones.text_models")
    asked = []
    monkeypatch.setattr(text_models, "text_source", lambda name, *_: asked.append(name))
    text_models.hf("~/model")
    text_models.hf("roberta-base")
    assert asked == [f"{home}/model", "roberta-base"]


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
