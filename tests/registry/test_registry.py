"""Plugins as a stranger ships them: throw-away distributions with entry points, and files given by --plugin."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from command import MAIN, TINY, environment, fedbench, write_suite
from strangers import LAST, registering

from fedbench import __version__ as fedbench_version
from fedbench.commands.doctor import _plugins
from fedbench.errors import UserError
from fedbench.registry import installed
from fedbench.registry.installed import BUILT_IN, hash_of_sources
from fedbench.registry.registry import Registry
from sitemaking.shipped import built_in


@pytest.fixture
def install(tmp_path, monkeypatch):
    """install(package, code) puts a distribution with one plugin on the path; returns its module's file."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))

    def install(package: str, code: str, plugin: str | None = None) -> Path:
        module = package.replace("-", "_")
        file = site / f"{module}.py"
        file.write_text("from fedbench import hookimpl\n" + textwrap.dedent(code))
        info = site / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[fedbench]\n{plugin or module} = {module}\n")
        importlib.invalidate_caches()
        sys.modules.pop(module, None)
        return file

    yield install
    for file in site.glob("*.py"):
        sys.modules.pop(file.stem, None)


def elsewhere(tmp_path: Path, *words: object) -> subprocess.CompletedProcess:
    """A command in a process of its own, with the throw-away distributions on its path."""
    env = {**environment(), "PYTHONPATH": str(tmp_path / "site")}
    return subprocess.run([*MAIN, *map(str, words)], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)


# --- what can go wrong -------------------------------------------------------------------------------------------


def test_two_packages_with_one_component_name_are_both_named_and_only_where_it_is_used(install):
    install("their-last", registering("allocations", "last", LAST))
    install("another-last", registering("allocations", "last", LAST))
    registry = Registry()
    with pytest.raises(UserError, match="two packages register the allocation 'last'") as told:
        registry.make("allocation", {"name": "last"})
    assert "their-last" in str(told.value) and "another-last" in str(told.value)
    assert registry.make("allocation", {"name": "prefix"})(torch.tensor([1]), 2).tolist() == [[True, False]]


ENDING = "def make():\n    '''Ends.'''\n    raise SystemExit('theirs')\n"


def test_an_installed_package_takes_no_component_from_fedbench_and_those_who_use_the_name_are_told(install, tmp_path):
    before = Registry().component("allocation", {"name": "prefix"})[1]
    install("their-prefix", registering("allocations", "prefix", LAST))
    install("their-local", registering("executors", "local", ENDING))
    install("their-random", registering("allocations", "random", LAST))
    assert Registry().component("allocation", {"name": "prefix"})[1] == before
    parts = (
        ("allocation 'prefix'", before.plugin, "their-prefix (plugin their_prefix)"),
        ("executor 'local'", "local", "their-local (plugin their_local)"),
    )
    why = [
        f"two packages register the {what}: fedbench (plugin {ours}) and {theirs}; the one of fedbench is used"
        for what, ours, theirs in parts
    ]
    write_suite(tmp_path, "{name: fedra, allocation: prefix}")
    done = fedbench("run", "tiny.yaml", "--plugin", TINY, "--results", "r", "--jobs", 1, cwd=tmp_path)
    told = [line for line in done.stderr.splitlines() if "two packages" in line]
    assert done.exit_code == 0, done.output
    assert sorted(told) == sorted(f"Warning: {one}" for one in why)
    assert {check.found for check in _plugins(Registry()) if check.level == "note"} >= set(why)
    assert f"! {why[0]}" in fedbench("plugins", "show", "prefix", cwd=tmp_path).output
    checked = fedbench("plugins", "check", "their_prefix", cwd=tmp_path)
    assert checked.exit_code == 1 and why[0] in " ".join(checked.output.split())


def test_a_plugin_file_with_the_name_of_a_component_of_fedbench_is_refused_where_it_is_used(tmp_path):
    (tmp_path / "mine.py").write_text("from fedbench import hookimpl\n" + registering("allocations", "prefix", LAST))
    registry = Registry([str(tmp_path / "mine.py")])
    with pytest.raises(UserError, match=r"the allocation 'prefix': fedbench .*mine\.py\); rename the latter$"):
        registry.make("allocation", {"name": "prefix"})


