"""fedbench/report/terminal.py: what a terminal shows, whatever its width."""

from __future__ import annotations

import pytest
from boards import board, shown
from factories import eval_rows, write_cell, write_suite


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(tmp_path, width):
    write_suite(tmp_path / "s")
    text = shown([board(tmp_path)], width)
    assert max(map(len, text.splitlines())) <= width


def test_six_domains_fit_eighty_columns_in_one_table_of_scores(tmp_path):
    write_suite(tmp_path / "s")
    lines = shown([board(tmp_path)]).splitlines()
    header = next(line for line in lines if line.startswith("method"))
    found = header.replace("95 % inte…", "interval").split()
    assert [title.rstrip("…") for title in found] == [
        *("method", "solid", "outl", "text", "dim", "clutt", "sketch", "average", "interval", "group", "worst"),
    ]
    scores, gaps, costs = ([*line.split()][1:] for line in lines if line.startswith("fedra"))
    assert scores == [
        *("91.4", "87.8", "86.1", "73.4", "82.9", "94.3", "86.0", "±0.4", "85.0–87.0", "a", "73.4"),
    ]
    assert gaps == ["-6.2", "-7.2", "to", "-5.2", "worse"] and costs[0] == "10.8"
    assert any("exclusive: not applicable: no client holds all 12 layers" in line for line in lines)


def test_long_names_end_in_an_ellipsis_and_numbers_stay_whole(tmp_path):
    names = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
    for method in ("a_method_with_a_long_name", "b"):
        write_cell(tmp_path / "s", method, evaluation=eval_rows({1: dict.fromkeys(names, 0.5)}))
    lines = shown([board(tmp_path)], 60).splitlines()
    assert "…" in next(line for line in lines if line.startswith("method"))
    assert next(line for line in lines if line.startswith("b ")).split()[1:] == ["50.0"] * 8


@pytest.mark.parametrize("width", [40, 60, 80])
def test_names_and_titles_that_differ_are_never_cut_alike(tmp_path, width):
    """Whether they differ at the end or before."""
    methods = ("fedra_with_random_layers_a", "fedra_with_random_layers_b", "fedra_with_prefix_layers_b")
    domains = dict.fromkeys([f"region{i}" for i in range(10, 16)], 0.5)
    for method in methods:
        write_cell(tmp_path / "s", method, evaluation=eval_rows({1: domains}))
    tables = shown([board(tmp_path)], width).split("\nmethod ")[1:]
    heads = [word for table in tables for word in table.partition("\n")[0].split() if word.startswith("re")]
    assert len(heads) == len(set(heads)) == 6
    for table in tables:
        rows = [line.split()[0] for line in table.split("\n\n")[0].splitlines()[2:]]
        assert len(rows) == len(set(rows)) == 3


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


@pytest.mark.parametrize("width", [30, 40, 60])
def test_names_that_differ_in_their_middle_alone_are_told_apart_however_narrow(tmp_path, width):
    """They begin and end alike, and there is no room for the whole of them."""
    methods = [f"a_method_with_a_long_beginning_{x}_and_an_end_that_is_shared" for x in ("one", "two", "three")]
    for method in methods:
        write_cell(tmp_path / "s", method, evaluation=eval_rows({1: {"a": 0.5, "b": 0.5}}))
    text = shown([board(tmp_path)], width)
    assert max(map(len, text.splitlines())) <= width
    for table in text.split("\nmethod ")[1:]:
        rows = [line.split()[0] for line in table.split("\n\n")[0].splitlines()[2:]]
        assert len(rows) == len(set(rows)) == 3
