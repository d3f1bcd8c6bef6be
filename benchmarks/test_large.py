"""Ten thousand cells, five million rows of rounds: what `compare` and `report` take.

Eight such cells are read first.
"""

from __future__ import annotations

import os
import subprocess

import pytest
from command import MAIN, environment
from large import Size, make

from fedbench.report.leaderboards import leaderboards
from fedbench.results import examine
from fedbench.results.result import COMPARED

FEW = Size(suites=2, scenarios=1, variants=1, methods=2, seeds=2, rounds=2, clients=2)
ASKED = (("compare",), ("compare", "--sort", "bytes"), ("compare", "boards"), ("report", "-o", "page.html"))


def test_made_cells_are_read_from_packed_tables(tmp_path):
    make(tmp_path / "r", FEW)
    found = examine([tmp_path / "r"]).read(COMPARED)
    assert found.wrong == [] and len(found.results) == FEW.cells == 8
    assert len(leaderboards(found.results)) == 2 and not list((tmp_path / "r").glob("*/cells/*"))


def test_ten_thousand_cells_are_compared_in_seconds(benchmark, tmp_path, figures):
    """Processor seconds and MiB of the whole command, the first time and then."""
    if benchmark.disabled:
        pytest.skip("only measured with --benchmark-enable")
    make(tmp_path / "r", Size())
    found = {"first": benchmark.pedantic(lambda: spent(tmp_path, "compare"), rounds=1)}
    found |= {" ".join(words): spent(tmp_path, *words) for words in ASKED}
    benchmark.extra_info.update(found)
    lines = [f"{seconds:7.2f}   {mib:6.0f}   {words}" for words, (seconds, mib) in found.items()]
    figures.add("large results", dict(benchmark.extra_info), ["processor seconds, MiB: of 10,000 cells", *lines])
    assert found["compare"][0] < 4 and found["compare"][1] < 700 and found["report -o page.html"][0] < 20


def spent(folder, *words):
    env = {**environment(), "FEDBENCH_CACHE": str(folder / "cache")}
    command = subprocess.Popen([*MAIN, words[0], "r", *words[1:]], cwd=folder, env=env, stdout=subprocess.DEVNULL)
    _, status, own = os.wait4(command.pid, 0)
    command.returncode = os.waitstatus_to_exitcode(status)
    assert command.returncode == 0
    return own.ru_utime + own.ru_stime, own.ru_maxrss / 1024
