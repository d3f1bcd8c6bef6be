"""fedbench/compare/paper: differences where they mean something, both numbers side by side where they do not."""

from __future__ import annotations

import json

import pytest
from factories import eval_rows, write_cell
from papers import VIT, around, cells, compared, measure, numbers, rendered, shown

from fedbench.errors import UserError
from fedbench.report.paper import comparisons
from fedbench.results import load
from fedbench.results.index import write_expected


def test_measured_minus_paper_by_domain_and_average(suite):
    measure(suite, "fedra", (0.90, 0.80), (0.92, 0.84))
    found = compared(suite)
    assert found.apart == "" and around(found)[0] == ""
    assert cells(found) == {
        "method": ["fedra", "  paper", "  difference", "depthfl", "  paper", "allsmall", "  paper"],
        "autumn": ["91.0", "91.92", "-0.9", "–", "90.10", "–", "40.57"],
        "dim": ["82.0", "88.19", "-6.2", "–", "82.07", "–", "32.31"],
        "average": ["86.5 ±2.1", "86.48", "+0.0", "–", "79.79", "–", "39.87"],
    }
    assert found.difference("fedra", found.board.rows[0], "dim") == pytest.approx(82.0 - 88.19)


def test_a_method_that_the_paper_lacks_and_one_without_a_number(suite):
    measure(suite, "head_only", (0.5, 0.7))
    write_cell(suite, "fedra", scenario="skew", variant=f"data=nicopp; backbone={VIT}.tag", status="failed", reason="x",
               backbone={"name": f"{VIT}.tag", "pretrained": True}, data__name="nicopp", train__rounds=100)  # fmt: skip
    found = cells(compared(suite))
    assert found["method"][:4] == ["head_only", "  paper", "fedra", "  paper"]
    assert found["average"][:4] == ["60.0", "–", "failed", "86.48"]
    assert found["dim"][:4] == ["70.0", "–", "–", "88.19"]
    assert "fedra: failed: x" in shown([compared(suite)])


def test_a_second_output_is_not_the_papers(suite):
    rows = eval_rows({100: {"autumn": 0.9}}) + eval_rows({100: {"autumn": 0.8}}, "accuracy/last")
    own = {"backbone": {"name": VIT}, "data__name": "nicopp", "train__rounds": 100}
    write_cell(suite, "depthfl", scenario="skew", evaluation=rows, **own)
    found = cells(compared(suite))
    assert found["method"][:5] == ["depthfl", "  paper", "  difference", "depthfl/last", "  paper"]
    assert found["average"][:5] == ["90.0", "79.79", "+10.2", "80.0", "–"]


