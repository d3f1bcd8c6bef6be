"""A suite that is tuned first: halved candidates, their winner on the reporting seeds, and ways to break it off."""

from __future__ import annotations

import csv
import io
import json
import shutil

import pytest
from command import TINY, fedbench, write_suite

from fedbench.commands.plan import _sum
from fedbench.results import content_hash, load, read_index
from fedbench.results.tables import to_table
from fedbench.results.tuning import contests, read_tunings
from fedbench.simulation.simulation import Simulation

CHANGES = {
    "rounds: 2, max_steps": "rounds: 4, max_steps",
    "scenarios:": "  evaluation: {validation: 0.4, every: 1}\nscenarios:",
}
TUNE = """\
tune:
  trials: 4
  space: {train.optimizer.lr: {log: [0.001, 0.1]}}
  halving: [0.25, 0.5]
"""


def suite(folder, methods="fedra", tune=TUNE):
    file = write_suite(folder, methods, CHANGES)
    file.write_text(file.read_text().replace("data: dots", "data: {name: dots, per_class: 8}") + tune)
    return folder


def run(folder, *words, results="r"):
    return fedbench("run", "tiny.yaml", "--plugin", TINY, "--results", results, *words, cwd=folder)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, own_cache):
    folder = suite(tmp_path_factory.mktemp("tuned"))
    done = run(folder)
    assert done.exit_code == 0, done.output
    return folder, done


def test_candidates_are_halved_and_the_winner_reports(tuned):
    folder, done = tuned
    everything = load([folder / "r"], candidates=True)
    found = {}
    for r in everything:
        if r.entry.candidate is not None:
            found.setdefault(r.entry.method, []).append((r.status, r.manifest.get("round")))
    assert sorted(found["fedra"], key=str) == [("finished", None), ("halved", 1), ("halved", 1), ("halved", 2)]
    reported = load([folder / "r"])
    assert [(r.entry.method, r.entry.seed, r.status) for r in reported] == [("fedra", 0, "finished")]
    searches = read_tunings(folder / "r" / "tiny")
    for key, contest in contests(folder / "r" / "tiny").items():
        config = next(r.manifest["config"] for r in reported if r.entry.method == key[2])
        winner = searches[key].candidates[contest.winner]["train.optimizer.lr"]
        assert config["train"]["optimizer"]["lr"] == winner
    assert "tiny · tuning, part 1 of 3: 4 cells, 0 already done, 4 to run" in done.output
    assert "tiny · reporting: 1 cell" in done.output


def test_a_method_that_reads_nothing_that_is_tuned_has_one_candidate(tmp_path):
    done = run(suite(tmp_path, "majority"))
    assert done.exit_code == 0, done.output
    assert "tiny · tuning, part 1 of 3: 1 cell" in done.output
    (candidate, reported) = load([tmp_path / "r"], candidates=True)
    assert (candidate.entry.candidate, reported.entry.candidate) == (0, None)
    assert {candidate.status, reported.status} == {"finished"}


def test_a_halved_candidate_that_goes_on_equals_one_that_was_never_halved(tuned, plugins):
    """The winner's rows are those of a simulation of this candidate from its first round to its last."""
    folder, _ = tuned
    finished = [r for r in load([folder / "r"], candidates=True) if r.status == "finished"]
    assert any(r.entry.candidate is not None for r in finished)
    for r in finished:
        evaluation, rounds = Simulation(r.manifest["config"], plugins).run()
        assert r.eval.equals(to_table("eval", evaluation))
        assert r.rounds.drop_columns(["seconds"]).equals(to_table("rounds", rounds).drop_columns(["seconds"]))


def test_a_second_run_finds_everything_done(tuned):
    folder, _ = tuned
    before = content_hash(folder / "r")
    summary = json.loads(run(folder, "--json").stdout)
    assert summary["ran"] == 0 and summary["left"] == 0
    assert content_hash(folder / "r") == before


@pytest.fixture(scope="module")
def two_tuned(tmp_path_factory, own_cache):
    folder = suite(tmp_path_factory.mktemp("two"), "fedra, allsmall")
    assert run(folder, "--quiet").exit_code == 0
    return folder


@pytest.mark.slow
def test_shards_tune_by_themselves_and_merge_to_the_same(two_tuned, tmp_path):
    folder = two_tuned
    for i in (1, 2):
        assert run(folder, "--quiet", "--shard", f"{i}/2", results=tmp_path / f"s{i}").exit_code == 0
        methods = {entry.method for entry in read_index(tmp_path / f"s{i}" / "tiny").entries}
        assert len(methods) == 1  # a contest stays in one shard
    done = fedbench("merge", tmp_path / "s1", tmp_path / "s2", "--into", tmp_path / "all", cwd=folder)
    assert done.exit_code == 0, done.output
    assert content_hash(tmp_path / "all") == content_hash(folder / "r")
    assert read_tunings(tmp_path / "all" / "tiny") == read_tunings(folder / "r" / "tiny")
    assert json.loads(run(folder, "--json", results=tmp_path / "all").stdout)["ran"] == 0


