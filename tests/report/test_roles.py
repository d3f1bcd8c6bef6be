"""What a method of somebody else is there for: every view of its results knows, also where it is not installed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from command import fedbench, run, write_suite

from fedbench.report.grouping import roles_of
from fedbench.report.plot_data import LINES, styles
from fedbench.results import load
from fedbench.results.documents import check_manifest

PAPER = "Doe et al., Ceilings, 2026"
PLUGIN = f"""
from fedbench import hookimpl
from fedbench.families.layerwise import layerwise

def top(setup):
    return layerwise(setup, "prefix", depth_of=lambda L_n: setup.backbone.num_layers)

def probe(setup):
    return layerwise(setup, "prefix", depth_of=lambda L_n: 1)

@hookimpl
def fedbench_register_methods(register):
    register("top", top, role="ceiling", paper={PAPER!r})
    register("probe", probe, role="control")
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory, own_cache):
    """A folder with results of four methods, two of which a file registers that was given with `run` alone; and what
    the run said of them at its end."""
    folder = tmp_path_factory.mktemp("roles")
    (folder / "theirs.py").write_text(PLUGIN)
    changes = {"scenarios:": "seeds: [0, 1, 2]\nscenarios:", "rounds: 2": "rounds: 1"}
    write_suite(folder, "fedra, top, {name: probe_more, extends: probe}, majority", changes)
    done = run("--plugin", "theirs.py", cwd=folder)
    assert done.exit_code == 0, done.output
    return folder, done.stdout


def test_compare_says_what_the_run_said(ran):
    folder, said = ran
    board = fedbench("compare", "r/tiny", cwd=folder).stdout
    assert "Not ranked: top (ceiling), majority (constant)." in " ".join(board.split())
    assert "majority: " not in board, "it predicts one class by its nature, which is no collapse"
    lines = [line.rstrip() for line in board.splitlines() if line.startswith(("fedra", "top", "probe_more"))]
    assert len(lines) >= 3 and all(line in said for line in lines)
    pairs = fedbench("compare", "pairs", "r/tiny", "--format", "csv", cwd=folder).stdout
    assert "probe_more" in pairs and ",top," not in pairs and ",majority," not in pairs


def test_papers_are_listed_and_pictures_have_the_lines(ran):
    folder, _ = ran
    assert f"- top: {PAPER}" in fedbench("compare", "r/tiny", "--format", "markdown", cwd=folder).stdout
    results = load([folder / "r"])
    assert roles_of(results, {"fedra": "method"}) == {"fedra": "method", "probe": "control", "top": "ceiling"}
    assert roles_of(results, {"top": "floor"})["top"] == "floor", "what is installed knows better"
    look = styles({"top": "top", "probe_more": "probe"}, roles_of(results, {}))
    assert [one["linestyle"] for one in look.values()] == [LINES["ceiling"], LINES["control"]]


def test_the_page_knows_too(ran):
    folder, _ = ran
    pages = []
    for words in ((), ("--plugin", "theirs.py")):
        assert fedbench("report", "r/tiny", "-o", "page.html", *words, cwd=folder).exit_code == 0
        pages.append((folder / "page.html").read_text())
    assert pages[0] == pages[1] and PAPER in pages[0]


@pytest.mark.parametrize("said", ["ceiling", {"role": 3}, {"paper": "one\nline more"}])
def test_a_manifest_that_says_something_else_is_refused(ran, tmp_path, said):
    (one, *_) = (result for result in load([ran[0] / "r"]) if result.entry.method == "top")
    with pytest.raises(TypeError, match="method"):
        check_manifest({**one.manifest, "method": said})


def test_a_role_that_nobody_knows_is_none(ran):
    (one, *_) = (result for result in load([ran[0] / "r"]) if result.entry.method == "top")
    changed = replace(one, manifest={**one.manifest, "method": {"role": "emperor"}})
    assert roles_of([changed], {}) == {}
