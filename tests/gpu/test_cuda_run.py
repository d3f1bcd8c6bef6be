"""`fedbench run --device cuda` from end to end: through the server of workers, several of which share one GPU."""

from __future__ import annotations

import functools
from pathlib import Path

import command
import pretended.worker
import pytest
from command import TINY, write_suite
from rounds import REAL

from fedbench import machine
from fedbench.processes import supervisor
from fedbench.results import read_index, read_rows
from fedbench.results.store import cell_folders

pytestmark = pytest.mark.gpu


@pytest.fixture
def on_gpu(monkeypatch, tmp_path):
    """Runs a command with the GPU there is, or with one of so many bytes."""

    def on_device(*words, total: int = 2**30, device: str = "cuda"):
        if not REAL:
            monkeypatch.setattr(supervisor.guard, "guard", functools.partial(pretended.worker.supervised, total))
        return command.fedbench(*words, "--device", device, "--plugin", TINY, cwd=tmp_path)

    assert machine.has_gpu()
    return on_device


def losses(folder: Path) -> dict[str, list[float]]:
    index, places = read_index(folder / "tiny"), cell_folders(folder / "tiny")
    assert index is not None
    return {one.method: [row["loss"] for row in read_rows(places(one.cell), "rounds")] for one in index.entries}


def manifests(folder: Path) -> list[dict]:
    return list(command.manifests(folder).values())


def test_two_workers_share_a_gpu_and_find_what_the_cpu_finds(on_gpu, tmp_path):
    write_suite(tmp_path, "fedra, depthfl")
    shared = on_gpu("run", "tiny.yaml", "--results", "r", "--gpu-fraction", "0.5")
    assert shared.exit_code == 0, shared.output
    for one in manifests(tmp_path / "r"):
        assert (one["status"], one["machine"]["device"]) == ("finished", "cuda") and one["machine"]["gpu"]
    assert on_gpu("run", "tiny.yaml", "--results", "cpu", device="cpu").exit_code == 0
    ours, theirs = losses(tmp_path / "r"), losses(tmp_path / "cpu")
    assert ours.keys() == theirs.keys() == {"fedra", "depthfl"}
    for name in ours:
        assert ours[name] == pytest.approx(theirs[name], rel=1e-3)


@pytest.mark.skipif(REAL, reason="a real GPU is never as small")
def test_a_cell_keeps_to_its_share_and_says_where_that_is_too_small(on_gpu, tmp_path):
    write_suite(tmp_path)
    few = ("run", "tiny.yaml", "--gpu-fraction", "0.25", "--results")
    assert on_gpu(*few, "r", total=2**20).exit_code == 0
    refused = on_gpu(*few, "s", total=2**14)
    assert refused.exit_code == 1 and "out of memory: OutOfMemoryError" in manifests(tmp_path / "s")[0]["reason"]
    assert f"of {2**12}" in manifests(tmp_path / "s")[0]["reason"]


@pytest.mark.slow
def test_what_a_suite_will_cost_is_measured_there(on_gpu, tmp_path):
    write_suite(tmp_path)
    told = on_gpu("plan", "tiny.yaml", "--cost")
    assert told.exit_code == 0 and "on a GPU, from a probe" in told.output, told.output
    shared = on_gpu("plan", "tiny.yaml", "--cost", "--jobs", "2")
    assert "on a GPU that 2 cells share" in shared.output, shared.output
