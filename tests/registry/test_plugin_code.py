"""Which code a plugin is: a file with the modules next to it that it imports, and no other package in place of ours."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from command import fedbench

from fedbench.commands.doctor import Diagnosis, _plugins
from fedbench.commands.run import files
from fedbench.disk import hash_of_file
from fedbench.registry.installed import by_name, hash_of_plugin, package_of
from fedbench.registry.registry import Registry


@pytest.mark.parametrize(
    ("source", "helper"),
    [
        ("import helper\n", "helper.py"),
        ("from helper import value\n", "helper.py"),
        ("def later():\n    if True:\n        import helper as own\n", "helper.py"),
        ("import importlib\nimportlib.import_module('helper')\n", "helper.py"),
        ("import helper.inner\n", "helper/inner.py"),
        ("from helper.inner import value\n", "helper/__init__.py"),
        ("import other\n", "helper.py"),
    ],
)
def test_an_edited_module_next_to_a_plugin_file_is_another_version_of_the_plugin(tmp_path, source, helper):
    (tmp_path / "helper").mkdir()
    plugin, module = tmp_path / "mine.py", tmp_path / helper
    (tmp_path / "other.py").write_text("import mine, helper\n")
    plugin.write_text(source)
    module.write_text("value = 1\n")
    registry = Registry([str(plugin)])
    first = registry.version("mine.py")
    assert registry.version("mine.py") == first
    module.write_text("value = 2\n")
    assert registry.version("mine.py") != first


def test_a_package_next_to_a_plugin_file_comes_before_a_module_as_for_python(tmp_path):
    (tmp_path / "helper").mkdir()
    inner, module, plugin = tmp_path / "helper/__init__.py", tmp_path / "helper.py", tmp_path / "mine.py"
    for file, text in ((plugin, "import helper\n"), (inner, "value = 1\n"), (module, "value = 1\n")):
        file.write_text(text)
    first = hash_of_plugin(plugin)
    module.write_text("value = 2\n")
    assert hash_of_plugin(plugin) == first
    inner.write_text("value = 2\n")
    assert hash_of_plugin(plugin) != first


@pytest.mark.parametrize("edited", ["lib/away.py", "lib/whole/__init__.py", "lib/whole/inner.py", "lib/further.py"])
def test_an_edited_module_elsewhere_on_the_path_is_another_version_of_the_plugin(tmp_path, monkeypatch, edited):
    """As on PYTHONPATH. What is installed has a version, and is none of the plugin's code."""
    files = {"mine.py": "import away, whole, torch, json, fedbench\n", "lib/away.py": "import further\n"}
    files |= dict.fromkeys(("lib/whole/__init__.py", "lib/whole/inner.py", "lib/further.py"), "value = 1\n")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    first = hash_of_plugin(tmp_path / "mine.py")
    (tmp_path / edited).write_text("value = 2\n")
    assert hash_of_plugin(tmp_path / "mine.py") != first
    (tmp_path / "mine.py").write_text("import torch, json, fedbench, filelock\n")
    assert hash_of_plugin(tmp_path / "mine.py") == hash_of_file(tmp_path / "mine.py")


def test_fedbench_is_none_of_a_plugins_code_even_next_to_it(tmp_path):
    """As in the root of a clone, where every commit would be another version of the plugin."""
    (tmp_path / "fedbench").mkdir()
    (tmp_path / "fedbench/__init__.py").write_text("value = 1\n")
    (tmp_path / "mine.py").write_text("from fedbench import hookimpl\nimport fedbench_plugins\n")
    assert hash_of_plugin(tmp_path / "mine.py") == hash_of_file(tmp_path / "mine.py")