def test_a_number_of_a_second_output_stands_beside_that_and_a_line_says_so(tmp_path):
    paper = {"fedavg/local": (86.17, 90.0, 82.0), "fedra": (70.0, 75.0, 65.0)}
    both = eval_rows({100: {"autumn": 0.3, "dim": 0.2}}) + eval_rows(
        {100: {"autumn": 0.9, "dim": 0.8}}, "accuracy/local"
    )
    own = {"backbone": {"name": f"{VIT}.tag", "pretrained": True}, "data__name": "nicopp", "train__rounds": 100}
    with_it, without = tmp_path / "s", tmp_path / "t"
    for folder in (with_it, without):
        write_expected(folder, folder.name, numbers(paper))
        measure(folder, "fedra", (0.8, 0.6))
    write_cell(with_it, "fedavg", scenario="skew", variant=f"data=nicopp; backbone={VIT}.tag", evaluation=both, **own)
    found = compared(with_it)
    names = ["fedra", "  paper", "  difference", "fedavg", "  paper", "fedavg/local", "  paper", "  difference"]
    assert sorted(cells(found)["method"]) == sorted(names)
    first = cells(found)["method"].index("fedavg")
    assert cells(found)["average"][first : first + 5] == ["25.0", "–", "85.0", "86.17", "-1.2"]
    assert {
        "paper scores fedavg/local, not fedavg",
        "order, paper: fedavg/local > fedra; 0 of 1 pair swapped",
    } <= {*around(found)[1]}
    assert not any("scores" in line for line in around(compared(without))[1])  # there is no fedavg to be taken for it


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"data__name": "strokes6", "backbone": {"name": "micro_vit"}, "variant": "data=embedded"},
            f"measured on strokes6 with micro_vit; the paper's numbers are for nicopp with {VIT}: not comparable",
        ),
        (
            {"backbone": {"name": "vit_small_patch16_224"}, "variant": ""},
            f"measured on nicopp with vit_small_patch16_224; the paper's numbers are for nicopp with {VIT}: "
            "not comparable",
        ),
        (
            {"profile": "reference", "variant": "profile=reference"},
            "measured with the profile reference; the paper's numbers are for the profile paper: not comparable",
        ),
        (
            {"train__rounds": 1, "variant": "train.rounds=1"},
            "measured after 1 round; the paper's numbers are for 100 rounds: not comparable",
        ),
        (
            {"backbone": {"name": VIT, "pretrained": False}, "variant": "backbone.pretrained=false"},
            "measured with random weights; the paper's numbers are for pre-trained ones: not comparable",
        ),
        (
            {"variant": "data=short"},  # an overlay on the same data, which may have changed anything
            "measured with data=short; the paper's numbers are for the suite without that: not comparable",
        ),
        (
            {"variant": "train.clip=null; train.batch_size=8"},
            "measured with train.batch_size=8, train.clip=null; the paper's numbers are for the suite without that: "
            "not comparable",
        ),
        (
            {"variant": f"data=nicopp(classes=10); backbone={VIT}.tag(img_size=96)"},
            f"measured with backbone={VIT}.tag(img_size=96), data=nicopp(classes=10); the paper's numbers are for "
            "the suite without that: not comparable",
        ),
        (
            {"evaluation__by": "client"},
            "measured by client; the paper's numbers are for by domain: not comparable",
        ),
    ],
)
def test_what_differs_from_the_paper_is_said_and_nothing_is_subtracted(suite, changes, sentence):
    measure(suite, "fedra", (0.9, 0.8), **changes)
    found = compared(suite)
    assert found.apart == sentence
    assert cells(found) == {
        "method": ["fedra", "depthfl", "allsmall"],
        "measured": ["85.0", "–", "–"],
        "paper": ["86.48", "79.79", "39.87"],
    }
    for format in ("csv", "json", "markdown", "latex"):
        text = rendered([found], format)
        assert "-1.48" not in text and "-1.5" not in text and "85.7" not in text  # the difference, and the mean of both
    assert {row["difference"] for row in json.loads(rendered([found], "json"))["rows"]} == {None}


@pytest.mark.parametrize(
    "variant",
    [
        "",
        f"data=nicopp(root=/images); backbone={VIT}.tag(pretrained=/weights.safetensors)",
        "data.root=/images; backbone.pretrained=/weights.safetensors",
        "engine=sequential; precision=bf16",
        "evaluation.every=10",
    ],
)
def test_where_things_lie_and_how_they_are_computed_sets_nothing_apart(suite, variant):
    measure(suite, "fedra", (0.9, 0.8), variant=variant)
    assert compared(suite).apart == ""


def test_another_round_than_the_last_is_not_the_papers(suite):
    measure(suite, "fedra", (0.9, 0.8))
    found = compared(suite, at="last4")
    assert found.apart == "measured with --at last4; the paper's numbers are for the last round: not comparable"


def test_fewer_training_images_are_not_the_papers(suite):
    measure(suite, "fedra", (0.9, 0.8), evaluation__validation=0.1, variant="evaluation.validation=0.1; data=nicopp")
    assert compared(suite, at="best").apart == (
        "measured with --at best, with 0.1 of the training examples held out; the paper's numbers are for the last "
        "round, all training examples: not comparable"
    )


def test_a_mean_over_clients_is_compared_with_nothing_else(suite):
    rows = [row | {"metric": "mean_client_accuracy"} for row in numbers({"fedra": (90.0,) * 3})[:1]]
    write_expected(suite, "s", rows)
    measure(suite, "fedra", (0.9, 0.8))
    assert compared(suite).apart == "measured by domain; the paper's numbers are for by client: not comparable"
    measure(suite, "fedra", (0.9, 0.8), evaluation__by="client")
    assert compared(suite).apart == ""


def test_the_weights_are_named_where_there_is_a_difference(suite):
    measure(suite, "fedra", (0.9, 0.8))
    assert around(compared(suite))[1][0] == "measured with the weights w0"


