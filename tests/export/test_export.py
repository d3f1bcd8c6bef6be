"""What is exported answers as the cell's model does, in PEFT, in loralib and in timm, by the lines that are printed."""

from __future__ import annotations

import json

import pytest
import torch
from command import fedbench
from exported import computed, loaded
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from fedbench.errors import UserError
from fedbench.export import export, peft
from fedbench.export.card import base, card
from fedbench.export.parts import parts_of
from fedbench.models.backbone import Architecture
from fedbench.report.leaderboards import leaderboards
from fedbench.results import load as results
from fedbench.simulation.saved_model import reopen

SUITE = """
suite: exported
defaults:
  data: {name: strokes6, classes: 3, train_per_class: 2, test_per_class: 1}
  train: {rounds: 1, max_steps: 1, batch_size: 4, optimizer: {name: sgd, lr: 0.5, momentum: 0.0, weight_decay: 0.0}}
  capacities: [9, 3, 3, 3, 3, 3]
  adapter: {name: lora, rank: 2, alpha: 16}
scenarios:
  vit: {backbone: micro_vit}
  conv: {backbone: micro_vit, adapter: {targets: reference}}
  own: {backbone: micro_vit, evaluation: {by: client}}
methods: [fedra, allsmall, depthfl, head_only]
"""
# In which formats each is exported: every kind of model in all that can hold it, and what a method changes once.
CELLS = {
    ("vit", "fedra"): ["peft", "loralib"],
    ("vit", "allsmall"): [],
    ("vit", "depthfl"): ["merged"],
    ("vit", "head_only"): ["merged"],
    ("conv", "fedra"): ["peft"],
    ("own", "fedra"): [],
}
X = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def cells(registry, tmp_path_factory):
    """Every cell, computed: its folder by scenario and method."""
    folder = tmp_path_factory.mktemp("exported")
    (folder / "suite.yaml").write_text(SUITE)
    return computed(folder / "suite.yaml", registry, CELLS)


@torch.no_grad()
def assert_same_logits(model: nn.Module, cell, registry, adapted: bool = True) -> None:
    """Equal to rounding, while without the adapters the logits would be far off."""
    _, own = reopen(cell, registry, images=False)
    wanted = own(X)
    wanted = wanted["last"] if isinstance(wanted, dict) else wanted
    torch.testing.assert_close(model(X), wanted, rtol=1e-5, atol=1e-5)
    for name, parameter in own.blocks.named_parameters():
        if name.endswith("lora_B"):
            parameter.zero_()
    bare = own(X)
    bare = bare["last"] if isinstance(bare, dict) else bare
    assert ((bare - wanted).abs().max() > 1e-3) == adapted


@pytest.mark.parametrize(
    ("scenario", "method", "form"),
    [(*cell, form) for cell, forms in CELLS.items() for form in forms],
)
def test_the_printed_lines_load_a_model_of_the_same_logits(cells, registry, tmp_path, scenario, method, form):
    cell = cells[scenario, method]
    written = export(cell, form, tmp_path / "out", registry)
    assert_same_logits(loaded(written.loading), cell, registry, adapted=method != "head_only")


def test_a_merged_model_is_a_plain_timm_model_of_its_own_depth(cells, registry, tmp_path):
    for (scenario, method), depth in {("vit", "allsmall"): 3, ("vit", "depthfl"): 9}.items():
        out = tmp_path / f"{scenario}-{method}"
        export(cells[scenario, method], "merged", out, registry)
        config = json.loads((out / "config.json").read_text())
        model = Architecture(config["architecture"], config["model_args"]).make(config["num_classes"])
        model.load_state_dict(load_file(out / "model.safetensors"), strict=True)
        assert len(model.blocks) == depth and model.head.out_features == 3


def test_loralib_finds_nothing_unexpected(cells, registry, tmp_path):
    out = tmp_path / "out"
    model = loaded(export(cells["vit", "fedra"], "loralib", out, registry).loading)
    found = model.load_state_dict(load_file(out / "lora.safetensors"), strict=False)
    assert not found.unexpected_keys and not any("lora" in key or "head" in key for key in found.missing_keys)


def test_an_ensemble_says_what_is_left_of_it(cells, registry, tmp_path):
    written = export(cells["vit", "depthfl"], "merged", tmp_path / "out", registry)
    assert "answers with several classifiers (exit3, exit6, exit9)" in written.note
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["exits"] == {"exit3": 3, "exit6": 6, "exit9": 9} and config["fedbench"]["note"] == written.note
    heads = load_file(tmp_path / "out/exits.safetensors")
    model = load_file(tmp_path / "out/model.safetensors")
    assert len(heads) == 6 and torch.equal(heads["exit9.weight"], model["head.weight"])


def test_an_export_says_where_it_is_from_and_what_it_scored(cells, registry, tmp_path):
    export(cells["vit", "fedra"], "peft", tmp_path / "out", registry)
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["fedbench"]["cell"] == cells["vit", "fedra"].name
    assert config["fedbench"]["method"]["name"] == "fedra" and config["fedbench"]["names"][0]["seed"] == 0
    accuracy = config["fedbench"]["scores"]["accuracy"]
    assert accuracy["average"] == pytest.approx(sum(accuracy["domains"].values()) / 6)
    assert config["pretrained_cfg"]["mean"] == [0.5] * 3 and len(config["pretrained_cfg"]["label_names"]) == 3
    assert config["adapter"]["rank"] == 2 and len(config["adapter"]["targets"]) == 24