def test_a_shard_without_a_contest_is_fine_and_merges(tuned, tmp_path):
    """There is one contest."""
    folder, _ = tuned
    done = run(folder, "--shard", "2/2", results=tmp_path / "s3")
    assert done.exit_code == 0 and "0 cells in " in done.stdout, done.output
    assert load([tmp_path / "s3"]) == []
    merged = fedbench("merge", folder / "r", tmp_path / "s3", "--into", tmp_path / "all", cwd=folder)
    assert merged.exit_code == 0 and content_hash(tmp_path / "all") == content_hash(folder / "r"), merged.output


@pytest.mark.slow
def test_a_method_that_is_tuned_anew_leaves_what_another_was_tried_with(two_tuned, tmp_path):
    folder = two_tuned
    shutil.copytree(folder / "r", tmp_path / "r")
    suite(tmp_path, tune=TUNE.replace("trials: 4", "trials: 2\n  draw: 1"))
    before = contests(folder / "r" / "tiny"), read_tunings(folder / "r" / "tiny")
    assert run(tmp_path, "--quiet", "--method", "fedra").exit_code == 0
    after = contests(tmp_path / "r" / "tiny"), read_tunings(tmp_path / "r" / "tiny")
    kept, anew = ("small", "", "allsmall"), ("small", "", "fedra")
    assert after[1][kept] == before[1][kept] and after[0][kept].scores == before[0][kept].scores
    assert len(after[1][anew].candidates) == 2 and list(after[0][anew].cells) == [0, 1]
    shown = " ".join(fedbench("compare", "r", cwd=tmp_path).stdout.split())
    assert "small · fedra reports the best of 2 candidates" in shown
    assert "small · allsmall reports the best of 4 candidates" in shown


def test_a_run_that_was_ended_between_two_stages_goes_on(tuned, tmp_path):
    """A few cells at a time, by --max-failures of a plugin's method, and all of them by what is left."""
    folder, _ = tuned
    part = tmp_path / "part"
    shutil.copytree(folder / "r", part)
    gone = [r for r in load([part], candidates=True) if r.status == "finished" or r.manifest.get("round") == 2]
    for r in gone:  # what came after the first rung; checkpoints with it
        shutil.rmtree(r.folder, ignore_errors=True)
    assert run(folder, "--quiet", results=part).exit_code == 0
    assert content_hash(part) == content_hash(folder / "r")


def odd_suite(folder, key, *choices):
    """A suite whose one method goes wrong as long as there is no file `until`."""
    file = suite(folder, "{name: odd, how: diverge}", "") / "tiny.yaml"
    tune = f"tune: {{trials: 2, space: {{methods.odd.{key}: {{choice: [{', '.join(map(str, choices))}]}}}}}}\n"
    file.write_text(file.read_text() + tune)


def test_a_candidate_that_diverges_loses(tmp_path, own_cache):
    odd_suite(tmp_path, "until", "''", tmp_path / "tiny.yaml")
    done = run(tmp_path, "--json")
    summary = json.loads(done.stdout)
    assert done.exit_code == 0 and summary["failed"] == {}, done.output
    assert summary["counts"] == {"failed": 1, "finished": 2}


@pytest.mark.slow
def test_a_candidate_that_breaks_is_told(tmp_path, own_cache):
    odd_suite(tmp_path, "how", "raise", "diverge")
    done = run(tmp_path, "--json")
    summary = json.loads(done.stdout)
    assert done.exit_code == 1 and summary["undecided"] == ["small · odd"]
    assert [reason[:12] for reason in summary["failed"].values()] == ["RuntimeError"]


@pytest.mark.parametrize("how", [pytest.param("diverge", marks=pytest.mark.slow), "raise"])
def test_only_candidates_that_break_count_for_max_failures(tmp_path, own_cache, how):
    file = suite(tmp_path, f"{{name: odd, how: {how}}}", "") / "tiny.yaml"
    tune = f"tune: {{trials: 2, space: {{methods.odd.until: {{choice: ['', {file}]}}}}}}\n"
    file.write_text(file.read_text() + tune)
    done = run(tmp_path, "--max-failures", 1, "--jobs", 2)
    reported = [r.status for r in load([tmp_path / "r"])]
    if how == "diverge":
        assert done.exit_code == 0 and reported == ["finished"], done.output
    else:
        assert done.exit_code == 1 and "finished" not in reported
        assert "Stopped by --max-failures; 1 cell left" in done.stdout, done.output


def test_a_halved_candidate_is_called_so_by_whoever_asks_for_it(tuned):
    folder, _ = tuned
    halved = next(r for r in load([folder / "r"], candidates=True) if r.status == "halved")
    shown = fedbench("compare", halved.folder, cwd=folder)
    assert shown.exit_code == 0 and "halved" in shown.stdout and "among the worse half" in shown.stdout


