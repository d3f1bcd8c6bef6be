"""fedbench/compare.py with grouping, measures, columns, tables and formats: numbers worked out by hand."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from factories import DOMAINS, eval_rows, prefix_rounds, round_row, write_cell, write_suite
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fedbench.compare import leaderboards, marks
from fedbench.compare.columns import columns
from fedbench.compare.cost import layer_coverage
from fedbench.compare.formats import CSV_COLUMNS, render
from fedbench.compare.grouping import select
from fedbench.compare.measures import sign_flip, t_quantile
from fedbench.compare.tables import show
from fedbench.compare.units import human_bytes, three_digits
from fedbench.errors import UserError
from fedbench.results import load, merge_index


def write(folder, method, *by_seed, at=12, **options):
    """Cells for seeds 0, 1, ... with the values (a, b) of two domains in one round."""
    for seed, (a, b) in enumerate(by_seed):
        write_cell(folder, method, seed, evaluation=eval_rows({at: {"a": a, "b": b}}), **options)


def board(folder, **options):
    (found,) = leaderboards(load([folder]), **options)
    return found


def row(found, label):
    return next(r for r in found.rows if r.label == label)


def shown(boards, width=80):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    show(boards, console)
    return console.file.getvalue()


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
    assert ours.gap.mean == pytest.approx(-0.15)
    assert ours.gap.high - ours.gap.mean == pytest.approx(4.30265 * 0.05 / 3**0.5, rel=1e-5)
    assert ours.gap.p == 0.25  # two of the eight sign patterns are as extreme
    assert row(found, "alllarge").gap is None


def test_one_seed_has_no_spread_and_two_have_no_interval(tmp_path):
    write(tmp_path / "s", "fedra", (0.8, 0.6), (0.9, 0.5))
    write(tmp_path / "s", "alllarge", (0.9, 0.9))
    found = board(tmp_path)
    assert row(found, "alllarge").average.std is None
    gap = row(found, "fedra").gap
    assert (gap.n, gap.low, gap.p) == (1, None, None)
    assert gap.mean == pytest.approx(-0.2)  # seed 0 alone: the only one both have
    assert found.notes == ["seeds are unequal (fedra 0, 1; alllarge 0): the gap pairs the seeds both have"]


def test_round_shown(tmp_path):
    values = [0.1, 0.9, 0.3, 0.5, 0.5, 0.4]
    rows = eval_rows({t: {"a": v, "b": v} for t, v in enumerate(values, 1)})
    write_cell(tmp_path / "s", "fedra", evaluation=rows)
    write_cell(tmp_path / "s", "fedra", 1, evaluation=[r | {"value": r["round"] / 10} for r in rows])
    final, best, last4 = (row(board(tmp_path, at=at), "fedra") for at in ("final", "best", "last4"))
    assert [r.average for r in final.runs] == pytest.approx([0.4, 0.6]) and final.round == 6
    assert [r.average for r in best.runs] == pytest.approx([0.9, 0.6]) and best.round == "2/6"
    assert [r.average for r in last4.runs] == pytest.approx([1.7 / 4, 1.8 / 4]) and last4.round == 6
    with pytest.raises(UserError, match="no round 'last'"):
        board(tmp_path, at="last")


def test_failed_cell_enters_no_mean(tmp_path):
    write(tmp_path / "s", "fedra", (0.8, 0.6), (0.8, 0.6))
    write_cell(tmp_path / "s", "fedra", 2, status="failed", reason="RuntimeError: layer 3\nTraceback")
    write_cell(tmp_path / "s", "depthfl", 0, status="timeout", reason="after 60 s")
    write_cell(tmp_path / "s", "allsmall", 0, status="running")
    for method in ("exclusive", "fedv"):
        write_cell(tmp_path / "s", method, 0, status="not_applicable", reason="nobody holds 12 layers")
    found = board(tmp_path)
    assert row(found, "fedra").average.n == 2
    assert [r.status for r in found.rows] == ["finished", "timeout", "running", "not_applicable", "not_applicable"]
    assert found.notes == [
        "fedra (seed 2): failed: RuntimeError: layer 3",
        "depthfl: out of time: after 60 s",
        "allsmall: not finished (running or interrupted)",
        "exclusive, fedv: not applicable: nobody holds 12 layers",
    ]
    cells = {column.title: [cell.text for cell in column.cells] for column in columns(found)}
    assert cells["average"] == ["70.0", "timeout", "unfinished", "–", "–"]
    assert cells["a"] == ["80.0", "", "", "–", "–"]


def test_nothing_finished_is_still_a_table(tmp_path):
    write_cell(tmp_path / "s", "fedra", status="failed", reason="boom")
    text = shown([board(tmp_path)])
    assert "accuracy: no cell has finished" in text and "fedra: failed: boom" in text


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
    assert [b.variant for b in boards] == ["train.rounds=12", "train.rounds=3"]
    assert [b.rows[0].average.mean for b in boards] == pytest.approx([0.7, 0.1])


@pytest.mark.parametrize("changes", [{"faults": {"dropout": 0.9}}, {"evaluation__by": "client"}])
def test_runs_with_faults_or_tested_by_client_are_never_mixed_with_others(tmp_path, changes):
    write(tmp_path / "s", "fedra", (0.8, 0.6))
    write_cell(tmp_path / "s", "fedra", 1, evaluation=eval_rows({12: {"a": 0.1, "b": 0.1}}), **changes)
    assert [b.rows[0].average.mean for b in leaderboards(load([tmp_path]))] == pytest.approx([0.7, 0.1])


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
    assert [(b.scenario, b.variant) for b in boards] == [
        ("mixed", ""),
        ("mixed", "adapter.targets=attn.proj"),
        ("all_6", ""),
    ]


def test_second_output_has_a_row_of_its_own_without_a_mark_or_a_cost(tmp_path):
    rows = eval_rows({12: {"a": 0.9, "b": 0.9}}, "accuracy/last") + eval_rows({12: {"a": 0.8, "b": 0.8}})
    write_cell(tmp_path / "s", "depthfl", evaluation=rows)
    write(tmp_path / "s", "fedra", (0.7, 0.6))
    found = board(tmp_path)
    assert [r.label for r in found.rows] == ["depthfl", "depthfl/last", "fedra"]
    assert found.rows[1].average.mean == pytest.approx(0.9)
    assert marks(found)[0, "average"] == "best" and (1, "average") not in marks(found)
    cost = next(c for c in columns(found) if c.title == "down + up")
    assert [bool(cell.text) for cell in cost.cells] == [True, False, True]


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
    lines = list(csv.DictReader(io.StringIO(render([found], "csv"))))
    assert [(r["domain"], r["client"], float(r["mean"])) for r in lines] == [
        ("a", "0", 0.2),
        ("a", "1", 0.4),
        ("b", "2", 0.9),
        ("a", "", pytest.approx(0.3)),
        ("b", "", 0.9),
        ("average", "", 0.5),
        ("client_sd", "", pytest.approx((0.26 / 3) ** 0.5)),
        ("worst_10_percent", "", 0.2),
    ]


def test_gamma_and_coverage_by_hand():
    # Round 1: layer 0 twice, layer 1 once. Round 2: layer 0 once, layer 1 by nobody whose work arrived.
    rounds, layers = [1, 1, 2, 2], [[0, 1], [0], [0], [1]]
    assert layer_coverage(rounds, layers, [True, True, True, False], 2) == (1, (2 + 1 + 1 + 0) / 4)
    assert layer_coverage([1, 1], [[0], [0]], [True, True], 1) == (2, 2.0)
    assert layer_coverage([1, 1], [[0], [0]], [True, True], 4) == (2, 0.5)  # three rounds without anybody
    assert layer_coverage([1], [[]], [True], 1) == (None, None)


def test_cost_by_hand(tmp_path):
    rounds = [round_row(1, 0, [0, 1]), round_row(1, 1, [0]), round_row(2, 0, [0, 1]), round_row(2, 1, [0])]
    write_cell(tmp_path / "s", "fedra", 1, evaluation=eval_rows({2: {"a": 1.0}}), rounds=rounds, train__rounds=2)
    cost = board(tmp_path).rows[0].cost
    assert (cost.bytes_down, cost.bytes_up, cost.gflops) == (1.5e6, 0.75e6, 3.0)
    assert (cost.total_bytes, cost.total_gflops, cost.client_rounds) == (9e6, 12.0, 4)
    assert (cost.total_bytes_up, cost.server_gflops, cost.exchange) == (3e6, None, {})
    assert (cost.gamma, cost.coverage, cost.memory_bytes, cost.seconds) == (1, 1.5, 20e6, 21.0)


@pytest.mark.parametrize("train", [{}, {"rounds": 0}, {"rounds": -3}])
def test_a_strangers_configuration_that_knows_no_rounds_is_no_fault(tmp_path, train):
    rounds = [round_row(1, 0, [0]), round_row(2, 0, [0])]
    folder = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({2: {"a": 1.0}}), rounds=rounds)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["config"]["train"] = train
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert board(tmp_path).rows[0].cost.coverage == 1.0


def test_run_in_which_nobody_took_part_has_no_cost(tmp_path):
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({2: {"a": 1.0}}), rounds=[])
    assert board(tmp_path).rows[0].cost is None
    assert "down + up" not in shown([board(tmp_path)])


def test_best_and_second_leave_out_the_baseline_and_share_ties(tmp_path):
    for method, values in {
        "alllarge": (0.99, 0.99),
        "fedra": (0.8, 0.5),
        "depthfl": (0.8001, 0.7),
        "allsmall": (0.5, 0.6),
    }.items():
        write(tmp_path / "s", method, values)
    found = marks(board(tmp_path))
    assert found[1, "a"] == found[2, "a"] == "best"  # both read 80.0
    assert found[3, "a"] == "second"
    assert (found[2, "b"], found[3, "b"]) == ("best", "second")
    assert not any(position == 0 for position, _ in found)


def test_lone_method_is_not_the_best(tmp_path):
    write(tmp_path / "s", "fedra", (0.8, 0.5))
    write(tmp_path / "s", "alllarge", (0.9, 0.9))
    assert marks(board(tmp_path)) == {}


def test_any_method_can_be_the_baseline(tmp_path):
    write(tmp_path / "s", "fedra", (0.8, 0.6))
    write(tmp_path / "s", "depthfl", (0.7, 0.6))
    assert board(tmp_path).baseline is None
    found = board(tmp_path, baseline="depthfl")
    assert row(found, "fedra").gap.mean == pytest.approx(0.05)
    with pytest.raises(UserError, match="no method 'fedr' in these results. Did you mean 'fedra'"):
        board(tmp_path, baseline="fedr")


def test_lower_loss_is_better(tmp_path):
    for method, value in (("fedra", 0.5), ("depthfl", 1.5)):
        rows = eval_rows({1: {"a": value, "b": 2 * value}}, "loss") + eval_rows({1: {"a": 0.5, "b": 0.5}})
        write_cell(tmp_path / "s", method, evaluation=rows)
    found = board(tmp_path, metric="loss")
    assert found.rows[0].worst.mean == 1.0
    assert marks(found)[0, "average"] == "best"
    assert "0.750" in shown([found])
    with pytest.raises(UserError, match="no metric 'los' in these results. Did you mean 'loss'"):
        board(tmp_path, metric="los")


def test_select_by_glob_name_and_seed(tmp_path):
    for scenario in ("all_4", "all_6", "mixed"):
        write(tmp_path / "s", "fedra", (0.8, 0.6), (0.8, 0.6), scenario=scenario)
    results = load([tmp_path])
    assert {r.entry.scenario for r in select(results, scenarios=["all_*"])} == {"all_4", "all_6"}
    assert [r.entry.seed for r in select(results, ["mixed"], ["fedra"], [1])] == [1]
    assert select(results) == results
    with pytest.raises(UserError, match="no scenario 'mixd'.*Did you mean 'mixed'.*There are: all_4, all_6, mixed"):
        select(results, ["mixd"])


@pytest.mark.parametrize("df", [1, 2, 3, 9, 29, 200])
def test_t_quantile_agrees_with_scipy(df):
    from scipy import stats

    assert t_quantile(0.95, df) == pytest.approx(stats.t.ppf(0.975, df), rel=1e-4)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=8))
def test_sign_flip_is_a_probability_and_blind_to_direction(d):
    d = np.array(d)
    p = sign_flip(d)
    assert 2 / 2 ** len(d) <= p <= 1
    assert sign_flip(-d) == p


def test_sign_flip_by_hand_and_by_draws():
    # |sum| >= 4 for +-(1 + 3), and the two patterns of 1 - 3 give 2: 2 of 4.
    assert sign_flip(np.array([1.0, 3.0])) == 0.5
    assert sign_flip(np.zeros(4)) == 1.0
    assert 0 < sign_flip(np.ones(20)) < 0.001


def test_csv_has_the_promised_columns_and_an_average(tmp_path):
    write(tmp_path / "s", "fedra", (0.75, 0.25), (0.25, 0.25))
    write_cell(tmp_path / "s", "exclusive", status="not_applicable")
    text = render([board(tmp_path)], "csv")
    assert text.splitlines()[0] == (
        "suite,scenario,method,variant,backbone,dataset,metric,domain,client,split,mean,std,n_seeds,round"
    )
    assert text.splitlines()[0].split(",") == list(CSV_COLUMNS)
    std = np.std([0.75, 0.25], ddof=1)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [r["domain"] for r in rows] == ["a", "b", "average"]
    assert rows[2] == {
        **dict(suite="s", scenario="mixed", method="fedra", variant="", backbone="micro_vit", dataset="strokes6"),
        **dict(metric="accuracy", domain="average", client="-1", split="test", n_seeds="2", round="12"),
        **dict(mean="0.375", std=str(float(std / 2))),
    }


def test_json_holds_everything(tmp_path):
    write(tmp_path / "s", "fedra", (0.8, 0.6))
    write_cell(tmp_path / "s", "depthfl", status="failed", reason="boom")
    (found,) = json.loads(render([board(tmp_path)], "json"))
    assert found["rows"][0]["average"] == {"mean": pytest.approx(0.7), "std": None, "n": 1}
    assert found["rows"][0]["cost"]["gamma"] == 1
    assert found["rows"][1]["round"] is None and found["rows"][1]["status"] == "failed"
    assert found["notes"] == ["depthfl: failed: boom"]


def test_json_has_no_nan(tmp_path):
    write(tmp_path / "s", "fedra", (float("nan"), 0.6))
    assert json.loads(render([board(tmp_path)], "json"))[0]["rows"][0]["average"]["mean"] is None


def test_markdown_escapes_pipes(tmp_path):
    write(tmp_path / "s", "fed|ra_x", (0.8, 0.6))
    write(tmp_path / "s", "other", (0.7, 0.5))
    lines = render([board(tmp_path)], "markdown").splitlines()
    assert "| fed\\|ra\\_x | **80.0** | **60.0** | **70.0** | **60.0** |" in next(
        x for x in lines if "ra" in x and "80" in x
    )
    assert any(line.startswith("| other | *70.0* |") for line in lines)


def test_latex_escapes_and_marks(tmp_path):
    write(tmp_path / "s_1", "fed_ra&co", (0.8, 0.6))
    write(tmp_path / "s_1", "other", (0.7, 0.5))
    write(tmp_path / "s_1", "alllarge", (0.9, 0.9))
    text = render([board(tmp_path)], "latex")
    assert r"fed\_ra\&co & \textbf{80.0} & \textbf{60.0} & \textbf{70.0} & \textbf{60.0} & $-$20.0 \\" in text
    assert r"other & \underline{70.0}" in text
    assert r"accuracy, \% $\cdot$ round 12" in text and r"\toprule" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(tmp_path, width):
    write_suite(tmp_path / "s")
    text = shown([board(tmp_path)], width)
    assert max(map(len, text.splitlines())) <= width


def test_six_domains_fit_eighty_columns_in_one_table_of_scores(tmp_path):
    write_suite(tmp_path / "s")
    lines = shown([board(tmp_path)]).splitlines()
    header = next(line for line in lines if line.startswith("method"))
    assert header.split() == ["method", *DOMAINS, "average", "worst", "gap"]
    fedra = next(line for line in lines if line.startswith("fedra"))
    assert fedra.split()[1:] == [
        "91.4*",
        "87.8*",
        "86.1*",
        "73.4*",
        "82.9*",
        "94.3*",
        "86.0",
        "±0.4*",
        "73.4*",
        "-6.2",
    ]
    assert any("exclusive: not applicable: no client holds all 12 layers" in line for line in lines)


def test_long_names_end_in_an_ellipsis_and_numbers_stay_whole(tmp_path):
    names = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
    for method in ("a_method_with_a_long_name", "b"):
        write_cell(tmp_path / "s", method, evaluation=eval_rows({1: dict.fromkeys(names, 0.5)}))
    lines = shown([board(tmp_path)], 60).splitlines()
    assert "…" in next(line for line in lines if line.startswith("method"))
    assert next(line for line in lines if line.startswith("b ")).split()[1:] == ["50.0*"] * 8


def test_all_in_one_table_where_there_is_room(tmp_path):
    write_suite(tmp_path / "s", seeds=(0,))
    lines = shown([board(tmp_path)], 140).splitlines()
    assert sum(line.startswith("method") for line in lines) == 1


def test_names_that_look_like_markup_are_shown_as_they_are(tmp_path):
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({1: {"[/x]": 0.5, "[red]y": 0.25}}))
    header = next(line for line in shown([board(tmp_path)]).splitlines() if line.startswith("method"))
    assert header.split()[:5] == ["method", "[/x]", "[red]y", "average", "worst"]


def test_many_domains_are_split_over_tables(tmp_path):
    domains = {f"domain{i}": i / 30 for i in range(30)}
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({1: domains}))
    lines = shown([board(tmp_path)], 80).splitlines()
    numbers = [text for line in lines if line.startswith("fedra") for text in line.split()]
    assert all(f"{100 * value:.1f}" in numbers for value in domains.values())


def test_units_for_people():
    assert [human_bytes(n) for n in (0, 999, 1000, 8_312_000, 123_456_789_000)] == [
        *("0 B", "999 B", "1.00 kB", "8.31 MB", "123 GB"),
    ]
    assert [three_digits(x) for x in (0, 0.01234, 4.5678, 12345.6)] == ["0", "0.0123", "4.57", "12,346"]


def test_prefix_rounds_cover_the_top_layer_once():
    rows = prefix_rounds(rounds=1)
    assert layer_coverage([r["round"] for r in rows], [r["layers"] for r in rows], [True] * 6, 3)[0] == 1
