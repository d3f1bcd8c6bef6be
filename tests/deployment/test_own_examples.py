"""Nodes with examples of their own: what the server is told, and a cell that it computes with them."""

import pytest
from deployment.in_process import Here
from PIL import Image

from fedbench.deployment import wire
from fedbench.deployment.deployed import Deployed
from fedbench.errors import UserError
from fedbench.registry.facts import CachedFacts
from fedbench.runner.runner import load
from fedbench.simulation.checkpoint import Progress
from fedbench.simulation.simulation import Simulation

SUITE = """
suite: own
defaults:
  backbone: tiny
  adapter: {name: lora, rank: 2, alpha: 2}
  data: {name: image_folder, root: ROOT, partition: {name: on_nodes, nodes: 0123456789ab}}
  train: {rounds: 2, max_steps: 2, batch_size: 2}
scenarios: {both: {capacities: [2, 1]}}
methods: [fedra]
"""
pytestmark = pytest.mark.usefixtures("counted_once")


def draw(root, domains, classes=("cat", "dog"), images=5):
    for d, domain in enumerate(domains):
        for c, name in enumerate(classes):
            (root / domain / name).mkdir(parents=True)
            for i in range(images):
                Image.new("RGB", (8, 8), (200 * c, 100 * d, 9 * i)).save(root / domain / name / f"{i}.png")


class Own(Here):
    """Nodes whose folders hold images, by which they are dealt none."""

    def meet(self, cell):
        """All are there."""


@pytest.fixture
def config(plugins, tmp_path):
    draw(tmp_path / "server", ("day", "night"))
    (tmp_path / "own.yaml").write_text(SUITE.replace("ROOT", str(tmp_path / "server")))
    (cell,) = load(tmp_path / "own.yaml", plugins).points()
    return {**cell.config, "engine": "sequential"}


def asked(nodes, client, config):
    facts, _ = wire.unpacked(nodes.node(client).answer(wire.packed({"kind": "describe", "data": config["data"]}, {})))
    return facts


def test_a_cell_on_images_that_only_nodes_have(config, plugins, tmp_path):
    draw(tmp_path / "0", ("day",), ("dog", "cat"))
    draw(tmp_path / "1", ("attic", "night"), images=10)
    nodes = Own(tmp_path)
    own = [asked(nodes, client, config) for client in (0, 1)]
    assert [(one["examples"], one["domain"], one["classes"]) for one in own] == [
        (8, "day", ["cat", "dog"]),
        (32, "", ["cat", "dog"]),
    ]
    assert own[0]["fingerprint"] != own[1]["fingerprint"]
    cell, progress = Deployed(config, plugins, cell="c1", nodes=nodes, own=own), Progress()
    cell.run(progress=progress)
    rounds = progress.tables["rounds"]
    assert [(row["client"], row["domain"], row["examples"]) for row in rounds[:2]] == [(0, "day", 8), (1, "mixed", 32)]
    assert {row["outcome"] for row in progress.tables["wire"]} == {"arrived"}
    assert {row["domain"] for row in progress.tables["eval"]} == {"day", "night"}
    assert not cell.federated.doubts()


def test_a_class_that_the_server_does_not_know_is_refused(config, plugins, tmp_path):
    draw(tmp_path / "0", ("day",), ("cat", "fox"))
    draw(tmp_path / "1", ("night",))
    nodes = Own(tmp_path)
    own = [asked(nodes, client, config) for client in (0, 1)]
    with pytest.raises(
        UserError, match=r"node of client 0 cannot compute this cell: .*: the server knows no class 'fox'"
    ):
        Deployed(config, plugins, cell="c1", nodes=nodes, own=own).run()


def test_a_data_set_without_a_folder_is_no_nodes_own(config, tmp_path):
    answer = asked(Own(tmp_path), 0, {"data": {"name": "strokes6"}})
    assert "the data set 'strokes6' has no `root`" in answer["refused"]


@pytest.mark.parametrize(("key", "value"), [("validation", 0.2), ("by", "client")])
def test_what_needs_the_examples_of_clients_on_the_server_is_refused(config, plugins, tmp_path, key, value):
    config["evaluation"] = {**config["evaluation"], key: value}
    with pytest.raises(UserError, match=f"evaluation.{key}: examples of clients are on their nodes"):
        Deployed(config, plugins, cell="c1", nodes=Own(tmp_path), own=[{"examples": 2, "domain": ""}])


def test_a_simulation_has_no_examples_of_nodes(config, plugins):
    with pytest.raises(UserError, match="the examples of this suite are on nodes: `fedbench deploy run` computes it"):
        Simulation(config, plugins)
    with pytest.raises(UserError, match="the examples of this suite are on nodes"):
        CachedFacts(plugins).prepare(config)