def test_two_packages_with_one_plugin_name(install):
    install("first-package", registering("allocations", "one", LAST), plugin="alike")
    install("second-package", registering("allocations", "two", LAST), plugin="alike")
    registry = Registry()
    assert "first-package" in registry.troubles["alike"] and "second-package" in registry.troubles["alike"]
    assert "alike" in registry.catalogue.broken


def test_an_unknown_hook_names_the_package(install):
    install("wrong-hook", "@hookimpl\ndef fedbench_register_methodes(register):\n    pass\n")
    message = Registry().catalogue.broken["wrong_hook"]
    assert "wrong-hook" in message and "fedbench_register_methodes" in message


def test_python_that_cannot_be_read_is_told_with_its_own_place(tmp_path):
    (tmp_path / "mine.py").write_text("x = 1\ndef it(a)\n    return a\n")
    with pytest.raises(UserError) as told:
        _ = Registry([str(tmp_path / "mine.py")]).catalogue
    assert str(told.value).endswith(f"does not load: SyntaxError: expected ':' ({tmp_path}/mine.py:2:10)")


def test_a_component_registered_twice_by_one_plugin(install):
    install("twice-package", registering("allocations", "one", LAST) + "    register('one', make)\n")
    assert "registers the allocation 'one' twice" in Registry().catalogue.broken["twice_package"]


@pytest.mark.parametrize(
    "fault",
    ["raise SystemExit(3)"]
    + [pytest.param(fault, marks=pytest.mark.slow) for fault in ("import nothing_of_this_name", "def broken(:")],
)
def test_a_plugin_that_fails_to_import_stops_nothing_else(install, tmp_path, fault):
    install("sick-package", fault)
    write_suite(
        tmp_path,
        "fedra",
        {
            "backbone: tiny": "backbone: micro_vit",
            "data: dots": "data: {name: strokes6, classes: 2}",
            "[2, 1]": "{uniform: [1, 2]}",
        },
    )
    for words in (["plugins", "list"], ["plan", "tiny.yaml"]):
        done = fedbench(*words, cwd=tmp_path)
        assert done.exit_code == 0, done.output
    told = fedbench("plugins", "list", "--components", cwd=tmp_path).stdout
    assert "plugin 'sick_package' of sick-package does not load" in " ".join(told.split())
    write_suite(tmp_path, "sick_method")
    done = fedbench("run", "tiny.yaml", cwd=tmp_path)
    assert done.exit_code == 2
    assert "sick-package" in done.stderr and "Traceback" not in done.stderr


def test_the_doctor_names_a_broken_package_and_goes_on(install, tmp_path):
    install("sick-package", "import nothing_of_this_name")
    done = fedbench("doctor", cwd=tmp_path)
    assert "plugin 'sick_package' of sick-package does not load" in done.stdout
    assert done.exit_code == 0, done.stdout


def test_the_doctor_tries_whether_a_folder_can_be_written_to(tmp_path, monkeypatch):
    """Rights alone promise little: root has all of them below /proc."""
    monkeypatch.setenv("FEDBENCH_CACHE", "/proc/cache")
    done = fedbench("doctor", "--results", "new/results", cwd=tmp_path)
    assert done.exit_code == 1 and "STOP cache" in done.stdout and "1 thing would stop a run" in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_broken_plugin_file_ends_the_command(tmp_path):
    (tmp_path / "mine.py").write_text("import nothing_of_this_name")
    done = fedbench("plugins", "list", "--components", "--plugin", "mine.py", cwd=tmp_path)
    assert done.exit_code == 2
    assert "mine.py" in done.stderr and "nothing_of_this_name" in done.stderr


