"""Leaderboards: means, spreads and gaps worked out by hand, and cells that have no numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from boards import board, cells, row, shown, write
from command import fedbench
from factories import eval_rows, write_cell

from fedbench.errors import UserError
from fedbench.report.statistics.pairs import sign_flip
from fedbench.results.scores import best_round


def test_means_spread_worst_and_gap_over_seeds(tmp_path):
    write(tmp_path / "s", "fedra", (0.8, 0.6), (0.9, 0.5), (0.7, 0.8))
    write(tmp_path / "s", "alllarge", (0.9, 0.9), (0.9, 0.7), (0.9, 0.9))
    found = board(tmp_path)
    ours = row(found, "fedra")
    assert ours.domains["a"].mean == pytest.approx(0.8)
    assert ours.domains["a"].std == pytest.approx(0.1)  # of 0.8, 0.9, 0.7 with n - 1
    assert ours.average.mean == pytest.approx((0.7 + 0.7 + 0.75) / 3)
    assert ours.average.std == pytest.approx(np.std([0.7, 0.7, 0.75], ddof=1))
    assert ours.worst.mean == pytest.approx((0.6 + 0.5 + 0.7) / 3)  # of each seed, not of the means
    assert ours.average.n == 3
    # Differences by seed: -0.2, -0.1, -0.15; t(2) = 4.30265, standard error 0.05 / sqrt(3).
    assert ours.gap.difference == pytest.approx(-0.15)
    assert ours.gap.ci_high - ours.gap.difference == pytest.approx(4.30265 * 0.05 / 3**0.5, rel=1e-5)
    assert ours.gap.p == pytest.approx(0.0351, abs=1e-4)  # t = -5.196 with 2 degrees of freedom
    assert sign_flip(ours.gap.values) == 0.25  # two of the eight sign patterns are as extreme
    assert (ours.gap.method, ours.gap.other, ours.gap.verdict) == ("fedra", "alllarge", "worse")
    assert row(found, "alllarge").gap is None


def test_one_seed_has_no_spread_and_two_have_no_interval(tmp_path):
    write(tmp_path / "s", "fedra", (0.8, 0.6), (0.9, 0.5))
    write(tmp_path / "s", "alllarge", (0.9, 0.9))
    found = board(tmp_path)
    assert row(found, "alllarge").average.std is None
    gap = row(found, "fedra").gap
    assert gap.n == 1 and np.isnan([gap.ci_low, gap.p]).all()
    assert gap.difference == pytest.approx(-0.2)  # seed 0 alone: the only one both have
    assert found.notes == [
        "seeds are unequal (fedra 0, 1; alllarge 0): two methods are compared on the seeds both have"
    ]


def test_round_shown(tmp_path):
    values = [0.1, 0.9, 0.3, 0.5, 0.5, 0.4]
    rows = eval_rows({t: {"a": v, "b": v} for t, v in enumerate(values, 1)})
    write_cell(tmp_path / "s", "fedra", evaluation=rows)
    write_cell(tmp_path / "s", "fedra", 1, evaluation=[r | {"value": r["round"] / 10} for r in rows])
    final, last4 = (row(board(tmp_path, at=at), "fedra") for at in ("final", "last4"))
    assert [r.average for r in final.runs] == pytest.approx([0.4, 0.6]) and final.round == 6
    assert [r.average for r in last4.runs] == pytest.approx([1.7 / 4, 1.8 / 4]) and last4.round == 6
    with pytest.raises(UserError, match="no round 'last'"):
        board(tmp_path, at="last")


def test_the_best_round_is_chosen_on_validation_images_and_shown_with_its_test_score(tmp_path):
    """The average counts, of equal rounds the earliest, and no test score has a say."""
    tested = eval_rows({1: {"a": 0.9, "b": 0.9}, 2: {"a": 0.2, "b": 0.4}, 3: {"a": 0.8, "b": 0.8}})
    validated = eval_rows(
        {1: {"a": 0.9, "b": 0.1}, 2: {"a": 0.7, "b": 0.5}, 3: {"a": 0.5, "b": 0.7}}, split="validation"
    )
    loss = eval_rows({t: {"a": t / 10, "b": t / 10} for t in (1, 2, 3)}, "loss")
    loss += eval_rows(
        {t: {"a": v, "b": v} for t, v in {1: float("nan"), 2: 3.0, 3: 2.0}.items()}, "loss", -1, "validation"
    )
    last = eval_rows({1: {"a": 0.3, "b": 0.3}, 2: {"a": 0.9, "b": 0.9}}, "accuracy/last")
    last += eval_rows({1: {"a": 0.2, "b": 0.2}, 2: {"a": 0.1, "b": 0.1}}, "accuracy/last", -1, "validation")
    rows = tested + validated + loss + last
    write_cell(tmp_path / "s", "fedra", evaluation=rows, evaluation__validation=0.1)
    flipped = [r | {"value": 1 - r["value"]} if r["split"] == "test" else r for r in rows]
    write_cell(tmp_path / "s", "fedra", 1, evaluation=flipped, evaluation__validation=0.1)
    found = board(tmp_path, at="best")
    own, other = found.rows
    assert own.round == 2 and [r.average for r in own.runs] == pytest.approx([0.3, 0.7])
    assert other.metric == "accuracy/last" and other.round == 1 and other.runs[0].average == pytest.approx(0.3)
    assert row(board(tmp_path, at="best", metric="loss"), "fedra").round == 3
    assert "accuracy, % · each seed's best round on validation examples · mean of 2 seeds" in shown([found])
    assert row(board(tmp_path), "fedra").round == 3 and row(board(tmp_path), "fedra").average.n == 2


def test_rounds_whose_average_differs_by_rounding_alone_are_equal():
    assert best_round({6: math.nextafter(0.8, 0), 12: 0.8, 18: 0.79}, "accuracy") == 6
    assert best_round({6: 0.1 + 0.2, 12: 0.3, 18: 0.4}, "loss") == 6
    assert best_round({6: 0.8, 12: 0.8 + 1e-9}, "accuracy") == 12


def test_no_round_is_chosen_by_its_test_score(tmp_path):
    folder = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({1: {"a": 0.5}}))
    done = fedbench("compare", "s", "--at", "best", cwd=tmp_path)
    told = " ".join(done.stderr.split())
    assert done.exit_code == 2 and "--at best needs validation examples, and this cell held none out" in told
    assert "`evaluation: {validation: 0.1}` in the suite and run it again" in told and folder.name in told


def test_failed_cell_enters_no_mean(tmp_path):
    write(tmp_path / "s", "fedra", (0.8, 0.6), (0.8, 0.6))
    write_cell(tmp_path / "s", "fedra", 2, status="failed", reason="RuntimeError: layer 3\nTraceback")
    write_cell(tmp_path / "s", "depthfl", 0, status="timeout", reason="after 60 s")
    write_cell(tmp_path / "s", "allsmall", 0, status="running")
    write_cell(tmp_path / "s", "alllarge", 0, status="interrupted", reason="interrupted after round 3 of 40")
    for method in ("exclusive", "fedv"):
        write_cell(tmp_path / "s", method, 0, status="not_applicable", reason="nobody holds 12 layers")
    found = board(tmp_path)
    assert row(found, "fedra").average.n == 2
    assert [r.status for r in found.rows] == ["finished", "timeout", "running", "interrupted", *["not_applicable"] * 2]
    assert found.notes == [
        "fedra (seed 2): failed: RuntimeError: layer 3",
        "depthfl: out of time: after 60 s",
        "allsmall: not finished (running or interrupted)",
        "alllarge: interrupted after round 3 of 40",
        "exclusive, fedv: not applicable: nobody holds 12 layers",
    ]
    shown_cells = cells(found)
    assert sorted(shown_cells["average"]) == sorted(["70.0", "timeout", "unfinished", "unfinished", "–", "–"])
    assert shown_cells["a"].count("80.0") == 1 and shown_cells["a"].count("") == 5


def test_nothing_finished_is_still_a_table(tmp_path):
    write_cell(tmp_path / "s", "fedra", status="failed", reason="boom")
    text = shown([board(tmp_path)])
    assert "accuracy: no cell has finished" in text and "fedra: failed: boom" in text


def test_second_output_has_a_row_of_its_own_without_a_rank_or_a_cost(tmp_path):
    rows = eval_rows({12: {"a": 0.9, "b": 0.9}}, "accuracy/last") + eval_rows({12: {"a": 0.8, "b": 0.8}})
    write_cell(tmp_path / "s", "depthfl", evaluation=rows)
    write(tmp_path / "s", "fedra", (0.7, 0.6))
    found = board(tmp_path)
    assert [r.label for r in found.rows] == ["depthfl", "depthfl/last", "fedra"]
    assert found.rows[1].average.mean == pytest.approx(0.9)
    assert [r.ranked for r in found.rows] == [True, False, True]
    assert [bool(text) for text in cells(found)["down + up"]] == [True, False, True]


def test_clients_with_models_of_their_own(tmp_path):
    rows = [
        row
        for client, (domain, value) in enumerate([("a", 0.2), ("a", 0.4), ("b", 0.9)])
        for row in eval_rows({5: {domain: value}}, client=client)
    ]
    write_cell(tmp_path / "s", "ditto", evaluation=rows)
    found = board(tmp_path)
    assert found.rows[0].domains["a"].mean == pytest.approx(0.3)
    assert found.rows[0].average.mean == pytest.approx(0.5)  # every client counts as much as any other


def test_the_baseline_is_the_ceiling_whatever_a_suite_calls_it(tmp_path):
    write(tmp_path / "s", "fedra", (0.75, 0.25))
    write(tmp_path / "s", "alllarge", (0.8, 0.6), label="top")
    assert board(tmp_path).baseline == "top"
    write(tmp_path / "s", "alllarge", (0.7, 0.6), label="other")
    assert board(tmp_path).baseline is None  # which of the two is not known
    write(tmp_path / "s", "alllarge", (0.9, 0.6))
    assert board(tmp_path).baseline == "alllarge"


def test_of_two_ceilings_the_first_is_the_baseline(tmp_path):
    write(tmp_path / "s", "alllarge", (0.9, 0.6))
    write(tmp_path / "s", "pooled", (0.95, 0.7))
    assert board(tmp_path).baseline == "alllarge"


def test_any_method_can_be_the_baseline(tmp_path):
    write(tmp_path / "s", "fedra", (0.8, 0.6))
    write(tmp_path / "s", "depthfl", (0.7, 0.6))
    assert board(tmp_path).baseline is None
    found = board(tmp_path, baseline="depthfl")
    assert row(found, "fedra").gap.difference == pytest.approx(0.05)
    with pytest.raises(UserError, match="no method 'fedr' in these results. Did you mean 'fedra'"):
        board(tmp_path, baseline="fedr")


def test_lower_loss_is_better(tmp_path):
    for method, value in (("fedra", 0.5), ("depthfl", 1.5)):
        rows = eval_rows({1: {"a": value, "b": 2 * value}}, "loss") + eval_rows({1: {"a": 0.5, "b": 0.5}})
        write_cell(tmp_path / "s", method, evaluation=rows)
    found = board(tmp_path, metric="loss")
    assert found.rows[0].worst.mean == 1.0
    assert "0.750" in shown([found])
    with pytest.raises(UserError, match="no metric 'los' in these results. Did you mean 'loss'"):
        board(tmp_path, metric="los")


def test_who_left_clients_out_is_told_with_the_share_of_the_images(tmp_path):
    def turnout(clients, images):
        return {"clients": clients, "of_clients": 6, "images": images, "of_images": 1000, "sizes": {"1 layer": clients}}

    for method, found in {"fedra": (6, 1000), "flora": (2, 250), "hetlora": (2, 250)}.items():
        write(tmp_path / "s", method, (0.5, 0.5), turnout=turnout(*found))
    for seed, found in enumerate([(3, 480), (4, 520)]):
        write_cell(tmp_path / "s", "heterofl", seed, evaluation=eval_rows({12: {"a": 0.5}}), turnout=turnout(*found))
    notes = board(tmp_path).notes
    assert [note for note in notes if "took part" in note] == [
        "flora, hetlora: 2 of 6 clients took part, with 25 % of the examples; no size fits the others' devices",
        "heterofl: 3 to 4 of 6 clients took part, with 48 to 52 % of the examples; no size fits the others' devices",
    ]
