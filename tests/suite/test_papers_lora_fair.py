"""The suites in LoRA-FAIR's setting, against what is known of it and the numbers that are printed."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest
from made_up import KnownFacts

from fedbench.registry.registry import Registry
from fedbench.suite import Suite, load

PAPERS = Path(__file__).parents[2] / "suites/papers"
SUITES = sorted(PAPERS.glob("lora_fair/*.yaml"))
with open(PAPERS / "paper_tables.csv", newline="") as file:
    NUMBERS = [row for row in csv.DictReader(file) if row["paper"] == "LoRA-FAIR"]
METHODS = ("ffa_lora", "fedit", "flora", "flexlora", "lora_fair")
OURS = {"feature_skew": {"head_only"}, "lambda": {"fedit"}}
VIT, MIXER = "vit_base_patch16_224.augreg2_in21k_ft_in1k", "mixer_b16_224.goog_in21k_ft_in1k"


@pytest.fixture(scope="module")
def catalogue():
    return Registry().catalogue


def read(name: str, catalogue, **options) -> Suite:
    return load(PAPERS / f"lora_fair/{name}.yaml", catalogue, facts=KnownFacts(), **options)


def told(path: Path) -> str:
    """The suite's first lines."""
    return " ".join(line.removeprefix("# ") for line in path.read_text().splitlines() if line.startswith("#"))


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
@pytest.mark.parametrize("profile", ["paper", "reference"])
@pytest.mark.parametrize("data", [None, "embedded"])
def test_a_suite_loads_on_its_own_data_and_on_the_embedded_ones(path, profile, data, catalogue):
    found = read(path.stem, catalogue, profile=profile, data=data)
    lines = path.read_text().splitlines()
    assert lines[0] == f"# fedbench run suites/papers/lora_fair/{path.name}" and max(map(len, lines)) <= 120
    assert (found.name, found.seeds) == (f"lora_fair_{path.stem}", (0,))
    for cell in found.points():
        config, train = cell.config, cell.config["train"]
        assert (config["adapter"]["rank"], config["adapter"]["alpha"]) == (16, 16)
        assert config["adapter"]["targets"] == "last_fc" and config["capacities"] == {"all": True}
        assert config["data"]["partition"] == {"name": "by_domain", "clients_per_domain": 1}
        if data is None:
            assert (train["rounds"], train["local_epochs"], train["batch_size"]) == (100, 1, 128)
            assert (train["optimizer"]["name"], train["optimizer"]["lr"]) == ("sgd", 0.01)
        else:
            assert (cell.dataset, cell.backbone, train["rounds"]) == ("strokes6", "micro_vit", 12)


@pytest.mark.parametrize("name", OURS)
def test_a_suite_expects_its_numbers_and_has_a_cell_for_every_one(name, catalogue):
    found = read(name, catalogue)
    printed = [row for row in NUMBERS if row["table"] == name]
    assert [row["value_percent"] for row in found.expected] == [float(row["value_percent"]) for row in printed]
    numbers = {(row["dataset"], row["backbone"], row["method"]) for row in printed}
    cells = {(cell.dataset, cell.backbone.partition(".")[0], cell.method) for cell in found.points()}
    assert {cell for cell in cells if cell[2] not in OURS[name]} == numbers
    assert {cell[2] for cell in cells - numbers} == OURS[name] == {found.methods[-1]}


def test_every_number_is_expected_by_one_suite(catalogue):
    found = [row["value_percent"] for path in SUITES for row in read(path.stem, catalogue).expected]
    assert sorted(found) == sorted(float(row["value_percent"]) for row in NUMBERS)


def test_five_methods_and_a_control_on_two_data_sets_and_two_backbones(catalogue):
    found = read("feature_skew", catalogue)
    assert found.methods == (*METHODS, "head_only")
    assert {(cell.dataset, cell.backbone) for cell in found.points()} == {
        (data, backbone) for data in ("domainnet", "nicopp") for backbone in (VIT, MIXER)
    }


def test_what_multiplies_the_product_is_one_in_every_method(catalogue):
    method = {cell.method: cell.config["method"] for cell in read("feature_skew", catalogue).points()}
    assert method["flora"]["scale"] == 1 and {"fedit", "ffa_lora", "flexlora"} <= method.keys()
    assert all("scale" not in options for label, options in method.items() if label != "flora")


def test_the_ablation_varies_lambda_alone(catalogue):
    method = {cell.method: cell.config["method"] for cell in read("lambda", catalogue).points()}
    assert [method[label]["aggregator"].pop("lam") for label in ("lora_fair", "lambda_0")] == [0.01, 0]
    assert method["lora_fair"] == method["lambda_0"] and method["fedit"]["name"] == "fedit"


def test_lambda_is_the_default_of_the_methods_aggregator(catalogue):
    config = read("feature_skew", catalogue).points(methods=["lora_fair"])[0].config["method"]
    bare = read("feature_skew", catalogue, sets=["methods.lora_fair.aggregator=refined_mean"])
    (row,) = bare.added
    assert bare.points(methods=[row])[0].config["method"] == config


def test_the_averages_are_the_means_of_six_domains_but_for_four_that_the_page_tells_of():
    tables = defaultdict(dict)
    for row in NUMBERS:
        if row["table"] == "feature_skew":
            tables[row["dataset"], row["backbone"], row["method"]][row["metric"]] = float(row["value_percent"])
    off = {}
    for key, values in tables.items():
        *domains, average = values.values()
        assert len(domains) == 6 and [*values][-1] == "average"
        if abs(fmean(domains) - average) > 0.0051:
            off[key] = (average, round(fmean(domains), 3))
    vit, mixer = VIT.partition(".")[0], MIXER.partition(".")[0]
    assert len(tables) == 20
    assert off == {
        ("domainnet", vit, "flexlora"): (76.02, 76.03),
        ("nicopp", vit, "flora"): (90.93, 90.923),
        ("nicopp", mixer, "flora"): (82.29, 81.785),
        ("nicopp", mixer, "flexlora"): (83.08, 83.047),
    }
    water = tables["nicopp", mixer, "flora"]["water"]
    page = (PAPERS / "README.md").read_text()
    for number in (water, *(value for pair in off.values() for value in pair)):
        assert str(number) in page, number


def test_the_ablation_repeats_the_average_of_the_main_table():
    printed = {(row["table"], row["method"], row["metric"], row["value_percent"]) for row in NUMBERS}
    assert {(table, "lora_fair", "average", "77.07") for table in ("feature_skew", "lambda")} <= printed


def test_nothing_is_said_of_rounds_which_are_not_known_and_where_numbers_are_from_stands_with_them():
    assert {row["rounds"] for row in NUMBERS} == {""}
    assert {row["table"]: row["source"].rpartition("from ")[2] for row in NUMBERS} == {
        "feature_skew": "a copy of the table",
        "lambda": "a third party's note",
    }


def test_what_is_not_known_stands_in_the_first_lines():
    header = told(PAPERS / "lora_fair/feature_skew.yaml")
    known, _, ours = header.partition("Not known, and ours")
    for part in ("data sets", "feature skew", "lambda 0.01", "learning rate 0.01", "batches of 128", "16"):
        assert part in known, part
    for part in (
        "a client for every domain",
        "100 rounds",
        "1 local epoch",
        "last layer of each sub-layer",
        "the classifier",
        "alpha = rank",
    ):
        assert part in ours, part
    assert "as in feature_skew.yaml" in told(PAPERS / "lora_fair/lambda.yaml")
