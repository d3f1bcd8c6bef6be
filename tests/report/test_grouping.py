"""fedbench/report/grouping.py: which cells share a row, which a leaderboard, and which are never mixed."""

from __future__ import annotations

import pytest
from boards import board, row, write
from factories import eval_rows, write_cell

from fedbench.errors import UserError
from fedbench.report.grouping import in_pictures, select
from fedbench.report.leaderboards import leaderboards
from fedbench.results import load, merge_index


def test_cell_not_started_joins_the_others_of_its_name(tmp_path):
    write(tmp_path / "s", "fedra", (0.8, 0.6))
    started = load([tmp_path])[0].entry
    merge_index(tmp_path / "s", "s", [vars(started) | {"seed": 1, "cell": "later"}])
    found = board(tmp_path)
    assert row(found, "fedra").average.n == 1
    assert found.notes == ["fedra (seed 1): not started"]


def test_runs_of_different_length_are_never_mixed(tmp_path):
    write(tmp_path / "s", "fedra", (0.8, 0.6))
    write_cell(tmp_path / "s", "fedra", 1, train__rounds=3, evaluation=eval_rows({3: {"a": 0.1, "b": 0.1}}))
    boards = leaderboards(load([tmp_path]))
    assert [b.place.variant for b in boards] == ["train.rounds=12", "train.rounds=3"]
    assert [b.rows[0].average.mean for b in boards] == pytest.approx([0.7, 0.1])


@pytest.mark.parametrize(
    "changes", [{"faults": {"dropout": 0.9}}, {"evaluation__by": "client"}, {"evaluation__validation": 0.1}]
)
def test_runs_with_faults_tested_by_client_or_with_validation_images_are_never_mixed_with_others(tmp_path, changes):
    write(tmp_path / "s", "fedra", (0.8, 0.6))
    write_cell(tmp_path / "s", "fedra", 1, evaluation=eval_rows({12: {"a": 0.1, "b": 0.1}}), **changes)
    assert [b.rows[0].average.mean for b in leaderboards(load([tmp_path]))] == pytest.approx([0.7, 0.1])


def test_settings_that_a_method_brings_leave_it_on_the_leaderboard_of_all(tmp_path):
    write(tmp_path / "s", "fedra", (0.8, 0.6))
    adapter = load([tmp_path])[0].manifest["config"]["adapter"]
    rows = eval_rows({12: {"a": 0.1, "b": 0.1}})
    for seed, rank in ((0, 4), (1, 2)):
        write_cell(tmp_path / "s", "x", seed, adapter__rank=rank, evaluation=rows, shared={"adapter": adapter})
    assert [r.label for r in board(tmp_path).rows] == ["fedra", "x [adapter.rank=4]", "x [adapter.rank=2]"]
    assert load([tmp_path])[0].entry.shared is None
    write_cell(tmp_path / "s", "y", 0, adapter__rank=4, evaluation=rows)
    assert [[r.label for r in b.rows] for b in leaderboards(load([tmp_path]))][1:] == [["y"]]


def test_ranks_rotated_by_the_seed_stay_together_and_others_apart(tmp_path):
    for seed, ranks in enumerate(([4, 2], [2, 4], [4, 4])):
        rows = eval_rows({12: {"a": 0.5, "b": 0.5}})
        write_cell(tmp_path / "s", "fedra", seed, ranks={"by_client": ranks}, evaluation=rows)
    assert [b.place.variant for b in leaderboards(load([tmp_path]))] == [
        "ranks.by_client=[2, 4]",
        "ranks.by_client=[4, 4]",
    ]


def test_capacities_rotated_by_the_seed_stay_together(tmp_path):
    write(tmp_path / "s", "fedra", (0.8, 0.6), (0.8, 0.6))
    capacities = [r.manifest["config"]["capacities"]["by_client"] for r in load([tmp_path])]
    assert capacities[0] != capacities[1]
    assert board(tmp_path).rows[0].average.n == 2


