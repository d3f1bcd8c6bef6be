"""Exports of models whose frozen weights the server has added to: merged they hold it, adapters alone are refused."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from fedbench.errors import UserError
from fedbench.export import export
from fedbench.registry.facts import CachedFacts
from fedbench.runner.cells import cells_of
from fedbench.runner.runner import load
from fedbench.simulation import worker
from fedbench.simulation.cell_job import CellJob
from fedbench.simulation.saved_model import reopen

SUITE = """
suite: added
defaults:
  backbone: micro_vit
  data: {name: strokes6, classes: 3, train_per_class: 2, test_per_class: 1}
  train: {rounds: 1, max_steps: 1, batch_size: 4, optimizer: {name: sgd, lr: 0.5, momentum: 0.0, weight_decay: 0.0}}
  capacities: [3, 3, 3, 3, 3, 3]
  adapter: {name: lora, rank: 2, alpha: 16}
  evaluation: {by: client}
scenarios: {one: {}}
methods: [fedex_lora, flora, fedsa_lora]
"""


@pytest.fixture(scope="module")
def cells(registry, tmp_path_factory):
    """Every cell, computed: its folder by method."""
    folder, found = tmp_path_factory.mktemp("added"), {}
    (folder / "suite.yaml").write_text(SUITE)
    for cell in cells_of(load(folder / "suite.yaml", registry).points(), registry, CachedFacts(registry)):
        place = folder / cell.id
        done = worker.run(CellJob(place, cell.manifest(), "cpu", []))
        assert done["status"] == "finished", done["reason"]
        found[cell.points[0].method] = place
    return found


@pytest.mark.parametrize("method", ["fedex_lora", "flora"])
def test_a_merged_model_holds_what_was_added(cells, registry, tmp_path, method):
    written = export(cells[method], "merged", tmp_path / "out", registry)
    names: dict = {}
    exec(written.loading, names)
    trial, own = reopen(cells[method], registry, images=False)
    x = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(names["model"](x), own(x), rtol=1e-5, atol=1e-5)
    added, weights = trial.state["frozen"]["r/2/mlp.fc2"], load_file(tmp_path / "out/model.safetensors")
    begun, module = own.blocks.bases["r/2/mlp.fc2"], own.blocks.model.blocks[2].mlp.fc2
    wanted = begun + added + 8 * module.lora_B @ module.lora_A
    torch.testing.assert_close(weights["blocks.2.mlp.fc2.weight"], wanted.detach(), rtol=0, atol=1e-6)
    assert added.any() and module.lora_B.any() == (method == "fedex_lora")


@pytest.mark.parametrize(("method", "form"), [("fedex_lora", "peft"), ("flora", "loralib")])
def test_adapters_alone_are_refused(cells, registry, tmp_path, method, form):
    with pytest.raises(UserError, match="added to the frozen weights .*; --format merged writes the whole model"):
        export(cells[method], form, tmp_path / "out", registry)
    assert not list(tmp_path.iterdir())


def test_where_there_is_no_global_model_none_is_written(cells, registry, tmp_path):
    with pytest.raises(UserError, match="every client keeps B .* there is no global model to test or to write"):
        export(cells["fedsa_lora"], "merged", tmp_path / "out", registry)
