"""fedbench/report/budget.py: what a run costs, worked out by hand."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from boards import board, row, shown
from factories import eval_rows, prefix_rounds, round_row, write_cell
from rich.console import Console

from fedbench.errors import UserError
from fedbench.report.style import show
from fedbench.report.views.costs import costs as costs_of
from fedbench.results.costs import totals
from fedbench.results.tables import to_table


def with_ids(table):
    return table.add_column(0, "cell", pa.array(["id"] * len(table), pa.string()).dictionary_encode())


NOTHING = {kind: with_ids(to_table(kind, [])) for kind in ("exchange", "server", "clock", "storage", "privacy")}


def layer_coverage(rounds, layers, arrived, T):
    """Gamma*, and how often a layer came back over rounds and layers, of one cell with a client a row."""
    rows = zip(range(len(rounds)), rounds, layers, arrived, strict=True)
    table = to_table("rounds", [round_row(t, n, held, arrived=came) for n, t, held, came in rows])
    tables = NOTHING | {"rounds": with_ids(table)}
    found = totals(lambda kind, columns: tables[kind].select(["cell", *columns]))["id"]
    return found["gamma"], found["returned"] / (T * found["layers"]) if found["layers"] else None


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
    assert (cost["down"], cost["up"], cost["gflops"]) == (1.5e6, 0.75e6, 3.0)
    assert (cost["up_total"] + cost["down_total"], cost["total_flops"]) == (9e6, 12e9)
    assert (cost["up_total"], cost["server_gflops"], cost["exchange"]) == (3e6, None, {})
    assert (cost["gamma"], cost["coverage"], cost["memory_max"], cost["seconds"]) == (1, 1.5, 20e6, 21.0)


def test_memory_is_the_most_of_any_client_with_what_it_computes_at_once(tmp_path):
    rounds = [round_row(1, 0, [0, 1]), round_row(1, 1, [0], workspace_bytes=11_000_000)]
    write_cell(tmp_path / "s", "fedra", 1, evaluation=eval_rows({1: {"a": 1.0}}), rounds=rounds, train__rounds=1)
    assert board(tmp_path).rows[0].cost["memory_max"] == 21e6


@pytest.mark.parametrize("train", [{}, {"rounds": 0}, {"rounds": -3}])
def test_a_configuration_that_knows_no_rounds_is_refused_in_one_place(tmp_path, train):
    rounds = [round_row(1, 0, [0]), round_row(2, 0, [0])]
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({2: {"a": 1.0}}), rounds=rounds, train=train)
    with pytest.raises(UserError, match=r"not a manifest of fedbench \(config.train"):
        board(tmp_path)


def test_run_in_which_nobody_took_part_has_no_cost(tmp_path):
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({2: {"a": 1.0}}), rounds=[])
    assert board(tmp_path).rows[0].cost is None
    assert "down + up" not in shown([board(tmp_path)])


def test_prefix_rounds_cover_the_top_layer_once():
    rows = prefix_rounds(rounds=1)
    assert layer_coverage([r["round"] for r in rows], [r["layers"] for r in rows], [True] * 6, 3)[0] == 1


TWO_ROUNDS = [
    {"round": 1, "clients": 2, "duration": 100.0, "server_seconds": 0.0, "idle_share": 0.25},
    {"round": 2, "clients": 1, "duration": 60.0, "server_seconds": 0.0, "idle_share": 0.0},
]


def on_devices(t, client, *seconds, energy):
    names = ("down_seconds", "compute_seconds", "up_seconds", "server_seconds")
    return round_row(t, client, [0], energy=energy, **dict(zip(names, (*map(float, seconds), 0.0), strict=True)))


def test_simulated_time_by_hand_and_beside_the_measured_one(tmp_path):
    """150 of 200 s of two clients, then 60 of 60 s of one: 50 of 260 s were idle."""
    rounds = [
        on_devices(1, 0, 20, 50, 30, energy=500.0),
        on_devices(1, 1, 10, 30, 10, energy=300.0),
        on_devices(2, 0, 15, 25, 20, energy=250.0),
    ]
    rows = eval_rows({2: {"a": 1.0}})
    write_cell(tmp_path / "s", "fedra", evaluation=rows, rounds=rounds, clock=TWO_ROUNDS)
    write_cell(
        tmp_path / "s", "fedavg", evaluation=rows, rounds=[*rounds[:2], rounds[2] | {"energy": None}], clock=TWO_ROUNDS
    )
    write_cell(tmp_path / "s", "allsmall", evaluation=rows, rounds=[round_row(1, 0, [0])])
    found = board(tmp_path)
    one, unknown, none = (row(found, name).cost for name in ("fedra", "fedavg", "allsmall"))
    assert (one["round_seconds"], one["simulated"], one["energy"]) == (80, 160, 1050)
    assert one["idle"] == pytest.approx(50 / 260)
    assert [one[f"{name}_seconds"] for name in ("down", "compute", "up", "server")] == [15, 35, 20, None]
    assert (unknown["simulated"], unknown["energy"], none["simulated"]) == (160, None, None)
    text = shown([found], 200)
    assert "2 min 40 s" in text and "1.05 kJ" in text and "simulated: what all rounds take" in text
    costs = show_costs([found])
    (line,) = [line.split() for line in costs.splitlines() if line.startswith("fedra ") and "kJ" in line]
    assert line[1:] == [
        "15.0",
        "s",
        "35.0",
        "s",
        "20.0",
        "s",
        "1",
        "min",
        "20",
        "s",
        "2",
        "min",
        "40",
        "s",
        "19%",
        "1.05",
        "kJ",
    ]
    assert max(map(len, costs.splitlines())) <= 80


def show_costs(boards):
    console = Console(width=80, file=io.StringIO(), color_system=None)
    show(costs_of(boards), console)
    return console.file.getvalue()