def test_options_changed_between_runs_make_two_rows(tmp_path):
    for seed, missing in enumerate(("keep", "cover")):
        rows = eval_rows({12: {"a": seed / 2, "b": 0.5}})
        write_cell(tmp_path / "s", "fedra", seed, method__missing_layers=missing, evaluation=rows)
    labels = [r.label for r in board(tmp_path).rows]
    assert labels == ["fedra [method.missing_layers=keep]", "fedra [method.missing_layers=cover]"]
    with pytest.raises(UserError, match="rows of that name differ in options; take one: fedra .*keep.*; fedra .*cover"):
        board(tmp_path, baseline="fedra")
    assert board(tmp_path, baseline=labels[1]).baseline == labels[1]


def test_variants_scenarios_and_profiles_have_boards_of_their_own(tmp_path):
    write(tmp_path / "s", "fedra", (0.8, 0.6))
    write(
        tmp_path / "s",
        "fedra",
        (0.7, 0.6),
        variant="adapter.targets=attn.proj",
        adapter__targets=["attn.proj"],
    )
    write(tmp_path / "s", "fedra", (0.6, 0.6), scenario="all_6")
    boards = leaderboards(load([tmp_path]))
    assert [(b.place.scenario, b.place.variant) for b in boards] == [
        ("mixed", ""),
        ("mixed", "adapter.targets=attn.proj"),
        ("all_6", ""),
    ]


def test_select_by_glob_name_and_seed(tmp_path):
    for scenario in ("all_4", "all_6", "mixed"):
        write(tmp_path / "s", "fedra", (0.8, 0.6), (0.8, 0.6), scenario=scenario)
    results = load([tmp_path])
    assert {r.entry.scenario for r in select(results, scenarios=["all_*"])} == {"all_4", "all_6"}
    assert [r.entry.seed for r in select(results, ["mixed"], ["fedra"], [1])] == [1]
    assert select(results) == results
    with pytest.raises(UserError, match="no scenario 'mixd'.*Did you mean 'mixed'.*There are: all_4, all_6, mixed"):
        select(results, ["mixd"])


def drawn(folder, draws, method="fedra"):
    for seed, draw in draws:
        rows = eval_rows({12: {"a": 0.5, "b": 0.5}})
        write_cell(folder / "s", method, seed, data__draw=draw, evaluation=rows)


def test_seeds_that_draw_their_own_data_are_one_leaderboard_that_says_so(tmp_path):
    drawn(tmp_path, [(0, 0), (3, 3), (4, 4)])
    drawn(tmp_path, [(0, 0), (3, 3), (4, 4)], "depthfl")
    (found,) = leaderboards(load([tmp_path]))
    assert row(found, "fedra").average.n == 3 and "drawn anew with each seed: data.draw" in found.notes


def test_data_of_other_draws_than_the_seed_stay_apart(tmp_path):
    drawn(tmp_path, [(0, 0), (1, 0), (2, 5)])
    assert [found.place.variant for found in leaderboards(load([tmp_path]))] == ["data.draw=0", "data.draw=5"]


def test_pictures_leave_constant_answers_out_unless_clients_are_tested_or_nothing_else_is_there(tmp_path):
    write(tmp_path / "s", "fedra", (0.8, 0.6))
    write(tmp_path / "s", "majority", (0.1, 0.1))
    here = eval_rows({12: {"a": 0.1, "b": 0.1}})
    by_client = write_cell(tmp_path / "s", "majority", scenario="own", evaluation__by="client", evaluation=here)
    found, roles = load([tmp_path]), {"majority": "constant"}
    drawn = in_pictures(found, roles)
    assert [(r.entry.method, r.folder == by_client) for r in drawn] == [("fedra", False), ("majority", True)]
    constant = [r for r in found if r not in drawn]
    assert len(constant) == 1 and in_pictures(constant, roles) == constant
