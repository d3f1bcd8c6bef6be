"""fedbench compare at equal bytes or FLOPs: which round a method stands at, by hand."""

from __future__ import annotations

import csv
import io
import json
import math
from types import SimpleNamespace

import pyarrow as pa
import pytest
from boards import board, cells, rendered
from command import fedbench
from factories import eval_rows, round_row, write_cell

from fedbench.errors import UserError
from fedbench.report.budget import Budget, read_budget, unknown
from fedbench.report.leaderboards import leaderboards
from fedbench.report.views.leaderboard import subtitle
from fedbench.results import load
from fedbench.results.costs import Spending, spending
from fedbench.results.tables import to_table

MB = 1_000_000


def paid(rounds, down, up=0, flops=1, clients=2):
    """A rounds table in which every client pays the same in every round."""
    costs = {"bytes_down": down, "bytes_up": up, "flops": flops}
    return [round_row(t, n, [], **costs) for t in range(1, rounds + 1) for n in range(clients)]


def cell(folder, method, seed=0, *, rounds, at=(2, 4, 6), **changes):
    """Tested after rounds `at`, where it scores their number in percent."""
    rows = eval_rows({t: {"a": t / 100, "b": t / 100} for t in at})
    write_cell(folder, method, seed, evaluation=rows, rounds=rounds, **changes)


def rounds_of(found):
    return {row.label: row.round if row.runs else None for row in found.rows}


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("bytes", Budget("bytes")),
        ("flops", Budget("flops")),
        ("bytes=1GB", Budget("bytes", 1e9)),
        ("bytes=1.5 MB", Budget("bytes", 1.5e6)),
        ("bytes=3e9", Budget("bytes", 3e9)),
        ("bytes=20k", Budget("bytes", 2e4)),
        ("flops=1e15", Budget("flops", 1e15)),
        ("flops=2PFLOPs", Budget("flops", 2e15)),
        ("flops=2 tflops", Budget("flops", 2e12)),
        ("seconds", Budget("seconds")),
        ("seconds=3600", Budget("seconds", 3600)),
        ("seconds=1h", Budget("seconds", 3600)),
        ("seconds=30min", Budget("seconds", 1800)),
        ("seconds=1.5 h", Budget("seconds", 5400)),
        ("seconds=1d 2h 30 min", Budget("seconds", 95_400)),
        ("joules=12.5", Budget("joules", 12.5)),
        ("joules=5kJ", Budget("joules", 5e3)),
        ("joules=2 kWh", Budget("joules", 7.2e6)),
        ("final", None),
    ],
)
def test_budgets_as_people_write_them(text, budget):
    assert read_budget(text) == budget


@pytest.mark.parametrize("amount", ["", "0", "-1GB", "1GiB", "much", "1..5", "1e999", "1FLOPs", "nan"])
def test_what_is_no_amount_is_refused_with_one_that_is(amount):
    with pytest.raises(UserError, match=r"not an amount of bytes\. Write 100MB"):
        read_budget(f"bytes={amount}")


@pytest.mark.parametrize("amount", ["", "0", "1 hour ago", "1h 30", "1x", "-1h", "2kWh", "1..5h", "nan"])
def test_what_is_no_length_is_refused_with_one_that_is(amount):
    with pytest.raises(UserError, match=r"not a length of time\. Write 1h 30min"):
        read_budget(f"seconds={amount}")


def spent(rows, what):
    """What a cell with these rows has paid."""
    table = to_table("rounds", rows).add_column(0, "cell", pa.array(["id"] * len(rows)).dictionary_encode())
    return spending(lambda kind, columns: table.select(["cell", *columns]), what)["id"]


def test_spending_is_of_all_clients_lost_work_included_and_stands_still_in_empty_rounds():
    rows = [
        round_row(1, 0, [], bytes_down=3, bytes_up=1, flops=10),
        round_row(1, 1, [], bytes_down=5, bytes_up=0, flops=20, arrived=False),
        round_row(4, 1, [], bytes_down=5, bytes_up=1, flops=40),
    ]
    by_bytes, by_flops = (spent(rows, what) for what in ("bytes", "flops"))
    assert [by_bytes.by(t) for t in range(6)] == [0, 9, 9, 9, 15, 15]
    assert [by_flops.by(t) for t in (1, 4)] == [30, 70]
    assert [by_bytes.until(amount) for amount in (8, 9, 14, 15)] == [0, 3, 3, math.inf]
    assert (by_bytes.total, by_flops.total) == (15, 70)
    assert Spending([1, 2, 3], [0.1, 0.1 + 0.2, 0.4]).until(0.3) == 2  # the sum is 0.30000000000000004
    assert Spending([], []).total == 0
    large = [row | {"flops": 2**62} for row in rows]
    assert spent(large, "flops").totals == [2**63, 3 * 2**62]  # more than an int64 can hold


