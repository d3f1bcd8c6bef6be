"""The GPU script on a CPU, in a tiny size: every section does its work, and one's failure or lateness is its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import gpu
import pretended
import pytest

SCRIPT = Path(__file__).with_name("gpu.py")
NEIGHBOURS = "two cells on one GPU"  # three more processes
WAYS = {"compiled", "eager", "sequential"}


def test_every_section_does_its_work(tmp_path):
    command = [sys.executable, SCRIPT, "--tiny", "--device", "cpu", "--out", tmp_path, "--without", NEIGHBOURS]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = json.loads((tmp_path / "gpu.json").read_text())
    assert {name: section["status"] for name, section in report["sections"].items()} == dict.fromkeys(
        (name for name in gpu.SECTIONS if name != NEIGHBOURS), "done"
    )
    assert report["machine"]["device"] == "cpu" and report["versions"]["torch"] and report["date"]
    figures = {name: section["figures"] for name, section in report["sections"].items()}
    assert figures["rates"]["flops_per_second"].keys() == {"bf16", "fp32"}
    assert figures["large model"].keys() == figures["large model, all layers"].keys() == WAYS
    assert all(0 < own["mfu_executed"] < own["mfu"] for own in figures["large model"].values())
    assert len(figures["micro model"]) == 6 and len(figures["precisions"]) == 2
    assert figures["graphs"].keys() == {"fedra", "depthfl"} and len(figures["many clients"]) == 2
    hours = [figures["table 1"][method]["hours"] for method in gpu.TABLE1]
    assert figures["table 1"]["total"]["hours"] == pytest.approx(sum(hours))
    assert (tmp_path / "gpu.txt").read_text().strip() == ended.stdout.strip()


@pytest.fixture
def bench(registry):
    def until(seconds: float) -> gpu.Bench:
        return gpu.Bench("cpu", True, time.perf_counter() + seconds, registry, {})

    return until


@pytest.mark.slow
def test_two_processes_share_what_there_is(bench):
    figures = gpu.variations.neighbours(bench(300))
    assert all(own["images_per_second"] > 0 for own in figures.values()) and len(figures) == 3


def test_on_a_gpu_small_steps_are_replayed_and_counted(registry):
    """On the pretended one; fedra's steps stand from round to round."""
    with pretended.gpu():
        bench = gpu.Bench("cuda", True, time.perf_counter() + 60, registry, {})
        figures = gpu.variations.graphs(bench)
        assert figures["fedra"]["recorded"] == 1 and figures["fedra"]["replayed"] > 1
        assert gpu.variations.distant(bench)["images travel"]["images_per_second"] > 0


def test_a_section_that_fails_leaves_the_others_their_figures(tmp_path, bench, monkeypatch):
    def broken(bench):
        raise ValueError("no such kernel")

    monkeypatch.setattr(gpu, "SECTIONS", {"broken": broken, "rates": gpu.rates})
    sections = gpu.run(bench(60), tmp_path)["sections"]
    assert sections["broken"]["status"] == "failed" and "no such kernel" in sections["broken"]["traceback"]
    assert sections["rates"]["status"] == "done"
    assert "no such kernel" in (tmp_path / "gpu.txt").read_text()


def test_after_the_time_is_up_nothing_new_is_begun(tmp_path, bench):
    sections = gpu.run(bench(-1), tmp_path)["sections"]
    assert {section["status"] for section in sections.values()} == {"left out: no time"}
    assert json.loads((tmp_path / "gpu.json").read_text())["sections"] == sections
