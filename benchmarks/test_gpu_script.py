"""The GPU script on a CPU, in a tiny size: every section does its work, and one's failure or lateness is its own."""

from __future__ import annotations

import json
import sys
import time

import gpu
import pytest
import torch


@pytest.fixture
def precision_put_back():
    """As the script leaves it, fp32 would be exact in later tests too."""
    kinds = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)
    before = [kind.fp32_precision for kind in kinds]
    yield
    for kind, precision in zip(kinds, before, strict=True):
        kind.fp32_precision = precision


@pytest.mark.slow
def test_every_section_does_its_work(tmp_path, monkeypatch, capsys, precision_put_back):
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--tiny", "--device", "cpu", "--output", str(tmp_path)])
    ended, printed = gpu.main(), capsys.readouterr().out
    assert ended == 0, printed
    report = json.loads((tmp_path / "gpu.json").read_text())
    assert {name: section["status"] for name, section in report["sections"].items()} == dict.fromkeys(
        gpu.SECTIONS, "done"
    )
    assert report["machine"]["device"] == "cpu" and report["versions"]["torch"] and report["date"]
    figures = {name: section["figures"] for name, section in report["sections"].items()}
    assert figures["rates"]["flops_per_second"].keys() == {"bf16", "fp32"}
    for name in ("large model", "micro model"):
        assert figures[name].keys() == {"cohort", "sequential"}
        assert all(own["images_per_second"] > 0 and own["mfu"] > 0 for own in figures[name].values())
    assert all(len(figures[name]) == 2 for name in ("many clients", "precisions"))
    hours = [figures["table 1"][method]["hours"] for method in gpu.TABLE1]
    assert figures["table 1"]["total"]["hours"] == pytest.approx(sum(hours))
    assert (tmp_path / "gpu.txt").read_text().strip().endswith(printed.strip())


@pytest.fixture
def bench(registry):
    def until(seconds: float) -> gpu.Bench:
        return gpu.Bench("cpu", True, time.perf_counter() + seconds, registry, {})

    return until


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