def test_an_export_of_a_cell_tested_by_client_has_the_leaderboards_scores(cells, registry, tmp_path):
    cell = cells["own", "fedra"]
    export(cell, "merged", tmp_path / "out", registry)
    scores = json.loads((tmp_path / "out/config.json").read_text())["fedbench"]["scores"]["accuracy"]
    (board,) = leaderboards(results([cell]))
    assert scores["average"] == board.rows[0].average.mean and len(scores["domains"]) == 6
    assert scores["domains"] == {domain: one.mean for domain, one in board.rows[0].domains.items()}


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "method", "form", "message"),
    [
        ("vit", "head_only", "peft", "this model has no low-rank adapters; try --format merged"),
        ("vit", "head_only", "loralib", "this model has no low-rank adapters; try --format merged"),
        ("conv", "fedra", "loralib", "patch_embed.proj is a convolution"),
    ],
)
def test_what_a_format_cannot_hold_is_said_and_nothing_is_left(
    cells, registry, tmp_path, scenario, method, form, message
):
    with pytest.raises(UserError, match=message):
        export(cells[scenario, method], form, tmp_path / "out", registry)
    assert not list(tmp_path.iterdir())


def test_a_disk_that_is_full_is_told_and_nothing_is_left(cells, registry, tmp_path, monkeypatch):
    def full(tensors, file, **rest):
        file.write_bytes(b"half")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(peft, "save_file", full)
    with pytest.raises(UserError, match=r"out: cannot be written \(.*No space left.*\)\. Try another --output DIR"):
        export(cells["vit", "fedra"], "peft", tmp_path / "out", registry)
    assert not list(tmp_path.iterdir())


def test_an_earlier_export_is_replaced_with_force_and_nothing_else_ever(cells, registry, tmp_path):
    cell, out = cells["vit", "fedra"], tmp_path / "out"
    export(cell, "peft", out, registry)
    with pytest.raises(UserError, match="there is an export already. Replace it with --force"):
        export(cell, "merged", out, registry)
    export(cell, "merged", out, registry, force=True)
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "model.safetensors"]
    with pytest.raises(UserError, match="convolution"):
        export(cells["conv", "fedra"], "loralib", out, registry, force=True)
    assert (out / "model.safetensors").is_file() and [path.name for path in tmp_path.iterdir()] == ["out"]
    (out / "config.json").write_text("[]")
    with pytest.raises(UserError, match="no export of fedbench"):
        export(cell, "peft", out, registry, force=True)


def test_what_is_no_part_of_an_export_is_never_removed(cells, registry, tmp_path):
    cell, out = cells["vit", "fedra"], tmp_path / "out"
    export(cell, "peft", out, registry)
    (out / "my_checkpoint.pt").write_text("mine")
    with pytest.raises(UserError, match=r"next to an export there is my_checkpoint\.pt, which --force would remove"):
        export(cell, "merged", out, registry, force=True)
    assert (out / "my_checkpoint.pt").read_text() == "mine" and (out / "adapter_model.safetensors").is_file()


@pytest.mark.parametrize("checked", [True, False])
def test_of_two_exports_into_one_folder_the_later_is_refused(cells, registry, tmp_path, monkeypatch, checked):
    """Both find the folder free. checked: the other is in place before this one looks for the last time, or after."""
    cell, out = cells["vit", "fedra"], tmp_path / "out"

    def other_first(*given):
        monkeypatch.undo()
        export(cell, "merged", out, registry)
        if not checked:
            monkeypatch.setattr("fedbench.export._must_be_free", lambda *given: None)
        return card(*given)

    monkeypatch.setattr("fedbench.export.card", other_first)
    with pytest.raises(UserError, match="there is an export already" if checked else "cannot be written"):
        export(cell, "peft", out, registry)
    assert (out / "model.safetensors").is_file() and [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_method_of_another_kind_is_refused(cells, registry, tmp_path, monkeypatch):
    trial, model = reopen(cells["vit", "fedra"], registry, images=False)
    monkeypatch.setattr("fedbench.export.reopen", lambda *_, **__: (trial, lambda x: model(x)))
    with pytest.raises(UserError, match="'fedra' cannot be exported: its predictor does not answer with a GlobalModel"):
        export(cells["vit", "fedra"], "peft", tmp_path / "out", registry)


def test_random_weights_are_exported_whole_or_not_at_all(cells, registry):
    trial, model = reopen(cells["vit", "fedra"], registry, images=False)
    trial.config = trial.config | {"backbone": {"name": "micro_vit", "pretrained": False}}
    with pytest.raises(UserError, match="drawn at random"):
        base(trial, parts_of(model, 32), "peft", [])


def test_pre_trained_models_of_timm_are_loaded_by_name(cells, registry):
    trial, model = reopen(cells["vit", "allsmall"], registry, images=False)
    object.__setattr__(trial.source, "architecture", Architecture("vit_base_patch16_224"))
    assert base(trial, parts_of(model, 32), "peft", []).splitlines() == [
        "import timm",
        "model = timm.create_model('vit_base_patch16_224', pretrained=True, num_classes=3).eval()",
        "model.blocks = model.blocks[:3]",
    ]


# --- the command --------------------------------------------------------------------------------------------------


def test_the_command_names_its_folder_and_prints_what_it_wrote(cells, tmp_path):
    cell = cells["vit", "allsmall"]
    done = fedbench("export", cell, "--format", "merged", cwd=tmp_path)
    assert done.exit_code == 0, done.output
    assert f"{cell.name}-merged/model.safetensors" in done.stdout and "To load it:" in done.stdout
    assert (tmp_path / f"{cell.name}-merged/model.safetensors").is_file()
    again = fedbench("export", cell, "--format", "merged", cwd=tmp_path)
    assert again.exit_code == 2 and "--force" in again.stderr
    nowhere = fedbench("export", "nowhere", "--format", "peft", cwd=tmp_path)
    assert nowhere.exit_code == 2 and "not the folder of a cell" in nowhere.stderr
