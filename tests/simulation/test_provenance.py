"""What changes during a run is not recorded under the old identity, and what a cell does not use does not change it."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from command import NOTING, TINY, write_suite
from kills import order_of, said

from fedbench import machine
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.results import read_manifest
from fedbench.runner.cells import cells_of
from fedbench.runner.runner import load
from fedbench.simulation import worker
from fedbench.simulation.cell_job import CellJob
from fedbench.simulation.checkpoint import CHECKPOINT
from fedbench.simulation.provenance import other_versions, versions_of

TABLE = "text,label\n" + "".join(f"word{i} is {kind},{kind}\n" for i in range(8) for kind in ("good", "bad"))


@pytest.fixture
def order(own_cache, tmp_path, monkeypatch):
    """A cell whose plugin is a file that can be edited."""
    monkeypatch.delitem(sys.modules, "fedbench_plugin_tiny_plugin", raising=False)
    plugin = tmp_path / "tiny_plugin.py"
    plugin.write_text(TINY.read_text())
    return order_of(tmp_path, "chained", 3, plugins=[plugin])


def edit(file: Path) -> None:
    file.write_text(file.read_text() + "\n# edited\n")


def test_a_plugin_that_was_edited_before_a_cell_began_fails_it(order):
    edit(Path(order.plugins[0]))
    manifest = worker.run(order)
    assert manifest["status"] == "failed" and not (order.folder / "eval.parquet").exists()
    version = manifest["versions"]["tiny_plugin.py"]
    assert "has changed since the run began: tiny_plugin.py is sha256:" in manifest["reason"]
    assert f", not {version};" in manifest["reason"]


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_plugin_that_is_edited_while_a_cell_runs_fails_it(order, rounds):
    def send(event):
        if event["event"] == "round" and event["round"] == rounds:
            edit(Path(order.plugins[0]))

    manifest = worker.run(order, send)
    assert manifest["status"] == "failed" and "has changed since the run began" in manifest["reason"]
    assert not (order.folder / "eval.parquet").exists() and not (order.folder / CHECKPOINT).exists()


@pytest.mark.parametrize("how", ["stopped", "halved"])
def test_no_cell_goes_on_from_what_another_plugin_has_computed(order, how):
    def send(event):
        if event["event"] == "round":
            edit(Path(order.plugins[0]))

    job = replace(order, until=1) if how == "halved" else order
    manifest = worker.run(job, send, stopping=lambda: how == "stopped")
    assert manifest["status"] == "failed" and not (order.folder / CHECKPOINT).exists()


def test_a_plugin_that_is_deleted_while_a_cell_runs_is_no_other_one(order):
    """What had been imported is what has computed."""
    manifest = worker.run(order, lambda event: Path(order.plugins[0]).unlink(missing_ok=True))
    assert manifest["status"] == "finished"


@pytest.fixture
def texts(own_cache, tmp_path, monkeypatch):
    """A cell on a table of texts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text(TABLE)
    path = tmp_path / "texts.yaml"
    path.write_text(
        "suite: texts\ndefaults: {backbone: micro_bert, data: {name: text_table, root: table.csv}, capacities: [2],\n"
        "  train: {rounds: 2, max_steps: 1, batch_size: 2}}\nscenarios: {all: {}}\nmethods: [head_only]\n"
    )
    registry = Registry()
    (cell,) = cells_of(load(path, registry).points(), registry, CachedFacts(registry))
    return CellJob(tmp_path / "s" / cell.id, cell.manifest(), "cpu", [])


def replaced() -> None:
    Path("table.csv").write_text(TABLE.replace("word1 ", "other "))


def test_data_that_were_replaced_before_a_cell_began_fail_it(texts):
    replaced()
    manifest = worker.run(texts)
    assert manifest["status"] == "failed" and "has changed since the run began: data is" in manifest["reason"]


def test_data_that_are_replaced_while_a_cell_runs_fail_it(texts):
    manifest = worker.run(texts, lambda event: replaced())
    assert manifest["status"] == "failed" and f", not {manifest['fingerprints']['data']}" in manifest["reason"]


def test_a_cell_on_data_that_stay_is_finished(texts):
    manifest = worker.run(texts)
    assert manifest["status"] == "finished", manifest["reason"]
    assert {"cpu_capability", "mkldnn"} <= manifest["machine"].keys()


