"""What is common to methods that train whole models: what they cost, what they keep, and what they refuse."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
import torch
from command import TINY, fedbench
from kills import Toll, kill_until_done, moved, order_of, said
from memory import count_from_here, live_bytes
from safetensors.torch import load_file
from torch.utils.flop_counter import FlopCounterMode

from fedbench.errors import NotApplicable, UserError
from fedbench.models.backbone import Plain, body_of
from fedbench.registry.registry import Registry
from fedbench.results import read_index, read_manifest, read_rows
from fedbench.results.packed_tables import folder_of
from fedbench.seeding import generator
from fedbench.simulation import worker
from fedbench.simulation.saved_model import reopen
from fedbench.simulation.state import ClientStore
from fedbench.testing.method_check import check_method
from fedbench.testing.setups import CLASSES, cohort_of, same, setup_of, tiny_mixer, tiny_vit

pytestmark = pytest.mark.usefixtures("counted_once")

WHOLE = ("fedavg", "ditto", "fedrod")
PERSONAL = ("ditto", "fedrod")
WIDTHS = ("heterofl", "fedrolex", "fjord")  # see width/


class TinyCNN(torch.nn.Sequential):
    num_features = 6

    def __init__(self):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            super().__init__(
                torch.nn.Conv2d(3, 6, 3), torch.nn.GroupNorm(2, 6), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)
            )
        self.append(torch.nn.Flatten())


def method_of(registry, name, model=tiny_vit, clients=3, **train):
    setup = setup_of(registry, model(), [1] * clients, **train)
    return registry.make("method", {"name": name}, setup=setup), setup


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("ditto", TinyCNN),
        *(pytest.param(name, tiny_mixer, marks=pytest.mark.slow) for name in WHOLE),
    ],
)
def test_the_contract_holds_on_any_backbone(registry, name, model):
    """On a ViT testing/test_kit.py tries it."""
    check_method(lambda setup: registry.make("method", {"name": name}, setup=setup), registry, model)


HYPER = {"personal": "hypernetwork", "hidden": 5}


@pytest.mark.parametrize(
    "options", [pytest.param({"aggregator": "coordinate_median", "balance": "risk"}, marks=pytest.mark.slow), HYPER]
)
def test_the_contract_holds_with_other_parts(registry, options):
    check_method(lambda setup: registry.make("method", {"name": "fedrod", **options}, setup=setup), registry, TinyCNN)


@pytest.mark.parametrize("name", WHOLE)
def test_every_weight_is_trained_and_the_backbone_stays_as_it_came(registry, name):
    method, setup = method_of(registry, name)
    before = {key: p.detach().clone() for key, p in setup.backbone.model.named_parameters()}
    start = method.init(generator(0))
    state, report = method.round(start, 0, cohort_of([1, 1, 1]), generator(0, 0))
    assert start["shared"].keys() == {f"model.{key}" for key in before} | {"head.weight", "head.bias"}
    assert all(not torch.equal(state["shared"][key], value) for key, value in start["shared"].items())
    assert same(before, {key: p.detach() for key, p in setup.backbone.model.named_parameters()})
    assert not report.plan.M.any() and method.alone and method.personal == (name in PERSONAL)


@pytest.mark.parametrize("name", WHOLE)
def test_feddyn_is_not_applicable_and_says_why(registry, name):
    with pytest.raises(NotApplicable, match="a whole model for every client"):
        method_of(registry, name, regularizer={"feddyn": 0.1})


def test_layerwise_methods_are_not_applicable_to_a_model_as_a_whole(registry):
    for name in set(registry.catalogue.components["method"]) - {*WHOLE, *WIDTHS, "majority", "zero_round"}:
        with pytest.raises(NotApplicable, match="TinyCNN cannot be cut into layers"):
            method_of(registry, name, TinyCNN)


@pytest.mark.parametrize("options", [{"lam": -1.0}, {"personal_epochs": 0}, {"personal_epochs": 1.5}])
def test_ditto_refuses_options_without_a_meaning(registry, options):
    with pytest.raises(UserError, match=f"ditto: {next(iter(options))}: expected"):
        registry.make("method", {"name": "ditto", **options}, setup=setup_of(registry, tiny_vit(), [1]))


@pytest.mark.parametrize("options", [{"balance": "none"}, {"gamma": -0.1}, {"personal": "mlp"}, {"hidden": 0}])
def test_fedrod_refuses_options_without_a_meaning(registry, options):
    with pytest.raises(UserError, match=f"fedrod: {next(iter(options))}: expected"):
        registry.make("method", {"name": "fedrod", **options}, setup=setup_of(registry, tiny_vit(), [1]))


# --- costs --------------------------------------------------------------------------------------------------------


def test_resnet50_with_group_norm_has_the_size_that_the_paper_gives(registry):
    """FedV, Table 1: 25.6 M parameters; 4.1 GFLOPs an image there are multiply-adds."""
    with torch.device("meta"):
        source = registry.make("backbone", {"name": "resnet50_gn", "pretrained": False}, load=False)
        body = body_of(source.model)
        body.add_classifier("head", 1000)
    assert isinstance(body, Plain) and source.image_size == 224
    assert sum(p.numel() for p in body.parameters()) == pytest.approx(25.6e6, rel=0.005)
    with FlopCounterMode(display=False) as counter, torch.device("meta"):
        body.classifiers["head"](body.pooled(torch.empty(1, 3, 224, 224)))
    assert counter.get_total_flops() / 2 == pytest.approx(4.1e9, rel=0.02)


@pytest.mark.parametrize("model", [tiny_vit, TinyCNN])
def test_a_client_pays_for_all_weights(registry, model):
    options = {"optimizer": {"name": "adamw", "lr": 0.1, "weight_decay": 0.0}, "batch_size": 4}
    method, setup = method_of(registry, "fedavg", model, **options)
    cost, weights = method.cost(1, 0), 8 * sum(p.numel() for p in setup.backbone.parameters())
    assert (cost.bytes_down, cost.bytes_up) == (weights, weights)
    assert cost.exchange(100, 4) == [("weights", weights, weights)]
    assert cost.memory_bytes > 4 * weights
    x, y = torch.randn(1, 3, 8, 8, dtype=torch.float64), torch.zeros(1, dtype=torch.long)
    for module in setup.backbone.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False
    with FlopCounterMode(display=False) as counter:
        logits = setup.backbone.classifiers["head"](setup.backbone.pooled(x))
        torch.nn.functional.cross_entropy(logits, y).backward()
    assert cost.flops_per_image == counter.get_total_flops()


def test_what_methods_cost_beside_fedavg(registry):
    fedavg, ditto, fedrod = (method_of(registry, name)[0].cost(1, 0) for name in WHOLE)
    assert ditto.flops_per_image == fedavg.flops_per_image
    assert (ditto.personal_epochs, fedavg.personal_epochs) == (1, 0)
    assert ditto.flops(12, 4, personal_images=8) == 20 * fedavg.flops_per_image
    assert ditto.memory_bytes == fedavg.memory_bytes + 2 * fedavg.bytes_up
    assert fedavg.flops_per_image < fedrod.flops_per_image < 1.05 * fedavg.flops_per_image
    assert fedavg.bytes_up == ditto.bytes_up == fedrod.bytes_up
    assert fedavg.memory_bytes < fedrod.memory_bytes < 1.2 * fedavg.memory_bytes


def test_a_hypernetwork_is_sent_and_averaged_and_costs_a_second_pass_forward(registry):
    setup = setup_of(registry, tiny_vit(), [1])
    made = registry.make("method", {"name": "fedrod", **HYPER}, setup=setup)
    plain, cost = method_of(registry, "fedavg")[0].cost(1, 0), made.cost(1, 0)
    heads = CLASSES * (setup.backbone.num_features + 1)
    H = 8 * (5 * (CLASSES + 1) + heads * (5 + 1))  # two layers with biases
    assert cost.bytes_up - plain.bytes_up == cost.bytes_down - plain.bytes_down == H
    assert 1.2 * plain.flops_per_image < cost.flops_per_image < 1.5 * plain.flops_per_image
    state = made.init(generator(0))
    after, _ = made.round(state, 0, cohort_of([1]), generator(0, 0))
    names = {"hyper_hidden.weight", "hyper_hidden.bias", "hyper_made.weight", "hyper_made.bias"}
    assert {name for name in state["shared"] if name.startswith("hyper")} == names
    assert not state["shared"]["hyper_made.weight"].any() and after["shared"]["hyper_made.weight"].any()
    (kept,) = (setup.store.get(key) for key in after["clients"].values())
    assert kept.keys() == {"a_m"} and kept["a_m"].shape == (CLASSES,) and float(kept["a_m"].sum()) == pytest.approx(1)


# --- what clients keep --------------------------------------------------------------------------------------------


def test_fifteen_clients_do_not_cost_fifteen_models_of_memory(registry, monkeypatch, tmp_path):
    """Three rounds of five clients each, counted when the last client of the 2nd and the last round puts its own model
    away."""
    count_from_here()
    setup = setup_of(registry, tiny_vit(depth=1, dim=64), [1] * 15)
    setup.store._given = tmp_path
    method = registry.make("method", {"name": "ditto"}, setup=setup)
    one, before, most = 8 * sum(p.numel() for p in setup.backbone.parameters()), live_bytes(), []
    put = ClientStore.put

    def counted(store, own):
        most.append(live_bytes() if len(most) in (9, 14) else 0)
        return put(store, own)

    monkeypatch.setattr(ClientStore, "put", counted)
    state = method.init(generator(0))
    for t in range(3):
        ids = list(range(5 * t, 5 * t + 5))
        state = method.round(state, t, cohort_of([1] * 5, steps=1, ids=ids), generator(0, t))[0]
        setup.store.sweep(state)
    setup.store.settle()
    assert len(state["clients"]) == len(list(tmp_path.iterdir())) == 15
    assert (
        5 < (max(most) - before) / one < 12
    )  # the state, five uploads, and two models of one client with their gradients


CHANGES = {
    "data: dots\n  capacities: [2, 1]": (
        "data: {name: dots, per_class: 4, partition: {name: iid, clients: 5}}\n"
        "  participation: {count: 2}\n  evaluation: {by: client}\n  faults: {dropout: 0.3}"
    )
}


LOCAL, MADE = "{name: fedavg, local: true}", "{name: fedrod, personal: hypernetwork}"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ditto", "fedrod", LOCAL, MADE])
def test_a_cell_killed_at_random_instants_ends_with_the_same_bits(tmp_path, own_cache, name):
    order = order_of(tmp_path / "whole", name, 12, changes=CHANGES)
    worker.run(replace(order, checkpoint_every=1e9))
    whole, toll = said(order.folder), Toll()
    while toll.kills < 5:
        one = moved(order, tmp_path / str(toll.cells))
        kill_until_done(one, random.Random(toll.cells), 0.4, toll, 5)
        assert said(one.folder) == whole
    print(toll)


def test_local_models_add_rows_and_change_no_number(tmp_path, own_cache):
    """By the loss: so few images may well be answered alike by two models."""
    found, by_loss = {}, {old: new.replace("by: client", "by: client, metrics: [loss]") for old, new in CHANGES.items()}
    for name in ("fedavg", LOCAL):
        order = order_of(tmp_path / str(len(found)), name, 2, changes=by_loss)
        worker.run(order)
        assert ("local" in order.manifest["config"]["method"]) == (name == LOCAL)
        rows = read_rows(order.folder, "eval")
        names = ("loss", "loss/local")
        found[name] = [[{**row, "metric": ""} for row in rows if row["metric"] == metric] for metric in names]
        found[name].append(load_file(order.folder / "state.safetensors"))
    (plain, nothing, state), (same, local, again) = found.values()
    assert plain == same and nothing == []
    assert len(local) == len(plain) and local != plain
    assert state.keys() == again.keys() and all(torch.equal(state[key], again[key]) for key in state)


def test_torn_tensors_of_a_client_are_noticed_and_the_checkpoint_before_is_used(tmp_path, own_cache):
    order = order_of(tmp_path / "whole", "ditto", 4, changes=CHANGES)
    worker.run(order)
    whole = said(order.folder)
    one, rounds = moved(order, tmp_path / "torn"), []
    worker.run(one, lambda event: rounds.append(event.get("round")), stopping=lambda: len(rounds) > 2)
    folder = one.folder
    assert read_manifest(folder)["status"] == "interrupted"
    newest = max((folder / "clients").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:-1] + b"x")
    manifest = worker.run(one)
    assert manifest["status"] == "finished"
    assert any(newest.name in line and "torn (its hash is another)" in line for line in manifest["torn"])
    for torn in folder.glob(".torn-*"):
        for file in torn.iterdir():
            file.unlink()
        torn.rmdir()
    assert said(folder) == whole


def test_a_finished_cell_keeps_the_global_model_and_says_so(tmp_path, own_cache):
    order = order_of(tmp_path, MADE, 2, changes=CHANGES)
    worker.run(order)
    trial, predict = reopen(order.folder, Registry([str(TINY)]))
    x = torch.randn(2, 3, 8, 8)
    assert predict(x).shape == (2, 2) and predict.features(x).shape == (2, 8)
    (client, *_) = trial.state["clients"]
    with pytest.raises(UserError, match="a client's own model is not kept"):
        trial.method.predictor(trial.state, client=int(client))


# --- as a user sees it --------------------------------------------------------------------------------------------

SUITE = """\
suite: whole
defaults:
  backbone: micro_cnn
  data: {name: dots, image_size: 32}
  train: {rounds: 1, max_steps: 1, batch_size: 2}
