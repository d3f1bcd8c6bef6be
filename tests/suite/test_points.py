"""fedbench/suite/points.py: a suite's points, by sweep, seed and pattern, and many of them fast."""

from __future__ import annotations

import subprocess
import sys

import pytest
from made_up import SMALL, config

from fedbench.errors import UserError


def test_a_sweep_is_a_cross_product_and_names_its_points(suite_of):
    sweep = "sweep:\n  backbone: [micro_vit, {name: micro_mixer, pretrained: false}]\n  adapter.targets: [last_fc, [attn.proj, mlp.fc2]]\n"
    suite = suite_of(SMALL + sweep)
    assert [cell.variant for cell in suite.points()] == [
        "backbone=micro_vit; adapter.targets=last_fc",
        "backbone=micro_vit; adapter.targets=attn.proj+mlp.fc2",
        "backbone=micro_mixer(pretrained=false); adapter.targets=last_fc",
        "backbone=micro_mixer(pretrained=false); adapter.targets=attn.proj+mlp.fc2",
    ]
    last = suite.points()[-1].config
    assert last["backbone"] == {"name": "micro_mixer", "pretrained": False}
    assert last["adapter"]["targets"] == ["attn.proj", "mlp.fc2"]


def test_sweeping_whole_components_mixes_options_of_the_same_and_drops_those_of_another(suite_of):
    text = SMALL.replace("  data: s", "  adapter: {rank: 4}\n  data: s")
    cells = suite_of(text + "sweep: {adapter: [{alpha: 16}, {name: lora, rank: 2}, houlsby]}\n").points()
    assert [cell.config["adapter"].get("rank") for cell in cells] == [4, 2, None]


def test_what_the_command_line_replaces_is_not_swept(suite_of):
    text = SMALL + "sweep: {backbone: [micro_vit, micro_mixer], train.rounds: [1, 2]}\n"
    assert [cell.variant for cell in suite_of(text, sets=["backbone=micro_mixer"]).points()] == [
        "train.rounds=1; backbone=micro_mixer",
        "train.rounds=2; backbone=micro_mixer",
    ]
    assert [cell.variant for cell in suite_of(text, data="embedded").points()] == ["data=embedded"]
    assert len(suite_of(text, sets=["backbone.pretrained=false"]).points()) == 4


def test_patterns_choose_points_of_a_sweep(suite_of):
    suite = suite_of(SMALL + "sweep: {backbone: [micro_vit, micro_mixer], train.rounds: [1, 2]}\n")

    def chosen(*patterns):
        return [cell.variant for cell in suite.points(variants=patterns)]

    assert chosen("*rounds=2") == ["backbone=micro_vit; train.rounds=2", "backbone=micro_mixer; train.rounds=2"]
    assert len(chosen("*vit*", "*rounds=2")) == 3
    with pytest.raises(UserError, match=r"no variant of this suite is called 'rounds=2'; .*train.rounds=2"):
        chosen("rounds=2")
    with pytest.raises(UserError, match=r"nothing is swept in this suite, so that none .* variant '\*rank=4\*'"):
        suite_of(SMALL).points(variants=["*rank=4*"])


def test_seeds_multiply_and_can_be_replaced(suite_of):
    suite = suite_of(SMALL + "seeds: [0, 4]\n")
    assert [cell.config["seed"] for cell in suite.points()] == [0, 4]
    assert [cell.seed for cell in suite.points(seeds=(7, 7, 8))] == [7, 8]


@pytest.mark.parametrize("way", ["by_client", "by_domain"])
def test_rotation_gives_everyone_the_depth_of_a_neighbour(suite_of, way):
    text = SMALL.replace("[12, 10, 8, 6, 4, 3]", f"{{{way}: [12, 10, 8, 6, 4, 3]}}\n  rotate_capacities: true")
    found = [cell.config["capacities"] for cell in suite_of(text).points(seeds=[0, 1, 5, 7])]
    assert found == [
        {way: [12, 10, 8, 6, 4, 3]},
        {way: [10, 8, 6, 4, 3, 12]},
        {way: [3, 12, 10, 8, 6, 4]},
        {way: [10, 8, 6, 4, 3, 12]},
    ]


