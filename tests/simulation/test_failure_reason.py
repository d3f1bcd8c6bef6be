"""Reasons of failed cells: the place in a plugin's file, from the traceback alone."""

from __future__ import annotations

import pytest
from command import TINY, write_suite

from fedbench.registry.registry import Registry
from fedbench.runner.runner import load
from fedbench.simulation.failure_reason import check_command, place, plugin_fault

MINE = """
from fedbench import hookimpl
from fedbench.types import Client

def raising(y, domain, num_domains, generator):
    raise ValueError("no")

def partition():
    return raising

@hookimpl
def fedbench_register_partitions(register):
    register("mine", partition)
"""


@pytest.fixture
def registry(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    return Registry([str(TINY), str(tmp_path / "mine.py")])


def config(registry, folder, partition):
    changes = {"data: dots": f"data: {{name: dots, partition: {partition}}}"}
    (cell,) = load(write_suite(folder, "fedra", changes), registry).points()
    return cell.config


def raised(function, *given):
    try:
        function(*given)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_the_last_line_in_a_plugins_file_is_named_with_its_component_and_how_to_check_it(registry, tmp_path):
    error = raised(registry.make("partition", {"name": "mine"}), None, None, 1, None)
    assert place(error, registry, config(registry, tmp_path, "mine")) == (
        " (mine.py:6), in the partition 'mine'; to check it: fedbench plugins check mine.py"
    )
    assert place(error, registry, config(registry, tmp_path, "by_domain")) == ""  # it is no part of this cell
    assert place(raised(int, "x"), registry, config(registry, tmp_path, "mine")) == ""
    assert place(error, registry, {}) == place(error, Registry(), config(registry, tmp_path, "mine")) == ""


def test_a_file_of_a_plugins_package_is_the_plugins(registry, tmp_path, monkeypatch):
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "core.py").write_text("def broken():\n    raise ValueError\n")
    monkeypatch.setattr(Registry, "module_file", lambda self, plugin: str(package / "plugin.py"))
    names: dict = {}
    exec(compile((package / "core.py").read_text(), str(package / "core.py"), "exec"), names)
    assert place(raised(names["broken"]), registry, config(registry, tmp_path, "mine")).startswith(" (core.py:2)")


def test_fedbenchs_own_components_need_no_check(registry):
    own, mine = (registry.catalogue.find("partition", name) for name in ("by_domain", "mine"))
    assert check_command(own) == "" and check_command(mine) == "; to check it: fedbench plugins check mine.py"
    assert str(plugin_fault(own, "it is odd", len)) == "the partition 'by_domain' of fedbench: it is odd"
    assert str(plugin_fault(mine, "odd", len)).startswith("the partition 'mine' of mine.py: odd; to check it: fedbench")