def test_a_foreign_command_that_does_not_load_says_so_when_used(install, tmp_path):
    install("commander", "")
    points = tmp_path / "site" / "commander-1.0.dist-info" / "entry_points.txt"
    points.write_text("[fedbench.commands]\nextra = commander:missing\n")
    help_ = elsewhere(tmp_path, "--help")
    assert help_.returncode == 0 and "extra" in help_.stdout
    used = elsewhere(tmp_path, "extra")
    assert used.returncode == 2 and "commander" in used.stderr and "Traceback" not in used.stderr


# --- the catalogue on disk ---------------------------------------------------------------------------------------


def test_the_kept_catalogue_is_made_again_when_a_plugin_changes(install):
    file = install("changing", registering("allocations", "before", LAST))
    assert "before" in Registry().catalogue.components["allocation"]
    file.write_text(file.read_text().replace("'before'", "'afterwards'"))
    assert "afterwards" in Registry().catalogue.components["allocation"]
    assert "before" not in Registry().catalogue.components["allocation"]


def test_the_kept_catalogue_is_read_without_importing_plugins(install):
    install("idle-package", registering("allocations", "idle", LAST))
    assert Registry().catalogue.find("allocation", "idle")
    again = Registry()
    assert again.catalogue.find("allocation", "idle").package == "idle-package"
    assert "idle_package" not in sys.modules
    again.make("allocation", {"name": "idle"})
    assert "idle_package" in sys.modules


def test_a_torn_catalogue_is_made_again(install):
    install("some-package", registering("allocations", "some", LAST))
    assert Registry().catalogue
    (kept,) = (Path(os.environ["FEDBENCH_CACHE"]) / "catalogue").glob("*.json")
    kept.write_text(kept.read_text()[:100])
    assert Registry().catalogue.find("allocation", "some")


def test_what_ships_of_the_built_in_plugins_is_what_they_register():
    assert BUILT_IN.read_bytes() == built_in(), "`PYTHONPATH=docs python -m sitemaking.shipped` writes it again"


def test_built_in_plugins_are_imported_for_the_catalogue_only_where_their_code_has_changed(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path))
    imported, register, code_of = [], Registry.registrations_here, installed.hash_of
    monkeypatch.setattr(
        Registry, "registrations_here", lambda self, name: imported.append(name) or register(self, name)
    )
    before = Registry().catalogue
    assert before.find("method", "fedra").paper and imported == []
    monkeypatch.setattr(installed, "hash_of", lambda *code: "edited" if code[0].endswith(".fedra") else code_of(*code))
    for _ in range(2):  # the second time it is in the cache folder
        assert Registry().catalogue == before and imported == ["fedra"]


# --- a file of its own -------------------------------------------------------------------------------------------


def test_a_component_that_changes_its_options_changes_no_configuration(tmp_path):
    """By which cells are called."""
    file = tmp_path / "sorting.py"
    body = (
        "from fedbench import hookimpl\n\ndef make(at: list[int]):\n    at.sort()\n    return lambda logits, y: at[0]\n"
    )
    file.write_text(registering("metrics", "least", body))
    ref = {"name": "least", "at": [3, 1, 2]}
    assert Registry([str(file)]).make("metric", ref)(None, None) == 1
    assert ref == {"name": "least", "at": [3, 1, 2]}


def test_a_file_named_like_an_installed_plugin_stands_beside_it(tmp_path):
    file = tmp_path / "fedra.py"
    file.write_text(
        "from fedbench import hookimpl\n\n\n@hookimpl\ndef fedbench_register_metrics(register):\n"
        "    register('mine', lambda: None)\n"
    )
    found = Registry([str(file)]).catalogue
    assert "fedra" in found.components["method"] and "mine" in found.components["metric"]
    assert "fedra" in Registry().catalogue.components["method"]


