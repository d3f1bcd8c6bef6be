"""A disk that runs full or breaks while cells are at work: it costs those that find it so, and no others."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from command import TINY, fedbench, write_suite
from dying import DYING, method

from fedbench.results import read_index


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 8 MiB, on which results and nothing else are to lie."""
    folder = tmp_path / "r"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8M", "none", folder], capture_output=True).returncode:
        pytest.skip("mounting takes root")
    yield tmp_path
    subprocess.run(["umount", "-l", folder], check=True)
    subprocess.run(["umount", "-l", folder], capture_output=True)  # that of `makes_read_only` was on top


@pytest.mark.slow
def test_a_disk_that_runs_full_costs_the_cells_that_find_it_so_and_no_more(small_disk, own_cache):
    write_suite(small_disk, f"fedra, {method('fills_the_disk', small_disk / 'r')}, allsmall")
    words = ("run", "tiny.yaml", "--plugin", TINY, "--plugin", DYING, "--results", "r", "--jobs", 1)
    done = fedbench(*words, cwd=small_disk)
    assert done.exit_code == 1
    assert "tiny: only 8.0 MiB free" in done.stderr and "--results DIR" in done.stderr
    assert "Traceback" not in done.output
    assert done.output.count("cannot be written (No space left on device)") >= 2
    assert all(Path(small_disk, file).is_file() for file in re.findall(r"\S+manifest\.json$", done.stdout, re.M))
    assert "2 cells failed" in done.stdout and len(read_index(small_disk / "r/tiny").entries) == 3
    assert not list((small_disk / "r").rglob("*.tmp"))

    refused = fedbench(*words, "--retry-failed", cwd=small_disk)
    assert refused.exit_code == 2 and "No space left on device" in refused.stderr and "--results DIR" in refused.stderr
    (small_disk / "r/filler").unlink()
    (small_disk / "r/in_fills_the_disk").unlink()
    again = fedbench(*words, "--retry-failed", "--method", "allsmall", "--json", cwd=small_disk)
    assert again.exit_code == 0 and json.loads(again.stdout)["ran"] == 1


def test_a_folder_that_becomes_read_only_costs_the_cells_that_find_it_so(small_disk, own_cache):
    """As a disk does that has found itself broken."""
    write_suite(small_disk, f"fedra, {method('makes_read_only', small_disk / 'r')}, allsmall")
    words = ("run", "tiny.yaml", "--plugin", TINY, "--plugin", DYING, "--results", "r", "--jobs", 1)
    done = fedbench(*words, cwd=small_disk)
    assert done.exit_code == 1 and "2 cells failed" in done.stdout and "Traceback" not in done.output
    assert "cannot be written (Read-only file system)" in done.stdout
    refused = fedbench(*words, "--retry-failed", cwd=small_disk)
    assert refused.exit_code == 2 and "cannot be written (Read-only file system)" in refused.stderr
