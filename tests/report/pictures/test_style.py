"""How pictures look and how they are written: real files, compared byte for byte."""

from __future__ import annotations

import matplotlib
import pytest
from factories import eval_rows, write_cell
from matplotlib.figure import Figure

from fedbench.errors import UserError
from fedbench.report.drawn import boards
from fedbench.report.looks import LOOKS, styles
from fedbench.report.pictures.curves import curves
from fedbench.report.pictures.style import grid, layer_axis, legend_below, paper, save
from fedbench.results import load

MAGIC = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "pdf": b"%PDF"}
CURVE = {2: {"a": 0.5, "b": 0.25}, 4: {"a": 0.75, "b": 0.5}}


@pytest.mark.parametrize("form", MAGIC)
def test_the_suffix_decides_and_equal_results_give_equal_bytes(tmp_path, form):
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(CURVE))
    written = []
    for name in ("one", "two"):
        path = tmp_path / "deep" / "down" / f"{name}.{form}"
        save(curves(boards(load([tmp_path / "s"]))), path, dpi=60)
        written.append(path.read_bytes())
    assert written[0].startswith(MAGIC[form]) and written[0] == written[1]
    assert sorted(p.name for p in path.parent.iterdir()) == [f"one.{form}", f"two.{form}"]


def test_dpi_is_that_of_the_file(tmp_path):
    figure = Figure(figsize=(2, 1))
    sizes = []
    for dpi in (50, 100):
        save(figure, tmp_path / "f.png", dpi)
        head = (tmp_path / "f.png").read_bytes()[16:24]
        sizes.append((int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")))
    assert sizes == [(100, 50), (200, 100)]


@pytest.mark.parametrize("name", ["f.jpg", "f", "f.png.txt"])
def test_other_suffixes_are_refused(tmp_path, name):
    with pytest.raises(UserError, match=r"pictures end in \.png, \.svg or \.pdf"):
        save(Figure(), tmp_path / name, 100)
    assert not any(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named_with_its_mend(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/f\.png: cannot be written .*--out FILE"):
        save(Figure(), tmp_path / "file" / "f.png", 100)


ROLES = {"a": "method", "b": "method", "top": "ceiling", "low": "floor", "probe": "control", "part": "control"}
MOST = sum(map(len, LOOKS.values()))


def test_registered_methods_look_the_same_in_every_figure():
    alone = styles({"b": "b"}, ROLES)
    together = styles({"mine": "mine", "a": "a", "b": "b", "mine [x=1]": "mine"}, ROLES)
    assert alone["b"] == together["b"]
    drawn = {name: name for name in (*ROLES, *map(str, range(MOST - len(ROLES))))}
    looks = styles(drawn, ROLES).values()
    assert len({tuple(look.values()) for look in looks}) == MOST
    for part in ("color", "marker"):  # each alone tells them apart
        assert len({look[part] for look in looks}) == MOST


def test_methods_without_a_look_of_their_own_keep_theirs_whatever_the_order():
    drawn = {name: name for name in ("a", "mine", "yours", "b")}
    turned = dict(reversed(drawn.items()))
    assert styles(drawn, ROLES) == styles(turned, ROLES)
    assert list(styles(turned, ROLES)) == list(turned), "legends stay in the order given"


def test_built_in_methods_look_as_they_always_did(registry):
    """Pictures of one study, drawn with different versions, may stand side by side."""
    names = ("fedra", "inclusivefl", "depthfl", "allsmall", "alllarge", "head_only", "exclusive")
    found = styles({name: name for name in names}, registry.catalogue.roles)
    assert [tuple(look.values()) for look in found.values()] == [
        ("#D55E00", "-", "o"), ("#0072B2", "-", "s"), ("#009E73", "-", "^"), ("#E69F00", "-", "v"),
        ("#000000", "--", "D"), ("#CC79A7", ":", "P"), ("#56B4E9", ":", "X"),
    ]  # fmt: skip


def test_what_extends_a_method_has_the_line_of_its_role_and_a_look_of_its_own():
    found = styles({"top": "top", "higher": "top", "a": "a", "a_more": "a"}, ROLES)
    assert [look["linestyle"] for look in found.values()] == ["--", "--", "-", "-."]
    assert len({look["color"] for look in found.values()}) == 4


def test_more_methods_than_looks_begin_anew():
    assert len(styles({str(n): str(n) for n in range(2 * MOST)}, ROLES)) == 2 * MOST


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
