"""Cells on real SuperNodes of this machine, with TLS and keys."""

import http.client
import ssl
import time

import psutil
import pytest
from command import TINY, fedbench, write_suite

from fedbench.deployment import wire
from fedbench.deployment.federation import Federation, free_port, make_key
from fedbench.deployment.loopback import Loopback
from fedbench.deployment.node import Node
from fedbench.deployment.server import GONE
from fedbench.registry.facts import CachedFacts
from fedbench.results import read_manifest, read_rows
from fedbench.results.files import digest_of_cell
from fedbench.results.packed_tables import packed_tables
from fedbench.runner.cells import cells_of
from fedbench.runner.runner import load
from fedbench.simulation import worker
from fedbench.simulation.cell_job import CellJob
from fedbench.simulation.faults import NOT_FINITE
from fedbench.simulation.simulation import Simulation

pytest.importorskip("flwr", reason="needs the extra `flower`")
TO_NODES = ("--executor", "{name: flower, nodes: 2}")  # which says itself that its engine is the sequential one


def of_flower():
    """Processes of Flower on this machine."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or ())
        if any(part in words for part in ("flower-super", "flwr-", "deployment.app.superlink")):
            found[process.pid] = words
    return found


def run(folder, results, *words):
    return fedbench("run", "tiny.yaml", "--plugin", TINY, "--results", results, "--device", "cpu", *words, cwd=folder)


def content(folder):
    return fedbench("compare", "hash", "tiny", cwd=folder).stdout.split()[0]


def test_a_round_on_two_nodes_equals_the_simulated_one_and_leaves_nothing_behind(tmp_path):
    before = of_flower()
    write_suite(tmp_path, changes={"rounds: 2": "rounds: 1"})
    done = run(tmp_path, "real", *TO_NODES)
    assert done.exit_code == 0, done.output
    assert not of_flower().keys() - before.keys()
    assert run(tmp_path, "simulated", "--engine", "sequential").exit_code == 0
    assert content(tmp_path / "real") == content(tmp_path / "simulated")
    wire, rounds = (packed_tables(tmp_path / "real" / "tiny").table(kind).to_pylist() for kind in ("wire", "rounds"))
    assert [row["outcome"] for row in wire] == ["arrived"] * 2
    sizes = [[(row["client"], row["bytes_down"], row["bytes_up"]) for row in table] for table in (wire, rounds)]
    assert sizes[0] == sizes[1]


# What goes wrong, with real processes: minutes.

THREE = {
    "data: dots": "data: {name: dots, per_class: 4, partition: {name: iid, clients: 3}}",
    "[2, 1]": "[2, 1, 1]",
    "rounds: 2": "rounds: 3",
}
PATIENCE = {"start": 300.0, "back": 5.0, "answer": 300.0, "least": 0.5}


class Federated:
    """A cell of three clients on nodes, in this process, and its simulation."""

    def __init__(self, folder, plugins):
        self.folder = folder
        suite = load(write_suite(folder, changes=THREE), plugins, sets=["engine=sequential"])
        (self.cell,) = cells_of(suite.points(), plugins, CachedFacts(plugins, suite.base))

    def job(self, place):
        manifest = {**self.cell.manifest(), "git": None}
        return CellJob(self.folder / place / self.cell.id, manifest, "cpu", [str(TINY)], checkpoint_every=0)

    def run(self, during=lambda nodes, event: None, **patience):
        nodes = Loopback(self.job("real"), {"nodes": None, "superlink": None, "patience": {**PATIENCE, **patience}})
        try:
            return worker.run(nodes.job, lambda event: during(nodes, event), simulation=nodes.simulation)
        finally:
            nodes.close()

    def simulate(self, lost=()):
        """Without the work of these (round from 0, client)."""

        class Losing(Simulation):
            def _receive(self, up, start, plan, cohort, t):
                up.arrived[[n for n, client in enumerate(cohort.ids) if (t, client) in lost]] = False
                return super()._receive(up, start, plan, cohort, t)

        return worker.run(self.job("simulated"), simulation=Losing)

    def state(self, place):
        return (self.folder / place / self.cell.id / "state.safetensors").read_bytes()

    def outcomes(self):
        rows = read_rows(self.folder / "real" / self.cell.id, "wire")
        return {(row["round"] - 1, row["client"]): row["outcome"] for row in rows if row["outcome"] != "arrived"}


@pytest.fixture
def federated(tmp_path, plugins):
    before = of_flower()
    yield Federated(tmp_path, plugins)
    until = time.monotonic() + 30.0  # this process has no guard, and an executor looks for its parent now and then
    while of_flower().keys() - before.keys() and time.monotonic() < until:
        time.sleep(0.5)
    assert not of_flower().keys() - before.keys()


def after_round(number, act):
    """act(nodes) as soon as a round has ended."""
    return lambda nodes, event: act(nodes) if event == {**event, "event": "round", "round": number} else None


@pytest.mark.slow
def test_a_node_that_is_killed_is_a_client_that_is_lost(federated):
    end = federated.run(after_round(1, lambda nodes: nodes.federation.stop("node1", at_once=True)))
    lost = federated.outcomes()
    assert (end["status"], lost.keys(), lost[2, 1]) == ("finished", {(1, 1), (2, 1)}, GONE)
    federated.simulate(lost)
    assert federated.state("real") == federated.state("simulated")


@pytest.mark.slow
def test_answers_that_are_late_or_no_numbers_are_lost(federated, monkeypatch):
    answer = Node.answer

    def spoilt(node, content):
        facts, _ = wire.unpacked(content)
        if (facts["t"], facts["client"]) == (0, 1):
            time.sleep(130)
        sent, tensors = wire.unpacked(answer(node, content))
        if (facts["t"], facts["client"]) == (2, 2):
            tensors = {name: value * float("nan") for name, value in tensors.items()}
        return wire.packed(sent, tensors)

    monkeypatch.setattr(Node, "answer", spoilt)
    end = federated.run(answer=120.0)
    lost = federated.outcomes()  # it may be at work yet when the next round begins
    assert (end["status"], lost[0, 1], lost[2, 2]) == ("finished", "no answer in time", NOT_FINITE)
    federated.simulate(lost)
    assert federated.state("real") == federated.state("simulated")


@pytest.mark.slow
def test_a_client_app_that_is_killed_at_work_is_asked_again_or_lost(federated, monkeypatch):
    answer = Node.answer

    def killing(node, content):
        facts, _ = wire.unpacked(content)
        if (facts["t"], facts["client"]) == (1, 1) and not (federated.folder / "killed").exists():
            (federated.folder / "killed").touch()
            for process in psutil.process_iter(["cmdline"]):
                if "flwr-clientapp" in " ".join(process.info["cmdline"] or ()):
                    process.kill()
        return answer(node, content)

    monkeypatch.setattr(Node, "answer", killing)
    end = federated.run(answer=120.0, least=0.0)
    assert end["status"] in ("finished", "interrupted")
    assert (federated.folder / "killed").exists()
    if end["status"] == "finished":
        federated.simulate(federated.outcomes())
        assert federated.state("real") == federated.state("simulated")


def kill_server_app(nodes):
    for process in psutil.Process(nodes.federation.running["superlink"].pid).children(recursive=True):
        if "flwr-serverapp" in " ".join(process.cmdline()):
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    "kill", [kill_server_app, lambda nodes: nodes.federation.stop("superlink", at_once=True)], ids=["server", "link"]
)
def test_a_cell_whose_server_is_killed_is_interrupted_and_ends_as_if_it_were_not(federated, kill):
    end = federated.run(after_round(1, kill))
    assert end["status"] == "interrupted" and "has ended" in end["reason"], end["reason"]
    rounds = []
    end = federated.run(lambda nodes, event: rounds.append(event["round"]) if event["event"] == "round" else None)
    assert (end["status"], rounds, federated.outcomes()) == ("finished", [2, 3], {})
    federated.simulate()
    folders = [federated.folder / place / federated.cell.id for place in ("real", "simulated")]
    assert len({digest_of_cell(folder, read_manifest(folder)) for folder in folders}) == 1


@pytest.mark.slow
def test_a_cell_without_all_of_its_nodes_does_not_begin(federated, monkeypatch):
    start = Loopback.start
    monkeypatch.setattr(Loopback, "start", lambda nodes, client: None if client == 1 else start(nodes, client))
    end = federated.run(start=20.0)
    assert (end["status"], end["reason"]) == (
        "interrupted",
        "no node for client 1 within 20 s; the next run tries again",
    )


@pytest.mark.slow
@pytest.mark.parametrize("has_key", [True, False], ids=["another key", "no key"])
def test_a_node_whose_key_is_not_registered_is_not_let_in(federated, monkeypatch, has_key):
    make_key(federated.folder / "stranger")
    start, start_program = Loopback.start, Federation.start

    def without_key(federation, name, *words):
        option = words.index("--auth-supernode-private-key")
        start_program(federation, name, *words[:option], *words[option + 2 :])

    def other(nodes, client):
        if client == 1 and has_key:
            monkeypatch.setattr(Federation, "key", lambda self, client: federated.folder / "stranger")
        elif client == 1:
            monkeypatch.setattr(Federation, "start", without_key)
        start(nodes, client)

    monkeypatch.setattr(Loopback, "start", other)
    assert "no node for client 1, 2 within" in federated.run(start=20.0)["reason"]


@pytest.mark.slow
def test_a_superlink_is_controlled_from_its_own_machine_and_registers_nodes_twice(tmp_path):
    federation = Federation(tmp_path / "f")
    federation.create(2, "127.0.0.1", free_port())
    trusted = ssl.create_default_context(cafile=str(federation.authority))
    protobuf = dict.fromkeys(("Content-Type", "Accept"), "application/protobuf")

    def status(source, path, **headers):
        near = {"context": trusted, "source_address": (source, 0)}
        link = http.client.HTTPSConnection("127.0.0.1", federation.facts["port"], **near)
        link.request("POST", path, b"", {**protobuf, **headers})
        return link.getresponse().status

    with federation:
        federation.start_link(lasting=True)
        asked = "/v1/control/list-nodes"
        assert (status("127.0.0.1", asked), status("127.0.0.2", asked)) == (200, 403)
        assert status("127.0.0.2", asked, **{"X-Forwarded-For": "127.0.0.1"}) == 403
        assert status("127.0.0.2", "/v1/fleet/pull-messages") == 401
        federation.stop("superlink")
        federation._write({**federation.facts, "registered": []})
        federation.start_link(lasting=True)
        assert federation.facts["registered"] == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite", "scenario", "methods"),
    [("quickstart", "skew", ("fedra", "inclusivefl", "depthfl")), ("unequal_ranks", "mixed", ("hetlora", "flora"))],
)
def test_cells_of_shipped_suites_on_six_nodes_equal_the_simulated_ones(tmp_path, suite, scenario, methods):
    chosen = [part for method in methods for part in ("--method", method)]
    how = (suite, "--scenario", scenario, *chosen, "--seed", "0", "--set", "train.rounds=2", "--engine", "sequential")
    for results, more in (("real", ("--executor", "{name: flower, nodes: 6}")), ("simulated", ())):
        done = fedbench("run", *how, "--device", "cpu", "--results", results, *more, cwd=tmp_path)
        assert done.exit_code == 0, done.output
    hashes = {
        fedbench("compare", "hash", suite, cwd=tmp_path / place).stdout.split()[0] for place in ("real", "simulated")
    }
    assert len(hashes) == 1
