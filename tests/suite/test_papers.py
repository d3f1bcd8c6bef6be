"""The papers' numbers as they are printed, and the suites of the FedRA paper, which say what its tables say."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean

import pytest

from fedbench.errors import DataMissing, UserError
from fedbench.suite import Suite, load

PAPERS = Path(__file__).parents[2] / "suites/papers"
SUITES = sorted(PAPERS.glob("fedra/*.yaml"))
with open(PAPERS / "paper_tables.csv", newline="") as file:
    NUMBERS = list(csv.DictReader(file))

DOMAINS = {
    "domainnet": ["clipart", "infograph", "painting", "quickdraw", "real", "sketch"],
    "nicopp": ["autumn", "dim", "grass", "outdoor", "rock", "water"],
}
VIT, MIXER, DEIT = "vit_base_patch16_224", "mixer_b16_224", "deit_{}_patch16_224"
RESNET, CLIENTS = "resnet50_gn", "mean_client_accuracy"

# Typed from the papers' pages, LoRA-FAIR's from a copy and a note: paper, table, scenario, variant, data set, backbone, method, metric, percent, spread.
READ_BY_HAND = [
    ("FedRA", "1", "feature_skew", "", "domainnet", VIT, "allsmall", "quickdraw", "18.01", ""),
    ("FedRA", "1", "feature_skew", "", "domainnet", VIT, "alllarge", "infograph", "54.73", ""),
    ("FedRA", "1", "feature_skew", "", "domainnet", VIT, "fedra", "infograph", "55.72", ""),
    ("FedRA", "1", "feature_skew", "", "domainnet", MIXER, "depthfl", "average", "45.53", ""),
    ("FedRA", "1", "feature_skew", "", "nicopp", VIT, "inclusivefl", "water", "69.23", ""),
    ("FedRA", "1", "feature_skew", "", "nicopp", MIXER, "fedra", "rock", "75.51", ""),
    ("FedRA", "2", "feature_label_skew", "", "domainnet", VIT, "inclusivefl", "real", "78.30", ""),
    ("FedRA", "2", "feature_label_skew", "", "domainnet", MIXER, "allsmall", "quickdraw", "1.09", ""),
    ("FedRA", "2", "feature_label_skew", "", "nicopp", VIT, "allsmall", "grass", "34.185", ""),
    ("FedRA", "2", "feature_label_skew", "", "nicopp", VIT, "fedra", "average", "85.44", ""),
    ("FedRA", "2", "feature_label_skew", "", "nicopp", MIXER, "depthfl", "outdoor", "67.65", ""),
    ("FedRA", "3", "all_4", "", "nicopp", VIT, "inclusivefl", "grass", "11.48", ""),
    ("FedRA", "3", "all_6", "", "nicopp", VIT, "fedra", "average", "70.38", ""),
    ("FedRA", "3", "all_10", "", "nicopp", MIXER, "inclusivefl", "dim", "71.22", ""),
    ("FedRA", "3", "mixed", "", "nicopp", MIXER, "fedra", "autumn", "85.16", ""),
    ("FedRA", "4", "dynamic", "", "nicopp", VIT, "inclusivefl", "grass", "92.25", ""),
    ("FedRA", "4", "dynamic", "", "nicopp", VIT, "fedra", "rock", "91.28", ""),
    ("FedRA", "5", "all_4", "", "nicopp", VIT, "fedra_cover", "rock", "12.92", ""),
    ("FedRA", "5", "mixed", "", "nicopp", VIT, "fedra_cover", "water", "73.91", ""),
    ("FedRA", "5", "all_10", "", "nicopp", VIT, "fedra", "average", "90.53", ""),
    ("FedRA", "6", "feature_skew", "adapter.targets=attn.proj", "nicopp", VIT, "inclusivefl", "outdoor", "79.03", ""),
    ("FedRA", "6", "feature_skew", "adapter.targets=mlp.fc2", "nicopp", VIT, "fedra", "water", "77.19", ""),
    ("FedRA", "6", "feature_skew", "adapter.targets=attn.proj+mlp.fc2", "nicopp", VIT, "fedra", "dim", "88.19", ""),
    ("FedV", "2", "pathological5", "", "cifar10", RESNET, "fedavg/local", CLIENTS, "83.18", "0.27"),
    ("FedV", "2", "dirichlet0.3", "", "cifar100", DEIT.format("small"), "festa", CLIENTS, "78.40", "0.31"),
    ("FedV", "2", "pathological5", "", "cifar100", DEIT.format("small"), "fedvz", CLIENTS, "96.77", "0.30"),
    ("FedV", "3", "dirichlet0.3", "", "cifar10", "vit_tiny_patch16_224", "fedv", CLIENTS, "74.82", "0.21"),
    ("FedV", "3", "pathological2", "", "cifar10", DEIT.format("base_distilled"), "fedvz", CLIENTS, "99.23", "0.22"),
    ("FedV", "3", "dirichlet0.1", "", "cifar10", DEIT.format("tiny"), "fedvz", CLIENTS, "79.32", "0.24"),
    ("FedV", "5", "dirichlet0.3", "", "tiny_imagenet", RESNET, "fed-rod", CLIENTS, "21.25", "0.45"),
    ("FedV", "5", "pathological10", "", "tiny_imagenet", DEIT.format("small"), "fedv", CLIENTS, "95.70", "0.50"),
    ("LoRA-FAIR", "feature_skew", "feature_skew", "", "domainnet", VIT, "lora_fair", "average", "77.07", ""),
    ("LoRA-FAIR", "feature_skew", "feature_skew", "", "domainnet", MIXER, "ffa_lora", "quickdraw", "38.66", ""),
    ("LoRA-FAIR", "feature_skew", "feature_skew", "", "nicopp", VIT, "flexlora", "outdoor", "90.41", ""),
    ("LoRA-FAIR", "feature_skew", "feature_skew", "", "nicopp", MIXER, "flora", "water", "75.52", ""),
    ("LoRA-FAIR", "lambda", "feature_skew", "", "domainnet", VIT, "lambda_0", "average", "73.22", ""),
]
COLUMNS = ("paper", "table", "scenario", "variant", "dataset", "backbone", "method", "metric", "value_percent", "std")
KEY = COLUMNS[:-2]


@pytest.mark.parametrize("cell", READ_BY_HAND, ids=lambda cell: "-".join(cell[:8]))
def test_a_number_read_on_the_page_stands_in_the_file(cell):
    assert [row for row in NUMBERS if tuple(row[name] for name in COLUMNS) == cell]


def test_every_cell_of_every_table_is_there_once():
    assert Counter((row["paper"], row["table"]) for row in NUMBERS) == {
        **{("FedRA", table): count for table, count in zip("123456", (140, 140, 112, 28, 56, 42), strict=True)},
        ("FedV", "2"): 48,
        ("FedV", "3"): 64,
        ("FedV", "5"): 24,
        ("LoRA-FAIR", "feature_skew"): 140,
        ("LoRA-FAIR", "lambda"): 2,
        ("FedSA-LoRA", "gsm8k"): 3,
    }
    assert len(NUMBERS) == 799 == len({tuple(row[name] for name in KEY) for row in NUMBERS})


def test_the_printed_averages_of_fedra_are_the_means_of_six_domains():
    tables = defaultdict(dict)
    for row in NUMBERS:
        if row["paper"] == "FedRA":
            tables[tuple(row[name] for name in KEY[:-1])][row["metric"]] = float(row["value_percent"])
    assert len(tables) == 518 / 7
    for key, values in tables.items():
        assert [*values] == [*DOMAINS[key[4]], "average"]
        assert fmean(list(values.values())[:-1]) == pytest.approx(values["average"], abs=0.02), key


def test_the_oddities_that_the_page_on_the_numbers_tells_of():
    def cell(*wanted):
        return next(row["value_percent"] for row in NUMBERS if all(part in row.values() for part in wanted))

    assert cell("1", "domainnet", VIT, "fedra", "infograph") > cell("1", "domainnet", VIT, "alllarge", "infograph")
    columns = defaultdict(list)
    for row in NUMBERS:
        if (row["paper"], row["table"]) == ("FedV", "3"):
            columns[row["backbone"]].append((row["scenario"], row["method"], row["value_percent"], row["std"]))
    assert len(columns[DEIT.format("small")]) == 8
    assert sorted(columns[DEIT.format("small")]) == sorted(columns[DEIT.format("base")])
    for method in ("alllarge", "allsmall"):
        for metric in DOMAINS["nicopp"]:
            assert cell("FedRA", "4", method, metric) == cell("FedRA", "1", "nicopp", VIT, method, metric)


@pytest.fixture
def suite(papers_catalogue, facts):
    def read(name: str, **options) -> Suite:
        return load(next(path for path in SUITES if path.stem == name), papers_catalogue, facts=facts, **options)

    return read


def say(found: Suite, what) -> dict:
    """A setting of every scenario."""
    return {cell.scenario: what(cell.config) for cell in found.points()}


def test_data_that_are_not_there_are_told_with_the_overlays_in_their_place(suite, facts, monkeypatch):
    def absent(data):
        raise DataMissing(f"{data['name']} is not there")

    monkeypatch.setattr(facts, "domains", absent)
    told = r"table4.yaml:\d+:\d+: nicopp is not there\n  without them: --data embedded$"
    with pytest.raises(UserError, match=told):
        suite("table4")
    with pytest.raises(UserError, match="strokes6 is not there$"):
        suite("table4", data="embedded")


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
@pytest.mark.parametrize("data", [None, "embedded"])
@pytest.mark.parametrize("profile", ["paper", "reference"])
def test_a_suite_loads_on_its_own_data_and_on_the_embedded_ones(path, data, profile, papers_catalogue, facts):
    found = load(path, papers_catalogue, facts=facts, profile=profile, data=data)
    assert path.read_text().splitlines()[0] == f"# fedbench run suites/papers/{path.relative_to(PAPERS)}"
    assert found.name == f"{path.parent.name}_{path.stem}"
    assert max(map(len, path.read_text().splitlines())) <= 120
    configs = [cell.config for cell in found.points()]
    assert configs
    for config in configs:
        train = config["train"]
        if data is None:
            assert config["data"]["name"] in DOMAINS and config["backbone"]["name"].partition(".")[0] in (VIT, MIXER)
            assert (train["rounds"], train["local_epochs"], train["batch_size"]) == (100, 1, 128)
            assert (train["optimizer"]["name"], train["optimizer"]["lr"]) == ("sgd", 0.01)
            assert config["data"]["normalize"] == {"paper": "backbone", "reference": "clip"}[profile]
        else:
            assert (config["data"]["name"], config["backbone"]["name"]) == ("strokes6", "micro_vit")
            assert (train["rounds"], config["adapter"]["dropout"]) == (12, 0.0)


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_weights_of_timm_are_named_by_their_tag(path, papers_catalogue, facts):
    names = {cell.backbone for cell in load(path, papers_catalogue, facts=facts).points()}
    assert names <= {f"{VIT}.augreg2_in21k_ft_in1k", f"{MIXER}.goog_in21k_ft_in1k"}


@pytest.mark.parametrize("table", "123456")
@pytest.mark.parametrize("data", [None, "embedded"])
def test_a_suite_expects_its_table_and_has_a_cell_for_every_number(suite, table, data):
    found = suite(f"table{table}", data=data)
    printed = [row for row in NUMBERS if (row["paper"], row["table"]) == ("FedRA", table)]
    assert [row["value_percent"] for row in found.expected] == [float(row["value_percent"]) for row in printed]
    own = suite(f"table{table}")
    for row in own.expected:
        cells = [
            cell
            for cell in own.points(methods=[row["method"]])
            if (cell.scenario, cell.dataset) == (row["scenario"], row["dataset"])
            and cell.backbone.partition(".")[0] == row["backbone"]
            and set(filter(None, [row["variant"]])) <= set(cell.variant.split("; "))
        ]
        assert len(cells) == 1, row
    numbers = {(row["scenario"], row["dataset"], row["backbone"], row["method"]) for row in own.expected}
    cells = {(c.scenario, c.dataset, c.backbone.partition(".")[0], c.method) for c in own.points()}
    assert {cell for cell in cells if cell[3] not in ("head_only", "exclusive")} == numbers


@pytest.mark.parametrize("table", "1236")
def test_our_controls_stand_last(suite, table):
    assert suite(f"table{table}").methods[-2:] == ("head_only", "exclusive")


def test_tables_1_2_and_6_have_six_depths_by_domain(suite):
    for name in ("table1", "table2", "table6", "dirichlet", "lora_scale"):
        assert set(map(str, say(suite(name), lambda c: c["capacities"]).values())) == {
            "{'by_domain': [12, 10, 8, 6, 4, 3]}"
        }


def test_tables_3_and_5_have_depths_below_the_servers(suite):
    for name in ("table3", "table5"):
        assert say(suite(name), lambda config: config["capacities"]["by_domain"]) == {
            **{f"all_{depth}": [depth] * 6 for depth in (4, 6, 10)},
            "mixed": [10, 10, 6, 6, 4, 4],
        }


def test_table_2_deals_each_domain_to_five_clients_of_whom_one_takes_part(suite):
    config = suite("table2").points()[0].config
    partition = config["data"]["partition"]
    assert (partition["name"], partition["alpha"], partition["clients_per_domain"]) == ("dirichlet", 0.5, 5)
    assert config["participation"] == {"per_domain": 1}


def test_table_4_draws_depths_anew_and_its_small_model_has_depth_3(suite):
    found = suite("table4")
    assert say(found, lambda config: config["capacities"]) == {"dynamic": {"uniform": [1, 12]}}
    assert found.points(methods=["allsmall"])[0].config["method"]["depth"] == 3


def test_table_5_keeps_or_covers(suite):
    ways = {cell.method: cell.config["method"] for cell in suite("table5").points()}
    assert {label: (method["name"], method["missing_layers"]) for label, method in ways.items()} == {
        "fedra": ("fedra", "keep"),
        "fedra_cover": ("fedra", "cover"),
    }


@pytest.mark.parametrize("data", [None, "embedded"])
def test_table_6_puts_lora_in_three_places_also_on_the_embedded_data(suite, data):
    targets = [cell.config["adapter"]["targets"] for cell in suite("table6", data=data).points(methods=["fedra"])]
    assert targets == [["attn.proj", "mlp.fc2"], ["attn.proj"], ["mlp.fc2"]]


def test_figure_4_is_one_client_with_all_images(suite):
    found = suite("figure4", data="embedded")
    assert say(found, lambda config: config["capacities"]) == {f"k_{k}": {"by_client": [k]} for k in (3, 6, 9, 12)}
    assert {str(cell.config["data"]["partition"]) for cell in found.points()} == {"{'name': 'iid', 'clients': 1}"}
    assert found.methods == ("fedra",)


def test_sweeps_outlast_the_move_to_the_embedded_data(suite):
    found = suite("lora_scale", data="embedded").points(methods=["fedra"])
    assert {(c.config["adapter"]["rank"], c.config["adapter"]["alpha"]) for c in found} == {
        (rank, alpha) for rank in (4, 8, 16) for alpha in (4, 8, 16)
    }
    found = suite("dirichlet", data="embedded").points(methods=["fedra"])
    assert [cell.config["data"]["partition"]["alpha"] for cell in found] == [0.1, 0.5, 5.0, 100.0]


def test_feddyn_stands_beside_plain_averaging(suite):
    for data in (None, "embedded"):
        found = suite("feddyn", data=data).points(methods=["fedra"])
        regularizers = [cell.config["train"].get("regularizer") for cell in found]
        assert regularizers == [None, {"feddyn": 0.01}, {"feddyn": 0.1}]
