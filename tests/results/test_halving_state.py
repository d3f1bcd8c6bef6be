"""Who goes on and who wins, from validation scores alone."""

from __future__ import annotations

import math

import pytest
from samples import BARE, rewrite

from fedbench.errors import UserError
from fedbench.results import write_manifest, write_rows
from fedbench.results.files import described
from fedbench.results.tuning import Contest, rungs_of, validated
from fedbench.types.tuning import Tuning

KEY = ("skew", "", "fedra")


@pytest.fixture
def contest(tmp_path):
    """contest({candidate: [{round: validation score} of each seed]}) with rungs after rounds 2, 4 and 8."""

    def build(scores, metric="accuracy", status="halved", rungs=(2, 4, 8)):
        cells = {}
        for k, seeds in scores.items():
            for seed, by_round in enumerate(seeds):
                folder = tmp_path / f"c{k}-{seed}"
                folder.mkdir(exist_ok=True)
                rows = [row(t, value, metric) for t, value in by_round.items()]
                write_rows(
                    folder,
                    "eval",
                    rows + [row(t, 1 - row_["value"], metric, "test") for t, row_ in zip(by_round, rows, strict=True)],
                )
                write_manifest(folder, {**BARE, "status": status, "reason": None})
                cells.setdefault(k, {})[seed] = folder
        seeds = sorted({seed for own in cells.values() for seed in own})
        search = Tuning({"lr": {}}, [{"lr": k} for k in range(1 + max(cells))], seeds, metric, [])
        return Contest(KEY, search, rungs, cells)

    return build


def row(t, value, metric, split="validation"):
    return {"round": t, "split": split, "domain": "a", "client": -1, "metric": metric, "value": value, "examples": 9}


def test_the_better_half_goes_on_by_validation_images_of_that_round(contest):
    found = contest(
        {
            0: [{2: 0.1}],
            1: [{2: 0.5, 4: 0.6}],
            2: [{2: 0.4}],
            3: [{2: 0.6, 4: 0.5, 8: 0.9}],
            4: [{2: 0.45, 4: 0.7, 8: 0.8}],
        }
    )
    assert found.entrants(0) == [0, 1, 2, 3, 4]
    assert found.entrants(1) == [1, 3, 4]  # rounded up
    assert found.entrants(2) == [1, 4]
    assert found.winner == 4  # 3 has more, but was out after round 4, and what it did later does not count


def test_of_equal_ones_the_first_goes_on(contest):
    found = contest({0: [{2: 0.5}], 1: [{2: 0.5}], 2: [{2: 0.5}], 3: [{2: 0.5}]})
    assert found.entrants(1) == [0, 1]


def test_scores_that_differ_by_rounding_alone_are_equal(contest):
    first, same = math.nextafter(0.8, 0), 0.8
    found = contest({0: [{2: first, 4: first}], 1: [{2: same, 4: same}], 2: [{2: 0.7}]}, rungs=(2, 4))
    assert first < same and found.ranked([0, 1, 2], 2) == [0, 1, 2] and found.winner == 0


def test_less_loss_is_better(contest):
    found = contest({0: [{2: 3.0, 4: 3.0, 8: 3.0}], 1: [{2: 2.0, 4: 2.0, 8: 2.5}]}, metric="loss")
    assert found.entrants(1) == [1] and found.winner == 1


def test_scores_are_means_over_seeds_and_one_that_misses_a_seed_has_none(contest):
    found = contest({0: [{8: 0.4}, {8: 0.6}], 1: [{8: 0.9}, {2: 0.9}], 2: [{8: 0.45}, {8: 0.5}]}, rungs=(8,))
    assert found.scores[0] == {8: pytest.approx(0.5)} and found.scores[1] == {}
    assert found.winner == 0


def test_a_failed_candidate_and_one_without_a_number_do_not_win(contest, tmp_path):
    found = contest({0: [{8: 0.9}], 1: [{8: float("nan")}], 2: [{8: 0.1}]}, rungs=(8,))
    rewrite(tmp_path / "c0-0" / "manifest.json", status="failed")
    assert found.winner == 2
    assert validated(tmp_path / "c1-0", "accuracy") == {}


def test_a_changed_table_decides_nothing(contest, tmp_path):
    contest({0: [{8: 0.2}], 1: [{8: 0.9}]}, rungs=(8,))
    own, other = tmp_path / "c0-0", tmp_path / "c1-0"
    write_manifest(own, {**BARE, "status": "halved", "reason": None, "files": described(own)})
    assert validated(own, "accuracy") == {8: 0.2}
    (own / "eval.parquet").write_bytes((other / "eval.parquet").read_bytes())
    with pytest.raises(UserError, match="torn"):
        validated(own, "accuracy")


def test_nobody_wins_where_nobody_has_a_score_but_where_nobody_could(contest, tmp_path):
    found = contest({0: [{}], 1: [{}]}, status="failed", rungs=(8,))
    assert found.winner is None
    for folder in tmp_path.iterdir():
        rewrite(folder / "manifest.json", status="not_applicable")
    assert found.winner == 0


@pytest.mark.parametrize(
    ("evaluation", "halving", "expected"),
    [
        ({"every": 2}, [0.25, 0.5], (4, 6, 12)),  # tested after 2, 4, ..., 12: a quarter is round 3
        ({"every": 1}, [0.25, 0.5], (3, 6, 12)),
        ({"every": None}, [], (12,)),
        ({"every": None, "at": [1]}, [0.25], (12,)),  # nothing is tested between, and so nobody is halved
        ({"every": 5}, [0.1, 0.15], (2, 12)),
    ],
)
def test_rungs_are_tested_rounds(evaluation, halving, expected):
    assert rungs_of({"train": {"rounds": 12}, "evaluation": evaluation}, halving) == expected
