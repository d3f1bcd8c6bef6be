"""Which candidates are run again, which are vetoed, and who wins, from planted scores."""

from __future__ import annotations

from dataclasses import replace

import pytest
from samples import BARE

from fedbench.results import write_manifest, write_rows
from fedbench.results.identity import identity_of
from fedbench.results.tuning import Contest
from fedbench.types.tuning import Tuning

RATES = [0.02, 0.04, 0.08, 0.16]
FURTHER = [(0, 0.01), (0, 0.005), (3, 0.32), (3, 0.64)]  # beyond the lowest and the highest one: numbers 4 to 7
TUNING = Tuning(
    {"lr": {"log": [0.01, 0.2]}},
    [{"lr": rate} for rate in (*RATES, *(rate for _, rate in FURTHER))],
    [1000],
    "accuracy",
    [0.5],
    confirm=[1001, 1002],
    beyond=[k for k, _ in FURTHER],
)
RUNGS, T = (2, 4), 4
CONFIGURED = {**BARE, "config": {**BARE["config"], "train": {"rounds": T}}}
MANIFEST = {**CONFIGURED, "id": identity_of(CONFIGURED)}


@pytest.fixture
def folder(tmp_path):
    """folder(candidate, seed, scores after rounds 1, 2, 3, 4 or fewer) writes a cell; a share of 1 is constant."""

    def write(k, seed, scores, share=0.3, status=None, metric="accuracy"):
        place = tmp_path / f"c{k}-{seed}"
        place.mkdir(exist_ok=True)
        row = {"split": "validation", "domain": "a", "client": -1, "metric": metric, "examples": 9}
        write_rows(place, "eval", [{**row, "round": t, "value": v} for t, v in enumerate(scores, 1)])
        said = {"round": len(scores), "split": "validation", "output": "", "examples": 9, "top_share": share}
        write_rows(place, "answers", [said])
        status = status or ("finished" if len(scores) == T else "halved")
        write_manifest(place, {**MANIFEST, "status": status, "reason": None})
        return place

    return write


def fast(last):
    """Scores of a run that is steady."""
    return [last - 0.3, last - 0.2, last - 0.1, last]


def fallen(last, best=0.9):
    return [best - 0.1, best, best, last]


@pytest.fixture
def contest(tmp_path, folder):
    """contest({candidate: {seed: scores}}, ...): candidates without scores on a seed have not run there."""

    def build(given, search=TUNING, method="fedra", **more):
        for k, by_seed in given.items():
            for seed, scores in by_seed.items():
                folder(k, seed, scores, **more)
        seeds = (*search.seeds, *search.confirm)
        cells = {k: {s: tmp_path / f"c{k}-{s}" for s in seeds} for k in range(len(search.candidates))}
        return Contest(("skew", "", method), search, RUNGS, cells)

    return build


HALVED = {0: {1000: [0.1, 0.1]}, 3: {1000: [0.2, 0.3]}}  # left after round 2, of which candidate 3 is the better one


def test_the_two_best_are_asked_for_on_the_further_seeds(contest):
    found = contest({**HALVED, 1: {1000: fast(0.8)}, 2: {1000: fast(0.85)}})
    assert found.order == [2, 1, 3, 0]
    assert found.confirmation.asked == {2: [1000, 1001, 1002], 1: [1000, 1001, 1002]}
    assert not found.confirmation.over and found.winner is None and not found.unstable


def test_the_best_mean_of_all_seeds_wins(contest):
    both = {1: {1000: fast(0.8), 1001: fast(0.8), 1002: fast(0.8)}, 2: {1000: fast(0.85), 1001: fast(0.75)}}
    half = contest({**HALVED, **both})
    assert half.winner is None and not half.confirmation.over  # a run that was ended in the middle: one is left
    done = contest({2: {1002: fast(0.76)}})
    assert done.confirmation.over and done.winner == 1
    assert done.mean(1) == pytest.approx(0.8) and done.mean(2) == pytest.approx((0.85 + 0.75 + 0.76) / 3)
    assert done.scores[2][T] == pytest.approx(0.85)  # halving goes by the seeds of all candidates