def test_two_files_of_one_name_are_refused(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.py").write_text("")
    with pytest.raises(UserError, match="have the same name; rename one of them"):
        Registry([str(tmp_path / "a" / "same.py"), str(tmp_path / "b" / "same.py")])


@pytest.mark.parametrize("fault", ["raise BaseException('no')", "raise GeneratorExit", "import sys\nsys.exit()"])
def test_a_file_that_raises_what_is_no_exception_is_told(tmp_path, fault):
    (tmp_path / "p.py").write_text(fault)
    with pytest.raises(UserError, match="p.py: plugin 'p.py' of .* does not load"):
        Registry([str(tmp_path / "p.py")]).catalogue  # noqa: B018


@pytest.mark.parametrize("path", ["\0", "x" * 5000, "loop"])
def test_a_path_that_no_file_can_have_is_told(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UserError, match="--plugin|no such file"):
        Registry([path]).catalogue  # noqa: B018


def test_a_file_that_is_not_called_py_is_told(tmp_path):
    (tmp_path / "p.txt").touch()
    with pytest.raises(UserError, match=r"a plugin's file is called \*\.py"):
        Registry([str(tmp_path / "p.txt")]).catalogue  # noqa: B018


def test_a_hook_that_ends_the_process_is_told_and_ends_nothing(tmp_path, capsys):
    (tmp_path / "p.py").write_text(
        "import sys\nfrom fedbench import hookimpl\n\n@hookimpl\ndef fedbench_cell_started():\n    sys.exit(3)\n"
    )
    Registry([str(tmp_path / "p.py")]).tell("fedbench_cell_started", manifest={}, folder="")
    assert "fedbench_cell_started broke: SystemExit" in capsys.readouterr().err


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize(
    ("raises", "said"), [("KeyboardInterrupt", "KeyboardInterrupt"), ("Mute", "Mute: (it has no text")]
)
def test_a_hook_that_raises_what_nobody_expects_is_told_and_ends_nothing(tmp_path, capsys, raises, said, in_place):
    (tmp_path / "p.py").write_text(
        "from fedbench import hookimpl\n\nclass Mute(Exception):\n    def __str__(self):\n        raise Mute\n\n"
        f"@hookimpl\ndef fedbench_cell_started():\n    raise {raises}\n"
    )
    Registry([str(tmp_path / "p.py")], in_place=in_place).tell("fedbench_cell_started", manifest={}, folder="")
    assert f"fedbench_cell_started broke: {said}" in capsys.readouterr().err


def test_a_plugin_cannot_say_of_what_kind_it_is(tmp_path):
    hook = "@hookimpl\ndef fedbench_register_metrics(register):\n    register('x', print, kind='method')\n"
    (tmp_path / "p.py").write_text(f"from fedbench import hookimpl\n{hook}")
    with pytest.raises(UserError, match="does not load: TypeError"):
        Registry([str(tmp_path / "p.py")]).catalogue  # noqa: B018


# --- what is installed where it lies -----------------------------------------------------------------------------


def test_the_files_of_an_editable_package_are_a_part_of_its_version(install, tmp_path):
    file = install("mine", registering("allocations", "mine", LAST))
    assert Registry().version("mine") == "1.0"
    info = tmp_path / "site/mine-1.0.dist-info"
    (info / "direct_url.json").write_text('{"dir_info": {"editable": true}, "url": "file:///any"}')
    first = Registry().version("mine")
    assert re.fullmatch(r"1\.0\+sha256:[0-9a-f]{16}", first) and Registry().version("mine") == first
    file.write_text(file.read_text() + "# an edit\n")
    assert Registry().version("mine") != first
    assert Registry().version("fedra") == fedbench_version  # its own code is what its version says
    listed = fedbench("plugins", "list", cwd=tmp_path).stdout
    assert "+sha256: a package that is installed editable" in listed and Registry().version("mine") in listed


def test_every_file_of_an_editable_package_counts(tmp_path):
    package = tmp_path / "them"
    (package / "parts").mkdir(parents=True)
    modules = [package / "__init__.py", package / "parts" / "__init__.py", package / "parts" / "one.py"]
    for module in modules:
        module.write_text("")
    before = hash_of_sources([str(modules[2]), None])
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "one.pyc").write_text("x")
    (tmp_path / "beside.py").write_text("x")
    assert hash_of_sources([str(modules[0]), str(modules[2])]) == before
    (package / "table.json").write_text("{}")
    assert hash_of_sources([str(modules[2])]) != before
