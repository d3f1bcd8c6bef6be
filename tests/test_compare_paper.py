"""fedbench/compare/paper: differences where they mean something, both numbers side by side where they do not."""

from __future__ import annotations

import csv
import io
import json

import pytest
from command import fedbench
from factories import eval_rows, write_cell
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fedbench.compare.paper import comparisons
from fedbench.compare.paper.columns import columns, remarks, warning
from fedbench.compare.paper.formats import CSV_COLUMNS, render, show
from fedbench.compare.paper.order import order, ordered
from fedbench.errors import UserError
from fedbench.results import load
from fedbench.results.expected import write_expected

VIT = "vit_base_patch16_224"
PAPER = {"fedra": (86.48, 91.92, 88.19), "depthfl": (79.79, 90.10, 82.07), "allsmall": (39.87, 40.57, 32.31)}


def numbers(paper=PAPER, **where):
    """Rows of expected.json: by method the average and two domains."""
    row = {"scenario": "skew", "variant": "", "dataset": "nicopp", "backbone": VIT, "rounds": 100, "source": "Table 1"}
    return [
        row | where | {"method": method, "metric": metric, "value_percent": value}
        for method, values in paper.items()
        for metric, value in zip(("average", "autumn", "dim"), values, strict=True)
    ]


def measure(folder, method, *by_seed, **changes):
    """Finished cells of the paper's own setting, unless `changes` say otherwise."""
    variant = changes.pop("variant", f"data=nicopp; backbone={VIT}.tag")
    own = {"backbone": {"name": f"{VIT}.tag", "pretrained": True}, "data__name": "nicopp", "train__rounds": 100}
    for seed, values in enumerate(by_seed):
        rows = eval_rows({100: dict(zip(("autumn", "dim"), values, strict=True))})
        write_cell(folder, method, seed, scenario="skew", variant=variant, evaluation=rows, **own | changes)


@pytest.fixture
def suite(tmp_path):
    """A suite's folder with the paper's numbers."""
    write_expected(tmp_path / "s", "s", numbers())
    return tmp_path / "s"


def compared(folder, **options):
    (found,) = comparisons(load([folder]), **options)
    return found


def cells(found):
    """{title: texts} of what is shown."""
    return {column.title: [cell.text for cell in column.cells] for column in columns(found)}


def shown(found, width=80):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    show(found, console)
    return console.file.getvalue()