def test_modules_that_a_plugin_file_does_not_import_are_none_of_it(tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text("import json, torch\nlater = 'helper'\n")
    before = hash_of_plugin(plugin)
    for name in ("helper.py", "notes.txt", "jsons.py"):
        (tmp_path / name).write_text("1\n")
    assert hash_of_plugin(plugin) == before
    assert before == hash_of_file(plugin), "as results of plugins without helpers have it"


def test_a_plugin_file_that_is_no_python_has_a_version(tmp_path):
    (tmp_path / "mine.py").write_bytes(b"def (\x00\xff")
    assert Registry([str(tmp_path / "mine.py")]).version("mine.py").startswith("sha256:")


BUILT_IN_COMMANDS = ["run", "pack"]  # they have no entry point


def with_entry_point(folder: Path, package: str, group: str, name: str) -> None:
    """Write the metadata of a package that installs `name` in a group of entry points."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = json\n")
    importlib.invalidate_caches()


@pytest.mark.parametrize(("kind", "name"), [("plugin", "fedra"), ("tracker", "mlflow")])
@pytest.mark.parametrize("package", ["a_first", "zz_last"])
def test_an_entry_point_of_another_package_does_not_take_the_place_of_a_builtin(
    tmp_path, monkeypatch, kind, name, package
):
    group = "fedbench" if kind == "plugin" else f"fedbench.{kind}s"
    monkeypatch.syspath_prepend(str(tmp_path))  # before that of fedbench
    with_entry_point(tmp_path, package, group, name)
    found, _ = by_name(group)
    assert package_of(found[name]) == "fedbench"
    why = f"two packages install a {kind} called {name!r}: fedbench and {package}; the one of fedbench is used"
    assert why in Registry().refused(())
    shown = fedbench("plugins", "list", cwd=tmp_path)
    assert why in " ".join(shown.output.split())
    if kind == "tracker":
        monkeypatch.setattr("fedbench.commands.run.find_spec", lambda name: True)
        assert Path(files([name])[0]).parent.name == "trackers"


@pytest.mark.parametrize("name", BUILT_IN_COMMANDS)
def test_a_command_of_another_package_does_not_take_the_place_of_a_builtin(tmp_path, monkeypatch, name):
    monkeypatch.syspath_prepend(str(tmp_path))
    with_entry_point(tmp_path, "theirs", "fedbench.commands", name)
    why = f"two packages install a command called {name!r}: fedbench and theirs; the one of fedbench is used"
    note = Diagnosis("note", "plugin", why, "correct or uninstall that package")
    assert note in _plugins(Registry())
    assert why in " ".join(fedbench("plugins", "list", cwd=tmp_path).output.split())
    used = fedbench(name, "--help", cwd=tmp_path)
    assert used.exit_code == 0 and not used.stderr and used.output.startswith(f"Usage: main {name}")
    assert fedbench("--help", cwd=tmp_path).output.count(f"\n  {name} ") == 1


@pytest.mark.parametrize("group", ["fedbench", "fedbench.trackers", "fedbench.commands"])
def test_of_other_packages_with_one_name_the_first_is_used_and_each_of_the_others_named(tmp_path, monkeypatch, group):
    for package in ("third", "second", "first"):
        (tmp_path / package).mkdir()
        monkeypatch.syspath_prepend(str(tmp_path / package))
        with_entry_point(tmp_path / package, package, group, "alike")
        points = tmp_path / package / f"{package}-1.0.dist-info" / "entry_points.txt"
        points.write_text(points.read_text().replace("json", f"{package}.module"))
    found, unusable = by_name(group)
    assert package_of(found["alike"]) == "first"
    told = [why.partition(": ")[2] for why in unusable.values()]
    assert told == [f"first and {package}; the one of first is used" for package in ("second", "third")]


def test_doctor_names_packages_whose_metadata_cannot_be_read(tmp_path, monkeypatch):
    info = tmp_path / "sick-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[fedbench]\nno equals sign\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    notes = [check for check in _plugins(Registry()) if check.level == "note"]
    assert [check.fix for check in notes] == ["correct or uninstall that package"]
    assert str(info) in notes[0].found
