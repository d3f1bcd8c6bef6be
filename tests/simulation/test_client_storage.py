"""What clients keep is charged once: against counts by hand from the model's parameters and the layers held."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice

import pytest
import torch
from priced import totals_of

from fedbench.registry.facts import CachedFacts
from fedbench.results.tables import to_table
from fedbench.runner.runner import load
from fedbench.simulation.checkpoint import Checkpoints, Progress
from fedbench.simulation.simulation import Simulation
from fedbench.simulation.state import ClientStorage
from fedbench.types import ClientCost, Frozen, Sent

SUITE = """
suite: keeping
defaults:
  backbone: {name: vit_tiny_patch16_224, pretrained: false, img_size: 32, embed_dim: 48, depth: 4}
  adapter: {name: lora, rank: 4, alpha: 4, dropout: 0.0}
  data: {name: strokes6, classes: 3, train_per_class: 3, test_per_class: 1}
  train: {rounds: 3, max_steps: 2, batch_size: 2}
  capacities: [4, 2, 1, 2, 1, 4]
  participation: {count: 4}
scenarios:
  resent: {}
  said: {frozen_weights: resent, frozen_features: computed}
  cached: {frozen_weights: cached, frozen_features: kept}
  hurried:
    devices: {laptop: 1}
    fit: {bytes: 60.0e3}
    frozen_weights: cached
  lossy:
    frozen_weights: cached
    faults: {dropout: 0.4}
methods: [fedra, depthfl, hetlora, head_only, flora, fedavg]
"""
LAYERED = ["fedra", "depthfl", "hetlora", "head_only"]


@pytest.fixture(scope="module")
def configs(registry, tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "keeping.yaml"
    path.write_text(SUITE)
    return {(cell.scenario, cell.method): cell.config for cell in load(path, registry).points()}


def ran(config, registry):
    """(a simulation that has run, its tables)"""
    simulation, progress = Simulation(config, registry), Progress()
    simulation.run(progress=progress)
    for kind in ("rounds", "storage", "exchange"):
        to_table(kind, progress.tables[kind])
    return simulation, progress.tables


def frozen_bytes(model):
    """Bytes outside the layers, and of each layer, of what nobody trains."""
    sizes = defaultdict(int)
    for name, p in model.model.named_parameters():
        if not p.requires_grad:
            sizes[name.split(".")[1] if name.startswith("blocks.") else ""] += p.nbytes
    return sizes.pop(""), [sizes[str(j)] for j in range(model.num_layers)]


def held_of(method, row):
    """The layers that a client of a row holds, by the method's rule."""
    if method == "head_only":
        return set(range(4))
    return set(row["layers"])


@pytest.mark.parametrize("method", LAYERED)
def test_frozen_weights_are_charged_in_the_first_round_in_which_a_layer_is_held(configs, registry, method):
    """Besides them the bytes are those of a scenario in which they are sent again in every round."""
    simulation, tables = ran(configs["cached", method], registry)
    _, resent = ran(configs["resent", method], registry)
    outside, layer = frozen_bytes(simulation.model)
    had = defaultdict(set)
    for row, again, stored in zip(tables["rounds"], resent["rounds"], tables["storage"], strict=True):
        client, held = row["client"], held_of(method, row)
        always = outside + sum(layer[j] for j in held)
        lacks = held - had[client]
        once = outside * (client not in had or not had[client]) + sum(layer[j] for j in lacks)
        had[client] |= held
        assert row["bytes_down"] == again["bytes_down"] - always + once
        assert row["bytes_up"] == again["bytes_up"]
        assert set(stored["fetched_layers"]) == lacks
        kept = outside + sum(layer[j] for j in had[client])
        features = stored["stored_bytes"] - kept
        assert (features > 0) == (method == "head_only")
    assert sum(len(layers) for layers in had.values()) > len(had)


def test_a_kept_feature_is_computed_once_for_each_image_that_was_trained_on(configs, registry):
    """The classifier's forward and backward pass takes 4 D C FLOPs an image, all below it the rest."""
    simulation, tables = ran(configs["cached", "head_only"], registry)
    _, computed = ran(configs["resent", "head_only"], registry)
    D, C, seen = 48, 3, defaultdict(set)
    for row, again, stored in zip(tables["rounds"], computed["rounds"], tables["storage"], strict=True):
        t, client = row["round"] - 1, row["client"]
        images = [i for batch in islice(simulation.federation.in_order(t, client), 2) for i in batch.tolist()]
        new = set(images) - seen[client]
        seen[client] |= new
        beneath = again["flops"] // len(images) - 4 * D * C
        assert row["flops"] == len(images) * 4 * D * C + len(new) * beneath
        outside, layer = frozen_bytes(simulation.model)
        assert stored["stored_bytes"] == outside + sum(layer) + len(seen[client]) * D * 4
    assert any(len(images) < 9 for images in seen.values())  # not all that a client has


