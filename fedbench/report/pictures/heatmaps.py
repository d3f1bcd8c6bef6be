"""Heat-maps of layers: which client trained which layer and how often, and how far every layer moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from fedbench.errors import UserError
from fedbench.report.pictures.style import GREY, WIDTH, fitted, grid, layer_axis, legend_below, legend_height, paper
from fedbench.report.plot_data import Board, Shares, by_method, styles
from fedbench.results import Result

ALLOCATIONS = 3  # side by side
COLUMNS = 4
PANELS = (
    ("holders", "clients a round", 1),
    ("update", "update norm", 1),
    ("error", "aggregation error (% of product)", 100),
)
READ = ("holders", "update_norm", "aggregation_error", "product_norm")


def allocation(board: Board) -> Figure:
    """One seed of every method that trains layers (`Board.one_seed`).

    Raises: UserError where no method trains a layer.
    """
    found, groups = by_method(board.one_seed())
    if not found:
        raise UserError(f"{board.title}: no method of these results trains a layer")
    return _drawn(found, groups)


def _drawn(found: Mapping[str, Shares], groups: Mapping[str, Sequence[int]]) -> Figure:
    columns = min(ALLOCATIONS, len(found))
    height = max(0.8, 0.17 * len(groups))
    alone = all(len(clients) == 1 for clients in groups.values())
    most = max(one.holders.max() for one in found.values())
    room = (WIDTH - 2.0) / columns if columns > 1 else 2.4  # inches: without the names of rows and the bar of colours
    with paper():
        inches = 0.45 + -(-len(found) // columns) * (height + 1.05)
        figure = Figure(figsize=(WIDTH if columns > 1 else 4.2, inches))
        pairs = _pairs(figure, len(found), columns, height)
        for i, ((above, below), (label, one)) in enumerate(zip(pairs, found.items(), strict=True)):
            image = _shares(above, one, f"{fitted(label, room, 8.5)}\nΓ* {one.gamma}, cover {one.coverage:.1f}")
            _sums(below, one.holders, most)
            if i % columns == 0:
                above.set_yticks(range(len(groups)), list(groups))
                above.set_ylabel("client · domain · $L_n$" if alone else "domain (clients)", parse_math=True)
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


def _shares(ax: Axes, one: Shares, title: str) -> AxesImage:
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


@dataclass(frozen=True)
class Layers:
    """One method, mean over rounds and seeds: clients that returned a layer (L,), the norm of its update (L,), and
    the aggregation error over the products' norm (L,), NaN where nobody returned it; updates (T, L) round by round."""

    holders: np.ndarray
    update: np.ndarray
    error: np.ndarray
    updates: np.ndarray


def layers(board: Board, roles: Mapping[str, str] | None = None) -> Figure:
    """Lines over the layers, a method each, and beneath how the updates went round by round.

    roles: of methods, by name. Raises: UserError where no method adapts layers, or where an older fedbench computed a
    cell.
    """
    found = {label: one for label, part in board.methods.items() if (one := measured(part))}
    if not found:
        raise UserError(f"{board.title}: no method of these results has adapters in its layers")
    look = styles(board.registered, roles or {})
    rows = -(-len(found) // COLUMNS)
    with paper():
        more = legend_height(list(found), WIDTH)
        figure = Figure(figsize=(WIDTH, 2.5 + more + 1.35 * rows))
        above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=[2.4 + more, 1.35 * rows + 0.1])[:, 0]
        axes = above.subplots(1, len(PANELS))
        for ax, (name, title, scale) in zip(axes, PANELS, strict=True):
            for label, one in found.items():
                ax.plot(range(len(one.update)), scale * getattr(one, name), label=label, clip_on=False, **look[label])
            ax.set_title(title)
            ax.set_ylim(bottom=0)
            ax.grid(axis="y")
            layer_axis(ax, max(len(one.update) for one in found.values()))
            ax.set_xlabel("layer")
        legend_below(above, axes, WIDTH)
        _by_round(below, found, columns=-(-len(found) // rows))
    return figure


def _by_round(figure: SubFigure, found: Mapping[str, Layers], columns: int) -> None:
    """The norm of every layer's update, round by round from the top."""
    axes = grid(figure, len(found), columns, sharex=True, sharey=True)
    most = max(one.updates.max() for one in found.values())
    for ax, (label, one) in zip(axes, found.items(), strict=True):
        T, L = one.updates.shape
        edges = (-0.5, L - 0.5, T + 0.5, 0.5)
        image = ax.imshow(one.updates, vmin=0, vmax=most, aspect="auto", interpolation="nearest", extent=edges)
        ax.set_title(fitted(label, WIDTH / columns - 0.4, 8.5), fontsize=8.5)
        ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
        layer_axis(ax, L)
    for ax in axes[-columns:]:
        ax.set_xlabel("layer")
    figure.supylabel("round", fontsize=8.5)
    bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=20)
    bar.set_label("update norm")
    bar.outline.set_visible(False)


def measured(results: Sequence[Result]) -> Layers | None:
    """The mean over seeds; None for a method without adapters in its layers."""
    seeds = [rows for r in results if (rows := r.layers.to_pylist())]
    if not seeds:
        return None
    T, L = (1 + max(row[name] for rows in seeds for row in rows) for name in ("round", "layer"))
    values = {name: np.full((len(seeds), T - 1, L), np.nan) for name in READ}
    for i, rows in enumerate(seeds):
        for row in rows:
            for name, value in values.items():
                value[i, row["round"] - 1, row["layer"]] = row[name]
    lost, whole = (np.nansum(values[name], axis=(0, 1)) for name in ("aggregation_error", "product_norm"))
    error = np.divide(lost, whole, out=np.full(L, np.nan), where=whole > 0)
    updates = values["update_norm"].mean(0)  # (T, L)
    return Layers(values["holders"].mean((0, 1)), updates.mean(0), error, updates)