def test_combinations_of_the_paper_stand_in_columns_of_their_own(suite):
    write_expected(suite, "s", numbers() + numbers({"fedra": (77.57, 86.59, 79.50)}, backbone="mixer_b16_224"))
    measure(suite, "fedra", (0.9, 0.8), data__name="strokes6", variant="data=embedded")
    found = compared(suite)
    assert cells(found)["paper 1"] == ["86.48", "79.79", "39.87"]
    assert cells(found)["paper 2"] == ["77.57", "–", "–"]
    assert "for the data and backbones below" in found.apart
    assert around(found)[1][:2] == [
        f"paper 1: nicopp with {VIT}; Table 1",
        "paper 2: nicopp with mixer_b16_224; Table 1",
    ]


def test_only_the_own_combination_stands_beside_a_board_of_the_papers(suite):
    write_expected(suite, "s", numbers({"fedra": (1, 2, 3)}, dataset="domainnet") + numbers())
    measure(suite, "fedra", (0.9, 0.8))
    (paper,) = compared(suite).papers
    assert (paper.dataset, paper.percent("fedra", "average")) == ("nicopp", 86.48)


def test_a_number_for_the_exact_weights_comes_before_one_for_the_name(suite):
    write_expected(suite, "s", numbers() + numbers({"fedra": (1.0, 2.0, 3.0)}, backbone=f"{VIT}.tag"))
    measure(suite, "fedra", (0.9, 0.8))
    (paper,) = compared(suite).papers
    assert paper.percent("fedra", "average") == 1.0


def test_sweep_points_have_numbers_of_their_own(suite):
    points = ["adapter.targets=attn.proj", "adapter.targets=mlp.fc2"]
    write_expected(suite, "s", [n for i, p in enumerate(points) for n in numbers({"fedra": (i, i, i)}, variant=p)])
    for point in points:
        measure(suite, "fedra", (0.9, 0.8), variant=point, adapter__targets=[point])
    measure(suite, "fedra", (0.9, 0.8), variant="adapter.targets=other", adapter__targets=["other"])
    found = comparisons(load([suite]))
    assert [(c.board.place.variant, c.papers[0].percent("fedra", "average"), c.apart) for c in found] == [
        (points[0], 0, ""),
        (points[1], 1, ""),
    ]


def test_what_is_measured_by_another_metric_than_is_printed_is_not_comparable(suite):
    write_expected(suite, "s", [row | {"score": "number_match"} for row in numbers()])
    measure(suite, "fedra", (0.9, 0.8))
    assert compared(suite).apart == "measured by accuracy; the paper's numbers are for number_match: not comparable"


def test_a_mean_over_clients_is_the_average(suite):
    row = numbers()[0] | {"metric": "mean_client_accuracy", "value_percent": 78.4, "std": 0.31}
    write_expected(suite, "s", [row])
    measure(suite, "fedra", (0.9, 0.8), evaluation__by="client")
    assert cells(compared(suite))["average"] == ["85.0", "78.40 ±0.31", "+6.6"]


def test_numbers_keep_the_decimals_they_are_printed_with(suite):
    write_expected(suite, "s", numbers({"fedra": (34.185, 78.4, 80)}))
    measure(suite, "fedra", (0.9, 0.8))
    found = cells(compared(suite))
    assert [found[title][1] for title in ("average", "autumn", "dim")] == ["34.185", "78.40", "80.00"]


def test_boards_without_numbers_are_left_out_and_none_at_all_is_an_error(suite, tmp_path):
    write_cell(suite, "fedra", scenario="other", evaluation=eval_rows({1: {"a": 0.5}}))
    with pytest.raises(UserError, match="numbers next to these results are for skew; none of these leaderboards is"):
        comparisons(load([suite]))
    measure(suite, "fedra", (0.9, 0.8))
    assert compared(suite).board.place.scenario == "skew"
    write_cell(tmp_path / "plain", "fedra", evaluation=eval_rows({1: {"a": 0.5}}))
    with pytest.raises(UserError, match=r"next to the results of plain: .*\nOf the suites next to these, s have them"):
        comparisons(load([tmp_path / "plain"]))
    write_expected(suite, suite.name, [])
    with pytest.raises(UserError, match=r"next to the results of plain, s: .*\n.*suites/papers"):
        comparisons(load([tmp_path]))
