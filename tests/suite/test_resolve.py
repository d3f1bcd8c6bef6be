"""From layers to a configuration: precedence, overlays, profiles."""

from __future__ import annotations

import json

import pytest
from made_up import SMALL, component, config

from fedbench.errors import UserError
from fedbench.registry.catalogue import references
from fedbench.suite.setting_layers import OVERLAYS, PROFILES


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
    cells = suite_of(text).points()
    assert [(cell.scenario, cell.method) for cell in cells] == [
        ("a", "fedra"),
        ("a", "other"),
        ("b", "fedra"),
        ("b", "other"),
    ]
    assert len({json.dumps(cell.config, sort_keys=True) for cell in cells}) == 1
    assert (cells[0].backbone, cells[0].dataset) == ("micro_vit", "strokes6")


def test_an_option_that_came_later_is_named_only_where_it_has_another_value(suite_of):
    def method(entry):
        return config(suite_of(SMALL.replace("[fedra]", f"[{entry}]")))["method"]

    before = {"name": "grown", "body": "random"}
    assert method("grown") == method("{name: grown, local: false, head: null}") == before
    assert method("{name: grown, local: true}") == {**before, "local": True}
    assert method("{name: grown, head: {width: 3}}") == {**before, "head": {"width": 3}}
    assert method("{name: plain, extends: grown, local: true}, {name: again, extends: plain, local: false}") == {
        **before,
        "local": True,
    }


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
    assert reference.points()[0].variant == "profile=reference"
    assert config(reference)["profile"] == "reference"


def test_smallest_says_that_it_bounds_each_epoch_only_where_there_are_several(suite_of):
    def steps(*sets):
        return config(suite_of(SMALL, profile="reference", sets=sets))["train"]["max_steps"]

    assert steps() == steps("train.max_steps=smallest") == "smallest"
    assert steps("train.local_epochs=2") == "smallest_each_epoch"
    assert steps("train.local_epochs=2", "train.max_steps=7") == 7


def test_when_to_test_is_the_upper_layers_word(suite_of):
    def when(text=SMALL, **options):
        evaluation = config(suite_of(text, **options))["evaluation"]
        return evaluation["every"], evaluation.get("at", "nothing")

    every, at = (SMALL.replace("skew: {}", f"skew: {{evaluation: {{{said}}}}}") for said in ("every: 10", "at: [7, 3]"))
    assert when() == when(sets=["evaluation.at=null"]) == (None, "nothing")
    assert when(profile="reference") == (None, "reference")
    assert when(profile="reference", sets=["evaluation.every=null"]) == (None, "nothing")
    assert when(every) == when(every, profile="reference") == (10, "nothing")
    assert when(at) == when(at, profile="reference") == (None, [3, 7])
    assert when(every, sets=["evaluation.at=[1]"]) == (None, [1])
    assert when(every, sets=["evaluation.at=null"]) == (10, "nothing")
    assert when(at, sets=["evaluation.every=5"]) == (5, "nothing")


def test_a_suite_may_choose_the_profile_and_the_command_line_another(suite_of):
    text = "profile: reference\n" + SMALL
    assert suite_of(text).profile == "reference"
    assert suite_of(text).points()[0].variant == ""
    assert suite_of(text, profile="paper").points()[0].variant == "profile=paper"
    assert suite_of(text, profile="reference").points()[0].variant == ""


def test_a_component_of_another_name_starts_afresh(suite_of):
    text = SMALL.replace("  data: s", "  adapter: {rank: 4}\n  data: s").replace(
        "skew: {}", "a: {}\n  b: {adapter: houlsby}"
    )
    suite = suite_of(text)
    assert config(suite, scenarios=["a"])["adapter"]["rank"] == 4
    assert config(suite, scenarios=["b"])["adapter"] == {"name": "houlsby", "width": 16, "scale": 1.0}


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


def test_an_aggregator_that_wraps_another_names_it_with_all_its_options(suite_of, catalogue):
    catalogue.add([component("aggregator", "wrapping", aggregator="weighted_mean")])
    text = SMALL.replace("[fedra]", "[{name: fedra, aggregator: {name: wrapping, aggregator: {name: INNER}}}]")
    method = config(suite_of(text.replace("{name: INNER}", "momentum")))["method"]
    assert method["aggregator"] == {"name": "wrapping", "aggregator": {"name": "momentum", "beta": 0.2}}
    named = references(config(suite_of(text.replace("INNER", "momentum"))))
    found = [ref["name"] for kind, ref in named if kind == "aggregator"]
    assert found == ["wrapping", "momentum"]
    with pytest.raises(UserError, match="no aggregator is called 'momentun'; did you mean 'momentum'"):
        suite_of(text.replace("INNER", "momentun"))


def test_rates_that_do_not_change_are_those_of_before(suite_of):
    """So that cells keep their identities."""
    given = "defaults:\n  train: {optimizer: {OPTION}}\n"
    plain = config(suite_of(SMALL))["train"]["optimizer"]
    assert plain.keys() == {"name", "lr", "momentum", "weight_decay"}
    for option, kept in {
        "schedule: constant, warmup: null, head_lr: null": {},
        "schedule: cosine": {"schedule": "cosine"},
        "warmup: 3, head_lr: 1": {"warmup": 3, "head_lr": 1.0},
        "warmup: 0.2": {"warmup": 0.2},
    }.items():
        text = SMALL.replace("defaults:\n", given.replace("OPTION", option), 1)
        assert config(suite_of(text))["train"]["optimizer"] == {**plain, **kept}
    with pytest.raises(UserError, match="warmup"):
        suite_of(SMALL.replace("defaults:\n", given.replace("OPTION", "warmup: 1.5"), 1))
