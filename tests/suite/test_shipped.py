"""Every suite in `suites/` loads, and says what its paper says."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedbench.registry.registry import Registry
from fedbench.suite import load

SHIPPED = Path(__file__).parents[2] / "suites"
PERSONALISED = "personalised"  # the second family's: clients of their own, tests in test_papers_fedv.py
WIDTH = "unequal_width"  # whole models again
RANKS = "unequal_ranks"  # all layers for everybody
FIELD = "field"  # every method there is
FASHION = "fashion"  # on data that are not built in
DEVICES = ("devices", "devices_vit_b")  # clients with machines
TEXTS = ("text_quickstart", "text_domains")  # texts in place of images
FRUGAL = "frugal"  # with machines too, tests in test_shipped_devices.py
REAL = "real"  # a backbone and data that are made from packages
GENERATION = ("generation_quickstart", "definitions")  # next tokens, tests in test_generation.py
ELSEWHERE = (PERSONALISED, WIDTH, RANKS, FIELD, FASHION, *DEVICES, FRUGAL, *TEXTS, REAL, *GENERATION)
SUITES = sorted(path for path in SHIPPED.glob("*.yaml") if path.stem not in ELSEWHERE)
FIVE = {"fedra", "inclusivefl", "depthfl", "alllarge", "allsmall"}
CONTROLS = {"head_only", "exclusive", "majority"}


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
@pytest.mark.parametrize("profile", ["paper", "reference"])
def test_a_shipped_suite_loads_and_says_how_it_is_run(path, profile, catalogue, facts):
    suite = load(path, catalogue, facts=facts, profile=profile)
    assert suite.name == path.stem
    assert path.read_text().splitlines()[0] == f"# fedbench run suites/{path.name}"
    assert set(suite.methods) >= FIVE | CONTROLS
    assert suite.points()
    for cell in suite.points():
        assert cell.config["data"]["normalize"] == "backbone"


def suite(name, catalogue, facts):
    return load(next(path for path in SUITES if path.stem == name), catalogue, facts=facts)


def test_quickstart_is_one_scenario(catalogue, facts):
    cells = suite("quickstart", catalogue, facts).points()
    assert len(cells) == 8
    assert {str(cell.config["capacities"]) for cell in cells} == {"{'by_client': [12, 10, 8, 6, 4, 3]}"}


def test_extreme_hetero_has_tables_3_to_5(catalogue, facts):
    found = suite("extreme_hetero", catalogue, facts)
    capacities = {cell.scenario: cell.config["capacities"] for cell in found.points()}
    assert capacities == {
        "all_4": {"by_client": [4] * 6},
        "all_6": {"by_client": [6] * 6},
        "mixed": {"by_client": [10, 10, 6, 6, 4, 4]},
        "all_10": {"by_client": [10] * 6},
        "dynamic": {"uniform": [1, 12]},
    }
    cover = found.points(methods=["fedra_cover"])[0].config["method"]
    assert (cover["name"], cover["missing_layers"]) == ("fedra", "cover")
    assert {cell.config["train"]["rounds"] for cell in found.points()} == {12}


def test_feature_skew_takes_both_backbones(catalogue, facts):
    assert {cell.backbone for cell in suite("feature_skew", catalogue, facts).points()} == {"micro_vit", "micro_mixer"}


def test_feature_label_skew_samples_one_of_five_clients_of_each_domain(catalogue, facts):
    found = suite("feature_label_skew", catalogue, facts).points()[0].config
    assert found["data"]["partition"] == {"name": "dirichlet", "alpha": 0.5, "clients_per_domain": 5}
    assert found["participation"] == {"per_domain": 1}


def test_field_has_every_registered_method_each_limited_in_its_own_unit():
    catalogue = Registry().catalogue
    found = load(SHIPPED / "field.yaml", catalogue)
    cells = found.points(seeds=[0])
    assert {cell.config["method"]["name"] for cell in cells} == catalogue.components["method"].keys()
    assert len({cell.seed for cell in found.points()}) == 3
    config = cells[0].config
    assert config["capacities"] == {"by_client": [12, 10, 8, 6, 4, 3]}  # the quickstart's
    assert config["ranks"] == {"by_client": [8, 7, 5, 4, 3, 2]} and config["data"]["proxy"] == {"images": 60}
    assert config["widths"] == {"by_client": [1, 0.75, 0.5, 0.5, 0.25, 0.25]}


def test_unequal_width_has_a_ceiling_a_floor_and_full_models_alone_beside_its_methods():
    found = load(SHIPPED / "unequal_width.yaml", Registry().catalogue)
    method = {label: found.points(methods=[label])[0].config["method"] for label in found.methods}
    assert {method[label]["name"] for label in method} == {"heterofl", "fedrolex", "fjord", "fedavg", "majority"}
    assert method["fedavg_quarter"] == {**method["fedavg"], "width": 0.25}
    assert method["full_width_only"] == {**method["heterofl"], "rates": [1]}
    assert method["fjord_distilled"] == {**method["fjord"], "distill": True}
    for seed, cell in ((0, found.points()[0]), (2, found.points(seeds=[2])[0])):
        widths = [1, 1, 0.5, 0.5, 0.25, 0.25]
        assert cell.config["widths"] == {"by_domain": widths[seed:] + widths[:seed]}
    assert {cell.backbone for cell in found.points()} == {"micro_cnn", "micro_vit"}


def test_unequal_ranks_has_a_ceiling_a_floor_and_a_linear_probe_beside_its_methods():
    found = load(SHIPPED / "unequal_ranks.yaml", Registry().catalogue)
    methods = {label: found.points(methods=[label])[0].config["method"] for label in found.methods}
    assert set(methods) >= {"fedit", "hetlora", "flexlora", "flora", "raflora", "fed_plora", "alllarge", "head_only"}
    assert methods["all_smallest"] == {**methods["fedit"], "smallest": True}
    ranks = {cell.scenario: cell.config["ranks"] for cell in found.points()}
    assert ranks == {
        "mixed": {"by_client": [8, 8, 4, 4, 2, 2]},
        "extreme": {"by_client": [8, 1, 1, 1, 1, 1]},
        "uniform": {"uniform": [1, 8]},
    }
    turned = found.points(scenarios=["mixed"], seeds=[1])[0].config
    assert turned["ranks"] == {"by_client": [8, 4, 4, 2, 2, 8]}
    assert turned["adapter"]["rank"] == 8 and turned["capacities"] == {"all": True}
