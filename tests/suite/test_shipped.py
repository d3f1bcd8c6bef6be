"""Every suite in `suites/` loads, and says what its paper says."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedbench.suite import load

SHIPPED = Path(__file__).parents[2] / "suites"
PERSONALISED = "personalised"  # the second family's: clients of their own, tests in test_papers_fedv.py
WIDTH = "unequal_width"  # whole models again
RANKS = "unequal_ranks"  # all layers for everybody
FIELD = "field"  # every method there is
FASHION = "fashion"  # on data that are not built in
DEVICES = ("devices", "devices_vit_b")  # clients with machines
TEXTS = ("text_quickstart", "text_domains")  # texts in place of images
REAL = "real"  # a backbone and data that are made from packages
GENERATION = ("generation_quickstart", "definitions")  # next tokens, tests in test_generation.py
ELSEWHERE = (PERSONALISED, WIDTH, RANKS, FIELD, FASHION, *DEVICES, *TEXTS, REAL, *GENERATION)
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