def test_every_method_stands_at_its_last_test_within_the_budget(tmp_path):
    cell(tmp_path / "s", "fedv", rounds=paid(6, MB, MB))  # 4 MB a round
    cell(tmp_path / "s", "fedavg", rounds=paid(6, 2 * MB, MB))  # 6 MB a round
    cell(tmp_path / "s", "cheap", rounds=paid(6, 500_000))  # 1 MB a round
    found = board(tmp_path, at="bytes=16MB")  # fedv: 16 MB after round 4, fedavg: 12 after 2 and 24 after 4
    assert rounds_of(found) == {"fedv": 4, "fedavg": 2, "cheap": 6}
    assert [row.spent for row in found.rows] == [16 * MB, 12 * MB, 6 * MB]
    assert [row.average.mean for row in found.rows] == pytest.approx([0.04, 0.02, 0.06])
    assert rounds_of(board(tmp_path, at="bytes=15.9MB"))["fedv"] == 2
    told = dict(
        zip(cells(found)["method"], zip(cells(found)["round"], cells(found)["spent"], strict=True), strict=True)
    )
    assert told == {"fedv": ("4", "16.0 MB"), "fedavg": ("2", "12.0 MB"), "cheap": ("6", "6.00 MB")}
    assert subtitle(found) == "accuracy, % · within 16.0 MB (bytes down + up of all clients together) · 1 seed"


def test_flops_are_a_budget_of_their_own(tmp_path):
    cell(tmp_path / "s", "fedv", rounds=paid(6, MB, flops=10**9))  # 2 GFLOPs a round
    cell(tmp_path / "s", "fedavg", rounds=paid(6, 1, flops=3 * 10**9))
    found = board(tmp_path, at="flops=12GFLOPs")
    assert rounds_of(found) == {"fedv": 6, "fedavg": 2}
    assert (found.at, found.budget, found.rows[1].spent) == ("flops", 12e9, 12e9)
    assert "within 12.0 GFLOPs (FLOPs of all clients together)" in subtitle(found)


def test_each_seed_stands_at_a_round_of_its_own(tmp_path):
    cell(tmp_path / "s", "fedv", 0, rounds=paid(6, MB))
    cell(tmp_path / "s", "fedv", 1, rounds=paid(6, 2 * MB))
    (row,) = board(tmp_path, at="bytes=8MB").rows
    assert row.round == "4/2" and row.average.mean == pytest.approx(0.03)
    assert row.spent == 8 * MB


def test_without_an_amount_all_have_what_the_cheapest_method_spends_in_its_dearest_seed(tmp_path):
    for seed, each in ((0, 1.0), (1, 1.1)):
        cell(tmp_path / "s", "fedvz", seed, rounds=paid(6, int(each * MB)))  # 12.0 and 13.2 MB
    cell(tmp_path / "s", "fedavg", rounds=paid(6, 2 * MB))  # 24 MB, 4 a round
    found = board(tmp_path, at="bytes")
    assert found.budget == pytest.approx(13.2 * MB)
    assert rounds_of(found) == {"fedvz": 6, "fedavg": 2}
    assert found.notes[0] == "the budget is what fedvz spends in all its rounds; --budget sets another"


def test_who_computes_nothing_sets_no_budget(tmp_path):
    cell(tmp_path / "s", "majority", rounds=paid(6, 80, flops=0))
    cell(tmp_path / "s", "fedvz", rounds=paid(6, MB))
    found = board(tmp_path, at="bytes")
    assert found.budget == pytest.approx(12 * MB) and rounds_of(found) == {"majority": 6, "fedvz": 6}
    assert found.notes[0] == "the budget is what fedvz spends in all its rounds; --budget sets another"


def test_a_method_not_tested_within_the_budget_is_a_dash_with_its_reason(tmp_path):
    cell(tmp_path / "s", "fedv", rounds=paid(6, MB))
    cell(tmp_path / "s", "fedavg", rounds=paid(6, 5 * MB))
    found = board(tmp_path, at="bytes=19MB", baseline="fedavg")
    assert rounds_of(found) == {"fedv": 6, "fedavg": None}
    assert "fedavg: over the budget: first tested after round 2, at 20.0 MB" in found.notes
    told = cells(found)
    assert told["average"] == ["6.0", "–"] and told["spent"] == ["12.0 MB", ""]
    assert told["down + up"] == ["1.00 MB", "5.00 MB"]  # the cost of the whole run stays


