"""What options take, judged where a suite is read: every fault at once, each with its place."""

from __future__ import annotations

import sys

import pytest
from made_up import SMALL, component

from fedbench.registry.catalogue import Catalogue
from fedbench.suite import json_schema, load

TRIM = {"type": "number", "minimum": 0, "exclusiveMaximum": 0.5}
LISTED = {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "minItems": 1}
OPTIMIZER = {"type": "object", "properties": {"name": {"enum": ["sgd", "adamw"]}}, "additionalProperties": False}


@pytest.fixture
def catalogue(catalogue) -> Catalogue:
    """With components that declare what they take."""
    rank, missing = {"type": "integer", "minimum": 1}, {"enum": ["keep", "cover"]}
    catalogue.add(
        [
            component("adapter", "strict", takes={"rank": rank, "share": TRIM}, rank=8, share=0.1),
            component("aggregator", "trimmed", takes={"trim": TRIM}, trim=0.1),
            component(
                "method",
                "choosy",
                takes={"missing": missing, "rates": LISTED, "optimizer": {"anyOf": [OPTIMIZER, {"type": "null"}]}},
                missing="keep",
                rates=[1.0],
                optimizer=None,
                aggregator="trimmed",
            ),
        ]
    )
    return catalogue


FAULTY = """\
suite: faulty
defaults:
  backbone: micro_vit
  data: strokes6
  adapter: {name: strict, rank: 0}
scenarios:
  a: {}
  b: {adapter: {share: 2}}
methods:
  - {name: choosy, missing: covr, rates: [1, 0, -1]}
  - {name: other, extends: choosy, aggregator: {trim: 0.7}, optimizer: {name: sdg, rate: 1}}
sweep:
  methods.other.missing: [keep, skip]
"""


def test_every_fault_is_told_at_once_with_its_place(faults_of):
    assert faults_of(FAULTY, sets=["methods.choosy.aggregator.trim=-1"]) == [
        "s.yaml:5:33: strict rank: expected a whole number of at least 1, got 0",
        "s.yaml:8:24: strict share: expected a number of at least 0 and below 0.5, got 2",
        's.yaml:10:29: choosy missing: expected "keep" or "cover", got "covr"; did you mean "cover"?',
        "s.yaml:10:46: choosy rates[1]: expected a number above 0, got 0",
        "s.yaml:10:49: choosy rates[2]: expected a number above 0, got -1",
        "s.yaml:11:55: trimmed trim: expected a number of at least 0 and below 0.5, got 0.7",
        's.yaml:11:79: choosy optimizer.name: expected "sgd" or "adamw", got "sdg"; did you mean "sgd"?',
        's.yaml:11:84: choosy optimizer.rate: unknown key "rate"; known: name',
        's.yaml:13:33: choosy missing: expected "keep" or "cover", got "skip"',
        "--set methods.choosy.aggregator.trim=-1: trimmed trim: expected a number of at least 0 and below 0.5, got -1",
    ]


def test_what_is_right_resolves_as_it_did(suite_of):
    fine = FAULTY.replace("rank: 0", "rank: 2").replace("share: 2", "share: 0").replace("covr", "cover")
    fine = fine.replace("[1, 0, -1]", "[1, 2]").replace("0.7", "0.2").replace(", rate: 1", "").replace("sdg", "sgd")
    suite = suite_of(fine.replace("skip", "cover"))
    first, last = suite.points()[0].config, suite.points()[-1].config
    assert first["adapter"] == {"name": "strict", "rank": 2, "share": 0.1}
    assert last["adapter"]["share"] == 0.0 and isinstance(last["adapter"]["share"], float)
    assert (last["method"]["rates"], last["method"]["optimizer"]) == ([1, 2], {"name": "sgd"})


def test_the_schema_says_what_options_take(catalogue):
    cases = json_schema(catalogue)["$defs"]["method_options"]["allOf"]
    choosy = next(case for case in cases if case["if"]["properties"]["name"]["const"] == "choosy")
    assert choosy["then"]["properties"]["missing"] == {"enum": ["keep", "cover"], "default": "keep"}


def test_a_shipped_suite_with_every_kind_of_fault_is_judged_at_once(tmp_path):
    from fedbench.errors import UserError
    from fedbench.registry.registry import Registry

    file = tmp_path / "s.yaml"
    file.write_text(SMALL.replace("[fedra]", "[{name: fedra, missing_layers: covr}, {name: allsmall, depth: 0}]"))
    catalogue, sets = Registry().catalogue, ["adapter.dropout=2", "adapter.alpha=0", "data.partition.alpha=0"]
    loaded = "torch" in sys.modules
    with pytest.raises(UserError) as told:
        load(file, catalogue, sets=["data.partition.name=dirichlet", *sets])
    assert ("torch" in sys.modules) == loaded
    assert len(str(told.value).splitlines()) == 5


def test_a_metric_stands_in_a_suite_once(faults_of):
    twice = SMALL.replace("defaults:\n", "defaults:\n  evaluation: {metrics: [accuracy, {name: accuracy}]}\n")
    assert faults_of(twice) == ['s.yaml:3:43: the metric "accuracy" is listed twice']


def test_the_ends_of_a_tunings_space_are_judged_where_they_stand(faults_of):
    space = "{adapter.rank: {integer: [0, 8]}, adapter.share: {uniform: [0.1, 0.5]}, methods.other.missing: {choice: [keep, covr]}}"
    fine = FAULTY.replace("rank: 0", "rank: 2").replace("share: 2", "share: 0").replace("covr", "cover")
    fine = fine.replace("[1, 0, -1]", "[1]").replace("0.7", "0.2").replace(", rate: 1", "").replace("sdg", "sgd")
    tuned = fine.split("sweep")[0].replace("defaults:\n", "defaults:\n  evaluation: {validation: 0.1}\n")
    assert faults_of(f"{tuned}tune: {{trials: 4, space: {space}}}\n") == [
        "s.yaml:13:52: strict rank: expected a whole number of at least 1, got 0",
        "s.yaml:13:91: strict share: expected a number of at least 0 and below 0.5, got 0.5",
        's.yaml:13:137: choosy missing: expected "keep" or "cover", got "covr"; did you mean "cover"?',
    ]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("{name: image_folder}", 's.yaml:4:16: dataset "image_folder" needs "root"'),
        ("{name: strokes6, alpha: 0.1, partition: dirichlet}", 's.yaml:4:26: dataset "strokes6" has no option "alpha"'),
    ],
)
def test_a_fault_of_the_data_section_is_not_blamed_on_the_data_set_too(faults_of, facts, data, told):
    (fault,) = faults_of(SMALL.replace("data: strokes6", f"data: {data}"))
    assert fault.startswith(told) and facts.asked == ["micro_vit"]
