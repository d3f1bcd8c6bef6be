"""Lines over rounds, against numbers by hand: what the artists hold, not their pixels."""

from __future__ import annotations

import numpy as np
import pytest
from factories import DOMAINS, eval_rows, round_row, write_cell, write_suite

from fedbench.errors import UserError
from fedbench.report.pictures.panels import curves
from fedbench.report.plot_data import boards
from fedbench.results import load


def lines(ax) -> dict[str, tuple[list, list]]:
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in ax.lines}


def test_a_line_is_the_mean_over_domains_and_seeds_in_percent(tmp_path):
    for seed, level in ((0, 0.5), (1, 0.7)):
        values = {t: {"a": level, "b": level + t / 100} for t in (2, 4)}
        write_cell(tmp_path / "s", "fedra", seed, evaluation=eval_rows(values))
    figure = curves(boards(load([tmp_path])))
    (ax,) = figure.axes
    assert lines(ax).keys() == {"fedra"}
    assert lines(ax)["fedra"][0] == [2, 4]
    assert lines(ax)["fedra"][1] == pytest.approx([61, 62])
    (band,) = ax.collections
    edges = band.get_paths()[0].vertices[:, 1]
    std = 100 * np.std([0.51, 0.71], ddof=1)
    assert (edges.min(), edges.max()) == pytest.approx((61 - std, 62 + std))
    assert figure.get_supylabel() == "accuracy, mean over domains (%)"
    assert (ax.get_xlabel(), ax.get_title()) == ("round", "mixed")


def test_one_seed_has_no_band_and_an_unfinished_cell_no_line(tmp_path):
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({1: {"a": 0.5}}))
    write_cell(tmp_path / "s", "inclusivefl", status="failed", reason="no")
    (ax,) = curves(boards(load([tmp_path]))).axes
    assert lines(ax).keys() == {"fedra"} and not ax.collections


def test_a_panel_for_every_leaderboard_with_what_sets_it_apart(tmp_path, registry):
    for scenario in ("skew", "half"):
        write_suite(tmp_path / "s", seeds=(0,), scenario=scenario)
    figure = curves(boards(load([tmp_path])), roles=registry.catalogue.roles)
    assert [ax.get_title() for ax in figure.axes] == ["skew", "half"]
    assert len({ax.get_ylim() for ax in figure.axes}) == 1
    names = [text.get_text() for text in figure.legends[0].texts]
    assert names == list(lines(figure.axes[0])) and "alllarge" in names
    dashed = {line.get_label() for line in figure.axes[0].lines if line.get_linestyle() == "--"}
    assert dashed == {"alllarge"}


def test_by_domain_there_is_a_panel_for_each(tmp_path):
    suite = write_suite(tmp_path / "s", seeds=(0, 1))
    (board,) = boards(load([suite]))
    figure = curves([board], by_domain=True)
    assert [ax.get_title() for ax in figure.axes] == list(DOMAINS)
    frame = board.methods["fedra"][0].eval.to_pandas()
    at = frame[(frame.domain == "dim") & (frame.metric == "accuracy")].sort_values("round")
    frame = board.methods["fedra"][1].eval.to_pandas()
    also = frame[(frame.domain == "dim") & (frame.metric == "accuracy")].sort_values("round")
    drawn = lines(figure.axes[DOMAINS.index("dim")])["fedra"]
    assert drawn[0] == at["round"].tolist()
    assert drawn[1] == pytest.approx((50 * (at["value"].to_numpy() + also["value"].to_numpy())).tolist())


def test_another_metric_is_drawn_as_it_is_and_an_unknown_one_refused(tmp_path):
    suite = write_suite(tmp_path / "s", seeds=(0,))
    figure = curves(boards(load([suite])), "loss")
    assert figure.get_supylabel() == "loss, mean over domains"
    assert set(lines(curves(boards(load([suite])), "accuracy/last").axes[0])) == {"depthfl"}
    with pytest.raises(UserError, match="no metric 'acuracy' in these results. Did you mean 'accuracy'"):
        curves(boards(load([suite])), "acuracy")


def test_settings_that_differ_are_named_and_never_averaged(tmp_path):
    for rounds in (12, 13):
        write_cell(tmp_path / "s", "fedra", variant=f"v{rounds}", evaluation=eval_rows({1: {"a": rounds / 100}}))
    figure = curves(boards(load([tmp_path])))
    assert [ax.get_title() for ax in figure.axes] == ["v12", "v13"]
    assert [lines(ax)["fedra"][1] for ax in figure.axes] == [pytest.approx([12]), pytest.approx([13])]


def test_the_setting_without_a_variant_is_called_as_its_scenario(tmp_path):
    for variant in ("", "alpha=1"):
        write_cell(tmp_path / "s", "fedra", variant=variant, evaluation=eval_rows({1: {"a": 0.5}}))
    assert sorted(board.title for board in boards(load([tmp_path]))) == ["alpha=1", "mixed"]


def test_nothing_finished_is_nothing_to_draw(tmp_path):
    write_cell(tmp_path / "s", "fedra", status="timeout")
    with pytest.raises(UserError, match="no cell of these results has finished"):
        boards(load([tmp_path]))


def test_over_bytes_or_flops_a_test_stands_where_its_clients_have_come_to(tmp_path):
    for seed in (0, 1):
        costs = {"bytes_down": 600_000, "bytes_up": 400_000, "flops": (1 + seed) * 10**9}
        rounds = [round_row(t, n, [], **costs) for t in (1, 2, 3, 4) for n in (0, 1, 2)]
        scores = eval_rows({2: {"a": 0.5}, 4: {"a": 0.7}})
        write_cell(tmp_path / "s", "fedra", seed, evaluation=scores, rounds=rounds)
    (by_bytes,) = curves(boards(load([tmp_path])), x="bytes").axes
    assert lines(by_bytes)["fedra"] == (pytest.approx([6, 12]), pytest.approx([50, 70]))
    assert by_bytes.get_xlabel() == "bytes down + up, all clients (MB)"
    (by_flops,) = curves(boards(load([tmp_path])), x="flops").axes
    assert lines(by_flops)["fedra"][0] == pytest.approx([9, 18])  # 6 and 12 in one seed, 12 and 24 in the other
    assert by_flops.get_xlabel() == "FLOPs of all clients (GFLOPs)"


def test_clients_that_were_tested_count_equally(tmp_path):
    scores = [row for n, d in enumerate("aab") for row in eval_rows({1: {d: 0.3 * n}}, client=n)]
    write_cell(tmp_path / "s", "fedv", evaluation=scores, evaluation__by="client")
    figure = curves(boards(load([tmp_path])))
    assert lines(figure.axes[0])["fedv"][1] == pytest.approx([30])  # over domains it would be 37.5
    assert figure.get_supylabel() == "accuracy, mean over clients (%)"