def test_only_the_seeds_over_the_budget_are_left_out(tmp_path):
    cell(tmp_path / "s", "fedv", 0, rounds=paid(6, MB))
    cell(tmp_path / "s", "fedv", 1, rounds=paid(6, 9 * MB))
    found = board(tmp_path, at="bytes=10MB")
    assert found.rows[0].average.n == 1
    assert found.notes == ["fedv (seed 1): over the budget: first tested after round 2, at 36.0 MB"]


def test_a_budget_that_nobody_keeps_is_still_a_table(tmp_path):
    cell(tmp_path / "s", "fedv", rounds=paid(6, MB))
    assert rounds_of(board(tmp_path, at="bytes=1kB")) == {"fedv": None}
    done = fedbench("compare", "s", "--at", "bytes=1kB", cwd=tmp_path)
    assert done.exit_code == 0 and "first tested after round 2, at 4.00 MB" in done.output
    with pytest.raises(UserError, match="no metric 'acc' in these results"):
        board(tmp_path, at="bytes=1kB", metric="acc")


def ticking(rounds, duration):
    """A clock table whose rounds all take as long."""
    at_once = {"clients": 2, "server_seconds": 0.0, "idle_share": 0.5}
    return [{"round": t, "duration": duration, **at_once} for t in range(1, rounds + 1)]


def test_simulated_seconds_are_those_of_rounds_and_not_of_clients(tmp_path):
    cell(tmp_path / "s", "fedv", rounds=paid(6, MB), clock=ticking(6, 600.0))
    cell(tmp_path / "s", "fedavg", rounds=paid(6, MB), clock=ticking(6, 1000.0))
    found = board(tmp_path, at="seconds=1h")  # fedv: 3600 s after round 6, fedavg: 2000 after 2 and 4000 after 4
    assert rounds_of(found) == {"fedv": 6, "fedavg": 2}
    assert [row.spent for row in found.rows] == [3600, 2000]
    assert subtitle(found) == "accuracy, % · within 1 h 00 min (simulated time, as the server waits) · 1 seed"
    assert cells(found)["spent"] == ["1 h 00 min", "33 min 20 s"]
    assert [row["spent"] for row in csv.DictReader(io.StringIO(rendered([found], "csv")))] == ["3600.0", "2000.0"]
    assert (
        board(tmp_path, at="seconds").notes[0]
        == "the budget is what fedv spends in all its rounds; --budget sets another"
    )


def test_joules_are_those_of_all_clients_and_unknown_where_a_device_has_no_watts(tmp_path):
    known = [row | {"energy": 500.0} for row in paid(6, MB)]  # 1 kJ a round
    cell(tmp_path / "s", "fedv", rounds=known)
    cell(tmp_path / "s", "fedavg", rounds=[*known[1:], known[0] | {"energy": None}])
    found = board(tmp_path / "s", at="joules=5kJ")
    assert rounds_of(found) == {"fedv": 4, "fedavg": None}
    assert found.notes == ["fedavg: no joules, because the scenario gives its clients no devices"]
    devices = {"server": "big", "known": {"big": {}, "pin": {"memory": 10}, "box": {"watts": 3.0}}}
    for method in ("fedrod", "ditto"):
        cell(tmp_path / "other" / "s", method, rounds=[*known[1:], known[0] | {"energy": None}], devices=devices)
    cell(tmp_path / "other" / "s", "fedv", rounds=known, devices=devices)
    told = "fedrod, ditto: no joules, because nothing is known of the watts of pin"
    assert board(tmp_path / "other", at="joules=5kJ").notes == [told]


def test_nobody_waits_where_nobody_takes_part(tmp_path):
    cell(tmp_path / "s", "fedv", rounds=paid(6, MB), clock=ticking(6, 600.0))
    cell(tmp_path / "s", "zero_round", rounds=[])
    found = board(tmp_path, at="seconds=1h")
    assert {row.label: row.spent for row in found.rows} == {"fedv": 3600, "zero_round": 0}
    assert (
        board(tmp_path, at="seconds").notes[0]
        == "the budget is what fedv spends in all its rounds; --budget sets another"
    )


@pytest.mark.parametrize("what", ["seconds", "joules"])
def test_without_devices_there_is_nothing_simulated(tmp_path, what):
    cell(tmp_path / "s", "fedv", rounds=paid(6, MB))
    with pytest.raises(UserError, match=f"these results have no {what}|no simulated seconds"):
        board(tmp_path, at=what)


