"""Which client trained which layer, and how often: a heat-map for each method, and the layers' sums beneath."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from fedbench.errors import UserError
from fedbench.report.pictures.style import GREY, WIDTH, fitted, layer_axis, paper
from fedbench.report.plot_data import Board, Shares, by_method

COLUMNS = 3


def allocation(board: Board) -> Figure:
    """One seed of every method that trains layers (`Board.one_seed`).

    Raises: UserError where no method trains a layer.
    """
    found, groups = by_method(board.one_seed())
    if not found:
        raise UserError(f"{board.title}: no method of these results trains a layer")
    return _drawn(found, groups)


def _drawn(found: Mapping[str, Shares], groups: Mapping[str, Sequence[int]]) -> Figure:
    columns = min(COLUMNS, len(found))
    height = max(0.8, 0.17 * len(groups))
    alone = all(len(clients) == 1 for clients in groups.values())
    most = max(one.holders.max() for one in found.values())
    room = (WIDTH - 2.0) / columns if columns > 1 else 2.4  # inches: beside the names of rows and the bar of colours
    with paper():
        inches = 0.45 + -(-len(found) // columns) * (height + 1.05)
        figure = Figure(figsize=(WIDTH if columns > 1 else 4.2, inches))
        pairs = _pairs(figure, len(found), columns, height)
        for i, ((above, below), (label, one)) in enumerate(zip(pairs, found.items(), strict=True)):
            image = _heat(above, one, f"{fitted(label, room, 8.5)}\nΓ* {one.gamma}, cover {one.coverage:.1f}")
            _sums(below, one.holders, most)
            if i % columns == 0:
                above.set_yticks(range(len(groups)), list(groups))
                above.set_ylabel("client · domain · $L_n$" if alone else "domain (clients)")
                below.set_yticks([0, most], ["0", f"{most:.3g}"])
                below.set_ylabel("clients")
                below.spines["left"].set_visible(True)
            if i + columns >= len(found):
                below.set_xlabel("layer")
        bar = figure.colorbar(image, ax=figure.axes, shrink=min(0.7, 2.2 / inches), aspect=20, pad=0.02)
        bar.set_label("rounds in which it\ntrained the layer (%)")
        bar.outline.set_visible(False)
    return figure


def _pairs(figure: Figure, count: int, columns: int, height: float) -> list[tuple[Axes, Axes]]:
    """For each method the axes of its heat-map, `height` inches high, and of the sums beneath."""
    rows = -(-count // columns)
    axes = figure.subplots(2 * rows, columns, squeeze=False, sharex=True, height_ratios=[height, 0.42] * rows)
    pairs = [(axes[2 * row, k], axes[2 * row + 1, k]) for row in range(rows) for k in range(columns)]
    for above, below in pairs[count:]:
        above.remove()
        below.remove()
    return pairs[:count]


def _heat(ax: Axes, one: Shares, title: str) -> AxesImage:
    ax.set_title(title, fontsize=8.5)
    image = ax.imshow(100 * one.share, vmin=0, vmax=100, aspect="auto", interpolation="nearest")
    rows, L = one.share.shape
    ax.hlines(np.arange(rows - 1) + 0.5, -0.5, L - 0.5, color="white", linewidth=0.8)
    ax.vlines(np.arange(L - 1) + 0.5, -0.5, rows - 0.5, color="white", linewidth=0.8)
    ax.set_yticks([])
    ax.tick_params(length=0, labelbottom=False)
    for spine in ax.spines.values():
        spine.set(visible=True, color=GREY, linewidth=0.4)
    return image


def _sums(ax: Axes, holders: np.ndarray, most: float) -> None:
    ax.bar(range(len(holders)), holders, color="#4C86B8", width=0.8)
    ax.set_ylim(0, most)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    layer_axis(ax, len(holders))
    ax.tick_params(labelbottom=True)
