"""A metric says of itself what is better, its unit and its format; where it does not, its name does."""

from __future__ import annotations

import pytest
from command import TINY, fedbench, write_suite
from factories import eval_rows, write_cell

from fedbench.errors import UserError
from fedbench.registry.catalogue import Component, Unfit
from fedbench.report.frames import number
from fedbench.report.leaderboards import leaderboards
from fedbench.results import load, packed_tables, scores
from fedbench.results.files import read_manifest, write_manifest
from fedbench.results.scores import Measure, best_round, declare, higher_is_better, is_fraction, measure

MINE = """
from fedbench import hookimpl

def calibration():
    '''How far off the model's certainty is.'''
    return lambda logits, y: 0.25

@hookimpl
def fedbench_register_metrics(register):
    register("calibration", calibration, better="lower", unit="%", format=".2f")
"""


@pytest.fixture(autouse=True)
def nothing_declared(monkeypatch):
    monkeypatch.setattr(scores, "_DECLARED", {})


def test_what_a_metric_says_goes_before_what_its_name_says():
    assert not higher_is_better("loss") and not higher_is_better("calibration_error") and higher_is_better("accuracy")
    assert measure("accuracy/last") == Measure("higher", "%", "") and number(0.25, "f1") == "0.250"
    declare(
        {"f1": {"unit": "%", "format": ".2f"}, "delay": {"better": "lower", "unit": "ms"}, "loss": {"better": "higher"}}
    )
    assert higher_is_better("f1") and is_fraction("f1/last") and number(0.25, "f1") == "25.00"
    assert not higher_is_better("delay") and number(2, "delay", signed=True) == "+2.000"
    assert higher_is_better("loss")
    assert best_round({1: 3.0, 2: 1.0, 3: 2.0}, "delay") == 2


@pytest.mark.parametrize(
    "told",
    [{"better": "less"}, {"unit": "a\nb"}, {"unit": "x" * 13}, {"format": ".999f"}, {"format": 3}, {"bet": ""}, 3],
)
def test_what_cannot_be_is_refused(told):
    with pytest.raises(TypeError, match=r"metrics\.m"):
        declare({"m": told})
    if isinstance(told, dict):
        with pytest.raises(Unfit, match="metric 'm'"):
            Component.of("metric", "m", lambda: None, "p", "p", **told)


def test_it_is_a_metrics_to_say():
    with pytest.raises(Unfit, match="`better` is a metric's to say"):
        Component.of("allocation", "a", lambda: None, "p", "p", better="lower")


def test_results_keep_what_a_metric_said_and_tables_follow_it(tmp_path, own_cache):
    (tmp_path / "mine.py").write_text(MINE)
    write_suite(tmp_path, "fedra", {"  small: {}": "  small: {evaluation: {metrics: [calibration]}}"})
    fedbench("run", "tiny.yaml", "--plugin", TINY, "--plugin", "mine.py", "--results", "r", cwd=tmp_path)
    (result,) = load([tmp_path / "r"])
    said = {"better": "lower", "unit": "%", "format": ".2f"}
    assert result.manifest["metrics"] == {"calibration": said}
    scores._DECLARED.clear()  # as in another process
    packed_tables._packed_tables_at.cache_clear()
    told = fedbench("compare", "r/tiny", "--metric", "calibration", cwd=tmp_path).stdout
    assert "calibration, % · round 2" in told and "25.00" in told and not higher_is_better("calibration")
    shown = fedbench("plugins", "show", "calibration", "--plugin", "mine.py", cwd=tmp_path).stdout
    assert "Values: lower is better, %, .2f" in shown


def test_a_metric_of_which_less_is_better_here_and_more_there_is_compared_nowhere(tmp_path):
    for suite, better in (("one", "higher"), ("two", "lower")):
        folder = write_cell(tmp_path / suite, "fedra", evaluation=eval_rows({1: {"a": 0.5}}))
        write_manifest(folder, {**read_manifest(folder), "metrics": {"m": {"better": better}}})
    results = load([tmp_path])
    assert len(leaderboards(results)) == 2  # of accuracies both say nothing
    with pytest.raises(UserError, match="metric 'm': higher is better in .*one.* and lower .* in .*two.*; compare"):
        leaderboards(results, metric="m")