def test_of_equal_means_the_first_wins(contest):
    runs = {1000: fast(0.8), 1001: fast(0.8), 1002: fast(0.8)}
    assert contest({**HALVED, 1: runs, 2: runs}).winner == 1


@pytest.mark.parametrize("seed", [1000, 1001, 1002])
def test_one_seed_that_falls_vetoes_a_candidate_however_good_it_is_in_the_mean(contest, seed):
    best = {s: fast(0.95) for s in (1000, 1001, 1002)} | {seed: fallen(0.84, best=0.95)}
    found = contest({**HALVED, 1: {s: fast(0.6) for s in (1000, 1001, 1002)}, 2: best})
    assert found.winner == 1 and found.vetoes(2) == {seed: "fell after round 3"}
    assert found.ended[2][seed].fall == pytest.approx(0.11)


def test_ten_points_are_no_fall(contest):
    best = {s: fast(0.9) for s in (1000, 1001)} | {1002: fallen(0.8)}
    assert contest({**HALVED, 1: {s: fast(0.6) for s in (1000, 1001, 1002)}, 2: best}).winner == 2


def test_a_constant_prediction_vetoes_and_one_that_was_not_recorded_does_not(contest, folder):
    steady = {s: fast(0.6) for s in (1000, 1001, 1002)}
    found = contest({**HALVED, 1: steady, 2: {s: fast(0.7) for s in (1000, 1001, 1002)}})
    assert found.winner == 2
    place = folder(2, 1002, fast(0.7), share=1.0)
    found = replace(found)
    assert found.winner == 1 and found.vetoes(2) == {1002: "predicts one class"}
    (place / "answers.parquet").unlink()
    assert replace(found).winner == 2


def test_a_loss_has_half_a_nat(contest):
    search = replace(TUNING, metric="loss")
    steady, risen = {s: [2.0, 1.5, 1.4, 1.3] for s in (1000, 1001, 1002)}, [2.0, 1.0, 0.5, 1.01]
    halved = {0: {1000: [3.0, 3.0]}, 3: {1000: [3.0, 2.9]}}
    good = {1000: [2.0, 1.0, 0.5, 0.5], 1001: risen, 1002: [2.0, 1.0, 0.5, 0.5]}
    found = contest({**halved, 1: steady, 2: good}, search, metric="loss")
    assert found.order[:2] == [2, 1] and found.winner == 1 and found.vetoes(2) == {1001: "fell after round 3"}


def test_a_run_that_diverged_vetoes(contest, folder):
    found = contest({**HALVED, 1: {s: fast(0.6) for s in (1000, 1001, 1002)}, 2: {1000: fast(0.8), 1002: fast(0.8)}})
    folder(2, 1001, [0.1], status="failed")
    assert found.winner == 1 and found.vetoes(2) == {1001: "failed"}


def test_what_the_first_seed_vetoes_is_not_run_on_further_ones(contest):
    found = contest({**HALVED, 1: {1000: fast(0.6)}, 2: {1000: fallen(0.7)}})
    assert found.order[0] == 2 and found.confirmation.asked == {2: [1000], 1: [1000, 1001, 1002]}


def test_where_both_are_vetoed_the_next_two_follow_and_first_finish_their_rounds(contest):
    vetoed = {1: {1000: fallen(0.6)}, 2: {1000: fast(0.8), 1001: fallen(0.2), 1002: fast(0.8)}}
    found = contest({**HALVED, **vetoed})
    assert found.confirmation.asked == {2: [1000, 1001, 1002], 1: [1000], 3: [1000], 0: [1000]}
    assert found.winner is None and not found.confirmation.over
    found = contest({0: {1000: fast(0.5)}, 3: {1000: fallen(0.1)}})
    assert found.confirmation.asked[0] == [1000, 1001, 1002] and found.confirmation.asked[3] == [1000]
    search = replace(TUNING, candidates=TUNING.candidates[:4], beyond=[])  # as if no space could be extended
    assert contest({0: {1001: fast(0.5), 1002: fast(0.5)}}, search).winner == 0


def test_where_every_candidate_is_vetoed_none_wins(contest):
    found = contest({k: {1000: fallen(0.5 + k / 100)} for k in range(4)})
    assert found.confirmation.over and found.winner is None and found.unstable
    assert found.confirmation.asked == {k: [1000] for k in found.order}


