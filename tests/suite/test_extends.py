"""Methods of a suite: what one takes from the method it extends, and options of its own."""

from __future__ import annotations

from made_up import SMALL, config


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
    assert [cell.config["method"].get("missing_layers") for cell in suite.points()] == ["cover", None]
    swept = suite_of(text + "sweep: {methods.fedra.aggregator.weights: [examples, uniform]}\n").points(
        methods=["fedra"]
    )
    assert [cell.config["method"]["aggregator"]["weights"] for cell in swept] == ["examples", "uniform"]
    assert swept[1].variant == "methods.fedra.aggregator.weights=uniform"
