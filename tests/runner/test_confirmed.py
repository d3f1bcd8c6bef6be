"""A tuning whose best candidates are confirmed: which cells are computed in one go, broken off, by force, in shards."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from command import TINY, fedbench, write_suite
from factories import eval_rows, write_cell

from fedbench.results import content_hash, load, merge_index, read_index, write_manifest, write_rows
from fedbench.results.files import described, read_manifest
from fedbench.results.identity import identity
from fedbench.results.index import Entry
from fedbench.results.tuning import Contest, contests, merge_tunings, unstable, without_reports
from fedbench.runner.cells import Cell, Options
from fedbench.runner.successive_halving import decide, standing
from fedbench.types.tuning import Tuning

T, RUNGS = 4, (2, 4)
TUNING = Tuning(
    {"lr": {"log": [0.01, 0.2]}},
    [{"lr": rate} for rate in (0.02, 0.04, 0.08, 0.16, 0.01, 0.005, 0.32, 0.64)],
    [1000],
    "accuracy",
    [0.5],
    confirm=[1001, 1002],
    beyond=[0, 0, 3, 3],
)


def steady(last):
    return [last - 0.3, last - 0.2, last - 0.1, last]


FALLEN = [0.4, 0.9, 0.9, 0.2]
LAST = {0: 0.5, 1: 0.6, 2: 0.7, 3: 0.8, 4: 0.5, 5: 0.5, 6: 0.4, 7: 0.3}
SCORES = {(k, seed): steady(last) for k, last in LAST.items() for seed in (1000, 1001, 1002)}
KEY = ("skew", "", "fedra")


class Planted:
    """Contests whose cells get planted scores in place of being computed. asked: what was, cell by cell."""

    def __init__(self, folder, scores, methods=("fedra",), most=1000):
        self.folder, self.scores, self.most, self.asked, self.stages = folder, scores, most, [], []
        self.candidates = {}
        self.contests = [Contest(("skew", "", m), TUNING, RUNGS, self.cells(m)) for m in methods]

    def cells(self, method):
        found = {}
        for k in range(len(TUNING.candidates)):
            for seed in (1000, 1001, 1002):
                config = {
                    **{part: {"name": part} for part in ("backbone", "adapter", "data")},
                    "k": k,
                    "seed": seed,
                    "method": {"name": method},
                    "train": {"rounds": T},
                    "evaluation": {"every": 1, "metrics": [{"name": "accuracy"}]},
                }
                cell = Cell(identity(config, {}, {}), config, {}, {}, [])
                found.setdefault(k, {})[seed] = place = cell.folder_in(self.folder)
                self.candidates[place] = cell
        return found

    def compute(self, cells, options, stage):
        self.stages.append(stage)
        for cell in cells:
            k, seed, until = cell.config["k"], cell.config["seed"], cell.until or T
            place = cell.folder_in(self.folder)
            manifest = read_manifest(place) if place.exists() else None
            if manifest and not options.force and manifest.get("round", T) >= until:
                continue
            if not self.most:
                return SimpleNamespace(left=1, gave_up=False, unended=1)
            self.most -= 1
            self.asked.append((k, seed, until))
            row = {"split": "validation", "domain": "a", "client": -1, "metric": "accuracy", "examples": 9}
            rows = [{**row, "round": t, "value": v} for t, v in enumerate(self.scores[k, seed][:until], 1)]
            place.mkdir(parents=True, exist_ok=True)
            write_rows(place, "eval", rows)
            end = {"status": "finished"} if until == T else {"status": "halved", "round": until}
            write_manifest(place, {**cell.manifest(), **end, "files": described(place)})
        return SimpleNamespace(left=0, gave_up=False, unended=0)

    def decide(self, **options):
        return decide(self.contests, self.candidates, Options(**options), self.compute)


def first(*candidates):
    return [(k, 1000, 2) for k in candidates]


def test_the_best_two_are_run_on_the_further_seeds_and_an_edge_is_followed(tmp_path):
    made = Planted(tmp_path, SCORES)
    assert made.decide() == {KEY: 3} == standing(made.contests)
    halving = [*first(0, 1, 2, 3), (2, 1000, T), (3, 1000, T)]
    confirming = [(3, 1001, T), (3, 1002, T), (2, 1001, T), (2, 1002, T)]
    assert made.asked == [*halving, *confirming, (6, 1000, T), (7, 1000, T)]  # 6 and 7 are worse: all is said
    assert made.stages[:2] == ["tuning, part 1 of 2", "tuning, part 2 of 2"]
    assert set(made.stages[2:]) == {"tuning, confirming"}
    again = Planted(tmp_path, SCORES)
    assert again.decide() == {KEY: 3} and again.asked == []


@pytest.mark.parametrize("most", range(1, 12))
def test_a_run_that_is_broken_off_anywhere_computes_the_same_cells_in_all(tmp_path, most):
    vetoed = {**SCORES, (3, 1001): FALLEN, (2, 1002): FALLEN}
    whole = Planted(tmp_path / "whole", vetoed)
    assert whole.decide() == {KEY: 1} and len(whole.asked) > 12
    part = Planted(tmp_path / "part", vetoed, most=most)
    assert part.decide() is None
    rest = Planted(tmp_path / "part", vetoed)
    assert rest.decide() == {KEY: 1}
    assert sorted(part.asked + rest.asked) == sorted(whole.asked)


def test_candidates_that_were_halved_finish_before_they_are_confirmed(tmp_path):
    made = Planted(tmp_path, {**SCORES, (3, 1000): FALLEN, (2, 1000): FALLEN})
    assert made.decide() == {KEY: 1}
    assert made.asked[:8] == [*first(0, 1, 2, 3), (2, 1000, T), (3, 1000, T), (1, 1000, T), (0, 1000, T)]
    assert sorted(made.asked[8:]) == [(0, 1001, T), (0, 1002, T), (1, 1001, T), (1, 1002, T)]


def test_force_computes_each_cell_once_more_and_none_twice(tmp_path):
    before = Planted(tmp_path, SCORES)
    before.decide()
    again = Planted(tmp_path, SCORES)
    assert again.decide(force=True) == {KEY: 3}
    begun = {(k, seed) for k, seed, _ in before.asked}
    assert {(k, seed) for k, seed, _ in again.asked} == begun
    confirming = [one for one in again.asked if one[1] != 1000 or one[0] > 3]
    assert len(confirming) == len(set(confirming)) == 6


def test_no_candidate_wins_where_all_are_vetoed_and_the_others_go_on(tmp_path):
    made = Planted(tmp_path, dict.fromkeys(SCORES, FALLEN), ("fedra", "depthfl"))
    assert made.decide() == {}
    assert {one.key for one in made.contests if one.again().unstable} == {
        ("skew", "", method) for method in ("fedra", "depthfl")
    }
    assert all(one.again().unstable for one in made.contests)
    assert {seed for _, seed, _ in made.asked} == {1000}  # which vetoes each of them already


def test_a_method_with_one_candidate_has_nothing_to_confirm(tmp_path):
    """`majority` says the same of every example, and must stand on the board all the same."""
    made = Planted(tmp_path, dict.fromkeys(SCORES, FALLEN))
    made.contests = [replace(made.contests[0], cells={0: made.contests[0].cells[0]})]
    assert made.decide() == {KEY: 0}
    assert made.asked == [(0, 1000, 2), (0, 1000, T)] and not made.contests[0].again().unstable


def test_a_shard_has_all_that_its_contests_ask_for(tmp_path):
    """What one contest asks for depends on none of the others."""
    scores = {**SCORES, (3, 1001): FALLEN}
    whole = Planted(tmp_path / "whole", scores, ("fedra", "depthfl", "allsmall"))
    winners = whole.decide()
    parts = {}
    for i in (1, 2):
        shard = Planted(tmp_path / f"s{i}", scores, ("fedra", "depthfl", "allsmall"))
        shard.contests = Options(shard=(i, 2)).of_shard(shard.contests, lambda one: one.key[2])
        parts |= shard.decide()
    assert parts == winners and len(winners) == 3


def indexed(made):
    """The contests of a folder as its index has them: with the cells that were computed alone."""
    entries = [
        Entry("skew", one.key[2], "", seed, place.name, "micro_vit", "strokes6", "paper", candidate=k)
        for one in made.contests
        for k, own in one.cells.items()
        for seed, place in own.items()
        if place.exists()
    ]
    merge_index(made.folder, "s", entries)
    merge_tunings(made.folder, "s", {one.key: TUNING for one in made.contests})
    return contests(made.folder)


def test_what_is_read_later_names_the_same_winner(tmp_path):
    made = Planted(tmp_path / "s", {**SCORES, (6, 1000): steady(0.95), (6, 1001): steady(0.9), (6, 1002): steady(0.9)})
    assert made.decide() == {KEY: 6}
    (found,) = indexed(made).values()
    assert found.winner == 6 and sorted(found.cells) == [0, 1, 2, 3, 6, 7] and found.confirmation.over


def test_what_an_earlier_winner_reports_is_left_out_where_none_is_stable_now(tmp_path):
    made = Planted(tmp_path / "s", dict.fromkeys(SCORES, FALLEN))
    made.decide()
    (found,) = indexed(made).values()
    assert found.unstable and unstable(made.folder) == [KEY]
    old = Entry("skew", "fedra", "", 0, "abc", "micro_vit", "strokes6", "paper")
    merge_index(made.folder, "s", [old, replace(old, method="other")])
    assert unstable(made.folder) == []
    without_reports(made.folder, "s", [KEY])
    assert unstable(made.folder) == [KEY]
    assert [e.method for e in read_index(made.folder).entries if e.candidate is None] == ["other"]


TUNE = """\
tune:
  trials: 4
  space: {train.optimizer.lr: {log: [0.001, 0.1]}}
  halving: [0.5]
  confirm: [1001, 1002]
