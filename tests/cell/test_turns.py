"""Cells in turn in one process: each ends as it would in a process of its own, and finds the process as it was."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from command import TINY
from every_method import METHODS, changed, tiny_cells
from kills import order_of

from fedbench import disk
from fedbench.cell import turns, worker
from fedbench.cell.checkpoint import Progress
from fedbench.cell.found import Found
from fedbench.cell.order import Order
from fedbench.cell.state import file_bytes
from fedbench.cell.trial import Trial
from fedbench.cell.turns import Shared, in_turn
from fedbench.disk import hash_of_bytes
from fedbench.errors import NotApplicable
from fedbench.registry.registry import Registry
from fedbench.results import read_manifest

SOME = ("fedra", "depthfl", "raflora", "fjord", "fedvz", "zero_round")  # of each family


def in_a_copy(work):
    """What `work` gives in a copy of this process."""
    gc.collect()  # files that an earlier test forgot would be closed in the middle of it
    told, tell = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.write(tell, json.dumps(work()).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(tell)
    with open(told, "rb") as answer:
        said = json.loads(answer.read())
    os.waitpid(pid, 0)
    return said


def end_of(config, shared):
    """The hash of all that a cell says and leaves, and whether the process is as it was; or why it has no meaning."""
    found, progress = Found(), Progress()
    try:
        with warnings.catch_warnings():
            source = shared.source(config)
            dataset = shared.dataset(config, source.image_size)
            Trial(config, shared.registry, source=source, dataset=dataset).run(
                progress=progress, on_layers=progress.tables["layers"].extend
            )
    except NotApplicable as reason:
        return str(reason)
    rounds = [{**row, "seconds": 0} for row in progress.tables["rounds"]]
    tables = json.dumps({**progress.tables, "rounds": rounds}, default=bytes.hex).encode()
    assert not found.changed()
    found.draw_as_before()
    return hash_of_bytes(tables + b"".join(file_bytes(progress.state).values()))


def as_in_their_own(configs):
    """Whether cells in turn, in this order, say what each says in a process of its own."""
    alone = [in_a_copy(lambda config=config: end_of(config, Shared([str(TINY)]))) for config in configs]

    def together():
        shared = Shared([str(TINY)])
        return [end_of(config, shared) for config in configs]

    assert len(set(alone)) > 1
    return in_a_copy(together) == alone


@pytest.fixture(scope="module")
def cells(own_cache, tmp_path_factory):
    return tiny_cells(tmp_path_factory.mktemp("suite"), Registry([str(TINY)]))


def test_cells_in_turn_end_with_the_bits_of_processes_of_their_own(cells):
    assert as_in_their_own([changed(cells["rough", method], "rough", "cohort") for method in SOME])


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "engine"), [("plain", "cohort"), ("rough", "cohort"), ("rough", "sequential")])
def test_so_do_those_of_every_method(cells, scenario, engine):
    assert as_in_their_own([changed(cells[scenario, method], scenario, engine) for method in METHODS])


CHANGES = {
    "threads": lambda: threading.Thread(target=threading.Event().wait, daemon=True).start(),
    "processes": lambda: subprocess.Popen(["sleep", "600"]),
    "open files": lambda: os.open(os.devnull, os.O_RDONLY),
    "current folder": lambda: os.chdir("/"),
    "environment": lambda: os.environ.update(CHANGED="1"),
    "signals": lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN),
    "import path": lambda: sys.path.append("/nowhere"),
    "numpy's errors": lambda: np.seterr(all="ignore"),
    "default of torch": lambda: torch.set_default_dtype(torch.float64),
    "gradients": lambda: torch.set_grad_enabled(False),
    "determinism": lambda: torch.use_deterministic_algorithms(True),
    "small numbers": lambda: torch.set_flush_denormal(True),
    "hooks of all modules": lambda: torch.nn.modules.module.register_module_forward_hook(lambda *given: None),
}


def test_what_a_cell_leaves_behind_is_seen():
    def seen():
        answers = []
        for do in CHANGES.values():
            found = Found()
            do()
            answers.append(found.changed())
        subprocess.run(["pkill", "-P", str(os.getpid())], check=True)
        return answers

    assert in_a_copy(seen) == [[name] for name in CHANGES]


def test_what_is_drawn_is_set_back():
    found = Found()

    def draw():
        return random.random(), np.random.rand(), torch.rand(1).item()

    first = draw()
    found.draw_as_before()
    assert draw() == first and not found.changed()


def test_a_backbone_that_the_seed_draws_is_drawn_for_each_cell(own_cache):
    shared, loads = Shared([]), []

    def weights(backbone, seed):
        source = shared.source({"backbone": backbone, "seed": seed})
        loads.append(len(shared._sources))
        return next(source.model.parameters()).clone(), source.model

    drawn = {"name": "micro_cnn"}
    assert not torch.equal(weights(drawn, 0)[0], weights(drawn, 1)[0]) and loads == [0, 0]
    read = {"name": "micro_vit", "pretrained": True, "weights_seed": 0}
    (first, model), (second, other) = weights(read, 0), weights(read, 1)
    assert torch.equal(first, second) and model is not other and loads[2:] == [1, 1]


@pytest.fixture
def orders(tmp_path, own_cache):
    """Three cells of one turn."""
    return [replace(order_of(tmp_path / str(n), "fedra", 1), turn="t", checkpoint_every=60) for n in range(3)]


def computed(orders, statuses, stopping=lambda: False, between=lambda: None):
    """How many of these cells one process computes, where they end so."""
    waiting, done = iter(orders[1:]), []

    def compute(order, shared):
        done.append(order.folder)
        between()
        return statuses[len(done) - 1]

    in_turn(orders[0], compute, stopping, lambda: job.to_json() if (job := next(waiting, None)) else None)
    return len(done)


def test_a_process_goes_on_after_cells_that_end_well(orders, monkeypatch):
    assert computed(orders, ["finished", "not_applicable", "finished"]) == 3
    assert computed(orders, ["finished", "failed", "finished"]) == 2
    assert computed(orders, ["interrupted"]) == 1
    assert computed(orders, ["finished"], stopping=lambda: True) == 1
    assert computed([replace(orders[0], turn=None), *orders], ["finished"]) == 1
    monkeypatch.setenv("LEFT", "0")
    assert computed(orders, ["finished"], between=lambda: os.environ.update(LEFT="1")) == 1
    monkeypatch.setattr(turns, "MOST", 2)
    assert computed(orders, ["finished", "finished"]) == 2


def test_one_that_fails_after_others_is_left_to_be_computed_again(orders, monkeypatch):
    shared, events = Shared(orders[0].plugins), []
    assert worker.run(orders[0], shared=shared)["status"] == "finished"
    monkeypatch.setattr(Trial, "run", lambda *given, **named: 1 / 0)
    shared.number = 1
    assert worker.run(orders[1], events.append, shared=shared)["status"] == "running"
    assert [event["event"] for event in events] == ["unsure"]
    assert events[0]["reason"].startswith("ZeroDivisionError: division by zero; perhaps the ")  # it is nobody's code
    assert read_manifest(orders[1].folder)["status"] == "running"
    shared.number = 0
    assert worker.run(orders[2], shared=shared)["status"] == "failed"


def test_an_order_says_its_turn(orders):
    assert Order.from_json(orders[0].to_json()).turn == "t"
    assert '"turn"' not in replace(orders[0], turn=None).to_json()


def test_one_in_turn_waits_for_the_disk_with_its_manifests_alone(orders, monkeypatch):
    """What else it writes is torn at worst, which the next run sees; see docs/running.md."""
    waited = []
    monkeypatch.setattr(disk, "settle", lambda file: waited.append(file.name.split(".")[1]))
    assert worker.run(orders[0], shared=Shared(orders[0].plugins))["status"] == "finished"
    assert waited == ["manifest", "manifest"]
    assert worker.run(orders[1])["status"] == "finished"
    assert {"eval", "rounds", "state"} <= set(waited[2:])
