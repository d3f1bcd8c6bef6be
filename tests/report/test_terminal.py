"""fedbench/report/style.py: what a terminal shows, whatever its width."""

from __future__ import annotations

import pytest
from boards import board, shown
from command import fedbench
from factories import eval_rows, write_cell, write_suite


def tables(text):
    """The titles of each table."""
    return [line.split() for line in text.splitlines() if line.startswith("method")]


@pytest.mark.parametrize("width", [60, 120])
def test_no_line_is_wider_than_the_terminal(tmp_path, width):
    write_suite(tmp_path / "s")
    lines = shown([board(tmp_path)], width).splitlines()[2:]  # the heading and the caption are never folded
    assert max(map(len, lines)) <= width


def test_name_average_and_group_come_first_and_domains_last(tmp_path):
    write_suite(tmp_path / "s")
    text = shown([board(tmp_path)])
    assert tables(text)[0][:4] == ["method", "role", "average", "group"]
    assert tables(text)[-1] == ["method", "solid", "outline", "texture", "dim", "clutter", "sketch"]
    lines = [
        line.split()[1:]
        for line in text.splitlines()
        if line.startswith("fedra ") and " is significantly better" not in line
    ]
    assert lines[0] == ["86.0", "±0.4", "a", "85.0–87.0", "73.4"]
    assert lines[1][:5] == ["-6.2", "-7.2", "to", "-5.2", "worse"] and "10.8" in lines[1] + lines[2]
    assert lines[-1] == ["91.4", "87.8", "86.1", "73.4", "82.9", "94.3"]
    assert "exclusive: not applicable: no client holds all 12 layers" in " ".join(text.split())


def test_all_in_one_table_where_there_is_room(tmp_path):
    write_suite(tmp_path / "s", seeds=(0,))
    assert len(tables(shown([board(tmp_path)], 160))) == 1


def test_piped_output_is_as_wide_as_it_needs(tmp_path, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    domains = {f"domain{i}": i / 30 for i in range(30)}
    name = "a_method_with_a_very_long_name_that_no_terminal_of_eighty_columns_has_room_for"
    write_cell(tmp_path / "s", name, evaluation=eval_rows({1: domains}))
    text = fedbench("compare", "s", "--columns", "average,domains", cwd=tmp_path, columns=None).output
    (titles,) = tables(text)
    assert titles[-30:] == list(domains)
    assert any(line.startswith(f"{name} ") and line.rstrip().endswith("96.7") for line in text.splitlines())


@pytest.mark.parametrize("width", [60, 80])
def test_long_names_are_folded_and_never_cut(tmp_path, width):
    methods = [f"a_method_with_a_long_beginning_{x}_and_an_end_that_is_shared" for x in ("one", "two", "three")]
    for method in methods:
        write_cell(tmp_path / "s", method, evaluation=eval_rows({1: {"a": 0.5, "b": 0.5}}))
    text = shown([board(tmp_path)], width)
    assert "…" not in text
    first = text.split("\nmethod ")[1].split("\n\n")[0].splitlines()[2:]
    assert "".join(line.split()[0] for line in first if line.strip()) == "".join(methods)


def test_names_that_look_like_markup_are_shown_as_they_are(tmp_path):
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({1: {"[/x]": 0.5, "[red]y": 0.25}}))
    text = shown([board(tmp_path)], 200)
    assert tables(text)[0][-2:] == ["[/x]", "[red]y"]


def test_many_domains_are_split_over_tables(tmp_path):
    domains = {f"domain{i}": i / 30 for i in range(30)}
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({1: domains}))
    text = fedbench("compare", "s", "--columns", "domains", cwd=tmp_path, columns=80).output
    numbers = [word for line in text.splitlines() if line.startswith("fedra") for word in line.split()]
    assert len(tables(text)) > 1 and all(f"{100 * value:.1f}" in numbers for value in domains.values())