def test_nothing_is_kept_where_layers_are_trained_or_whole_models_sent(configs, registry):
    for method in ("fedra", "fedavg"):
        _, kept = ran(configs["cached", method], registry)
        _, computed = ran(configs["resent", method], registry)
        assert [row["flops"] for row in kept["rounds"]] == [row["flops"] for row in computed["rounds"]]
    assert [row["bytes_down"] for row in kept["rounds"]] == [row["bytes_down"] for row in computed["rounds"]]
    assert {row["stored_bytes"] for row in kept["storage"]} == {0}


def test_saying_the_usual_way_changes_no_cell(configs, registry):
    for method in LAYERED:
        assert configs["said", method] == configs["resent", method]
        assert not configs["resent", method].keys() & {"frozen_weights", "frozen_features"}
    assert ran(configs["resent", "fedra"], registry)[1]["storage"] == []


def test_whoever_is_lost_has_kept_what_it_was_sent(configs, registry):
    _, tables = ran(configs["lossy", "depthfl"], registry)
    rows = zip(tables["rounds"], tables["storage"], strict=True)
    lost = [(row, stored) for row, stored in rows if not row["arrived"]]
    assert lost
    for row, stored in lost:
        later = [one for one in tables["storage"] if one["client"] == row["client"] and one["round"] > row["round"]]
        assert all(not set(one["fetched_layers"]) & set(stored["fetched_layers"]) for one in later)


@pytest.mark.parametrize("method", ["fedra", "head_only"])
def test_a_cell_that_is_resumed_charges_what_an_uninterrupted_one_does(configs, registry, tmp_path, method):
    config = configs["cached", method]
    _, whole = ran(config, registry)

    class Broken(Exception):
        pass

    def on_round(t, rows):
        checkpoints.write(progress)
        raise Broken

    for _ in range(3):
        checkpoints = Checkpoints(tmp_path, "0" * 12, "cpu")
        progress, _ = checkpoints.latest()
        with pytest.raises(Broken):
            Simulation(config, registry, store=checkpoints.store).run(on_round, progress=progress)
    tables = Checkpoints(tmp_path, "0" * 12, "cpu").latest()[0].tables
    for kind in ("rounds", "storage", "exchange"):
        assert [{**row, "seconds": 0} for row in tables[kind]] == [{**row, "seconds": 0} for row in whole[kind]]


@pytest.mark.parametrize("method", ["depthfl", "hetlora", "head_only"])
def test_what_is_planned_is_what_is_charged(configs, registry, method):
    config = configs["cached", method]
    _, tables = ran(config, registry)
    planned = totals_of(CachedFacts(registry), "0" * 12, config)
    for name in ("bytes_down", "bytes_up", "flops"):
        assert planned[name] == sum(row[name] for row in tables["rounds"])


def test_a_size_must_fit_a_round_that_sends_no_frozen_weights(configs, registry):
    """A layer alone has more than 60 kB of frozen weights, and its adapters have few."""
    with torch.device("meta"):
        fits = Simulation(configs["hurried", "fedra"], registry, "meta").federation.fitted
    assert {size.capacity for size in fits} == {4}
    again = {key: value for key, value in configs["hurried", "fedra"].items() if key != "frozen_weights"}
    with pytest.raises(Exception, match="no client's device"), torch.device("meta"):
        Simulation(again, registry, "meta")


def test_additions_of_missed_rounds_are_sent_too_but_no_more_than_the_weights():
    cost = ClientCost(
        flops_per_image=7, bytes_down=100 + 6 + 4, bytes_up=4, memory_bytes=0,
        sent=(Sent("backbone", 100), Sent("additions", 6), Sent("adapters", 4, 4)),
        frozen=Frozen(0, 26, 40, 5, 8),
    )  # fmt: skip
    storage, none = ClientStorage(weights=True), torch.zeros(0, dtype=torch.int64).numpy()
    first, fetched = storage.charged(0, 3, cost, [0, 1], none)
    assert (first.bytes_down, fetched) == (106 + 4, [0, 1])
    assert storage.charged(3, 3, cost, [0, 1], none)[0].bytes_down == 3 * 6 + 4
    assert storage.charged(90, 3, cost, [0, 1], none)[0].bytes_down == 106 + 4
    assert storage.stored(3, cost) == 106 and storage.steady(cost).bytes_down == 6 + 4
