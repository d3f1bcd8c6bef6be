"""Settings that may be absent - regularisers, faults, a guard - and what says that they are."""

from __future__ import annotations

import pytest
from made_up import SMALL, config

STRAGGLERS = "{probability: 0.5, slowdown: 3, deadline: 1, late: lost}"
NEVER = "{probability: 0, slowdown: 2, deadline: 1, late: lost}"


def test_a_regulariser_is_there_only_if_there_is_one(suite_of):
    """null is plain FedAvg, as without the key: the same cell."""
    text = SMALL + "sweep: {train.regularizer: [null, {feddyn: 1}, {fedprox: 0.1}]}\n"
    none, feddyn, fedprox = suite_of(text).points()
    assert none.config == config(suite_of(SMALL))
    assert feddyn.config["train"]["regularizer"] == {"feddyn": 1.0}
    assert type(feddyn.config["train"]["regularizer"]["feddyn"]) is float
    assert [cell.variant for cell in (none, feddyn, fedprox)] == [
        "train.regularizer=null",
        "train.regularizer=(feddyn=1)",
        "train.regularizer=(fedprox=0.1)",
    ]
    (set_,) = suite_of(text, sets=["train.regularizer={fedprox: 0.1}"]).points()
    assert set_.config == fedprox.config
    below = SMALL.replace("skew: {}", "skew: {train: {regularizer: {feddyn: 2.0}}}")
    assert config(suite_of(below, sets=["train.regularizer=null"])) == none.config
    assert config(suite_of(below, sets=["train.regularizer={fedprox: 0.1}"])) == fedprox.config


@pytest.mark.parametrize(
    "nothing",
    ["faults: {}", "faults: {dropout: 0}", f"faults: {{stragglers: {NEVER}}}", "faults: {stragglers: null}",
     "evaluation: {by: domain}", "evaluation: {validation: null}"],
)  # fmt: skip
def test_what_says_that_nothing_happens_leaves_the_cell_as_it_is(suite_of, nothing):
    assert config(suite_of(SMALL.replace("skew: {}", f"skew: {{{nothing}}}"))) == config(suite_of(SMALL))


def test_a_scenario_can_go_without_the_stragglers_of_the_defaults(suite_of):
    slow = f"defaults:\n  faults: {{dropout: 0.1, stragglers: {STRAGGLERS}}}\n"
    text = SMALL.replace("defaults:\n", slow).replace("skew: {}", "skew: {}\n  calm: {faults: {stragglers: null}}")
    skew, calm = suite_of(text).points()
    assert skew.config["faults"]["stragglers"]["probability"] == 0.5
    assert calm.config["faults"] == {"dropout": 0.1}


def test_what_no_suite_asks_for_is_not_in_a_configuration(suite_of):
    """So that the cells of older suites stay what they are."""
    assert "faults" not in config(suite_of(SMALL)) and "by" not in config(suite_of(SMALL))["evaluation"]
    assert "guard" not in config(suite_of(SMALL))["train"] and "validation" not in config(suite_of(SMALL))["evaluation"]


def test_faults_mix_by_key_and_can_be_swept(suite_of):
    text = SMALL.replace("skew: {}", f"skew: {{faults: {{dropout: 0, stragglers: {STRAGGLERS}}}}}")
    suite = suite_of(text + "sweep: {faults.dropout: [0.1, 0.3]}\n", sets=["faults.stragglers.slowdown=[2, 4]"])
    slow = {"probability": 0.5, "slowdown": [2.0, 4.0], "deadline": 1.0, "late": "lost"}
    assert [cell.config["faults"] for cell in suite.points()] == [
        {"dropout": 0.1, "stragglers": slow},
        {"dropout": 0.3, "stragglers": slow},
    ]