"""


UNRECORDED = ("fedbench.results.tuning.constant_rounds", lambda *given: set())


def tiny(folder):
    changes = {
        "rounds: 2, max_steps": "rounds: 4, max_steps",
        "scenarios:": "  evaluation: {validation: 0.4, every: 1}\nscenarios:",
    }
    file = write_suite(folder, "fedra", changes)
    file.write_text(file.read_text().replace("data: dots", "data: {name: dots, per_class: 8}") + TUNE)
    return folder


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, own_cache):
    """As if nobody knew what the tiny models answer, which is one class."""
    folder = tiny(tmp_path_factory.mktemp("confirmed"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(*UNRECORDED)
        done = run(folder)
    assert done.exit_code == 0, done.output
    return folder, done


@pytest.fixture
def unrecorded(monkeypatch):
    monkeypatch.setattr(*UNRECORDED)


def run(folder, *words, results="r"):
    return fedbench("run", "tiny.yaml", "--plugin", TINY, "--results", results, *words, cwd=folder)


def test_a_suite_is_tuned_confirmed_and_reported(tuned, unrecorded):
    folder, done = tuned
    assert "tiny · tuning, confirming: " in done.output and "tiny · reporting: 1 cell" in done.output
    (contest,) = contests(folder / "r" / "tiny").values()
    assert contest.confirmation.over and contest.winner is not None
    (reported,) = load([folder / "r"])
    winner = contest.tuning.candidates[contest.winner]["train.optimizer.lr"]
    assert reported.manifest["config"]["train"]["optimizer"]["lr"] == winner
    assert len(contest.confirmation.asked) >= 2
    before = content_hash(folder / "r")
    assert json.loads(run(folder, "--json").stdout)["ran"] == 0 and content_hash(folder / "r") == before


def test_a_plan_has_the_runs_that_confirm(tuned, tmp_path):
    folder, _ = tuned
    words = ("plan", "tiny.yaml", "--plugin", TINY, "--results", tmp_path)
    row, reporting = json.loads(fedbench(*words, "--format", "json", cwd=folder).stdout)["cells"]
    assert row["confirm"] == 4 and len(row["ids"]) == 4 + 4 and row["status"] == "0 of 8 tried"
    # 4 of two rounds, 2 of two more, and 4 of four: of four rounds
    assert row["images"] == reporting["images"] * (4 * 2 + 2 * 2 + 4 * 4) / 4
    assert "tuning, to round 2, 4, and 4 runs to confirm" in fedbench(*words, cwd=folder).stdout


def test_compare_says_how_stable_the_winner_is(tuned, unrecorded):
    folder, _ = tuned
    shown = " ".join(fedbench("compare", "tuning", "r", cwd=folder, columns=160).stdout.split())
    assert "4 candidates, halved after round 2 of 4 rounds · 1 seed · the best two also on seed 1001, 1002" in shown
    assert "stable" in shown and "by seed" in shown and "3 of 3" in shown
    rows = json.loads(fedbench("compare", "tuning", "r", "--format", "json", cwd=folder).stdout)["rows"]
    (won,) = [row for row in rows if row["winner"] and row["round"] == 4]
    assert list(won["by_seed"]) == ["1000", "1001", "1002"] and won["vetoes"] == {} and won["stable"] == "3 of 3"


def test_boards_name_a_method_without_a_stable_candidate(tmp_path, own_cache):
    """The tiny model says one class of everything."""
    folder = tiny(tmp_path)
    done = run(folder, "--json")
    summary = json.loads(done.stdout)
    assert done.exit_code == 0 and summary["unstable"] == ["small · fedra"] and "undecided" not in summary
    assert "No stable candidate, and so no result: tiny · small · fedra;" in fedbench("compare", "r", cwd=folder).stderr
    told = fedbench("compare", "tuning", "r", cwd=folder, columns=120).stdout
    assert "fedra   no stable candidate" in told and "predicts one class" in told
    write_cell(folder / "r" / "tiny", "odd", scenario="small", evaluation=eval_rows({4: {"a": 0.5}}))
    shown = fedbench("compare", "r", cwd=folder, columns=200)
    assert "No stable candidate, and so no result: tiny · small · fedra;" in shown.stdout and not shown.stderr