def test_a_plan_shows_what_is_tried_and_what_reports(tuned, tmp_path):
    folder, _ = tuned
    words = ("plan", "tiny.yaml", "--plugin", TINY, "--results")
    rows = json.loads(fedbench(*words, tmp_path, "--format", "json", cwd=folder).stdout)["cells"]
    tried, reporting = rows
    assert tried["names"] == [["small", "fedra", "", None]]
    assert (len(tried["ids"]), tried["rungs"], tried["status"]) == (4, [1, 2, 4], "0 of 4 tried")
    # 4 of one round, 2 of one more, 1 of two more: of 4 times 4
    assert tried["images"] == reporting["images"] * 8 / 4
    shown = fedbench(*words, "r", "--cost", "--jobs", 1, "--device", "cpu", cwd=folder, columns=80).stdout
    assert "tuning, to round 1, 2, 4" in shown and "4 of 4 tried" in shown and "tiny: 5 cells" in shown
    assert "Already finished" in shown and max(map(len, shown.splitlines())) <= 80


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [[0, 2], [2, 0]])
def test_a_candidate_that_nobody_can_price_does_not_hide_what_the_others_cost(tmp_path, blocks):
    """The tiny ViT has two blocks, of which `fedv` leaves the server one at least."""

    def planned(*choices, form=("--format", "json")):
        space = f"methods.fedv.head_blocks: {{choice: {list(choices)}}}"
        suite(tmp_path, "fedv", f"tune: {{trials: {len(choices)}, space: {{{space}}}}}\n")
        return fedbench("plan", "tiny.yaml", "--plugin", TINY, *form, cwd=tmp_path)

    row, *_ = json.loads(planned(*blocks).stdout)["cells"]
    assert len(row["ids"]) == 2 and row["unpriced"] == 1 and "blocks" in row["unknown"]
    assert row["images"] == 4 * 2 * 2 and row["flops"] > 0  # of one candidate: rounds, clients, a batch each
    told = planned(*blocks, form=()).stdout
    left = "1 cell" if blocks[0] == 0 else "2 cells"  # what will report is priced as the first candidate
    assert "0 of 2 tried, 1 ?" in told and f"without the {left} marked ?" in " ".join(told.split())


def test_a_candidate_that_is_not_applicable_costs_nothing(tmp_path):
    suite(tmp_path, "odd", "tune: {trials: 2, space: {methods.odd.how: {choice: [raise, not_applicable]}}}\n")
    tried, own, *_ = json.loads(
        fedbench("plan", "tiny.yaml", "--plugin", TINY, "--format", "json", cwd=tmp_path).stdout
    )["cells"]
    assert len(tried["ids"]) == 2 and tried["images"] == own["images"] > 0 and "unpriced" not in tried


def test_candidates_are_added_up_whatever_one_of_them_lacks():
    """Nobody takes part in the first, and so it takes no simulated time."""
    first, other = {"flops": 2, "images": 4}, {"flops": 6, "images": 4, "simulated_seconds": 3.0}
    for parts in ((first, other), (other, first)):
        assert _sum([(part, 0.5) for part in parts]) == {"flops": 4, "images": 4, "simulated_seconds": 1.5}


def test_the_command_of_before_says_what_replaces_it(tuned):
    folder, _ = tuned
    gone = fedbench("tune", "tiny.yaml", cwd=folder)
    assert gone.exit_code == 2 and "compare tuning --format json" in gone.stderr


def test_compare_says_who_won_by_what_and_that_it_was_tuned(tuned):
    folder, _ = tuned
    shown = fedbench("compare", "tuning", "r", cwd=folder, columns=80).stdout
    searches, found = read_tunings(folder / "r" / "tiny"), contests(folder / "r" / "tiny")
    assert "4 candidates, halved after rounds 1 and 2 of 4 rounds" in " ".join(shown.split())
    for key, contest in found.items():
        (line,) = [line for line in shown.splitlines() if line.startswith(f"{key[2]} ")]
        assert str(searches[key].candidates[contest.winner]["train.optimizer.lr"]) in line
    records = json.loads(fedbench("compare", "tuning", "r", "--format", "json", cwd=folder).stdout)["rows"]
    assert len([r for r in records if r["winner"] and r["round"] == 4]) == 1
    assert len({r["candidate"] for r in records if r["round"] == 1}) == 4
    assert "Tuned: every method reports the best of 4 candidates" in " ".join(
        fedbench("compare", "r", cwd=folder).stdout.split()
    )


def test_candidates_stand_on_no_leaderboard(tuned):
    folder, _ = tuned
    rows = list(csv.DictReader(io.StringIO(fedbench("compare", "r", "--format", "csv", cwd=folder).stdout)))
    assert [(row["method"], row["n_seeds"]) for row in rows] == [("fedra", "1")]
