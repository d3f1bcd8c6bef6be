"""The name that a wrong one may mean, and where a key belongs that stands in the wrong place."""

from __future__ import annotations

import pytest
from made_up import SMALL, component

from fedbench.registry.catalogue import REQUIRED, Component

# what stands there, and the one line that tells of it
WRONG = {
    "  backbone: micro_vit\n  rank: 4\n": 's.yaml:4:3: unknown key "rank" in defaults; it belongs to adapter (an option of lora)',
    "  backbone: micro_vit\n  missing_layers: cover\n": 's.yaml:4:3: unknown key "missing_layers" in defaults; it belongs to methods (an option of fedra)',
    "  backbone: micro_vit\n  local_epoch: 2\n": 's.yaml:4:3: unknown key "local_epoch" in defaults; did you mean "train.local_epochs"?',
    "  backbone: micro_vit\n  adapter: LoRA\n": "s.yaml:4:12: no adapter is called 'LoRA'; did you mean 'lora'? (upper and lower case differ)",
    "  backbone: micro_vit\n  evaluation: {metrics: [Accurcy]}\n": "s.yaml:4:26: no metric is called 'Accurcy'; did you mean 'accuracy'?",
    "methods: [FedRA]": "s.yaml:8:11: no method is called 'FedRA'; did you mean 'fedra'? (upper and lower case differ)",
    "methods: [{name: mine, missing_layers: cover}]": 's.yaml:8:18: no method is called "mine"; a name of your own says what it varies: {name: mine, extends: fedra}',
    "methods: [{name: fedra2}]": 's.yaml:8:18: no method is called "fedra2"; did you mean "fedra"? a name of your own says what it varies: {name: fedra2, extends: METHOD}',
    "methods: [{name: fedra, rank: 4}]": 's.yaml:8:25: method "fedra" has no option "rank"; it belongs to adapter (an option of lora)',
}  # fmt: skip


@pytest.mark.parametrize(("new", "line"), WRONG.items(), ids=[new.strip() for new in WRONG])
def test_a_wrong_name_is_told_with_what_may_have_been_meant(faults_of, new, line):
    old = "methods: [fedra]" if new.startswith("methods") else "  backbone: micro_vit\n"
    assert faults_of(SMALL.replace(old, new)) == [line]


def test_options_of_others_on_the_command_line(faults_of):
    assert faults_of(SMALL, sets=["rank=4"]) == [
        '--set rank=4: unknown key "rank"; it belongs to adapter (an option of lora)'
    ]
    for key in ("method.fedra.missing_layers", "FedRA.missing_layers"):
        (fault,) = faults_of(SMALL, sets=[f"{key}=cover"])
        assert fault.endswith('did you mean "methods.fedra.missing_layers"?')
    assert faults_of(SMALL, sets=["methods.fedra=x"]) == [
        '--set methods.fedra=x: "methods.fedra": expected an option of that method, methods.fedra.option'
    ]


@pytest.mark.parametrize(
    ("space", "told"),
    [
        ("space: {train.optimizer.lr: {lgo: [0.1, 1]}}", 'unknown key "lgo" in tune.space.train.optimizer.lr; did you'),
        ("spcae: {train.optimizer.lr: {log: [0.1, 1]}}", 'unknown key "spcae" in tune; did you mean "space"?'),
        ("space: {adapter.Rank: {choice: [2, 4]}}", 'adapter "lora" has no option "Rank"; did you mean "rank"?'),
        ("space: {rank: {choice: [2, 4]}}", 'unknown key "rank"; it belongs to adapter (an option of lora)'),
    ],
)
def test_a_wrong_key_of_a_tuning_gets_the_nearest(faults_of, space, told):
    faults = faults_of(SMALL + f"tune: {{trials: 2, {space}}}\n")
    assert any(told in fault for fault in faults) and "a method's own" not in "".join(faults)


def test_a_function_that_is_registered_in_place_of_its_maker_is_told_where_it_is_named(faults_of, catalogue):
    def median(state, uploads, plan, cohort):
        return state

    catalogue.add([Component.of("aggregator", "median_of_mine", median, "mine.py", "mine.py")])
    (fault,) = faults_of(SMALL.replace("[fedra]", "[{name: m, extends: fedra, aggregator: median_of_mine}]"))
    assert fault == (
        's.yaml:8:49: aggregator "median_of_mine" needs "state", "uploads", "plan", "cohort": it takes state, uploads, plan, '
        "cohort, with which fedbench calls the aggregator itself: register a function that returns this one; to check it: "
        "fedbench plugins check mine.py"
    )


def test_an_input_under_another_name_is_no_option_that_is_missing(faults_of, catalogue):
    catalogue.add([component("allocation", "topmost", L=REQUIRED), component("allocation", "tall", height=REQUIRED)])
    assert faults_of(SMALL, sets=["methods.fedra.allocation=topmost"]) == [
        '--set methods.fedra.allocation=topmost: allocation "topmost" needs "L": its parameter \'L\' is an option of '
        "suites; did you mean 'num_layers', which fedbench passes? Call it 'num_layers', or otherwise if it is an option"
    ]
    assert faults_of(SMALL, sets=["methods.fedra.allocation=tall"]) == [
        '--set methods.fedra.allocation=tall: allocation "tall" needs "height"'
    ]
