"""The tutorials' Python: the first plugin keeps its contract and trains, and the page of Python runs."""

from __future__ import annotations

import json
import re

import torch
from command import fedbench as on_the_line
from pages import HOOK_PAGES, ROOT, blocks

import fedbench as api
from fedbench.models.param_paths import places
from fedbench.registry.registry import Registry
from fedbench.runner.runner import load
from fedbench.seeding import generator
from fedbench.testing import check_component
from fedbench.testing.setups import cohort_of, setup_of, tiny_vit

SERVER_MOMENTUM = {"name": "server_optimizer", "rule": "avgm"}
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
    allocation, method = blocks(ROOT / "docs/first_plugin.md", "python")
    files = [tmp_path / "my_study/my_allocation.py", tmp_path / "my_study/my_method.py"]
    for file, block in zip(files, (allocation, method), strict=True):
        file.write_text(block.text)
    registry = Registry([str(file) for file in files])
    check_component(registry, "allocation", "my_allocation")
    suite = tmp_path / "my_study/suite.yaml"
    assert "my_method" in {point.method for point in load(suite, registry, add=["my_method"]).points()}
    refs = [{"name": "my_method"}, {"name": "fedra", "aggregator": SERVER_MOMENTUM}]
    own, shipped = (two_rounds(registry, ref) for ref in refs)
    for (_, one), (_, other) in zip(places(own), places(shipped), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def two_rounds(registry, ref):
    """Of a method whose clients hold all layers."""
    method = registry.make("method", ref, setup=setup_of(registry, tiny_vit(), [4, 4]))
    state = method.init(generator(0))
    for t in range(2):
        state, _ = method.round(state, t, cohort_of([4, 4]), generator(0, t))
    return state


def test_the_page_of_python_runs(tmp_path, monkeypatch, capsys, own_cache):
    """Its examples load reference results. What they run is what the notebook runs, see tests/test_api.py."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results/reference").symlink_to(ROOT / "results/reference")
    monkeypatch.chdir(tmp_path)
    started = re.findall(r"fedbench\.run\(.*\)", "".join(b.text for b in blocks(ROOT / "docs/api.md", "python")))
    notebook = json.loads((ROOT / "docs/example.ipynb").read_text(encoding="utf-8"))
    assert started and all(call in "".join(map("".join, (c["source"] for c in notebook["cells"]))) for call in started)
    monkeypatch.setattr(api, "run", lambda *given, **named: api.load("results/reference/quickstart"))
    for block in blocks(ROOT / "docs/api.md", "python"):
        exec(compile(block.text, "api.md", "exec"), {})
    printed, _ = capsys.readouterr()
    assert "accuracy final" in printed and "fedra" in printed


def test_no_python_stands_on_a_page_whose_examples_nobody_runs():
    run = (*HOOK_PAGES, *(ROOT / f"docs/{name}.md" for name in ("api", "first_plugin", "reading")))
    assert [page.name for page in (ROOT / "docs").rglob("*.md") if blocks(page, "python") and page not in run] == []
