"""Several GPUs of one machine: each cell sees one of them, in turn. No machine with two was there to try it on."""

from __future__ import annotations

import pytest
from command import TINY, cell_of, fedbench, write_suite

from fedbench import machine
from fedbench.errors import UserError
from fedbench.runner.cells import Options

SEEING = """\
import os, time
from fedbench import hookimpl

@hookimpl
def fedbench_cell_started(folder):
    print("sees", os.environ.get("CUDA_VISIBLE_DEVICES"))
    time.sleep(0.5)
"""


@pytest.fixture
def two(monkeypatch):
    """A machine with two GPUs, whose driver is there."""
    monkeypatch.setattr(machine, "has_gpu", lambda: True)
    monkeypatch.setattr(machine, "visible_gpus", lambda: ["4", "7"])


def test_each_cell_sees_one_gpu_and_those_at_work_see_different_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(Options, "gpus", lambda self: ["4", "7"])
    write_suite(tmp_path, "fedra, allsmall, head_only, alllarge")
    (tmp_path / "seeing.py").write_text(SEEING)
    done = fedbench(
        "run", "tiny.yaml", "--plugin", TINY, "--plugin", "seeing.py", "--jobs", 2, "--results", "r", cwd=tmp_path
    )
    assert done.exit_code == 0, done.output
    seen = [
        (cell_of(tmp_path / "r", method) / "output.txt").read_text()
        for method in ("fedra", "allsmall", "head_only", "alllarge")
    ]
    assert {text.strip() for text in seen} == {"sees 4", "sees 7"}


def test_as_many_cells_run_as_gpus_and_their_shares_hold(two):
    assert Options(device="auto").workers() == 2 and Options(device="cuda", gpu_fraction=0.25).workers() == 8
    assert Options(device="cuda:1", gpu_fraction=0.5).workers() == 2
    assert Options(device="cuda").gpus() == ["4", "7"] and Options(device="cuda:1").gpus() == ["7"]
    assert Options(device="cpu").gpus() == [] and Options(device="cpu").workers() == machine.cores()


def test_a_gpu_that_is_not_there_is_refused(two, monkeypatch):
    with pytest.raises(
        UserError, match="--device cuda:2: there is no such GPU on this machine, its last GPU is cuda:1"
    ):
        Options(device="cuda:2").gpus()
    monkeypatch.setattr(machine, "visible_gpus", list)
    with pytest.raises(UserError, match="it has none"):
        Options(device="cuda:0").gpus()


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ("0,1,2", ["0", "1", "2"]),
        ("2", ["2"]),
        ("", []),
        ("-1", []),
        ("1,-1,0", ["1"]),
        ("GPU-8f2a, 0", ["GPU-8f2a", "0"]),
    ],
)
def test_gpus_are_those_that_the_process_may_see(given, seen, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert machine.visible_gpus() == seen


@pytest.mark.parametrize("device", ["cuda:", "cuda:x", "gpu", "cuda:-1"])
def test_a_device_that_is_none_is_refused(device, tmp_path):
    write_suite(tmp_path)
    done = fedbench("run", "tiny.yaml", "--device", device, cwd=tmp_path)
    assert done.exit_code == 2 and "is none of auto, cpu, cuda and cuda:N" in done.output