scenarios: {s: {}}
methods: [fedavg, fedra]
"""


@pytest.fixture
def suite(tmp_path, own_cache):
    (tmp_path / "whole.yaml").write_text(SUITE)
    return lambda command, *words: fedbench(command, *words, "--plugin", TINY, cwd=tmp_path)


def test_a_plan_shows_a_dash_for_layers_of_a_model_as_a_whole(suite):
    done = suite("plan", "whole.yaml")
    assert done.exit_code == 0
    assert re.search(r"fedavg +4 +[\d.]+ MFLOPs", done.output) and re.search(r"fedra( +–){4} +n/a", done.output)
    assert "MicroCNN cannot be cut into layers" in done.output


def test_a_run_without_capacities_shows_a_number_and_a_dash_and_exports_say_what_they_cannot(suite, tmp_path):
    assert suite("run", "whole.yaml", "--results", "r").exit_code == 0
    index = read_index(tmp_path / "r" / "whole")
    assert index is not None
    cells = {entry.method: folder_of(tmp_path / "r" / "whole", entry.cell) for entry in index.entries}
    ended = {name: (read_manifest(cell) or {})["status"] for name, cell in cells.items()}
    assert ended == {"fedavg": "finished", "fedra": "not_applicable"}
    cell = cells["fedavg"]
    done = suite("export", cell, "--format", "merged", "--output", tmp_path / "out")
    assert done.exit_code == 2 and "does not answer with a GlobalModel" in " ".join(done.output.split())
