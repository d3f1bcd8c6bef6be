"""fedbench compare wire: measured and simulated, by hand."""

import csv
import io

import pytest
from command import fedbench
from factories import eval_rows, round_row, write_cell

from fedbench.report.leaderboards import leaderboards
from fedbench.report.results import result_frame
from fedbench.report.views.wire import wire
from fedbench.results import load
from fedbench.results.pack import pack

TIMES = {"down_seconds": 2.0, "compute_seconds": 4.0, "up_seconds": 1.0, "server_seconds": 0.0}
SILENT = dict.fromkeys(("bytes_up", "message_up", "round_trip", "node_seconds", "train_seconds", "cpu_seconds"))


def message(t, client, cpu, outcome="arrived", **changes):
    row = {"round": t, "client": client, "outcome": outcome, "bytes_down": 1000, "message_down": 1020}
    came = {"bytes_up": 500, "message_up": 505, "round_trip": 9.0, "node_seconds": 5.0, "train_seconds": 4.5}
    return {**row, **(came | {"cpu_seconds": cpu} if outcome == "arrived" else SILENT), **changes}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """FedRA on two nodes for two rounds, one reply lost; head_only is simulated alone."""
    folder = tmp_path_factory.mktemp("made")
    rounds = [round_row(t, n, [0], bytes_down=1000, bytes_up=500, flops=6, **TIMES) for t in (1, 2) for n in (0, 1)]
    replies = [
        message(1, 0, 4.0),
        message(1, 1, 2.0, round_trip=7.0),
        message(2, 0, 3.0),
        message(2, 1, 0, "no answer"),
    ]
    scores = eval_rows({12: {"a": 0.5}})
    write_cell(folder / "s", "fedra", evaluation=scores, rounds=rounds, wire=replies)
    write_cell(folder / "s", "head_only", evaluation=scores, rounds=rounds)
    pack(folder / "s")
    return folder


def test_what_is_measured_stands_next_to_what_is_simulated_of_the_replies_that_arrived(folder):
    found = result_frame(wire(leaderboards(load([folder])))).set_index("method")
    assert list(found.index) == ["fedra"]
    row = found.loc["fedra"]
    assert (row["messages"], row["lost"]) == (4, 1)
    assert (row["down"], row["simulated_down"], row["up"], row["simulated_up"]) == (3000, 3000, 1500, 1500)
    assert (row["framing_down"], row["framing_up"]) == (pytest.approx(0.02), pytest.approx(0.01))
    assert (row["transfer"], row["simulated_transfer"]) == (4.0, 3.0)
    assert (row["cpu"], row["simulated_compute"], row["flops_per_second"]) == (3.0, 4.0, 18 / 9)


@pytest.mark.parametrize("form", ["rich", "csv", "json", "markdown", "latex"])
def test_every_format_has_it(folder, form):
    done = fedbench("compare", "wire", folder / "s", "--format", form, cwd=folder)
    assert done.exit_code == 0 and "fedra" in done.output.replace("\\_", "_")


def test_people_see_percents_and_programs_numbers(folder):
    text = fedbench("compare", "wire", folder / "s", cwd=folder).output
    assert "what crossed" in text and "2.0%" in text and "1.0%" in text
    (row,) = csv.DictReader(
        io.StringIO(fedbench("compare", "wire", folder / "s", "--format", "csv", cwd=folder).output)
    )
    assert float(row["framing_down"]) == pytest.approx(0.02)


def test_results_that_no_node_has_computed_have_no_such_view(folder):
    done = fedbench("compare", "wire", folder / "s", "--method", "head_only", cwd=folder)
    assert done.exit_code == 2 and "none of these cells was computed on nodes" in done.output
