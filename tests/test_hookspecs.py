"""Every hook, by a plugin file that implements it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from strangers import LAST, registering

from fedbench import hookspecs
from fedbench.registry.registry import Registry

HOOKS = [name for name in vars(hookspecs) if name.startswith("fedbench_")]


def plugin_of(folder: Path, code: str) -> Registry:
    file = folder / "mine.py"
    file.write_text("from fedbench import hookimpl\n" + code)
    return Registry([str(file)], in_place=True)


def made(folder: Path, kind: str, code: str, **given):
    """What the component `mine` of that kind turns out as, from a plugin file."""
    plugins = plugin_of(folder, registering(f"{kind}s", "mine", code))
    assert plugins.catalogue.find(kind, "mine").package == str(folder / "mine.py")
    return plugins.make(kind, {"name": "mine"}, **given)


def test_hook_fedbench_register_allocations(tmp_path):
    plugins = plugin_of(tmp_path, registering("allocations", "mine", LAST))
    allocate = plugins.make("allocation", {"name": "mine", "shift": 1})
    assert allocate(torch.tensor([1, 2]), 3).tolist() == [[False, False, True], [False, True, True]]
    assert allocate.exact and allocate.keywords == {"shift": 1}
    assert plugins.catalogue.find("allocation", "mine").options == {"shift": 0}
    loose = registering("allocations", "mine", LAST).replace("'mine', make", "'mine', make, exact=False")
    assert not plugin_of(tmp_path, loose).make("allocation", {"name": "mine"}).exact


def test_hook_fedbench_register_aggregators(tmp_path):
    assert (
        made(tmp_path, "aggregator", "def make():\n    return lambda state, uploads, plan, cohort: 'new'\n")(0, 0, 0, 0)
        == "new"
    )


def test_hook_fedbench_register_objectives(tmp_path):
    code = "def make(setup, scale: float = 2.0):\n    return lambda exits, y, t: scale * setup\n"
    assert made(tmp_path, "objective", code, setup=3)([], None, 0) == 6


def test_hook_fedbench_register_adapters(tmp_path):
    seen = []
    made(tmp_path, "adapter", "def make():\n    return lambda blocks: blocks.append('attached')\n")(seen)
    assert seen == ["attached"]


def test_hook_fedbench_register_backbones(tmp_path):
    code = "from fedbench.models.backbone import Source\n"
    code += "def make(load=True):\n    return Source(None, 8, (), (), 'weights' if load else 'shapes')\n"
    assert made(tmp_path, "backbone", code, load=False).fingerprint == "shapes"


def test_hook_fedbench_register_methods(tmp_path):
    code = "from fedbench import Method\n"
    code += "def make(setup, depth: int = 3):\n    return Method(setup, depth, print, print)\n"
    facts = "role='floor', profiles={'reference': {'depth': 4}}"
    plugins = plugin_of(tmp_path, registering("methods", "mine", code).replace("make)", f"make, {facts})"))
    method = plugins.make("method", {"name": "mine", "depth": 5}, setup="s")
    assert (method.init, method.round) == ("s", 5)
    mine = plugins.catalogue.find("method", "mine")
    assert (mine.profiles, mine.role) == ({"reference": {"depth": 4}}, "floor")


def test_hook_fedbench_register_datasets(tmp_path):
    code = "from fedbench.types import Dataset\n"
    code += "def make(image_size, draw=0):\n    return Dataset((), ('a', 'b'), f'{image_size} {draw}', print)\n"
    assert made(tmp_path, "dataset", code, image_size=8).fingerprint == "8 0"


def test_hook_fedbench_register_partitions(tmp_path):
    assert made(tmp_path, "partition", "def make():\n    return lambda *given: given\n")(1, 2) == (1, 2)


def test_hook_fedbench_register_metrics(tmp_path):
    assert made(tmp_path, "metric", "def make():\n    return lambda logits, y: 0.25\n")(None, None) == 0.25


def test_hook_fedbench_register_executors(tmp_path):
    code = "def make(workers, timeout, queue: str = 'short'):\n"
    code += "    return lambda jobs, on_event: (workers, timeout, queue)\n"
    assert made(tmp_path, "executor", code, workers=2, timeout=None)([], print) == (2, None, "short")


def noting(place: Path, hook: str, arguments: str) -> Registry:
    """A tracker that writes the arguments of one hook into a file."""
    code = f"import json, pathlib\n@hookimpl\ndef {hook}({arguments}):\n"
    code += f"    pathlib.Path({str(place / 'notes')!r}).write_text(json.dumps([{arguments}]))\n"
    return plugin_of(place, code)


def told(place: Path, hook: str, arguments: str, **facts) -> list:
    plugins = noting(place, hook, arguments)
    assert plugins.catalogue.lifecycle == ["mine.py"]
    plugins.tell(hook, **facts)
    return json.loads((place / "notes").read_text())


def test_hook_fedbench_suite_started(tmp_path):
    assert told(tmp_path, "fedbench_suite_started", "suite", suite="s", cells=[{}], folder="r/s") == ["s"]


def test_hook_fedbench_suite_finished(tmp_path):
    assert told(tmp_path, "fedbench_suite_finished", "suite, cells", suite="s", cells=[{}], folder="r/s") == ["s", [{}]]


def test_hook_fedbench_cell_started(tmp_path):
    assert told(tmp_path, "fedbench_cell_started", "manifest", manifest={"id": "x"}, folder="c") == [{"id": "x"}]


def test_hook_fedbench_round_finished(tmp_path):
    facts = {"manifest": {}, "round": 1, "rows": [{}], "evaluation": [{"value": 0.5}], "folder": "c"}
    taken = told(tmp_path, "fedbench_round_finished", "round, rows, evaluation, folder", **facts)
    assert taken == [1, [{}], [{"value": 0.5}], "c"]


def test_hook_fedbench_cell_finished(tmp_path):
    assert told(tmp_path, "fedbench_cell_finished", "evaluation", manifest={}, evaluation=[{}], folder="c") == [[{}]]


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_documented_and_has_a_test(hook):
    assert len(getattr(hookspecs, hook).__doc__ or "") > 40
    assert f"test_hook_{hook}" in globals()
