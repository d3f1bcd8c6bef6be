"""From layers to cells: precedence, sweeps, overlays, profiles, methods, seeds."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from made_up import SMALL, built_catalogue

from fedbench.profiles import OVERLAYS, PROFILES
from fedbench.suite import load


def config(suite, **choice):
    return suite.cells(**choice)[0].config


def test_the_resolved_configuration_is_complete_and_plain(suite_of):
    assert config(suite_of(SMALL)) == json.loads(
        """{
        "backbone": {"name": "micro_vit", "pretrained": true},
        "adapter": {"name": "lora", "rank": 8, "alpha": 8, "dropout": 0.1, "targets": "last_fc"},
        "data": {"name": "strokes6", "image_size": null, "normalize": "backbone", "classes": 30, "train_per_class": 40,
                 "test_per_class": 10, "draw": 0, "partition": {"name": "by_domain", "clients_per_domain": 1}},
        "capacities": {"by_client": [12, 10, 8, 6, 4, 3]},
        "participation": {"all": true},
        "train": {"rounds": 100, "local_epochs": 1, "max_steps": null, "batch_size": 128,
                  "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-5}, "clip": 10.0},
        "method": {"name": "fedra", "missing_layers": "keep", "allocation": {"name": "random"},
                   "aggregator": {"name": "weighted_mean", "weights": "examples"}},
        "evaluation": {"every": null, "batch_size": 500, "metrics": [{"name": "accuracy"}]},
        "seed": 0, "profile": "paper", "precision": "fp32", "engine": "cohort"}"""
    )


def test_names_are_not_in_the_configuration_and_equal_cells_look_equal(suite_of):
    text = SMALL.replace(
        "skew: {}", "a: {train: {optimizer: {lr: 1}, clip: 5}}\n  b: {train: {optimizer: {lr: 1.0}, clip: 5.0}}"
    )
    text = text.replace("[fedra]", "[fedra, {name: other, extends: fedra, missing_layers: keep}]")
    cells = suite_of(text).cells()
    assert [(cell.scenario, cell.method) for cell in cells] == [
        ("a", "fedra"),
        ("a", "other"),
        ("b", "fedra"),
        ("b", "other"),
    ]
    assert len({json.dumps(cell.config, sort_keys=True) for cell in cells}) == 1
    assert (cells[0].backbone, cells[0].dataset) == ("micro_vit", "strokes6")


LAYERED = """\
suite: layered
profile: reference
defaults:
  backbone: micro_vit
  data: strokes6
  capacities: {uniform: [1, 2]}
  train: {rounds: 20}
scenarios:
  plain: {}
  own: {train: {rounds: 30}}
methods: [fedra]
overlays:
  far: {train: {rounds: 50}}
"""
SWEPT = LAYERED + "sweep: {train.rounds: [40]}\n"


def test_each_layer_wins_over_the_one_below(suite_of):
    def rounds(text=LAYERED, scenario="own", **options):
        return config(suite_of(text, **options), scenarios=[scenario])["train"]["rounds"]

    assert rounds(LAYERED.replace("  train: {rounds: 20}\n", ""), "plain") == 100  # the profile's
    assert rounds(scenario="plain") == 20
    assert rounds() == 30
    assert rounds(SWEPT) == 40
    assert rounds(SWEPT, data="far") == 50
    assert rounds(SWEPT, data="far", sets=["train.rounds=60"]) == 60
    assert rounds(sets=["train.rounds=1", "train.rounds=2"]) == 2


def test_a_profile_sets_settings_components_and_methods_unless_the_suite_does(suite_of):
    text = SMALL.replace(
        "[fedra]", "[fedra, inclusivefl, {name: own, extends: fedra, aggregator: {weights: examples}}]"
    )
    paper, reference = suite_of(text), suite_of(text, profile="reference")
    assert config(paper)["train"]["max_steps"] is None
    assert config(reference)["train"]["max_steps"] == "smallest"
    assert (config(paper)["adapter"]["targets"], config(reference)["adapter"]["targets"]) == ("last_fc", "reference")
    assert (config(paper)["data"]["normalize"], config(reference)["data"]["normalize"]) == ("backbone", "clip")
    assert config(reference, methods=["fedra"])["method"]["aggregator"] == {
        "name": "weighted_mean",
        "weights": "uniform",
    }
    assert config(reference, methods=["own"])["method"]["aggregator"]["weights"] == "examples"
    assert config(reference, methods=["inclusivefl"])["method"]["beta"] == 0.0
    assert reference.cells()[0].variant == "profile=reference"
    assert config(reference)["profile"] == "reference"


def test_a_suite_may_choose_the_profile_and_the_command_line_another(suite_of):
    text = "profile: reference\n" + SMALL
    assert suite_of(text).profile == "reference"
    assert suite_of(text).cells()[0].variant == ""
    assert suite_of(text, profile="paper").cells()[0].variant == "profile=paper"
    assert suite_of(text, profile="reference").cells()[0].variant == ""


def test_a_component_of_another_name_starts_afresh(suite_of):
    text = SMALL.replace("  data: s", "  adapter: {rank: 4}\n  data: s").replace(
        "skew: {}", "a: {}\n  b: {adapter: houlsby}"
    )
    suite = suite_of(text)
    assert config(suite, scenarios=["a"])["adapter"]["rank"] == 4
    assert config(suite, scenarios=["b"])["adapter"] == {"name": "houlsby", "width": 16, "scale": 1.0}


def test_a_sweep_is_a_cross_product_and_names_its_points(suite_of):
    sweep = "sweep:\n  backbone: [micro_vit, {name: micro_mixer, pretrained: false}]\n  adapter.targets: [last_fc, [attn.proj, mlp.fc2]]\n"
    suite = suite_of(SMALL + sweep)
    assert [cell.variant for cell in suite.cells()] == [
        "backbone=micro_vit; adapter.targets=last_fc",
        "backbone=micro_vit; adapter.targets=attn.proj+mlp.fc2",
        "backbone=micro_mixer(pretrained=false); adapter.targets=last_fc",
        "backbone=micro_mixer(pretrained=false); adapter.targets=attn.proj+mlp.fc2",
    ]
    last = suite.cells()[-1].config
    assert last["backbone"] == {"name": "micro_mixer", "pretrained": False}
    assert last["adapter"]["targets"] == ["attn.proj", "mlp.fc2"]


def test_sweeping_whole_components_mixes_options_of_the_same_and_drops_those_of_another(suite_of):
    text = SMALL.replace("  data: s", "  adapter: {rank: 4}\n  data: s")
    cells = suite_of(text + "sweep: {adapter: [{alpha: 16}, {name: lora, rank: 2}, houlsby]}\n").cells()
    assert [cell.config["adapter"].get("rank") for cell in cells] == [4, 2, None]


def test_what_the_command_line_replaces_is_not_swept(suite_of):
    text = SMALL + "sweep: {backbone: [micro_vit, micro_mixer], train.rounds: [1, 2]}\n"
    assert [cell.variant for cell in suite_of(text, sets=["backbone=micro_mixer"]).cells()] == [
        "train.rounds=1; backbone=micro_mixer",
        "train.rounds=2; backbone=micro_mixer",
    ]
    assert [cell.variant for cell in suite_of(text, data="embedded").cells()] == ["data=embedded"]
    assert len(suite_of(text, sets=["backbone.pretrained=false"]).cells()) == 4


def test_the_embedded_overlay_moves_a_suite_to_the_embedded_data(suite_of):
    text = (
        SMALL.replace("micro_vit", "vit_base_patch16_224")
        .replace(
            "strokes6",
            "{name: image_folder, root: x, image_size: 224, normalize: clip, partition: {name: dirichlet, alpha: 1}}",
        )
        .replace(
            "  capacities: [12, 10, 8, 6, 4, 3]",
            "  capacities: {by_domain: [12, 10, 8, 6, 4, 3]}\n  train: {rounds: 100}",
        )
    )
    moved = config(suite_of(text, data="embedded"))
    assert moved["backbone"]["name"] == "micro_vit"
    assert moved["data"]["name"] == "strokes6" and "root" not in moved["data"]
    assert moved["data"]["image_size"] == 32 and moved["data"]["normalize"] == "backbone"
    assert moved["data"]["partition"] == {"name": "dirichlet", "alpha": 1.0, "clients_per_domain": 5}
    assert (moved["train"]["rounds"], moved["train"]["optimizer"]["lr"]) == (12, 0.05)
    assert config(suite_of(text, data="embedded", sets=["train.rounds=2"]))["train"]["rounds"] == 2


def test_a_suite_s_own_overlay_comes_before_a_built_in_one(suite_of):
    text = SMALL + "overlays: {embedded: {train: {rounds: 7}}}\n"
    assert config(suite_of(text, data="embedded"))["train"]["rounds"] == 7


def test_the_name_of_a_data_set_is_an_overlay(suite_of):
    moved = suite_of(SMALL.replace("strokes6", "{name: image_folder, root: x}"), data="strokes6")
    assert config(moved)["data"]["name"] == "strokes6"


def test_a_method_extends_another_and_the_nearest_option_wins(suite_of):
    methods = """[
      {name: grandchild, extends: child, aggregator: momentum},
      {name: child, extends: fedra, missing_layers: cover, allocation: {name: strided, step: 2}},
      {name: fedra, aggregator: {weights: uniform}}]"""
    suite = suite_of(SMALL.replace("[fedra]", methods))
    assert suite.methods == ("grandchild", "child", "fedra")
    child, grandchild = (config(suite, methods=[label])["method"] for label in ("child", "grandchild"))
    assert child == {
        "name": "fedra",
        "missing_layers": "cover",
        "allocation": {"name": "strided", "step": 2},
        "aggregator": {"name": "weighted_mean", "weights": "uniform"},
    }
    assert grandchild == {**child, "aggregator": {"name": "momentum", "beta": 0.2}}


def test_a_refinement_without_a_name_refines_the_default_component(suite_of):
    suite = suite_of(SMALL.replace("[fedra]", "[{name: fedra, aggregator: {weights: uniform}}]"))
    assert config(suite)["method"]["aggregator"] == {"name": "weighted_mean", "weights": "uniform"}


def test_an_open_component_takes_any_option(suite_of):
    suite = suite_of(SMALL.replace("[fedra]", "[{name: anything, whatever: [1, {a: 2}]}]"))
    assert config(suite)["method"] == {"name": "anything", "whatever": [1, {"a": 2}]}


def test_one_method_s_option_can_be_set_and_swept(suite_of):
    text = SMALL.replace("[fedra]", "[fedra, alllarge]")
    suite = suite_of(text, sets=["methods.fedra.missing_layers=cover"])
    assert [cell.config["method"].get("missing_layers") for cell in suite.cells()] == ["cover", None]
    swept = suite_of(text + "sweep: {methods.fedra.aggregator.weights: [examples, uniform]}\n").cells(methods=["fedra"])
    assert [cell.config["method"]["aggregator"]["weights"] for cell in swept] == ["examples", "uniform"]
    assert swept[1].variant == "methods.fedra.aggregator.weights=uniform"


def test_a_regulariser_is_there_only_if_there_is_one(suite_of):
    """null is plain FedAvg, as without the key: the same cell."""
    text = SMALL + "sweep: {train.regularizer: [null, {feddyn: 1}, {fedprox: 0.1}]}\n"
    none, feddyn, fedprox = suite_of(text).cells()
    assert none.config == config(suite_of(SMALL))
    assert feddyn.config["train"]["regularizer"] == {"feddyn": 1.0}
    assert type(feddyn.config["train"]["regularizer"]["feddyn"]) is float
    assert [cell.variant for cell in (none, feddyn, fedprox)] == [
        "train.regularizer=null",
        "train.regularizer=(feddyn=1)",
        "train.regularizer=(fedprox=0.1)",
    ]
    (set_,) = suite_of(text, sets=["train.regularizer={fedprox: 0.1}"]).cells()
    assert set_.config == fedprox.config
    below = SMALL.replace("skew: {}", "skew: {train: {regularizer: {feddyn: 2.0}}}")
    assert config(suite_of(below, sets=["train.regularizer=null"])) == none.config
    assert config(suite_of(below, sets=["train.regularizer={fedprox: 0.1}"])) == fedprox.config


STRAGGLERS = "{probability: 0, slowdown: 2, deadline: 1, late: lost}"


@pytest.mark.parametrize(
    "nothing",
    ["faults: {}", "faults: {dropout: 0}", f"faults: {{stragglers: {STRAGGLERS}}}", "faults: {stragglers: null}",
     "evaluation: {by: domain}"],
)  # fmt: skip
def test_what_says_that_nothing_happens_leaves_the_cell_as_it_is(suite_of, nothing):
    assert config(suite_of(SMALL.replace("skew: {}", f"skew: {{{nothing}}}"))) == config(suite_of(SMALL))


def test_a_scenario_can_go_without_the_stragglers_of_the_defaults(suite_of):
    slow = f"defaults:\n  faults: {{dropout: 0.1, stragglers: {STRAGGLERS.replace('0,', '0.5,')}}}\n"
    text = SMALL.replace("defaults:\n", slow).replace("skew: {}", "skew: {}\n  calm: {faults: {stragglers: null}}")
    skew, calm = suite_of(text).cells()
    assert skew.config["faults"]["stragglers"]["probability"] == 0.5
    assert calm.config["faults"] == {"dropout": 0.1}


def test_seeds_multiply_and_can_be_replaced(suite_of):
    suite = suite_of(SMALL + "seeds: [0, 4]\n")
    assert [cell.config["seed"] for cell in suite.cells()] == [0, 4]
    assert [cell.seed for cell in suite.cells(seeds=(7, 7, 8))] == [7, 8]


@pytest.mark.parametrize("way", ["by_client", "by_domain"])
def test_rotation_gives_everyone_the_depth_of_a_neighbour(suite_of, way):
    text = SMALL.replace("[12, 10, 8, 6, 4, 3]", f"{{{way}: [12, 10, 8, 6, 4, 3]}}\n  rotate_capacities: true")
    found = [cell.config["capacities"] for cell in suite_of(text).cells(seeds=[0, 1, 5, 7])]
    assert found == [
        {way: [12, 10, 8, 6, 4, 3]},
        {way: [10, 8, 6, 4, 3, 12]},
        {way: [3, 12, 10, 8, 6, 4]},
        {way: [10, 8, 6, 4, 3, 12]},
    ]


def test_drawn_capacities_have_nothing_to_rotate(suite_of):
    text = SMALL.replace("[12, 10, 8, 6, 4, 3]", "{uniform: [1, 12]}\n  rotate_capacities: true")
    assert config(suite_of(text), seeds=[3])["capacities"] == {"uniform": [1, 12]}


def test_cells_share_nothing_that_one_could_spoil_for_another(suite_of):
    suite = suite_of(SMALL)
    config(suite)["train"]["rounds"] = 999
    assert config(suite)["train"]["rounds"] == 100


def test_scenarios_are_chosen_by_pattern(suite_of):
    suite = suite_of(SMALL.replace("skew: {}", "all_4: {}\n  all_6: {}\n  mixed: {}"))
    assert [cell.scenario for cell in suite.cells(scenarios=["all_*"])] == ["all_4", "all_6"]
    assert [cell.scenario for cell in suite.cells(scenarios=["mixed", "all_4"])] == ["all_4", "mixed"]


def test_timeout_description_and_expected_rows_are_kept(suite_of):
    row = "{dataset: nicopp, backbone: vit, method: fedra, metric: average, value_percent: 63.9, source: Table 1}"
    suite = suite_of(SMALL + f"timeout: 60\ndescription: a test\nexpected: [{row}]\n")
    assert (suite.timeout, suite.description) == (60, "a test")
    (found,) = suite.expected
    assert (found["scenario"], found["variant"], found["value_percent"]) == ("skew", "", 63.9)


@pytest.mark.parametrize("kind", ["settings", "overlays"])
def test_built_in_layers_are_valid(suite_of, kind):
    for profile in PROFILES if kind == "settings" else ():
        suite_of(SMALL, profile=profile)
    for overlay in OVERLAYS if kind == "overlays" else ():
        suite_of(SMALL, data=overlay)


SIXTY = SMALL.replace("skew: {}", "a: {}\n  b: {}\n  c: {}\n  d: {}").replace(
    "[fedra]", "[fedra, depthfl, alllarge, allsmall, exclusive]"
)


def test_sixty_cells_load_fast_and_without_torch(tmp_path):
    """Measured inside the process, best of three, in processor seconds because machines are shared."""
    (tmp_path / "s.yaml").write_text(SIXTY + "seeds: [0, 1, 2]\n")
    code = (
        "import sys, time; start = time.process_time()\n"
        "from fedbench.suite import load\nfrom fedbench.catalogue import Catalogue, Component\n"
        "c = Catalogue()\n"
        "for kind, names in {'backbone': 'micro_vit', 'adapter': 'lora', 'dataset': 'strokes6', 'partition': 'by_domain',"
        " 'metric': 'accuracy', 'method': 'fedra depthfl alllarge allsmall exclusive'}.items():\n"
        "    c.add([Component(name, kind, 'p', 'q', '', {}, open=True) for name in names.split()])\n"
        f"assert len(load({str(tmp_path / 's.yaml')!r}, c).cells()) == 60\n"
        "assert not {'torch', 'numpy', 'pandas', 'timm'} & set(sys.modules)\n"
        "print(time.process_time() - start)"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    assert min(float(run.stdout) for run in runs) < 0.8


def test_a_thousand_cells_take_no_second(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(SIXTY + f"seeds: {list(range(50))}\n")
    start = time.process_time()
    assert len(load(path, built_catalogue()).cells()) == 1000
    assert time.process_time() - start < 1


STRAGGLERS = "{probability: 0.5, slowdown: 3, deadline: 1, late: lost}"


def test_what_no_suite_asks_for_is_not_in_a_configuration(suite_of):
    """So that the cells of older suites stay what they are."""
    assert "faults" not in config(suite_of(SMALL)) and "by" not in config(suite_of(SMALL))["evaluation"]
    assert "guard" not in config(suite_of(SMALL))["train"]


def test_faults_mix_by_key_and_can_be_swept(suite_of):
    text = SMALL.replace("skew: {}", f"skew: {{faults: {{dropout: 0, stragglers: {STRAGGLERS}}}}}")
    suite = suite_of(text + "sweep: {faults.dropout: [0.1, 0.3]}\n", sets=["faults.stragglers.slowdown=[2, 4]"])
    slow = {"probability": 0.5, "slowdown": [2.0, 4.0], "deadline": 1.0, "late": "lost"}
    assert [cell.config["faults"] for cell in suite.cells()] == [
        {"dropout": 0.1, "stragglers": slow},
        {"dropout": 0.3, "stragglers": slow},
    ]


def test_stragglers_may_be_completed_by_another_layer(suite_of, faults_of):
    parts = SMALL.replace("scenarios:", "  faults: {stragglers: {slowdown: 3, deadline: 1, late: lost}}\nscenarios:")
    whole = parts.replace("skew: {}", "skew: {faults: {stragglers: {probability: 0.5}}}")
    assert config(suite_of(whole))["faults"]["stragglers"]["probability"] == 0.5
    assert faults_of(parts) == ["s.yaml:6:12: faults.stragglers needs probability"]


def test_no_guard_is_the_cell_without_the_key(suite_of):
    suite = suite_of(SMALL + "sweep: {train.guard: [null, {max_norm: 5}]}\n")
    none, five = suite.cells()
    assert none.config == config(suite_of(SMALL)) and five.config["train"]["guard"] == {"max_norm": 5.0}


def test_corrupted_uploads_need_no_scale(suite_of):
    text = SMALL.replace("skew: {}", "skew: {faults: {corrupted: {probability: 0.1, kind: nan}}}")
    assert config(suite_of(text))["faults"] == {"corrupted": {"probability": 0.1, "kind": "nan"}}
    scaled = suite_of(text, sets=["faults.corrupted.kind=scaled", "faults.corrupted.scale=-1"])
    assert config(scaled)["faults"]["corrupted"] == {"probability": 0.1, "kind": "scaled", "scale": -1.0}


def test_everybody_holds_all_layers_where_nothing_else_is_said(suite_of):
    without = SMALL.replace("  capacities: [12, 10, 8, 6, 4, 3]\n", "")
    assert config(suite_of(without))["capacities"] == {"all": True}
    said = SMALL.replace("[12, 10, 8, 6, 4, 3]", "all\n  rotate_capacities: true")
    assert config(suite_of(said), seeds=[3])["capacities"] == {"all": True}
