"""What is counted of a run: what it computed itself, what others did, what is a failure, and what is left."""

from __future__ import annotations

import re
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace

import pytest
from command import TINY, manifests, run, write_suite
from factories import config

from fedbench.commands.run import CHANGING, _takes
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.results import write_manifest
from fedbench.results.identity import identity
from fedbench.runner.cells import Options, cells_of
from fedbench.runner.estimate import of_earlier_cells
from fedbench.runner.progress import EndedCells, RunSummary
from fedbench.runner.runner import load
from fedbench.suite.shipped import listed

ID = identity(config("fedra"), {}, {})


def test_a_run_says_how_long_it_takes_where_cells_but_for_seed_and_rounds_have_finished(tmp_path):
    """Seconds grow with rounds and shrink with processes."""
    write_suite(tmp_path, "fedra, allsmall")
    assert ", about " not in run("--method", "fedra", "--jobs", 1, cwd=tmp_path).stdout
    (manifest,) = manifests(tmp_path / "r").values()
    with chdir(tmp_path):
        suite = load("tiny.yaml", registry := Registry([str(TINY)]), sets=["train.rounds=8"])
        cells = cells_of(suite.points(seeds=[1, 2]), registry, CachedFacts(registry, suite.base))
    fedra = [cell for cell in cells if cell.points[0].method == "fedra"]
    for jobs, expected in ((1, 8), (2, 4)):
        found = of_earlier_cells(tmp_path / "r/tiny", fedra, Options(jobs=jobs, device="cpu"))
        assert found == pytest.approx(manifest["seconds"] * expected)
    assert of_earlier_cells(tmp_path / "r/tiny", cells, Options(device="cpu")) is None, "allsmall has never run"
    assert of_earlier_cells(tmp_path / "nowhere", fedra, Options()) is None
    said = run("--method", "fedra", "--seed", 1, cwd=tmp_path).stdout
    assert re.search(r"to run, about \S+ m?s by earlier cells", said), said


@pytest.mark.parametrize(
    ("suite", "given", "said"),
    [
        ("quickstart", {}, ", about 66 s on two cores of the machine of the reference results"),
        ("quickstart", {"sets": ("train.rounds=1",)}, ""),
        ("quickstart", {"executor": "ray"}, ""),
        ("devices_vit_b", {}, ""),
        ("mine.yaml", {}, ""),
    ],
)
def test_a_shipped_suite_as_it_is_takes_what_the_reference_results_took(tmp_path, suite, given, said):
    usual = {**dict.fromkeys(CHANGING, ()), "results": str(tmp_path), "device": "cpu", "jobs": 2, "executor": "local"}
    cells = [
        SimpleNamespace(config={"seed": n, "train": {"rounds": 1}})
        for n in range(listed().get(suite, listed()["quickstart"])["cells"])
    ]
    assert _takes(suite, "s", cells, cells, {**usual, **given}) == said
    assert _takes(suite, "s", cells, cells[1:], {**usual, **given}) == ""


@pytest.mark.parametrize(("candidates", "diverged", "failures"), [([ID], True, 0), ([ID], False, 1), ([], True, 1)])
def test_a_candidate_that_diverged_is_no_failure(tmp_path, candidates, diverged, failures):
    folder = tmp_path / ID
    own = {"config": config("fedra"), "fingerprints": {}, "versions": {}}
    manifest = {"id": ID, **own, "status": "failed", "reason": "it broke"}
    write_manifest(folder, manifest | ({"diverged": True} if diverged else {}))
    ends = EndedCells(lambda event: None, 1, candidates)
    ends.note({"event": "ended", "folder": str(folder), "status": "failed", "reason": "it broke"})
    assert ends.failures == failures and ends.may_start is (failures == 0)
    assert ends.of.keys() == {folder.name}


def test_what_was_not_started_did_not_run_and_an_end_that_is_told_twice_counts_once():
    heard = []
    ends = EndedCells(heard.append, None)
    for name, event in (("a", "ended"), ("c", "unclaimed"), ("a", "ended")):
        ends.note({"event": event, "folder": f"x/{name}", "status": "failed", "reason": None})
    assert ends.of.keys() == {"a"} and ends.failures == 1 and len(heard) == 2


def part(asked, status="halved", **told):
    manifests = {name: {"status": status} for name in asked}
    return RunSummary("s", Path("s"), manifests, frozenset(asked), 1.0, **{k: frozenset(v) for k, v in told.items()})


def test_a_cell_of_two_parts_is_counted_once():
    both = part("bcd", computed="bd").after(part("abcd", computed="abc"))
    assert (both.ran, both.kept, both.left) == (4, 0, 0)
    reporting = part("e", "finished", computed="e").after(both)
    assert (reporting.ran, reporting.kept) == (5, 0)


def test_candidates_that_did_not_come_as_far_as_they_were_to_are_left():
    first = part("abcd", computed="abcd")
    second = part("ab", computed="a", behind="b").after(first)
    assert (second.ran, second.kept, second.left) == (4, 0, 1)
    assert part("b", computed="b").after(second).left == 0
