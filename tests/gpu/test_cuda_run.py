"""`fedbench run --device cuda` from end to end: through the server of workers, several of which share one GPU."""

from __future__ import annotations

from pathlib import Path

import command
import pytest
from command import TINY, write_suite
from rounds import REAL

from fedbench import machine
from fedbench.results import read_index, read_rows
from fedbench.results.packed_tables import folder_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not REAL, reason="workers find no pretended GPU")]


@pytest.fixture
def on_gpu(tmp_path):
    assert machine.has_gpu()
    return lambda *words, device="cuda": command.fedbench(*words, "--device", device, "--plugin", TINY, cwd=tmp_path)


def losses(folder: Path) -> dict[str, list[float]]:
    index, suite = read_index(folder / "tiny"), folder / "tiny"
    assert index is not None
    return {
        one.method: [row["loss"] for row in read_rows(folder_of(suite, one.cell), "rounds")] for one in index.entries
    }


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


@pytest.mark.slow
def test_what_a_suite_will_cost_is_measured_there(on_gpu, tmp_path):
    write_suite(tmp_path)
    told = on_gpu("plan", "tiny.yaml", "--cost")
    assert told.exit_code == 0 and "on a GPU, from a probe" in told.output, told.output
    shared = on_gpu("plan", "tiny.yaml", "--cost", "--jobs", "2")
    assert "on a GPU that 2 cells share" in shared.output, shared.output
