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
    run = {"fedra", "inclusivefl", "depthfl", "alllarge", "allsmall", "head_only", "exit_probe", "majority"}
    assert done.keys() == run | {"exclusive", "ova_lp", "pooled_probe"}
    said("docs/findings.md", "Eleven of sixteen methods have run")
    said("README.md", "eleven of its sixteen methods have run")
    said(
        "README.md",
        "DepthFL is the best federated method there, by the mean of its exits; FedRA still beats InclusiveFL",
    )
    of_depthfl = verdicts(board, "depthfl")
    assert of_depthfl.pop("pooled_probe") == "inconclusive" and {*of_depthfl.values()} == {"better"}
    means = {row.label: 100 * row.average.mean for row in board.rows if row.average}
    said("docs/findings.md", "the last of them alone is 12.9 points lower")
    assert round(means["depthfl"] - means["depthfl/last"], 1) == 12.9
    said("docs/findings.md", "AllLarge, whose clients all hold the whole model, is 8.2 points above DepthFL")
    assert round(means["alllarge"] - means["depthfl"], 1) == 8.2
    of_fedra = verdicts(board, "fedra")
    assert (of_fedra["head_only"], of_fedra["inclusivefl"], of_fedra["exit_probe"]) == ("inconclusive", *["better"] * 2)
    said("docs/findings.md", "InclusiveFL is below AllSmall, too, which has three layers")
    of_inclusivefl = verdicts(board, "inclusivefl")
    assert of_inclusivefl.pop("exclusive") == "inconclusive" and {*of_inclusivefl.values()} == {"worse"}
    assert min((label for label in means if "/" not in label and label != "majority"), key=means.get) == "inclusivefl"


@pytest.fixture(scope="module")
def mixer():
    suites = ("extreme_hetero_tuned", "feature_skew_tuned", "feature_label_skew_tuned")
    return {name: board for suite in suites for name, board in boards(suite, "mixer").items()}


def test_on_the_mixer_a_shallow_model_is_often_best(mixer):
    said("docs/findings.md", "better than InclusiveFL, FedRA and the probe in four of seven tuned scenarios")
    others = ("inclusivefl", "fedra", "head_only")
    found = {name: {verdicts(board, "allsmall")[other] for other in others} for name, board in mixer.items()}
    above = {name for name, said_of in found.items() if said_of == {"better"}}
    assert (len(above), len(mixer)) == (4, 7)
    said("docs/findings.md", "If depths change every round, it is significantly worse than all three")
    assert found["dynamic"] == {"worse"}
    said("docs/findings.md", "in two of them its mean lies above that of the ceiling")
    means = {name: {row.label: row.average.mean for row in board.rows if row.average} for name, board in mixer.items()}
    assert sum(means[name]["allsmall"] > means[name]["alllarge"] for name in above) == 2


def test_the_largest_lead_of_depthfl_on_the_mixer(mixer):
    assert "down to 28.5 points with 4 of 12 layers" in " ".join((ROOT / "docs/findings.md").read_text().split())
    rows = {row.label: row.average.mean for row in mixer["all_4"].rows if row.average}
    assert round(100 * (rows["depthfl"] - rows["fedra"]), 1) == 28.5


def test_what_fedra_is_better_than_on_devices():
    said("README.md", "FedRA beats InclusiveFL and split learning; most of its other differences are inconclusive")
    (board,) = boards("devices", scenario="hurried").values()
    found = verdicts(board, "fedra")
    assert {found[name] for name in ("inclusivefl", "fedv", "festa")} == {"better"}
    assert found["depthfl"] == "inconclusive"
    assert sum(verdict == "inconclusive" for verdict in found.values()) > len(found) / 2


def test_what_beats_the_linear_probe_on_the_drawings():
    said("docs/findings.md", "most methods of ranks and all whole models do")
    ranks = ("fedit", "hetlora", "flexlora", "raflora", "fed_plora", "flora")
    for backbone in ("vit", "mixer"):
        (board,) = boards("field_tuned", backbone).values()
        better = {name for name, verdict in verdicts(board, "head_only").items() if verdict == "worse"}
        assert {"fedavg", "ditto", "fedrod"} <= better and len(better & {*ranks}) >= 5


def test_what_split_learning_learns():
    said("docs/findings.md", "FedVZ is better than that by 1.6 points with Dirichlet(0.1), and inconclusive with two")
    found = boards("personalised_tuned", "vit")
    for scenario, verdict in (("dirichlet0.1", "better"), ("pathological2", "inconclusive")):
        assert verdicts(found[scenario], "fedvz")["frozen_server"] == verdict
        assert verdicts(found[scenario], "fedv")["frozen_server"] == "inconclusive"


def test_which_methods_of_the_field_have_no_results_yet():
    said("docs/findings_tables.md", "and the newer controls have no results yet")
    there = {result.entry.method for result in load([REFERENCE / "field_tuned"])}
    assert not {"legend", "fslora", "pooled", "pooled_probe"} & there
    said("docs/findings_tables.md", "FLASC, SplitLoRA, those of forward passes, stages and batches, LEGEND, FSLoRA")
    tuned, field = ((REFERENCE.parents[1] / f"suites/{name}.yaml").read_text() for name in ("tuned/field", "field"))
    for name in ("flasc", "fedkseed", "spry", "fwdllm", "block_stages", "batch_layers", "splitlora"):
        assert name in field and name not in tuned
