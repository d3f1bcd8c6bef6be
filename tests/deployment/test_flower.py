"""Cells on real SuperNodes of this machine, with TLS and keys."""

import psutil
import pytest
from command import TINY, fedbench, write_suite

from fedbench.results.store import store_of

pytest.importorskip("flwr", reason="needs the extra `flower`")
TO_NODES = ("--executor", "{name: flower, nodes: 2}", "--engine", "sequential")


def of_flower():
    """Processes of Flower on this machine."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or ())
        if "flower-super" in words or "flwr-" in words:
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
    wire, rounds = (store_of(tmp_path / "real" / "tiny").table(kind).to_pylist() for kind in ("wire", "rounds"))
    assert [row["outcome"] for row in wire] == ["arrived"] * 2
    sizes = [[(row["client"], row["bytes_down"], row["bytes_up"]) for row in table] for table in (wire, rounds)]
    assert sizes[0] == sizes[1]