def test_measured_minus_paper_by_domain_and_average(suite):
    measure(suite, "fedra", (0.90, 0.80), (0.92, 0.84))
    found = compared(suite)
    assert found.apart == "" and warning(found) == ""
    assert cells(found) == {
        "method": ["fedra", "  paper", "  difference", "depthfl", "  paper", "allsmall", "  paper"],
        "autumn": ["91.0", "91.92", "-0.9", "–", "90.10", "–", "40.57"],
        "dim": ["82.0", "88.19", "-6.2", "–", "82.07", "–", "32.31"],
        "average": ["86.5", "86.48", "+0.0", "–", "79.79", "–", "39.87"],
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
        text = render([found], format)
        assert "-1.48" not in text and "-1.5" not in text and "85.7" not in text  # the difference, and the mean of both
    assert {row["difference"] for row in json.loads(render([found], "json"))[0]["rows"]} == {None}


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


@pytest.mark.parametrize("at", ["best", "last4"])
def test_another_round_than_the_last_is_not_the_papers(suite, at):
    measure(suite, "fedra", (0.9, 0.8))
    found = compared(suite, at=at)
    assert found.apart == f"measured with --at {at}; the paper's numbers are for the last round: not comparable"


def test_a_mean_over_clients_is_compared_with_nothing_else(suite):
    rows = [row | {"metric": "mean_client_accuracy"} for row in numbers({"fedra": (90.0,) * 3})[:1]]
    write_expected(suite, "s", rows)
    measure(suite, "fedra", (0.9, 0.8))
    assert compared(suite).apart == "measured by domain; the paper's numbers are for by client: not comparable"
    measure(suite, "fedra", (0.9, 0.8), evaluation__by="client")
    assert compared(suite).apart == ""


def test_the_weights_are_named_where_there_is_a_difference(suite):
    measure(suite, "fedra", (0.9, 0.8))
    assert remarks(compared(suite))[0] == "measured with the weights w0"


def test_combinations_of_the_paper_stand_in_columns_of_their_own(suite):
    write_expected(suite, "s", numbers() + numbers({"fedra": (77.57, 86.59, 79.50)}, backbone="mixer_b16_224"))
    measure(suite, "fedra", (0.9, 0.8), data__name="strokes6", variant="data=embedded")
    found = compared(suite)
    assert cells(found)["paper 1"] == ["86.48", "79.79", "39.87"]
    assert cells(found)["paper 2"] == ["77.57", "–", "–"]
    assert "for the data and backbones below" in found.apart
    assert remarks(found)[:2] == [f"paper 1: nicopp with {VIT}; Table 1", "paper 2: nicopp with mixer_b16_224; Table 1"]


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
    assert [(c.board.variant, c.papers[0].percent("fedra", "average"), c.apart) for c in found] == [
        (points[0], 0, ""),
        (points[1], 1, ""),
    ]


def test_the_orders_of_the_methods_that_both_have(suite):
    for method, value in {"depthfl": 0.9, "fedra": 0.8, "allsmall": 0.7, "head_only": 0.99}.items():
        measure(suite, method, (value, value))
    found = compared(suite)
    both = order(found, found.papers[0])
    assert both.measured == [["depthfl"], ["fedra"], ["allsmall"]]
    assert both.paper == [["fedra"], ["depthfl"], ["allsmall"]]
    assert (both.swapped, both.pairs) == (1, 3)
    assert remarks(found)[2:] == [
        "order, measured: depthfl > fedra > allsmall",
        "order, paper: fedra > depthfl > allsmall; 1 of 3 pairs swapped",
    ]


def test_what_reads_alike_is_tied_and_no_pair(suite):
    for method, value in {"depthfl": 0.8, "fedra": 0.8004, "allsmall": 0.9}.items():
        measure(suite, method, (value, value))
    both = order(compared(suite), compared(suite).papers[0])
    assert both.measured == [["allsmall"], ["depthfl", "fedra"]]
    assert (both.swapped, both.pairs) == (2, 2)


VALUES = st.lists(st.integers(0, 5), min_size=2, max_size=6).map(lambda found: dict(enumerate(found)))


@given(VALUES)
def test_an_order_agrees_with_itself_and_is_turned_round_by_its_opposite(values):
    same, opposite = ordered(values, values), ordered(values, {name: -value for name, value in values.items()})
    assert same.measured == same.paper == opposite.measured == opposite.paper[::-1]
    assert (same.swapped, opposite.swapped) == (0, opposite.pairs)
    assert same.pairs == opposite.pairs == sum(a < b for a in values.values() for b in values.values())


def test_one_method_has_no_order(suite):
    measure(suite, "fedra", (0.9, 0.8))
    assert order(compared(suite), compared(suite).papers[0]) is None


def test_a_mean_over_clients_is_the_average(suite):
    row = numbers()[0] | {"metric": "mean_client_accuracy", "value_percent": 78.4, "std": 0.31}
    write_expected(suite, "s", [row])
    measure(suite, "fedra", (0.9, 0.8), evaluation__by="client")
    average = next(column for column in columns(compared(suite)) if column.title == "average")
    assert [(cell.text, cell.spread) for cell in average.cells] == [("85.0", ""), ("78.40", "±0.31"), ("+6.6", "")]


def test_numbers_keep_the_decimals_they_are_printed_with(suite):
    write_expected(suite, "s", numbers({"fedra": (34.185, 78.4, 80)}))
    measure(suite, "fedra", (0.9, 0.8))
    found = cells(compared(suite))
    assert [found[title][1] for title in ("average", "autumn", "dim")] == ["34.185", "78.40", "80.00"]


def test_boards_without_numbers_are_left_out_and_none_at_all_is_an_error(suite, tmp_path):
    write_cell(suite, "fedra", scenario="other", evaluation=eval_rows({1: {"a": 0.5}}))
    with pytest.raises(UserError, match="numbers beside these results are for skew; none of these leaderboards is"):
        comparisons(load([suite]))
    measure(suite, "fedra", (0.9, 0.8))
    assert compared(suite).board.scenario == "skew"
    write_cell(tmp_path / "plain", "fedra", evaluation=eval_rows({1: {"a": 0.5}}))
    with pytest.raises(UserError, match=r"beside the results of plain: .*\nOf the suites beside these, s have them"):
        comparisons(load([tmp_path / "plain"]))
    (suite / "expected.json").unlink()
    with pytest.raises(UserError, match=r"beside the results of plain, s: .*\n.*suites/papers"):
        comparisons(load([tmp_path]))


def test_csv_has_a_row_for_every_number_of_either_side(suite):
    measure(suite, "fedra", (0.9, 0.8))
    measure(suite, "head_only", (0.5, 0.6))
    text = render([compared(suite)], "csv")
    assert text.splitlines()[0].split(",") == list(CSV_COLUMNS)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 4 * 3
    fedra = next(row for row in rows if (row["method"], row["domain"]) == ("fedra", "average"))
    assert float(fedra["measured_percent"]) == pytest.approx(85.0) and fedra["paper_percent"] == "86.48"
    assert float(fedra["difference"]) == pytest.approx(-1.48) and fedra["n_seeds"] == "1"
    missing = next(row for row in rows if row["method"] == "depthfl")
    assert (missing["measured_percent"], missing["difference"], missing["n_seeds"]) == ("", "", "0")
    ours = next(row for row in rows if row["method"] == "head_only")
    assert (ours["paper_percent"], ours["difference"], ours["source"]) == ("", "", "")


def test_json_says_what_is_apart_and_both_orders(suite):
    measure(suite, "fedra", (0.9, 0.8), train__rounds=1)
    measure(suite, "depthfl", (0.5, 0.6), train__rounds=1)
    (found,) = json.loads(render([compared(suite)], "json"))
    assert not found["comparable"] and "1 round" in found["apart"]
    (both,) = found["orders"]
    assert both["measured"] == both["paper"] == [["fedra"], ["depthfl"]]


def test_markdown_and_latex_say_it_too(suite):
    measure(suite, "fedra", (0.9, 0.8), train__rounds=1)
    found = [compared(suite)]
    markdown, latex = render(found, "markdown"), render(found, "latex")
    assert "| fedra | 85.0 | 86.48 |" in markdown and "not comparable" in markdown
    assert r"fedra & 85.0 & 86.48 \\" in latex and "not comparable" in latex
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 1


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("changes", [{}, {"train__rounds": 1}])
def test_no_line_is_wider_than_the_terminal(tmp_path, width, changes):
    domains = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch", "average")
    row = numbers()[0] | {"dataset": "domainnet"}
    many = [row | {"metric": d, "method": m} for d in domains for m in ("inclusivefl", "fedra")]
    many += [n | {"dataset": f"set{i}"} for i in range(5) for n in many]
    write_expected(tmp_path / "s", "s", many)
    own = {"backbone": {"name": VIT}, "data__name": "domainnet", "train__rounds": 100} | changes
    for seed in (0, 1):
        rows = eval_rows({9: dict.fromkeys(domains[:-1], 0.5 + seed / 10)})
        write_cell(tmp_path / "s", "fedra", seed, scenario="skew", evaluation=rows, **own)
    text = shown(comparisons(load([tmp_path])), width)
    assert max(map(len, text.splitlines())) <= width
    assert ("not comparable" in " ".join(text.split())) == bool(changes)


def test_the_command_shows_it_and_refuses_what_it_cannot_compare(suite):
    measure(suite, "fedra", (0.9, 0.8))
    done = fedbench("compare", suite, "--paper", cwd=suite, columns=80)
    assert done.exit_code == 0 and "difference" in done.output
    assert json.loads(fedbench("compare", suite, "--paper", "--format", "json", cwd=suite).stdout)[0]["comparable"]
    for option in (("--metric", "loss"), ("--baseline", "fedra")):
        done = fedbench("compare", suite, "--paper", *option, cwd=suite)
        assert done.exit_code == 2 and "leave out --metric and --baseline" in done.stderr
