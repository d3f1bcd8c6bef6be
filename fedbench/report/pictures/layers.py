"""What became of every layer: who trained it, how far it moved, and what averaging its factors lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

from fedbench.errors import UserError
from fedbench.report.pictures.style import WIDTH, fitted, grid, layer_axis, legend_below, legend_height, paper
from fedbench.report.plot_data import Board
from fedbench.report.plot_style import styles
from fedbench.results import Result

COLUMNS = 4
PANELS = (
    ("holders", "clients a round", 1),
    ("update", "update norm", 1),
    ("error", "aggregation error (% of product)", 100),
)
READ = ("holders", "update_norm", "aggregation_error", "product_norm")


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
        _heat(below, found, columns=-(-len(found) // rows))
    return figure


def _heat(figure: SubFigure, found: Mapping[str, Layers], columns: int) -> None:
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
