"""The tutorials' Python: the first plugin keeps its contract and trains, and the page of Python runs."""

from __future__ import annotations

import inspect

import pytest
from command import fedbench as on_the_line
from factories import eval_rows, write_cell
from pages import ROOT, blocks

import fedbench
from fedbench.registry.registry import Registry
from fedbench.runs.options import Options
from fedbench.runs.runner import load
from fedbench.testing import check_component

SMALL = """
suite: small
defaults:
  backbone: micro_vit
  data: {name: strokes6, classes: 3, train_per_class: 1, test_per_class: 1}
scenarios: {skew: {capacities: [2, 1, 1, 1, 1, 1]}}
methods: [head_only]
"""


def test_the_first_plugin_keeps_its_contract_and_runs_in_the_suite_of_init(tmp_path):
    on_the_line("init", "my_study", cwd=tmp_path)
    (block,) = blocks(ROOT / "docs/first_plugin.md", "python")
    file = tmp_path / "my_study/my_allocation.py"
    file.write_text(block.text)
    registry = Registry([str(file)])
    check_component(registry, "allocation", "my_allocation")
    assert load(tmp_path / "my_study/suite.yaml", registry).points()


def example_of_python() -> str:
    """The page's example on the small suite: its results lie in the folder `small`."""
    (block,) = blocks(ROOT / "docs/api.md", "python")
    assert block.text.count("quickstart") == 2
    return block.text.replace("results/quickstart", "results/small").replace("quickstart", "small.yaml")


def test_the_page_of_python_asks_for_what_there_is(tmp_path, monkeypatch, capsys):
    taken = inspect.signature(fedbench.run)

    def run(*args, **named):
        options = taken.bind(*args, **named).arguments.get("options", {})
        assert set(options) <= set(Options.__dataclass_fields__)
        write_cell(tmp_path / "results/small", "head_only", evaluation=eval_rows({1: {"solid": 0.5}}))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fedbench, "run", run, raising=False)
    exec(compile(example_of_python(), "api.md", "exec"), {})
    assert "head_only" in capsys.readouterr().out


@pytest.mark.slow
def test_the_page_of_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    exec(compile(example_of_python(), "api.md", "exec"), {})
    assert "head_only" in capsys.readouterr().out


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_no_python_stands_on_a_page_whose_examples_nobody_runs(page):
    assert not blocks(page, "python") or page.stem in ("api", "first_plugin", "plugins", "results")