def test_drawn_capacities_have_nothing_to_rotate(suite_of):
    text = SMALL.replace("[12, 10, 8, 6, 4, 3]", "{uniform: [1, 12]}\n  rotate_capacities: true")
    assert config(suite_of(text), seeds=[3])["capacities"] == {"uniform": [1, 12]}


def test_ranks_rotate_as_capacities_do_and_stand_beside_them(suite_of):
    text = SMALL.replace("[12, 10, 8, 6, 4, 3]", "all\n  ranks: [8, 7, 6, 5, 4, 3]\n  rotate_capacities: true")
    (found,) = suite_of(text).points(seeds=[2])
    assert found.config["ranks"] == {"by_client": [6, 5, 4, 3, 8, 7]}
    assert found.config["capacities"] == {"all": True}


def test_cells_share_nothing_that_one_could_spoil_for_another(suite_of):
    suite = suite_of(SMALL)
    config(suite)["train"]["rounds"] = 999
    assert config(suite)["train"]["rounds"] == 100


def test_scenarios_are_chosen_by_pattern(suite_of):
    suite = suite_of(SMALL.replace("skew: {}", "all_4: {}\n  all_6: {}\n  mixed: {}"))
    assert [cell.scenario for cell in suite.points(scenarios=["all_*"])] == ["all_4", "all_6"]
    assert [cell.scenario for cell in suite.points(scenarios=["mixed", "all_4"])] == ["all_4", "mixed"]


SIXTY = SMALL.replace("skew: {}", "a: {}\n  b: {}\n  c: {}\n  d: {}").replace(
    "[fedra]", "[fedra, depthfl, alllarge, allsmall, exclusive]"
)


def test_a_suite_is_loaded_without_torch(tmp_path):
    (tmp_path / "s.yaml").write_text(SIXTY)
    code = (
        "import sys\n"
        "from fedbench.suite import load\nfrom fedbench.registry.catalogue import Catalogue, Component\n"
        "c = Catalogue()\n"
        "for kind, names in {'backbone': 'micro_vit', 'adapter': 'lora', 'dataset': 'strokes6', 'partition': 'by_domain',"
        " 'metric': 'accuracy', 'method': 'fedra depthfl alllarge allsmall exclusive'}.items():\n"
        "    c.add([Component(name, kind, 'p', 'q', '', {}, open=True) for name in names.split()])\n"
        f"assert len(load({str(tmp_path / 's.yaml')!r}, c).points()) == 20\n"
        "assert not {'torch', 'numpy', 'pandas', 'timm'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_option_that_is_the_seed_is_each_cells_own(suite_of):
    suite = suite_of(SMALL.replace("data: strokes6", "data: {name: strokes6, draw: seed}"))
    assert [cell.config["data"]["draw"] for cell in suite.points(seeds=[0, 4])] == [0, 4]
    written = suite_of(SMALL.replace("data: strokes6", "data: {name: strokes6, draw: 4}"))
    assert suite.points(seeds=[4])[0].config == written.points(seeds=[4])[0].config
    swept = suite_of(SMALL + "sweep: {data.draw: [0, seed]}\n")
    assert swept.variants == ("data.draw=0", "data.draw=seed")


def test_only_whole_numbers_of_data_and_backbone_may_be_the_seed(faults_of):
    wrong = SMALL.replace("data: strokes6", "data: strokes6\n  adapter: {name: lora, rank: seed}")
    assert faults_of(wrong) == ['s.yaml:5:31: lora rank: expected a whole number, got "seed"']
    pretrained = SMALL.replace("micro_vit", "{name: micro_vit, pretrained: seed}")
    assert not faults_of(pretrained)  # a file may be called so
