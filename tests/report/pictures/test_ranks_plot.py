"""Critical-difference diagrams: what the artists hold, not their pixels."""

from __future__ import annotations

from dataclasses import replace

import pytest
from command import fedbench
from factories import eval_rows, write_cell

from fedbench.errors import UserError
from fedbench.report.leaderboards import leaderboards
from fedbench.report.pictures.rank_diagram import LETTERS, NO_LETTERS, diagram
from fedbench.report.standings import standings
from fedbench.report.statistics.ranks import bars
from fedbench.results import load

LEVELS = {"alllarge": 0.9, "fedra": 0.7, "depthfl": 0.6, "allsmall": 0.5}


def standing(folder, scenarios, seeds):
    for i in range(scenarios):
        for method, level in LEVELS.items():
            for seed in range(seeds):
                rows = eval_rows({12: {"a": level + seed / 100 * level, "b": level}})
                write_cell(folder / "s", method, seed, scenario=f"s{i}", evaluation=rows)
    (found,) = standings(leaderboards(load([folder]), roles={"alllarge": "ceiling"}))
    return found


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_every_ranked_method_has_a_line_with_its_rank_and_letters(tmp_path):
    found = standing(tmp_path, 5, 3)
    figure = diagram(found)
    assert {"fedra  1.00  a ", " c  3.00  allsmall"} < set(texts(figure))
    assert not any("alllarge" in text for text in texts(figure))
    starts = [line.get_xdata()[0] for line in figure.axes[0].lines if len(line.get_xdata()) == 3]
    assert starts == [1.0, 2.0, 3.0]
    assert LETTERS in figure.get_supxlabel() and "Benavoli et al. 2016" in figure.get_supxlabel()
    assert "  CD 1.48" in texts(figure)


def test_without_letters_it_says_so_and_needs_five_scenarios(tmp_path):
    with pytest.raises(UserError, match="takes two methods and five scenarios"):
        diagram(standing(tmp_path, 4, 1))
    five = standing(tmp_path / "five", 5, 1)
    assert NO_LETTERS[False] in diagram(five).get_supxlabel()
    crossed = replace(five, crossing={("fedra", "depthfl"): ("s0", "s1")})
    assert NO_LETTERS[True] in diagram(crossed).get_supxlabel()


def test_bars_join_the_longest_runs_within_the_critical_difference():
    assert bars([1.0, 1.5, 2.2, 4.0], 1.0) == [(1.0, 1.5), (1.5, 2.2)]
    assert bars([3.0, 1.0, 2.0], 5.0) == [(1.0, 3.0)]
    assert bars([1.0, 3.0], 1.0) == []


def test_the_command_writes_one_picture_a_suite(tmp_path):
    standing(tmp_path, 5, 1)
    done = fedbench("plot", "ranks", "s", "--format", "svg", cwd=tmp_path)
    assert (done.exit_code, done.output) == (0, "plots/s-ranks.svg\n")


def test_several_suites_are_several_files_also_under_a_given_name(tmp_path):
    for suite in ("one", "two"):
        for i in range(5):
            for method, value in (("fedra", 0.8), ("depthfl", 0.6)):
                rows = eval_rows({12: {"a": value, "b": value}})
                write_cell(tmp_path / suite, method, scenario=f"s{i}", evaluation=rows)
    done = fedbench("plot", "ranks", "one", "two", "-o", "ranks.svg", cwd=tmp_path)
    assert done.exit_code == 0, done.output
    assert done.stdout.split() == ["ranks-one.svg", "ranks-two.svg"]
    assert all((tmp_path / name).is_file() for name in done.stdout.split())