SETTING = """
import torch
from fedbench import hookimpl

torch.set_float32_matmul_precision("medium")
torch.optim.SGD.step = None
"""
HOOK = SETTING + NOTING.read_text().replace("from __future__ import annotations", "")
ADAPTER = SETTING + (
    "@hookimpl\ndef fedbench_register_adapters(register):\n    register('mine', make)\n"
    "def make():\n    return lambda backbone: None\n"
)


@pytest.fixture
def unpatched():
    step = torch.optim.SGD.step
    yield
    torch.optim.SGD.step = step
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize(
    ("code", "method", "changes"),
    [
        (SETTING, "fedra", {}),
        (HOOK, "fedra", {}),
        (ADAPTER, "fedra", {}),
        (ADAPTER, "head_only", {"{name: lora, rank: 2, alpha: 2, dropout: 0.0}": "mine"}),
    ],
    ids=["nothing", "hooks", "another adapter", "an adapter that its method ignores"],
)
def test_a_plugin_that_a_cell_does_not_use_changes_nothing(own_cache, tmp_path, unpatched, code, method, changes):
    mine = tmp_path / "mine.py"
    mine.write_text(code)
    plain = order_of(tmp_path / "plain", method, 2)
    given = order_of(tmp_path / "given", method, 2, changes=changes, plugins=[mine, TINY])
    assert given.manifest["id"] == plain.manifest["id"]
    worker.run(plain)
    worker.run(given)
    assert torch.get_float32_matmul_precision() == "highest" and torch.optim.SGD.step is not None
    assert said(given.folder)[2] == said(plain.folder)[2]
    if code == HOOK:
        assert "cell_finished finished" in (tmp_path / "notes.txt").read_text()


def test_a_worker_without_a_cache_is_told_what_plugins_register(own_cache, tmp_path, unpatched, monkeypatch):
    mine = tmp_path / "mine.py"
    mine.write_text(ADAPTER)
    registry = Registry([str(mine), str(TINY)])
    assert "mine" in registry.catalogue.components["adapter"]
    order = order_of(tmp_path, "fedra", 1, plugins=[mine, TINY])
    monkeypatch.delitem(sys.modules, "fedbench_plugin_mine", raising=False)
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "empty"))
    worker.run(CellJob.from_json(replace(order, registered=registry.found).to_json()))
    assert read_manifest(order.folder)["status"] == "finished"
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_hook_that_ends_its_process_spoils_no_cell(own_cache, tmp_path, capfd):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "import os\n" + NOTING.read_text().replace("def _note", "def _note(line):\n    os._exit(3)\ndef _n")
    )
    mine.write_text(mine.read_text().replace("from __future__ import annotations", ""))
    order = order_of(tmp_path, "chained", 1, plugins=[TINY, mine])
    assert worker.run(order)["status"] == "finished"
    assert "fedbench_cell_started broke: the process that called it has ended" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "NPY_DISABLE_CPU_FEATURES", "MKL_CBWR"])
def test_other_instructions_than_by_default_are_part_of_an_identity(own_cache, tmp_path, monkeypatch, name):
    path, registry = write_suite(tmp_path), Registry([str(TINY)])

    def cell():
        return cells_of(load(path, registry).points(), registry, CachedFacts(registry))[0]

    monkeypatch.delenv(name, raising=False)
    plain = cell()
    assert name not in plain.versions
    monkeypatch.setenv(name, "COMPATIBLE")
    other = cell()
    assert other.versions[name] == "COMPATIBLE" and other.id != plain.id
    assert f"{name} is COMPATIBLE, not its default" in other_versions(plain.manifest(), registry)
    monkeypatch.setenv(name, "")
    assert cell().id == plain.id
    assert f"{name} is its default, not COMPATIBLE" in other_versions(other.manifest(), registry)


def test_what_a_worker_has_anyway_is_no_other_setting(monkeypatch):
    for name in machine.INSTRUCTIONS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MKL_CBWR", "AUTO,STRICT")
    assert machine.instructions() == {} and os.environ["MKL_CBWR"]
    config = {"data": {"name": "digits", "partition": {"name": "iid"}}, "method": {}, "evaluation": {"metrics": []}}
    assert set(versions_of(config, Registry())) == {"fedbench", "torch", "timm", "loralib", "numpy"}
