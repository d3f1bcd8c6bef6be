"""fedbench/runs/executors/environment.py: what processes that compute cells are given, and what they do not import."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from command import MAIN, TINY, environment, write_suite

from fedbench.runs.executors import workers
from fedbench.runs.executors.environment import ONE_THREAD, unless_set
from fedbench.runs.executors.environment import environment as within


def test_values_hold_inside_alone(monkeypatch):
    monkeypatch.setenv("HAD", "old")
    monkeypatch.delenv("HAD_NOT", raising=False)
    with pytest.raises(RuntimeError), within({"HAD": "new", "HAD_NOT": "new"}):
        assert os.environ["HAD"] == os.environ["HAD_NOT"] == "new"
        del os.environ["HAD_NOT"]
        raise RuntimeError
    assert os.environ["HAD"] == "old" and "HAD_NOT" not in os.environ


def test_what_a_user_has_set_stays(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("MKL_NUM_THREADS", "")
    assert unless_set(ONE_THREAD) | {"OPENBLAS_NUM_THREADS": ""} == {
        "OMP_NUM_THREADS": "3",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "",
    }


@pytest.mark.parametrize("process", ["forkserver", "resource_tracker"])
def test_no_process_of_a_run_imports_from_the_current_folder(process, monkeypatch):
    found = []
    monkeypatch.setattr(
        getattr(workers, process), "ensure_running", lambda: found.append(os.environ.get("PYTHONSAFEPATH"))
    )
    workers.start_server()
    assert set(found) == {"1"} and "PYTHONSAFEPATH" not in os.environ


@pytest.mark.slow
def test_a_module_beside_a_suite_is_never_run(tmp_path):
    """As a study has it whose author calls an allocation's file random.py."""
    write_suite(tmp_path, "chained")
    for name in ("random", "statistics", "torch", "warnings"):
        (tmp_path / f"{name}.py").write_text("open('PROOF', 'w').close()\n")
    command = tmp_path / "bin/fedbench"  # as pip makes it: what it imports from first is its own folder
    command.parent.mkdir()
    command.write_text(MAIN[-1])
    words = [sys.executable, command, "run", "tiny.yaml", "--plugin", str(TINY), "--results", "r"]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not (tmp_path / "PROOF").exists(), done.stdout + done.stderr
