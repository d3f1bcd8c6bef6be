"""Runs of cells that die, hang or misbehave in every way that `dying_plugin` knows."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
from command import TINY, fedbench, write_suite, written

from fedbench.results.packed_tables import folder_of as cell_folder

DYING = Path(__file__).parent / "dying_plugin.py"


def method(how: str, folder: Path) -> str:
    return f"{{name: {how}, extends: dying, how: {how}, folder: {folder}}}"


def run(folder: Path, *hows: str, words: tuple = ()) -> tuple[dict[str, dict], object, float]:
    """Run a good cell and one for each way: their manifests, how the run ended, and how long it took."""
    changes = {"rounds: 2": "rounds: 3", "suite: tiny": "suite: tiny\ntimeout: 600"}
    write_suite(folder, ", ".join(["fedra", *(method(how, folder) for how in hows)]), changes)
    began = time.monotonic()
    done = fedbench("run", "tiny.yaml", "--plugin", TINY, "--plugin", DYING, "--results", "r", *words, cwd=folder)
    return manifests(folder), done, time.monotonic() - began


def manifests(folder: Path) -> dict[str, dict]:
    found = written(folder / "r")
    return {manifest["config"]["method"].get("how", "fedra"): manifest for manifest in found}


def folder_of(folder: Path, how: str) -> Path:
    return cell_folder(folder / "r/tiny", manifests(folder)[how]["id"])


def all_ended(folder: Path, file: str = "pids") -> bool:
    """Whether nothing runs any more of the pids that a method wrote down."""
    pids = [int(pid) for pid in (folder / file).read_text().split()]
    assert len(pids) == 3
    return not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids)
