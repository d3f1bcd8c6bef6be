"""fedbench plugins new: a package of every kind that works as it was written."""

import json
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
from command import fedbench

from fedbench import scaffold
from fedbench.disk import write_atomically
from fedbench.errors import UserError
from fedbench.registry import catalogue
from fedbench.registry.installed import DISTRIBUTION
from fedbench.registry.registry import Registry
from fedbench.runner.runner import load
from fedbench.scaffold import kinds
from fedbench.testing import check_component

SHORT = ("--set", "train.rounds=2", "--set", "train.max_steps=1")
LONG_CHECKS = ("method", "backbone", "adapter")  # which the slow test makes


def begun(kind, folder):
    done = fedbench("plugins", "new", "mine", "--kind", kind, "--into", "p", cwd=folder)
    assert done.exit_code == 0, done.output
    return folder / "p"


def test_there_is_a_package_for_every_kind():
    assert set(kinds()) == {*catalogue.KINDS, "tracker"}


@pytest.mark.parametrize("kind", kinds())
def test_a_new_package_is_whole(kind, tmp_path):
    package = begun(kind, tmp_path)
    texts = {file: file.read_text() for file in package.rglob("*") if file.is_file()}
    assert {file.name for file in texts} == {
        *("README.md", "pyproject.toml", "fedbench_mine.py", "suite.yaml", "test_mine.py")
    }
    for file, text in texts.items():
        assert not any(word in text for word in ("NAME", "MODULE", "DIST", "KIND", "KEY", "SWEEP", "RUN")), file
        assert max(len(line) for line in text.splitlines() if "$schema=" not in line) <= 120, file
    project = tomllib.loads(texts[package / "pyproject.toml"])
    assert project["project"]["entry-points"]["fedbench"] == {"mine": "fedbench_mine"}
    assert project["project"]["dependencies"] == [DISTRIBUTION]
    registry = Registry([str(package / "fedbench_mine.py")])
    assert load(package / "suite.yaml", registry).points()
    if kind != "tracker":
        assert registry.catalogue.components[kind]["mine"].summary
    if kind not in (*LONG_CHECKS, "tracker"):
        check_component(registry, kind, "mine")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("Mine", "--kind", "metric"), "cannot be the name of a function"),
        (("class", "--kind", "metric"), "cannot be the name of a function"),
        (
            ("fedra", "--kind", "method"),
            "fedbench registers the method 'fedra' already; choose another name, as my_fedra",
        ),
        (("mine", "--kind", "metrik"), 'did you mean "metric"?'),
    ],
)
def test_what_cannot_be_is_told(words, told, tmp_path):
    done = fedbench("plugins", "new", *words, cwd=tmp_path)
    assert done.exit_code == 2 and told in done.output
    assert not list(tmp_path.iterdir())


def test_show_tells_of_a_name_that_two_have(tmp_path):
    plugin = "from fedbench import hookimpl\n\n@hookimpl\ndef fedbench_register_metrics(register):\n"
    (tmp_path / "own.py").write_text(f"{plugin}    register('accuracy', lambda: None)\n")
    said = " ".join(fedbench("plugins", "show", "accuracy", "--plugin", "own.py", cwd=tmp_path).output.split())
    assert "! two packages register the metric 'accuracy': fedbench (plugin metrics) and" in said


@pytest.mark.parametrize("there", [False, True])
def test_a_package_is_written_whole_or_not_at_all(tmp_path, monkeypatch, there):
    written = []

    def filling_up(path, content, mend):
        if len(written) == 3:
            raise UserError(f"{path}: cannot be written (No space left on device). {mend}")
        written.append(path)
        write_atomically(path, content, mend)

    monkeypatch.setattr(scaffold, "write_atomically", filling_up)
    made = {Path(f"{name}/{name}.txt"): b"x" for name in "abcd"}
    if there:
        (tmp_path / "new/a").mkdir(parents=True)
        (tmp_path / "new/a/own.txt").write_text("own")
    with pytest.raises(UserError, match="d.txt: cannot be written"):
        scaffold.put(made, tmp_path / "new")
    left = [str(file.relative_to(tmp_path)) for file in sorted(tmp_path.rglob("*"))]
    assert left == (["new", "new/a", "new/a/own.txt"] if there else [])


def test_nothing_is_overwritten(tmp_path):
    package = begun("metric", tmp_path)
    (package / "fedbench_mine.py").write_text("mine")
    done = fedbench("plugins", "new", "mine", "--kind", "metric", "--into", "p", cwd=tmp_path)
    assert done.exit_code == 2 and "already there" in done.output
    assert (package / "fedbench_mine.py").read_text() == "mine"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """An environment over this one, in which packages can be installed without leaving anything here."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (place,) = folder.glob("lib/python*/site-packages")
    (place / "over.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    fedbench_itself = os.fspath(next(iter(__import__("fedbench").__path__))).rpartition(os.sep)[0]
    install(folder / "bin/python", fedbench_itself)
    return folder / "bin/python"


def install(python, what):
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-build-isolation", "-e")
    subprocess.run([*pip, what], check=True, capture_output=True, timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize("kind", kinds())
def test_a_new_package_is_installed_tested_and_run_unedited(kind, tmp_path, python):
    package = begun(kind, tmp_path)
    install(python, package)
    where = {"cwd": package, "capture_output": True, "text": True, "timeout": 600}
    try:
        tested = subprocess.run([python, "-m", "pytest", "-q"], **where)
        assert tested.returncode == 0, tested.stdout
        words = kinds()[kind].run.replace("NAME", "mine").split()[1:]
        follows = {**os.environ, "MINE_FILE": str(tmp_path / "lines")}
        done = subprocess.run([python, "-m", "fedbench", *words, *SHORT], env=follows, **where)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "fedbench plugins check" not in done.stdout + done.stderr  # nothing was noticed of it
        if kind == "tracker":
            assert {json.loads(line)["round"] for line in (tmp_path / "lines").read_text().splitlines()} == {1, 2}
    finally:
        pip = (sys.executable, "-m", "pip", "--python", python, "uninstall", "-q", "-y", "fedbench-mine")
        subprocess.run(pip, check=True, capture_output=True, timeout=120)
