"""Plugins that end or hang their process, wherever they are called, cost a row each, and the others are computed."""

from __future__ import annotations

import time

import pytest
from command import TINY, fedbench, manifests, write_suite

from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.runner.runner import load

BAD = """
import os, time
from dataclasses import replace
from fedbench import hookimpl
from fedbench.families.layerwise import layerwise

def does(how):
    os._exit(7) if how == "leave" else time.sleep(3600)

def odd_make(setup, how: str):
    does(how)
    return layerwise(setup)

def odd_init(setup, how: str):
    return replace(layerwise(setup), init=lambda generator: does(how))

@hookimpl
def fedbench_register_methods(register):
    register("odd_make", odd_make)
    register("odd_init", odd_init)
"""
LEFT = ("failed", "the worker process ended with exit code 7")


def run_bad(folder, methods: str, *words):
    """How each method ended, and the outcome of the command."""
    (folder / "bad.py").write_text(BAD)
    write_suite(folder, methods)
    words = ("run", "tiny.yaml", "--plugin", TINY, "--plugin", "bad.py", "--results", "r", *words)
    done = fedbench(*words, cwd=folder)
    found = {name.split("/")[0]: (m["status"], m["reason"]) for name, m in manifests(folder / "r").items()}
    return found, done


@pytest.mark.slow
@pytest.mark.parametrize("where", ["make", "init"])
def test_methods_that_leave_and_hang_elsewhere_cost_a_row_each(tmp_path, own_cache, where):
    methods = f"{{name: a, extends: odd_{where}, how: leave}}, {{name: b, extends: odd_{where}, how: hang}}, fedra"
    found, done = run_bad(tmp_path, methods, "--timeout", 10, "--jobs", 3)
    assert found == {"a": LEFT, "b": ("timeout", "not done after 10 s"), "fedra": ("finished", None)}
    assert done.exit_code == 1


@pytest.mark.slow
@pytest.mark.parametrize(("suite", "words"), [("", ("--timeout", 5)), ("\ntimeout: 5", ())])
def test_the_deadline_of_cells_is_also_that_of_reading_plugins(tmp_path, own_cache, suite, words):
    (tmp_path / "hang.py").write_text("import time\ntime.sleep(3600)\n")
    write_suite(tmp_path, "fedra", {"suite: tiny": f"suite: tiny{suite}"})
    began = time.monotonic()
    done = fedbench("run", "tiny.yaml", "--plugin", TINY, "--plugin", "hang.py", *words, cwd=tmp_path)
    assert done.exit_code == 1 and "'hang.py'" in done.output and "was not done after 5 s" in done.output
    assert [m["status"] for m in manifests(tmp_path / "results").values()] == ["finished"]
    assert time.monotonic() - began < 60  # about 10 on two idle cores


def test_components_of_a_plugin_that_leaves_on_import_cost_a_row_each(tmp_path, own_cache):
    (tmp_path / "leaves.py").write_text("import os\nos._exit(7)\n")
    methods = "fedra, {name: a, extends: theirs, strength: 3}, {name: b, extends: fedra, allocation: theirs}"
    write_suite(tmp_path, methods)
    words = ("tiny.yaml", "--plugin", TINY, "--plugin", "leaves.py")
    done = fedbench("run", *words, "--results", "r", cwd=tmp_path)
    found = {name.split("/")[0]: m for name, m in manifests(tmp_path / "r").items()}
    assert {name: m["status"] for name, m in found.items()} == {"fedra": "finished", "a": "failed", "b": "failed"}
    assert found["a"]["reason"].startswith("no method is called 'theirs'")
    assert "ended with exit code 7" in found["b"]["reason"] and done.exit_code == 1, done.output


def test_a_suite_of_which_no_method_is_there_is_refused(tmp_path, own_cache):
    (tmp_path / "leaves.py").write_text("import os\nos._exit(7)\n")
    write_suite(tmp_path, "theirs")
    done = fedbench("run", "tiny.yaml", "--plugin", TINY, "--plugin", "leaves.py", cwd=tmp_path)
    assert done.exit_code == 2 and "no method is called 'theirs'" in done.stderr
    assert not (tmp_path / "results").exists()


def test_a_wrong_partition_of_a_third_party_data_set_is_named(tmp_path, own_cache):
    path = write_suite(tmp_path, "fedra", {"data: dots": "data: {name: dots, partition: theirs}"})
    with pytest.raises(UserError, match="no partition is called 'theirs'"):
        load(path, Registry([str(TINY)]))
