"""fedbench compare costs: bytes by kind, and what client and server compute, by hand."""

from __future__ import annotations

import csv
import io
import json

import pytest
from boards import board, cells
from command import fedbench
from factories import eval_rows, round_row, write_cell

from fedbench.report.layout import laid_out
from fedbench.report.views.costs import KINDS, costs

SCORES = eval_rows({2: {"a": 0.5}})


def sent(t, what, down, up):
    return {"round": t, "what": what, "bytes_down": down, "bytes_up": up}


def served(t, flops, memory):
    return {"round": t, "flops": flops, "memory_bytes": memory}


@pytest.fixture
def both(tmp_path):
    """A split method of two seeds and a whole-model one; two rounds of two clients."""
    for seed, times in ((0, 1), (1, 2)):
        exchange = [sent(t, "features", 400 * times, 800 * times) for t in (1, 2)]
        exchange += [sent(1, "weights", 40, 80)] if seed == 0 else []  # averaged in seed 0's first round alone
        average = {1: 20 * (seed == 0), 2: 0}
        paid = {t: {"bytes_down": 200 * times + average[t], "bytes_up": 400 * times + 2 * average[t]} for t in (1, 2)}
        rounds = [round_row(t, n, [], flops=10**9, **paid[t]) for t in (1, 2) for n in (0, 1)]
        server = [served(1, 4 * 10**9 * times, 7000), served(2, 12 * 10**9 * times, 9000 * times)]
        write_cell(tmp_path / "s", "fedv", seed, evaluation=SCORES, rounds=rounds, exchange=exchange, server=server)
    rounds = [
        round_row(t, n, [], bytes_down=500, bytes_up=250, memory_bytes=10**6, flops=0) for t in (1, 2) for n in (0, 1)
    ]
    exchange = [sent(t, "weights", 1000, 500) for t in (1, 2)]
    write_cell(tmp_path / "s", "fedavg", 0, evaluation=SCORES, rounds=rounds, exchange=exchange)
    return tmp_path / "s"


def tables(found):
    """By caption, the texts of each table by title."""
    (page,) = laid_out(costs([found])).pages
    return {
        table.caption: {column.title: [cell.text for cell in column.cells] for column in table.columns}
        for table in page.tables
    }


def test_the_server_s_work_is_told_for_one_client_in_one_round(both):
    fedv, fedavg = (row.cost for row in board(both).rows)
    # 16 GFLOPs in seed 0 and 32 in seed 1, each over four client-rounds.
    assert (fedv["server_gflops"], fedv["server_total_flops"]) == (6.0, 24e9)
    assert fedv["server_memory"] == 18_000  # the largest of any round and seed
    assert (fedv["gflops"], fedv["total_flops"]) == (1.0, 4e9)  # the client's are apart
    assert all(fedavg[name] is None for name in ("server_gflops", "server_total_flops", "server_memory"))


def test_bytes_by_kind_are_means_over_client_rounds_and_seeds(both):
    fedv, fedavg = (row.cost["exchange"] for row in board(both).rows)
    assert list(fedv) == ["features", "weights"]
    assert fedv["features"] == ((200 + 400) / 2, (400 + 800) / 2)
    assert fedv["weights"] == (10 / 2, 20 / 2)  # nothing of it in seed 1
    assert fedavg["weights"] == (500, 250)


def test_a_table_for_each_direction_and_each_side_that_computes(both):
    found = tables(board(both))
    assert list(found) == [
        *("what leaves the client (up)", "what the client is sent (down)"),
        *("what the client computes", "what the server computes for it", "what the run took"),
    ]
    sent_up, sent_down, clients, servers, run = found.values()
    assert sent_up == {
        "method": ["fedv", "fedavg"],
        "weights": ["10 B", "250 B"],
        "features": ["600 B", "–"],
        "all kinds": ["610 B", "250 B"],
        "whole run": ["2.44 kB", "1.00 kB"],
    }
    assert sent_down["features"] == ["300 B", "–"]
    assert clients == {
        "method": ["fedv", "fedavg"],
        "GFLOPs": ["1.00", "0"],
        "whole run": ["4.00 GFLOPs", "0 FLOPs"],
        "memory min/med/max": ["0/0/0 B", "1.00/1.00/1.00 MB"],
    }
    assert servers == {"method": ["fedv"], "GFLOPs": ["6.00"], "whole run": ["24.0 GFLOPs"], "memory": ["18.0 kB"]}
    assert run["seconds"] == ["20.5", "20.0"]


def test_a_leaderboard_shows_the_server_where_a_method_has_one(both, tmp_path):
    assert {"srv GFLOPs", "srv memory"} < cells(board(both)).keys()
    write_cell(tmp_path / "alone", "fedavg", evaluation=SCORES)
    assert not {"srv GFLOPs", "srv memory"} & cells(board(tmp_path / "alone")).keys()


def test_kinds_stand_in_the_order_of_a_round_and_new_ones_behind(tmp_path):
    exchange = [sent(1, what, 0, 1) for what in ("scores", *reversed(KINDS))]
    write_cell(tmp_path / "s", "fedv", evaluation=SCORES, exchange=exchange)
    up, down, *_ = tables(board(tmp_path)).values()
    assert list(up)[1:-2] == [*KINDS, "scores"]
    assert list(down) == ["method", "all kinds", "whole run"]  # nothing down


def test_cells_of_an_older_fedbench_say_that_kinds_are_not_known(tmp_path):
    write_cell(tmp_path / "s", "fedra", evaluation=SCORES)
    write_cell(tmp_path / "s", "exclusive", status="not_applicable", reason="nobody")
    found = board(tmp_path)
    assert costs([found]).attrs["pages"][0]["notes"] == [
        "fedra: computed before fedbench recorded what crosses, by kind",
        "exclusive: no costs",
    ]
    assert len(tables(found)) == 4  # no server computes
    up = tables(found)["what leaves the client (up)"]
    assert up == {"method": ["fedra"], "all kinds": ["3.58 MB"], "whole run": ["258 MB"]}


def test_programs_have_a_row_for_each_method(both):
    rows = csv.DictReader(io.StringIO(fedbench("compare", "costs", both, "--format", "csv", cwd=both).output))
    fedv, fedavg = rows
    assert (fedv["up_features"], fedv["up"], fedv["up_total"]) == ("600.0", "610.0", "2440.0")
    assert (fedv["server_gflops"], fedv["server_memory"], fedv["n_seeds"]) == ("6.0", "18000.0", "2")
    assert fedavg["server_gflops"] == fedavg["server_memory"] == ""
    found = json.loads(fedbench("compare", "costs", both, "--format", "json", cwd=both).output)["rows"]
    assert [row["server_gflops"] for row in found] == [6.0, None]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_costs_fit_and_read_without_colour(both, width):
    done = fedbench("compare", "costs", both, cwd=both, columns=width)
    assert done.exit_code == 0 and max(map(len, done.output.splitlines())) <= width
    assert "what leaves the client (up)" in done.output and "A dash: nothing of the kind." in done.output


def test_papers_have_the_view_too(both):
    markdown, latex = (
        fedbench("compare", "costs", both, "--format", form, cwd=both).output for form in ("markdown", "latex")
    )
    assert "| fedv | 10 B | 600 B | 610 B | 2.44 kB |" in markdown
    assert "fedv & 10 B & 600 B & 610 B & 2.44 kB \\\\" in latex
