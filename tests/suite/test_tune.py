"""`tune:` in a suite: what may be tuned, which candidates are drawn, and how they lie on the rest."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbench.errors import UserError
from fedbench.runner.runner import load
from fedbench.suite import tuning_space
from fedbench.suite.keys import CANDIDATES_SEED
from fedbench.suite.yaml import Mark, Node

SUITE = """\
suite: s
defaults:
  backbone: micro_vit
  data: strokes6
  evaluation: {{validation: 0.1}}
  train: {{rounds: 8, optimizer: {{lr: 0.05}}}}
scenarios:
  one: {{capacities: [12, 10, 8, 6, 4, 3]}}
  two: {{capacities: [6, 6, 6, 6, 6, 6]{words}}}
methods: [fedra, inclusivefl, {{name: lean, extends: fedra, train: {{optimizer: {{lr: 0.01}}, clip: 3.0}}}}]
tune:
  trials: 4
  space: {{{space}}}{more}
"""
LR = "train.optimizer.lr: {log: [0.01, 1]}"


def text(space=LR, more="", words=""):
    return SUITE.format(space=space, more=more, words=words)


def rates(points):
    return {(p.scenario, p.method, p.candidate, p.seed): p.config["train"]["optimizer"]["lr"] for p in points}


def test_every_method_gets_the_same_candidates_above_its_own_settings(suite_of):
    suite = suite_of(text())
    found = rates(suite.candidates())
    assert len(found) == 2 * 3 * 4 and {seed for *_, seed in found} == {CANDIDATES_SEED}
    for (_, _, k, _), rate in found.items():
        assert rate == suite.tuning.candidates[k]["train.optimizer.lr"]
    assert len(set(found.values())) == 4 and all(0.01 <= rate <= 1 for rate in found.values())
    lean = [p for p in suite.candidates() if p.method == "lean"]
    assert {p.config["train"]["clip"] for p in lean} == {3.0}


def test_without_the_tuning_the_points_are_those_of_the_suite(suite_of):
    plain = suite_of(text().partition("tune:")[0])
    tuned = suite_of(text())
    assert [p.config for p in tuned.points()] == [p.config for p in plain.points()]
    assert plain.tuning is None and plain.candidates() == []


def test_winners_report_under_the_suites_names_with_what_others_would_have_had(suite_of):
    suite = suite_of(text("train.optimizer.lr: {log: [0.01, 1]}, methods.inclusivefl.beta: {uniform: [0, 1]}"))
    values = suite.tuning.candidates
    done = suite.tuned({("one", "", "fedra"): 2, ("one", "", "inclusivefl"): 1, ("two", "", "fedra"): 0})
    found = {(p.scenario, p.method): p for p in done.points(seeds=[5])}
    assert set(found) == {("one", "fedra"), ("one", "inclusivefl"), ("two", "fedra")}  # the others have no winner
    one = found["one", "inclusivefl"]
    assert one.config["method"]["beta"] == values[1]["methods.inclusivefl.beta"]
    assert one.config["train"]["optimizer"]["lr"] == values[1]["train.optimizer.lr"]
    assert one.shared["train"]["optimizer"]["lr"] == 0.05 and one.candidate is None and one.seed == 5


def test_a_key_on_the_command_line_is_not_tuned(suite_of):
    both = "train.optimizer.lr: {log: [0.01, 1]}, adapter.rank: {choice: [2, 4, 8]}"
    suite = suite_of(text(both), sets=["train.optimizer.lr=0.2"])
    assert suite.tuning.space == {"adapter.rank": {"choice": [2, 4, 8]}}
    assert set(rates(suite.candidates()).values()) == {0.2}
    assert suite_of(text(), sets=["train.optimizer.lr=0.2"]).tuning is None


def test_a_space_with_fewer_points_than_trials_is_tried_whole(suite_of):
    tuning = suite_of(text("adapter.rank: {choice: [2, 4]}, train.clip: {choice: [1.0, 2.0]}")).tuning
    assert len(tuning.candidates) == 4
    assert len(suite_of(text("adapter.rank: {choice: [2, 4]}")).tuning.candidates) == 2


def test_an_overlay_does_not_end_the_tuning(suite_of):
    overlay = "\noverlays: {other: {train: {optimizer: {lr: 0.3}}}}"
    assert len(set(rates(suite_of(text(more=overlay), data="other").candidates()).values())) == 4


def test_a_scenario_has_a_word_on_single_methods(suite_of):
    suite = suite_of(text(words=", methods: {inclusivefl: {beta: 0.7, train: {clip: 1.0}}}"))
    found = {(p.scenario, p.method): p for p in suite.points()}
    assert found["two", "inclusivefl"].config["method"]["beta"] == 0.7
    assert found["two", "inclusivefl"].config["train"]["clip"] == 1.0
    assert found["one", "inclusivefl"].config["method"]["beta"] == 0.2
    assert found["two", "fedra"].config["train"]["clip"] == found["one", "fedra"].config["train"]["clip"]


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ({"space": "train.rounds: {choice: [1, 2]}"}, '13:11: tune.space: "train.rounds" is not a method\'s own'),
        ({"space": "participation.count: {choice: [1, 2]}"}, '"participation.count" is not a method\'s own to choose'),
        ({"space": "methods.fedrap.x: {choice: [1, 2]}"}, 'expected methods.NAME.option, with a method of this suite'),
        ({"space": "methods.inclusivefl.bta: {uniform: [0, 1]}"}, 'has no option "bta"; did you mean "beta"?'),
        ({"space": "train.optimizer.lr: {log: [0, 1]}"}, "expected a number above 0, got 0"),
        ({"space": "train.optimizer.lr: {uniform: [1, 0]}"}, "the lowest, 1.0, is above the highest, 0.0"),
        ({"space": "train.optimizer.lr: {uniform: [-1, -0.5]}"}, "train.optimizer.lr: expected a number above 0"),
        ({"more": "\n  seeds: [0]"}, "seed 0 is the suite's own"),
        ({"more": "\n  confirm: [0]"}, "seed 0 is the suite's own"),
        ({"more": "\n  confirm: [1000]"}, "14:12: tune.confirm: seed 1000 is one that all candidates are tried on"),
        ({"more": "\n  confirm: []"}, "tune.confirm: expected a list of at least 1, each a whole number"),
        ({"more": "\n  metric: accurcy"}, 'tune.metric: "accurcy" is not measured in "one"; did you mean "accuracy"'),
        ({"more": "\n  halving: [0.5, 0.25]"}, "expected numbers in rising order"),
        ({"more": "\n  halving: [1.0]"}, "expected a number above 0 and below 1"),
        ({"words": ", methods: {fedr: {}}"}, 'no method of this suite is called "fedr"'),
        ({"words": ", methods: {fedra: {train: {rounds: 3}}}"}, "train.rounds is the same for every method"),
    ],
)  # fmt: skip
def test_faults_are_told_where_they_stand(faults_of, where, told):
    assert any(told in line for line in faults_of(text(**where))), faults_of(text(**where))


def test_nothing_is_tuned_on_test_images(faults_of):
    (line,) = faults_of(text().replace("evaluation: {validation: 0.1}", "evaluation: {every: 2}"))
    assert "compared on validation examples" in line and line.startswith("s.yaml:")


@pytest.mark.parametrize(
    ("given", "scenario"),
    [
        ({"words": ", evaluation: {validation: 0.1, metrics: [loss]}"}, "two"),
        ({"more": "\nsweep: {evaluation.metrics: [[accuracy], [loss], [accuracy, loss]]}"}, "one"),
    ],
)
def test_what_candidates_are_compared_by_is_measured_everywhere(tmp_path, registry, given, scenario):
    """In every scenario and at every point of a sweep; by default it is the first metric of the first."""
    file = tmp_path / "s.yaml"
    file.write_text(text(**given))
    with pytest.raises(UserError, match=f'tune.metric: "accuracy" is not measured in "{scenario}"; there are: loss'):
        load(file, registry)


def test_seeds_of_candidates_report_nothing(suite_of):
    with pytest.raises(UserError, match="seed 1000 is one that the candidates are tried on"):
        suite_of(text()).points(seeds=[1000])


def test_further_seeds_report_nothing_either(suite_of):
    suite = suite_of(text(more="\n  confirm: [1001, 1002]"))
    assert suite.tuning.confirm == [1001, 1002]
    assert {p.seed for p in suite.candidates()} == {CANDIDATES_SEED, 1001, 1002}
    with pytest.raises(UserError, match="seed 1002 is one that the candidates are tried on"):
        suite.points(seeds=[1002])


def test_where_the_best_are_confirmed_candidates_beyond_the_edges_follow_those_that_were_drawn(suite_of):
    """Twice and four times the highest rate, a half and a quarter of the lowest one; all else is as it was."""
    plain, suite = suite_of(text()).tuning, suite_of(text(more="\n  confirm: [1001]"))
    confirmed = suite.tuning
    assert plain.confirm is None and plain.trials == len(plain.candidates) == confirmed.trials == 4
    assert confirmed.candidates[:4] == plain.candidates
    rates = [values["train.optimizer.lr"] for values in confirmed.candidates]
    low, high = min(rates[:4]), max(rates[:4])
    found = sorted(zip(confirmed.beyond, rates[4:], strict=True))
    k, n = rates.index(low), rates.index(high)
    ends = sorted([(k, low / 4), (k, low / 2), (n, 2 * high), (n, 4 * high)])
    assert [k for k, _ in found] == [k for k, _ in ends]
    assert [rate for _, rate in found] == pytest.approx([rate for _, rate in ends], rel=1e-3)
    for values, groups in zip(confirmed.candidates, suite.candidate_groups, strict=True):
        (lr,) = {group.settings["train"]["optimizer"]["lr"] for group in groups}
        assert lr == values["train.optimizer.lr"]


def test_a_space_goes_beyond_its_edges_only_where_a_key_takes_such_a_value(tmp_path, registry):
    """Dropout ends below 1; a choice has no edge."""
    file = tmp_path / "s.yaml"
    space = "adapter.dropout: {uniform: [0.6, 0.9]}, train.clip: {choice: [1.0, 2.0, 3.0]}"
    file.write_text(text(space, more="\n  confirm: [1001]"))
    tuning = load(file, registry).tuning
    shares = [values["adapter.dropout"] for values in tuning.candidates]
    lowest = shares.index(min(shares[:4]))
    assert set(tuning.beyond) == {lowest}
    assert shares[4:] == [pytest.approx(min(shares[:4]) / by, rel=1e-3) for by in (2, 4)]
    assert {values["train.clip"] for values in tuning.candidates[4:]} == {tuning.candidates[lowest]["train.clip"]}


def beyond(ranges, drawn, takes=lambda key, value: True):
    mark = Mark("here")
    return tuning_space.beyond_edges({key: Node.of(one, mark) for key, one in ranges.items()}, drawn, takes)


def test_whole_numbers_stay_whole_and_nothing_is_tried_twice():
    ranges = {"rank": {"integer": [2, 8]}}
    assert beyond(ranges, [{"rank": 3}, {"rank": 8}]) == [
        (0, {"rank": 2}), (0, {"rank": 1}), (1, {"rank": 16}), (1, {"rank": 32})
    ]  # fmt: skip
    assert beyond(ranges, [{"rank": 2}, {"rank": 4}], lambda key, value: value > 0) == [
        (0, {"rank": 1}), (1, {"rank": 8}), (1, {"rank": 16})
    ]  # fmt: skip


def test_a_candidate_at_two_edges_goes_beyond_both_at_once():
    ranges = {"a": {"log": [1, 8]}, "b": {"log": [1, 8]}}
    points = [{"a": 1.0, "b": 2.0}, {"a": 4.0, "b": 4.0}, {"a": 2.0, "b": 1.0}]
    assert [one for one in beyond(ranges, points) if one[0] == 1] == [
        (1, {"a": 8.0, "b": 8.0}),
        (1, {"a": 16.0, "b": 16.0}),
    ]
    assert [one for one in beyond(ranges, points) if one[0] == 0] == [
        (0, {"a": 0.5, "b": 2.0}),
        (0, {"a": 0.25, "b": 2.0}),
    ]


@pytest.mark.parametrize("values", [[0.0, 1.0], [-1.0, 2.0], ["a", "b"], [True, False], [2.0, 2.0]])
def test_what_is_no_number_above_zero_has_no_edge(values):
    assert beyond({"x": {"uniform": [0, 1]}}, [{"x": value} for value in values]) == []


def drawn(ranges, trials, draw=0):
    mark = Mark("here")
    tune = Node.of({"trials": trials, "draw": draw}, mark)
    return tuning_space.candidates({key: Node.of(one, mark) for key, one in ranges.items()}, tune)


@settings(max_examples=20, deadline=None)
@given(trials=st.integers(2, 9), more=st.integers(1, 8), draw=st.integers(0, 2**32 - 1))
def test_more_trials_begin_with_the_same_candidates_and_none_comes_twice(trials, more, draw):
    ranges = {"a": {"log": [1e-3, 1.0]}, "b": {"integer": [1, 9]}, "c": {"choice": ["x", "y"]}}
    few, many = drawn(ranges, trials, draw), drawn(ranges, trials + more, draw)
    assert many[:trials] == few
    assert len({str(one) for one in many}) == trials + more
    for one in many:
        assert 1e-3 <= one["a"] <= 1 and one["b"] in range(1, 10) and one["c"] in "xy"


def test_a_sobol_sequence_fills_the_range_evenly():
    """Eight points: one in every eighth, evenly in the logarithm, and every integer and choice equally often."""
    found = drawn({"a": {"log": [1e-4, 1e4]}, "b": {"integer": [0, 3]}, "c": {"choice": [True, False]}}, 8)
    from math import floor, log10

    assert sorted(floor(log10(one["a"])) for one in found) == list(range(-4, 4))
    assert sorted(one["b"] for one in found) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sorted(one["c"] for one in found) == [False] * 4 + [True] * 4
    assert drawn({"a": {"log": [1e-4, 1e4]}}, 8, draw=1) != drawn({"a": {"log": [1e-4, 1e4]}}, 8)


def test_rows_of_the_command_line_are_tuned_like_those_of_the_suite(suite_of):
    """Each has its own winner."""
    added = "fedra (missing_layers=cover)"
    given = {"add": ["alllarge"], "sets": ["methods.fedra.missing_layers=cover"]}
    suite = suite_of(text(words=", methods: {fedra: {train: {clip: 7.0}}}"), **given)
    tuned = suite.tuned({("two", "", label): k for k, label in enumerate(("fedra", "alllarge", added))})
    (plain, _, varied) = tuned.points()
    assert varied.method == added and varied.config["method"]["missing_layers"] == "cover"
    assert varied.config["train"]["clip"] == plain.config["train"]["clip"] == 7.0  # what the scenario says of fedra
    lr = [point.config["train"]["optimizer"]["lr"] for point in (plain, varied)]
    assert lr[0] != lr[1]
