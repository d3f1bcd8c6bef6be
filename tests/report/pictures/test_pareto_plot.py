"""fedbench plot pareto: what the artists hold, not their pixels."""

from __future__ import annotations

from command import fedbench
from factories import eval_rows, round_row, write_cell

from fedbench.report.leaderboards import leaderboards
from fedbench.report.pictures.panels import pareto
from fedbench.report.views.costs import pareto as fronts
from fedbench.results import load


def cells(folder):
    for seed in range(3):
        for method, score, cost in (("allsmall", 0.5, 1), ("depthfl", 0.4, 2), ("fedra", 0.7, 40)):
            rows = eval_rows({1: {"a": score + seed / 100 * score}})
            rounds = [round_row(1, 0, [], bytes_down=cost * 10**6)]
            write_cell(folder / "s", method, seed, evaluation=rows, rounds=rounds)


def test_steps_go_along_the_front_and_who_is_beaten_is_faint(tmp_path):
    cells(tmp_path)
    points = fronts(leaderboards(load([tmp_path])), "bytes")
    (ax,) = pareto({"mixed": points}, "bytes").axes
    steps, *marks = [line for line in ax.lines if len(line.get_xdata())]
    assert steps.get_xdata().tolist() == [1, 40] and steps.get_ydata().round(1).tolist() == [50.5, 70.7]
    alphas = {mark.get_xdata()[0]: mark.get_alpha() for mark in marks if mark.get_marker() not in ("None", "_")}
    assert alphas == {1: 1.0, 2: 0.4, 40: 1.0}
    assert ax.get_xlabel() == "bytes down + up, all clients (MB)" and ax.get_xscale() == "log"
    assert ax.get_legend_handles_labels()[1] == ["allsmall", "depthfl", "fedra"]


def test_the_command_names_the_file_after_the_cost(tmp_path):
    cells(tmp_path)
    done = fedbench("plot", "pareto", "s", "--over", "flops", "--format", "svg", cwd=tmp_path)
    assert (done.exit_code, done.output) == (0, "plots/s-pareto-flops.svg\n")
    refused = fedbench("plot", "pareto", "s", "--over", "seconds", cwd=tmp_path)
    assert refused.exit_code == 2 and "no simulated seconds" in refused.output
