"""The study of which pre-training makes layers skippable: its grid, and what it does where no weights have been made."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up import KnownFacts

from fedbench.errors import DataMissing, UserError
from fedbench.registry.registry import Registry
from fedbench.suite import load

SUITE = Path(__file__).parents[2] / "suites/studies/skippable.yaml"


@pytest.fixture(scope="module")
def catalogue():
    return Registry().catalogue


@pytest.mark.parametrize("profile", ["paper", "reference"])
def test_every_recipe_of_the_script_is_run_on_both_backbones_from_three_runs(profile, catalogue):
    found = load(SUITE, catalogue, facts=KnownFacts(), profile=profile)
    assert SUITE.read_text().splitlines()[0] == "# fedbench run suites/studies/skippable.yaml"
    assert (found.name, found.methods, found.seeds) == ("skippable", ("fedra", "inclusivefl", "head_only"), (0, 1, 2))
    backbones = [cell.config["backbone"] for cell in found.points()]
    recipes = {Path(backbone["pretrained"]).name for backbone in backbones}
    script = (SUITE.parents[2] / "tests/plugins/backbones/micro_recipes.py").read_text()
    assert len(recipes) == 8 and all(f'"{recipe}": Recipe(' in script for recipe in recipes)
    each = {(backbone["name"], backbone["pretrained"], backbone["weights_seed"]) for backbone in backbones}
    assert len(each) == 2 * 8 * 3 and len(backbones) == 48 * 2 * 3 * 3
    for cell in found.points():
        assert cell.config["evaluation"]["validation"] == 0.1 and cell.config["train"]["rounds"] == 12
    assert {cell.scenario: sorted(cell.config["capacities"]["by_client"]) for cell in found.points()} == {
        "all_6": [6] * 6,
        "mixed": [4, 4, 6, 6, 10, 10],
    }


class NoWeights(KnownFacts):
    """Facts of a machine where nobody has pre-trained."""

    def num_layers(self, backbone):
        if backbone["pretrained"] is not True:
            raise DataMissing(f"{backbone['name']}: no weights at weights")
        return 12


def test_without_the_weights_it_says_so_once_a_backbone_and_runs_on_the_shipped_ones(catalogue):
    with pytest.raises(UserError) as error:
        load(SUITE, catalogue, facts=NoWeights())
    lines = str(error.value).splitlines()
    assert len(lines) == 4 and [line.strip() for line in lines[1::2]] == ["without them: --data embedded"] * 2
    found = load(SUITE, catalogue, facts=NoWeights(), data="embedded")
    assert len(found.points()) == 18 and {cell.config["backbone"]["weights_seed"] for cell in found.points()} == {0}
