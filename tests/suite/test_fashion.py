"""The shipped suite on photographs of clothes: all 10,000 test images, and a plan where the photographs are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up import KnownFacts

from fedbench.errors import DataMissing, UserError
from fedbench.registry.registry import Registry
from fedbench.suite import load

SUITES = Path(__file__).parents[2] / "suites"


@pytest.mark.parametrize("profile", ["paper", "reference"])
def test_it_has_two_scenarios_on_all_test_images_and_the_methods_of_feature_skew(profile):
    catalogue = Registry().catalogue
    found = load(SUITES / "fashion.yaml", catalogue, profile=profile)
    assert (SUITES / "fashion.yaml").read_text().startswith("# fedbench run suites/fashion.yaml\n")
    assert (found.name, found.seeds) == ("fashion", (0, 1, 2))
    skew = load(SUITES / "feature_skew.yaml", catalogue, profile=profile)
    assert found.methods == skew.methods
    theirs = skew.points()[0].config
    for cell in found.points():
        data, train = cell.config["data"], cell.config["train"]
        assert (cell.dataset, data["test_per_class"], data["normalize"]) == ("fashion_mnist", None, "backbone")
        assert cell.config["capacities"] == {"by_client": theirs["capacities"]["by_domain"]}
        assert cell.config["evaluation"]["every"] == train["rounds"]  # at the end alone
        assert train["optimizer"] == theirs["train"]["optimizer"]
        assert data["styles"] == (cell.scenario == "styles") and data["partition"]["clients_per_domain"] in (1, 6)
        assert data["partition"]["name"] == {"styles": "by_domain", "labels": "dirichlet"}[cell.scenario]
    assert {cell.backbone for cell in found.points()} == {"micro_vit", "micro_mixer"}
    assert len(found.points()) == 96


class NotHere(KnownFacts):
    """Facts of a machine without the photographs."""

    def domains(self, data):
        if data["name"] == "fashion_mnist":
            raise DataMissing("fashion_mnist: 4 of 4 parts missing")
        return super().domains(data)


def test_without_the_photographs_it_says_how_it_runs_all_the_same():
    catalogue = Registry().catalogue
    with pytest.raises(UserError, match="4 of 4 parts missing(.|\n)*without them: --data embedded"):
        load(SUITES / "fashion.yaml", catalogue, facts=NotHere()).points()
    found = load(SUITES / "fashion.yaml", catalogue, facts=NotHere(), data="embedded")
    assert {cell.dataset for cell in found.points()} == {"strokes6"} and len(found.points()) == 96
