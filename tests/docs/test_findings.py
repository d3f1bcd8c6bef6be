"""Sentences of README and the findings that tables on the page do not show, against the reference results."""

from __future__ import annotations

import pytest
from pages import ROOT, prose

from fedbench.registry.registry import Registry
from fedbench.report.leaderboards import leaderboards
from fedbench.report.statistics.pairs import turned
from fedbench.results import load

REFERENCE = ROOT / "results/reference"


def said(page: str, text: str) -> None:
    assert text in " ".join(prose(ROOT / page).split())


def boards(suite: str, backbone: str = "", scenario: str = ""):
    """The leaderboards of a suite by scenario."""
    found = leaderboards(load([REFERENCE / suite]), roles=Registry().catalogue.roles)
    return {
        board.place.scenario: board
        for board in found
        if backbone in board.place.backbone and scenario in board.place.scenario
    }


def verdicts(board, method: str) -> dict[str, str]:
    """What a method is next to every other."""
    pairs = (*board.pairs, *map(turned, board.pairs))
    return {pair.other: pair.verdict for pair in pairs if pair.method == method}


def test_what_is_said_of_the_real_transformer_so_far():
    (board,) = boards("real_tuned").values()
    done = {row.label: row for row in board.rows if len(row.runs) == 6 and not row.output}
    assert done.keys() == {"fedra", "inclusivefl", "allsmall", "head_only", "exit_probe", "majority"}
    said("docs/findings.md", "Six of sixteen methods have run")
    assert verdicts(board, "fedra") | {"inclusivefl": "better", "head_only": "inconclusive"} == verdicts(board, "fedra")
    said("docs/findings.md", "InclusiveFL is below AllSmall, too, which trains and uses three layers")
    assert verdicts(board, "allsmall")["inclusivefl"] == "better"
    assert verdicts(board, "fedra")["exit_probe"] == "better"
    assert max(done, key=lambda label: done[label].average.mean) == "head_only"
    said("README.md", "FedRA beats InclusiveFL, and its difference to the probe is inconclusive")


@pytest.fixture(scope="module")
def mixer():
    return boards("extreme_hetero_tuned", "mixer")


def test_on_the_mixer_a_shallow_model_does_best(mixer):
    said(
        "docs/findings.md", "significantly better than InclusiveFL, FedRA and the probe in four of five tuned scenarios"
    )
    above = {
        name
        for name, board in mixer.items()
        if {verdicts(board, "allsmall")[other] for other in ("inclusivefl", "fedra", "head_only")} == {"better"}
    }
    assert (len(above), len(mixer)) == (4, 5)
    said("docs/findings.md", "in two of them its mean lies above that of the ceiling")
    means = {name: {row.label: row.average.mean for row in board.rows if row.average} for name, board in mixer.items()}
    assert sum(means[name]["allsmall"] > means[name]["alllarge"] for name in above) == 2


def test_the_largest_lead_of_depthfl_on_the_mixer(mixer):
    assert "down to 28.5 points with 4 of 12 layers" in " ".join((ROOT / "docs/findings.md").read_text().split())
    rows = {row.label: row.average.mean for row in mixer["all_4"].rows if row.average}
    assert round(100 * (rows["depthfl"] - rows["fedra"]), 1) == 28.5


def test_what_fedra_is_better_than_on_devices():
    said("README.md", "FedRA beats InclusiveFL and split learning; most others are inconclusive")
    (board,) = boards("devices", scenario="hurried").values()
    found = verdicts(board, "fedra")
    assert {found[name] for name in ("inclusivefl", "fedv", "festa")} == {"better"}
    assert found["depthfl"] == "inconclusive"
    assert sum(verdict == "inconclusive" for verdict in found.values()) > len(found) / 2


def test_which_methods_of_the_field_have_no_results_yet():
    said("docs/findings_tables.md", "and the newer controls have no results yet")
    there = {result.entry.method for result in load([REFERENCE / "field_tuned"])}
    assert not {"legend", "fslora", "pooled", "pooled_probe"} & there
    said("docs/findings_tables.md", "FLASC, SplitLoRA, those of forward passes, stages and batches, LEGEND, FSLoRA")
    tuned, field = ((REFERENCE.parents[1] / f"suites/{name}.yaml").read_text() for name in ("tuned/field", "field"))
    for name in ("flasc", "fedkseed", "spry", "fwdllm", "block_stages", "batch_layers", "splitlora"):
        assert name in field and name not in tuned
