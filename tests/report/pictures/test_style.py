"""How pictures look and how they are written: real files, compared byte for byte."""

from __future__ import annotations

import matplotlib
import pytest
from factories import eval_rows, write_cell
from matplotlib.figure import Figure

from fedbench.errors import UserError
from fedbench.report.pictures.panels import curves
from fedbench.report.pictures.style import grid, layer_axis, legend_below, name_points, paper, save
from fedbench.report.plot_data import boards
from fedbench.results import load

MAGIC = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "pdf": b"%PDF"}
CURVE = {2: {"a": 0.5, "b": 0.25}, 4: {"a": 0.75, "b": 0.5}}


@pytest.mark.parametrize("form", MAGIC)
def test_the_suffix_decides_and_equal_results_give_equal_bytes(tmp_path, form):
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(CURVE))
    written = []
    for name in ("one", "two"):
        path = tmp_path / "deep" / "down" / f"{name}.{form}"
        save(curves(boards(load([tmp_path / "s"]))), path)
        written.append(path.read_bytes())
    assert written[0].startswith(MAGIC[form]) and written[0] == written[1]
    assert sorted(p.name for p in path.parent.iterdir()) == [f"one.{form}", f"two.{form}"]


@pytest.mark.parametrize("name", ["f.jpg", "f", "f.png.txt"])
def test_other_suffixes_are_refused(tmp_path, name):
    with pytest.raises(UserError, match=r"pictures end in \.png, \.svg or \.pdf"):
        save(Figure(), tmp_path / name)
    assert not any(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named_with_its_mend(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/f\.png: cannot be written .*--output FILE"):
        save(Figure(), tmp_path / "file" / "f.png")


def test_the_users_own_settings_neither_matter_nor_change():
    with matplotlib.rc_context({"font.size": 31, "axes.grid": True}):
        with paper():
            assert matplotlib.rcParams["font.size"] == 8 and not matplotlib.rcParams["axes.grid"]
        assert matplotlib.rcParams["font.size"] == 31


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (5, 3), (6, 3), (12, 3)])
def test_a_grid_has_as_many_axes_as_asked(count, columns):
    figure = Figure()
    axes = grid(figure, count, columns, sharex=True, sharey=True)
    assert len(axes) == len(figure.axes) == count
    below = [ax.xaxis.get_tick_params()["labelbottom"] for ax in axes]
    assert below == [i + columns >= count for i in range(count)]


@pytest.mark.parametrize("L", [1, 2, 4, 6, 7, 12, 24, 32, 100])
def test_layers_are_counted_from_one_to_the_last_few_of_them(L):
    ax = Figure().subplots()
    layer_axis(ax, L)
    labels = [int(text.get_text()) for text in ax.get_xticklabels()]
    assert labels[0] == 1 and len(labels) <= 6 and len(set(labels)) == len(labels)
    assert [int(tick) + 1 for tick in ax.get_xticks()] == labels and labels[-1] > 0.7 * L


def test_a_legend_names_every_label_once():
    figure = Figure()
    axes = grid(figure, 2, 2)
    for ax in axes:
        for label in ("fedra", "inclusivefl", "a method with a long name [x=1]"):
            ax.plot([0], [0], label=label)
    legend_below(figure, axes, width=3)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.texts] == ["fedra", "inclusivefl", "a method with a long name [x=1]"]


def test_names_stand_next_to_their_points_where_there_is_room():
    figure = Figure(figsize=(3, 2))
    ax = figure.subplots()
    points = [("first", 0.5, 0.5), ("second", 0.5, 0.5), ("far too long a name for such a panel " * 3, 0.1, 0.1)]
    figure.draw_without_rendering()
    name_points(ax, points, {label: {"color": "#0072B2"} for label, *_ in points})
    figure.draw_without_rendering()
    one, two = ax.texts
    assert [one.get_text(), two.get_text()] == ["first", "second"]
    assert not one.get_window_extent().overlaps(two.get_window_extent())