def test_every_sweep_point_has_a_budget_of_its_own(tmp_path):
    for rank, each in ((4, MB), (8, 2 * MB)):
        cell(tmp_path / "s", "fedv", rounds=paid(6, each), variant=f"adapter.rank={rank}", adapter__rank=rank)
    assert [found.budget for found in leaderboards(load([tmp_path]), at="bytes")] == [12 * MB, 24 * MB]


def test_second_outputs_stand_where_the_first_does(tmp_path):
    rows = [
        row for metric in ("accuracy", "accuracy/last") for row in eval_rows({2: {"a": 0.2}, 4: {"a": 0.4}}, metric)
    ]
    write_cell(tmp_path / "s", "depthfl", evaluation=rows, rounds=paid(4, MB))
    assert rounds_of(board(tmp_path, at="bytes=4MB")) == {"depthfl": 2, "depthfl/last": 2}


def test_csv_and_json_say_what_was_spent(tmp_path):
    for seed in (0, 1):
        cell(tmp_path / "s", "fedv", seed, rounds=paid(6, (1 + seed) * MB))
    found = board(tmp_path, at="bytes=8MB")
    (row,) = csv.DictReader(io.StringIO(rendered([found], "csv")))
    assert (row["round"], float(row["spent"])) == ("4/2", 8 * MB)
    told = json.loads(rendered([found], "json"))
    assert (told["round"], told["rows"][0]["spent"]) == ("bytes", 8 * MB)


def test_a_control_or_a_floor_sets_no_budget(tmp_path):
    """Or most rows would be empty: within what the cheapest control spends nobody else has had a round."""
    for method, each in (("head_only", 1), ("allsmall", 2), ("fedra", 4), ("depthfl", 6)):
        cell(tmp_path / "s", method, rounds=paid(6, each * MB))
    roles = {"head_only": "control", "allsmall": "floor"}
    (found,) = leaderboards(load([tmp_path]), at="bytes", roles=roles)
    assert found.budget == 48 * MB and rounds_of(found) == {"head_only": 6, "allsmall": 6, "fedra": 6, "depthfl": 4}
    alone = [r for r in load([tmp_path]) if r.entry.method in roles]
    assert leaderboards(alone, at="bytes", roles=roles)[0].budget == 12 * MB
    done = fedbench("compare", "s", "--at", "bytes", "--budget", "24MB", cwd=tmp_path)
    assert (
        "within 24.0 MB" in done.output
        and done.output == fedbench("compare", "s", "--at", "bytes=24MB", cwd=tmp_path).output
    )
    refused = fedbench("compare", "s", "--budget", "24MB", cwd=tmp_path)
    assert refused.exit_code == 2 and "--budget needs --at bytes" in refused.stderr


@pytest.mark.parametrize("at", ["final", "bytes=16MB", "bytes"])
def test_a_budget_changes_nothing_but_the_round(tmp_path, at):
    cell(tmp_path / "s", "fedv", rounds=paid(6, MB))
    found = board(tmp_path, at=at)
    assert [(row.round, row.average.mean) for row in found.rows] == [(6, pytest.approx(0.06))]
    assert (found.budget is None) == (at == "final")


def test_the_command_line_takes_budgets_and_refuses_what_is_none(tmp_path):
    cell(tmp_path / "s", "fedv", rounds=paid(6, MB))
    done = fedbench("compare", "s", "--at", "bytes=8MB", cwd=tmp_path, columns=80)
    assert done.exit_code == 0 and max(map(len, done.output.splitlines())) <= 80
    fedv = next(line for line in done.output.splitlines() if line.startswith("fedv")).split()
    assert fedv[1:6] == ["4.0", "4.0", "4", "8.00", "MB"]
    for at, told in (
        ("finl", "Did you mean 'final'?"),
        ("bytes=x", "Write 100MB"),
        ("flops=1GB", "not an amount"),
    ):
        refused = fedbench("compare", "s", "--at", at, cwd=tmp_path)
        assert refused.exit_code == 2 and told in refused.output


def test_a_cell_that_was_not_started_yet_has_spent_nothing(tmp_path):
    cell(tmp_path / "s", "fedv", rounds=paid(6, MB))
    pending = SimpleNamespace(status="pending", manifest={})
    assert (
        unknown([*load([tmp_path]), pending], "joules")
        == "no joules, because the scenario gives its clients no devices"
    )
