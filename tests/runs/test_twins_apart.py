"""Cells that are equal in all that matters, over several runs on a folder and over shards."""

from __future__ import annotations

from test_backlog import ONE, TWO, Runs, ended

from fedbench.runs.options import Options
from fedbench.runs.plan import Cell
from fedbench.runs.twins import Kin


def test_the_twin_of_a_cell_that_another_run_has_waits_for_it_and_is_taken_from_it(tmp_path, monkeypatch):
    """And is computed where that comes to nothing."""
    taken: list[tuple] = []

    def take(donor, cell, place):
        taken.append((donor.name, cell.id))
        return {"status": "finished", "reason": None, "computed_as": donor.name}

    for status in ("finished", "failed"):
        runs = Runs(tmp_path / status, {ONE: None, TWO: None})
        kin = Kin(list(runs.backlog.left.values()))
        runs.backlog.kin, runs.backlog.take = {ONE: kin, TWO: kin}, take
        runs.other.take(ONE)
        assert runs.computed() == []
        ended(tmp_path / status, ONE, status)
        runs.other.release(ONE)
        goes_on = runs.backlog.wait()
        assert (goes_on, runs.computed()) == ((False, []) if status == "finished" else (True, [TWO]))
    assert taken == [(f"slug-{ONE}", TWO)]


def test_the_twin_of_a_cell_that_an_executor_never_ended_is_computed(tmp_path):
    runs = Runs(tmp_path, {ONE: None, TWO: None})
    kin = Kin(list(runs.backlog.left.values()))
    runs.backlog.kin = {ONE: kin, TWO: kin}
    assert runs.computed() == [ONE] and runs.computed() == []
    assert runs.backlog.wait() and runs.computed() == [TWO]


def test_cells_that_are_equal_in_all_that_matters_are_in_one_shard():
    cells = [Cell(f"{i:012x}", {}, {}, {}, [], essence=f"{i % 4}") for i in range(12)]
    shards = [Options(shard=(part, 2)).of_shard(cells) for part in (1, 2)]
    assert [sorted({cell.essence for cell in shard}) for shard in shards] == [["0", "2"], ["1", "3"]]
    assert sum(map(len, shards)) == len(cells)