def test_stragglers_may_be_completed_by_another_layer(suite_of, faults_of):
    parts = SMALL.replace("scenarios:", "  faults: {stragglers: {slowdown: 3, deadline: 1, late: lost}}\nscenarios:")
    whole = parts.replace("skew: {}", "skew: {faults: {stragglers: {probability: 0.5}}}")
    assert config(suite_of(whole))["faults"]["stragglers"]["probability"] == 0.5
    assert faults_of(parts) == ['s.yaml:6:12: faults.stragglers needs "probability"']


def test_no_guard_is_the_cell_without_the_key(suite_of):
    suite = suite_of(SMALL + "sweep: {train.guard: [null, {max_norm: 5}]}\n")
    none, five = suite.points()
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


def test_widths_are_spelled_as_ranks_are(suite_of):
    wide = SMALL.replace("scenarios:", "  widths: 0.5\nscenarios:")
    assert config(suite_of(wide))["widths"] == {"uniform": [0.5, 0.5]}
    assert config(suite_of(wide.replace("0.5", "1")))["widths"] == {"uniform": [1.0, 1.0]}
    assert config(suite_of(wide.replace("skew: {}", "skew: {widths: null}"))) == config(suite_of(SMALL))
    turned = SMALL.replace("scenarios:", "  widths: [1, 1, 1, 1, 1, 0.5]\n  rotate_capacities: true\nscenarios:")
    (found,) = suite_of(turned).points(seeds=[2])
    assert found.config["widths"] == {"by_client": [1, 1, 1, 0.5, 1, 1]}


def test_a_number_is_the_rank_of_everybody_and_no_ranks_are_the_cell_without_the_key(suite_of):
    ranked = SMALL.replace("scenarios:", "  ranks: 4\nscenarios:")
    assert config(suite_of(ranked))["ranks"] == {"uniform": [4, 4]}
    assert config(suite_of(ranked.replace("skew: {}", "skew: {ranks: null}"))) == config(suite_of(SMALL))
    domains = ranked.replace("skew: {}", "skew: {ranks: {by_domain: [1, 2, 3, 4, 5, 6]}}")
    assert config(suite_of(domains))["ranks"] == {"by_domain": [1, 2, 3, 4, 5, 6]}


def test_proxy_images_are_asked_for_in_one_way_and_none_are_the_cell_without_the_key(suite_of, faults_of):
    proxy = SMALL.replace("data: strokes6", "data: {name: strokes6, proxy: {images: 5}}")
    data = config(suite_of(proxy))["data"]
    assert data.pop("proxy") == {"images": 5} and data == config(suite_of(SMALL))["data"]
    fraction = suite_of(proxy.replace("skew: {}", "skew: {data: {proxy: {fraction: 0.5}}}"))
    assert config(fraction)["data"]["proxy"] == {"fraction": 0.5}
    assert config(suite_of(proxy, sets=["data.proxy=null"])) == config(suite_of(SMALL))
    assert faults_of(proxy.replace("{images: 5}", "{images: 5, fraction: 1.5}")) == [
        "s.yaml:4:55: defaults.data.proxy.fraction: expected a number above 0 and below 1, got 1.5"
    ]
    assert faults_of(proxy.replace("{images: 5}", "5")) == [
        "s.yaml:4:33: defaults.data.proxy: expected {images: ...}, {fraction: ...}, or null, got 5"
    ]


def test_a_part_held_out_for_validation_is_a_fraction(suite_of, faults_of):
    held = SMALL.replace("skew: {}", "skew: {evaluation: {validation: 0.1}}")
    assert config(suite_of(held))["evaluation"] == {**config(suite_of(SMALL))["evaluation"], "validation": 0.1}
    assert config(suite_of(held, sets=["evaluation.validation=null"])) == config(suite_of(SMALL))
    for wrong, why in (
        ("1", "expected a number above 0 and below 1, or null, got 1"),
        ("0", "expected a number above 0 and below 1, or null, got 0"),
    ):
        (said,) = faults_of(held.replace("0.1", wrong))
        assert said.endswith(f"evaluation.validation: {why}")
