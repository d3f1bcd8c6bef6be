"""A second process computes totals from the other end: each cell once or twice, none lost, and nobody left behind."""

import os
import signal
import time
import warnings

import psutil
import pytest

from fedbench.cell import ahead
from fedbench.cell.ahead import Copy
from fedbench.cell.totals import Totals
from fedbench.errors import UserError


class Facts:
    def __init__(self, test):
        self.test = test

    def stamp(self, kind, ref):
        return [kind, ref["name"], self.test]


class Signed(Totals):
    """Totals of whoever computes them; another process than the test's does with a cell what `elsewhere` says."""

    test, elsewhere = os.getpid(), staticmethod(lambda seed: print("nobody hears this", flush=True))

    def _computed(self, config):
        if os.getpid() != self.test:
            self.elsewhere(config["seed"])
        if config["seed"] == 99:
            raise UserError("no such seed")
        return {"by": os.getpid()}


def cell(method, seed):
    data = {"name": "dots", "partition": {"name": "iid"}}
    return f"{method}{seed}", {"seed": seed, "method": {"name": method}, "data": data}


CELLS = [cell(method, seed) for method in "abc" for seed in (1, 2)]


@pytest.fixture
def totals(own_cache, monkeypatch, request):
    """Totals that are shared out from the first cell on."""
    monkeypatch.setattr(ahead, "AFTER", 0)
    monkeypatch.setattr("fedbench.machine.cores", lambda: 2)
    monkeypatch.setattr("fedbench.machine.has_gpu", lambda: False)
    monkeypatch.setattr(Signed, "test", os.getpid())
    return lambda cells=CELLS: Signed(Facts(request.node.name), cells)


def eventually(holds):
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.005)


def gone(pid):
    return not psutil.pid_exists(pid)


def test_a_copy_begins_with_the_last_method_and_what_it_finds_is_taken(totals, capfd):
    with totals() as known:
        by = [known.of(*CELLS[0])["by"]]
        copy = known._copy.pid
        eventually(known._file_of(CELLS[-1][1]).exists)
        by += [known.of(*one)["by"] for one in CELLS[1:]]
    assert by[0] == os.getpid() != copy and by[-2:] == [copy, copy] and gone(copy)
    assert capfd.readouterr().out == ""


def test_the_work_of_a_copy_that_is_killed_is_done_here(totals, monkeypatch):
    monkeypatch.setattr(Signed, "elsewhere", lambda self, seed: os.kill(os.getpid(), signal.SIGKILL))
    with totals() as known:
        assert {known.of(*one)["by"] for one in CELLS} == {os.getpid()}
    assert known._copy.pid == 0


def test_a_warning_is_heard_whoever_comes_first(totals, monkeypatch):
    monkeypatch.setattr(Signed, "elsewhere", lambda self, seed: seed == 2 and warnings.warn("odd", stacklevel=1))
    with totals() as known:
        by = [known.of(*CELLS[0])["by"]]
        copy = known._copy.pid
        eventually(known._file_of(CELLS[-1][1]).exists)
        by += [known.of(*one)["by"] for one in CELLS[1:]]
    assert by[-2:] == [copy, os.getpid()]


def test_an_interruption_leaves_no_copy(totals, monkeypatch):
    monkeypatch.setattr(Signed, "elsewhere", lambda self, seed: time.sleep(600))
    with pytest.raises(KeyboardInterrupt), totals() as known:
        known.of(*CELLS[0])
        copy = known._copy.pid
        os.kill(copy, signal.SIGINT)  # as the terminal sends it to both
        raise KeyboardInterrupt
    assert gone(copy)


def test_a_refusal_is_told_where_its_cell_is_asked_for(totals):
    cells = [CELLS[0], cell("d", 99), cell("d", 1)]
    with totals(cells) as known:
        known.of(*cells[0])
        with pytest.raises(UserError, match="no such seed"):
            known.of(*cells[1])
        assert known.of(*cells[2])["by"]


def test_a_copy_whose_process_was_killed_stops(tmp_path):
    def until_unwanted(wanted):
        while wanted():
            time.sleep(0.005)
        (tmp_path / "stopped").touch()

    if (pid := os.fork()) == 0:
        Copy().begin(until_unwanted)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    eventually((tmp_path / "stopped").exists)


@pytest.mark.parametrize(
    ("what", "value"), [("cores", lambda: 1), ("has_gpu", lambda: True), ("AFTER", 60), ("platform", "darwin")]
)
def test_one_process_computes_alone(totals, monkeypatch, what, value):
    at = {"AFTER": ahead, "platform": ahead.sys}.get(what, ahead.machine)
    monkeypatch.setattr(at, what, value)
    with totals() as known:
        assert {known.of(*one)["by"] for one in CELLS} == {os.getpid()}
        assert not known._copy.pid


def test_of_one_method_nothing_is_shared_out(totals):
    with totals(CELLS[:2]) as known:
        assert known.of(*CELLS[0]) == known.of(*CELLS[1]) and not known._copy.pid
