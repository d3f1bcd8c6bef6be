"""What candidates were drawn from, kept for each contest: of runs after one another, shards, and older folders."""

from __future__ import annotations

import json

import pytest
from command import fedbench
from factories import eval_rows, write_cell

from fedbench.errors import UserError
from fedbench.report.views.tuning import by_scenario, contests_of, how_tuned
from fedbench.results import load
from fedbench.results.documents import write_json
from fedbench.results.merge import merge
from fedbench.results.tuning import contests, merge_tunings, read_tunings
from fedbench.types.tuning import Tuning

LR, RANK = "train.optimizer.lr", "adapter.rank"
BOTH = Tuning(
    {LR: {"log": [0.001, 1]}, RANK: {"choice": [4, 8, 16]}},
    [{LR: 0.01 * (k + 1), RANK: (16, 4, 8)[k % 3]} for k in range(8)],
    [1000],
    "accuracy",
    [],
)
RANKS = Tuning({RANK: {"choice": [4, 8, 16]}}, [{RANK: rank} for rank in (4, 8, 16)], [1000], "accuracy", [])
AT = f"{LR}=0.1"  # a variant, as --set makes one
FIRST = [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.9, 0.8]  # validation scores by candidate
THEN = [0.3, 0.5, 0.4]


def tried(folder, scores, search, method="fedra", variant=""):
    """The candidates' cells of a contest, and one that reports; returns what a run keeps beside them."""
    for k, score in enumerate(scores):
        values = search.candidates[k]
        told = {"train__optimizer": {"lr": values.get(LR, 0.1)}, "adapter__rank": values[RANK], "candidate": k}
        rows = eval_rows({12: {"a": score}}, split="validation")
        write_cell(folder, method, 1000, variant=variant, evaluation=rows, **told)
    write_cell(folder, method, 0, variant=variant, evaluation=eval_rows({12: {"a": 0.5}}))
    return {("mixed", variant, method): search}


def records(folder):
    told = json.loads(fedbench("compare", "tuning", folder, "--format", "json", cwd=folder).stdout)
    return [record for record in told["rows"] if record["variant"] == ""]


def test_another_run_leaves_alone_what_the_first_one_was_tried_with(tmp_path):
    folder = tmp_path / "s"
    merge_tunings(folder, "s", tried(folder, FIRST, BOTH))
    before = records(folder)
    assert [r["candidate"] for r in before if r["winner"]] == [6] and len(before) == 8
    merge_tunings(folder, "s", tried(folder, THEN, RANKS, variant=AT))
    assert records(folder) == before
    assert read_tunings(folder) == {("mixed", "", "fedra"): BOTH, ("mixed", AT, "fedra"): RANKS}
    assert {key[1]: contest.winner for key, contest in contests(folder).items()} == {"": 6, AT: 1}
    here, there = how_tuned(load([folder]))
    assert here.startswith("Tuned: in s · mixed every method reports the best of 8 candidates, ")
    assert there.startswith(f"Tuned: in s · mixed · {AT} every method reports the best of 3 candidates, ")


def test_methods_that_were_not_tried_alike_stand_in_tables_of_their_own(tmp_path):
    folder = tmp_path / "s"
    searches = [tried(folder, FIRST, BOTH, method) for method in ("fedra", "allsmall", "depthfl")]
    for search in searches:
        merge_tunings(folder, "s", search)
    merge_tunings(folder, "s", tried(folder, THEN, RANKS, "allsmall"))
    found = by_scenario(contests_of(load([folder])))
    assert [title for title, _ in found] == ["s · mixed · fedra, depthfl", "s · mixed · allsmall"]
    assert [len(one.cells) for _, ones in found for one in ones] == [8, 8, 3]
    told = [line.split(" candidates")[0] for line in how_tuned(load([folder]))]
    assert told == [
        "Tuned: s · mixed · fedra, depthfl report the best of 8",
        "Tuned: s · mixed · allsmall reports the best of 3",
    ]


def test_shards_bring_what_each_was_tried_with(tmp_path):
    places = [tmp_path / name / "s" for name in ("a", "b")]
    first = tried(places[0], FIRST, BOTH)
    then = tried(places[1], THEN, RANKS, "allsmall")
    for folder, told in zip(places, (first, then), strict=True):
        merge_tunings(folder, "s", told)
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "all")
    assert read_tunings(tmp_path / "all" / "s") == first | then
    written = (tmp_path / "all" / "s" / "index.json").stat()
    merge([tmp_path / "b", tmp_path / "a"], tmp_path / "all")
    assert (tmp_path / "all" / "s" / "index.json").stat().st_mtime_ns == written.st_mtime_ns
    merge_tunings(places[1], "s", {("mixed", "", "fedra"): RANKS})
    with pytest.raises(UserError, match=r"two tunings of s · mixed · fedra:(.|\n)*Nothing was written"):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_what_is_no_tuning_is_refused(tmp_path):
    key, told = ["mixed", "", "fedra"], vars(BOTH)
    for searches, wrong in (
        ([{**told, "contests": [key]}, {**told, "contests": [key]}], "mixed · fedra is a contest of two searches"),
        ([{**told, "contests": [["mixed", "", 3]]}], "a contest is"),
        (["x"], "a search is 'x'"),
        ([{**told, "contests": [key], "candidates": [{}]}], r"candidates\[0\] has other keys"),
        (3, "searches is 3"),
    ):
        write_json(
            tmp_path / "index.json", {"suite": "s", "entries": [], "expected": [], "tables": {}, "searches": searches}
        )
        with pytest.raises(UserError, match=rf"index\.json: .* of fedbench \({wrong}"):
            read_tunings(tmp_path)