def test_nothing_is_said_to_be_unstable_while_candidates_are_left(contest):
    found = contest({2: {1000: fallen(0.5)}})
    assert found.winner is None and not found.unstable
    failed = contest({}, search=TUNING)
    assert not failed.unstable


INSIDE = {1: {s: fast(0.7) for s in (1000, 1001, 1002)}}
AT_EDGE = {**INSIDE, 3: {s: fast(0.8) for s in (1000, 1001, 1002)}, 0: {1000: [0.1, 0.1]}, 2: {1000: [0.1, 0.1]}}


def test_a_winner_at_the_edge_has_two_more_tried_beyond_it_and_no_other(contest):
    found = contest(AT_EDGE)
    assert found.tuning.at_edge(3, "fedra") == ["lr"] and found.winner is None
    assert found.confirmation.asked == {**{k: [1000, 1001, 1002] for k in (3, 1)}, 6: [1000], 7: [1000]}
    lowest = contest({0: AT_EDGE[3], 3: {1000: [0.1, 0.1]}, 1: {s: fast(0.7) for s in (1000, 1001, 1002)}})
    for seed in (1001, 1002):
        assert lowest.cells[3][seed].exists()  # of the contest before, which this one does not ask for
    assert {4, 5} < lowest.confirmation.asked.keys() and not {6, 7} & lowest.confirmation.asked.keys()


def test_the_best_two_of_what_lies_beyond_and_what_is_stable_are_compared(contest):
    found = contest({**AT_EDGE, 6: {1000: fast(0.9)}, 7: {1000: fast(0.3)}})
    assert found.confirmation.asked[6] == [1000, 1001, 1002] and found.confirmation.asked[7] == [1000]
    found = contest({6: {1001: fast(0.9), 1002: fast(0.9)}})
    assert found.confirmation.over and found.winner == 6
    assert found.tuning.at_edge(6, "fedra", [0, 1, 2, 3, 6, 7]) == []  # 7 lies beyond it


def test_a_vetoed_one_beyond_the_edge_leaves_the_winner_as_it_was(contest):
    found = contest({**AT_EDGE, 6: {1000: fast(0.9), 1001: fallen(0.3), 1002: fast(0.9)}, 7: {1000: fallen(0.1)}})
    assert found.confirmation.over and found.winner == 3
    assert found.vetoes(6) == {1001: "fell after round 3"}
    assert found.tuning.at_edge(3, "fedra", [0, 1, 2, 3, 6, 7]) == []


def test_the_space_is_extended_once(contest):
    found = contest({**AT_EDGE, 6: {1000: fast(0.3)}, 7: {s: fast(0.95) for s in (1000, 1001, 1002)}})
    assert found.confirmation.over and found.winner == 7
    assert found.tuning.at_edge(7, "fedra", [0, 1, 2, 3, 6, 7]) == ["lr"]


def test_what_was_worse_on_the_first_seed_beyond_the_edge_does_not_lose_what_the_winner_had(contest):
    """Both lie ahead of it on the first seed, and behind it in the mean."""
    worse = {1000: fast(0.85), 1001: fast(0.5), 1002: fast(0.5)}
    assert contest({**AT_EDGE, 6: worse, 7: worse}).winner == 3


def test_a_key_that_does_not_concern_a_method_extends_nothing_for_it(contest):
    other = "methods.other.lr"
    spaces = {other: {"log": [0.01, 0.2]}}
    search = replace(TUNING, space=spaces, candidates=[{other: one["lr"]} for one in TUNING.candidates])
    assert contest(AT_EDGE, search).winner == 3
    assert contest(AT_EDGE, search, method="other").winner is None


def test_without_further_seeds_the_best_of_the_last_round_wins_as_before(contest):
    plain = Tuning(TUNING.space, TUNING.candidates[:4], [1000], "accuracy", [0.5])
    found = contest({**HALVED, 1: {1000: fast(0.6)}, 2: {1000: fallen(0.7)}})
    cells = {k: {1000: found.cells[k][1000]} for k in range(4)}
    assert Contest(found.key, plain, RUNGS, cells).winner == 2
