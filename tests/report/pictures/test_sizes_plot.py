"""fedbench plot sizes: what the artists hold, not their pixels."""

from __future__ import annotations

import pytest
from command import fedbench
from factories import eval_rows, write_cell

from fedbench.report.leaderboards import leaderboards
from fedbench.report.pictures.panels import sizes
from fedbench.results import load


def rows(*told, alone=True):
    """(capacity, bytes, score) of one domain, and a client that runs the last."""
    facts = {"round": 1, "rank": None, "width": None, "domain": "a", "metric": "accuracy"}
    beside = {"alone": alone, "client": -1, "examples": 9}
    found = [{**facts, **beside, "capacity": c, "memory_bytes": m, "value": v} for c, m, v in told]
    one = {**facts, "client": 0, "device": "", "capacity": told[-1][0], "value": told[-1][2]}
    return {"sizes": found, "deployed": [one]}


@pytest.fixture
def folder(tmp_path):
    for seed in range(2):
        told = {
            "depthfl": rows((3, 10**6, 0.3 + seed / 10), (12, 10**8, 0.7)),
            "fedv": rows((12, None, 0.5), alone=False),
        }
        for method, tables in told.items():
            write_cell(tmp_path / "s", method, seed, evaluation=eval_rows({1: {"a": 0.7}}), **tables)
    return tmp_path


def test_a_point_for_each_size_that_a_device_can_run(folder):
    (found,) = leaderboards(load([folder]))
    (ax,) = sizes({"mixed": found}).axes
    (line,) = [line for line in ax.lines if line.get_linestyle() != "None"]
    assert line.get_xdata().tolist() == [1, 100] and line.get_ydata() == pytest.approx([35, 70])
    assert ax.get_xlabel() == "memory to answer one image (MB)" and ax.get_xscale() == "log"
    assert ax.get_legend_handles_labels()[1] == ["depthfl"]


def test_the_command_draws_a_file_and_refuses_what_has_no_sizes(folder):
    done = fedbench("plot", "sizes", "s", "--format", "svg", cwd=folder)
    assert (done.exit_code, done.output) == (0, "plots/s-sizes.svg\n")
    refused = fedbench("plot", "sizes", "s", "--method", "fedv", cwd=folder)
    assert refused.exit_code == 2 and "what memory it takes" in refused.output
