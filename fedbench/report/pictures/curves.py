"""A metric over rounds, or over what clients spend: a panel for each setting, a line for each method, a band where
there are several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedbench.errors import UserError
from fedbench.report.drawn import Board
from fedbench.report.grouping import unknown
from fedbench.report.lines import AXES, Line, by_panel
from fedbench.report.looks import styles
from fedbench.report.measures import is_fraction
from fedbench.report.pictures.room import folded
from fedbench.report.pictures.style import NARROW, WIDTH, entitle, grid, legend_below, legend_height, paper
from fedbench.types import GLOBAL
from fedbench.words import scale


def curves(
    boards: Sequence[Board],
    metric: str = "accuracy",
    by_domain: bool = False,
    x: str = "rounds",
    roles: Mapping[str, str] | None = None,
) -> Figure:
    """The average after each evaluated round; by_domain: a panel for each domain; x: one of `lines.AXES`; roles: of
    methods, by name.

    Raises: UserError where no result has the metric.
    """
    panels = by_panel(boards, metric, by_domain, x)
    if not panels:
        have = [m for b in boards for part in b.methods.values() for r in part for m in r.metrics]
        raise UserError(unknown("metric", metric, sorted(set(have))))
    columns = len(panels) if len(panels) < 4 else 2 if len(panels) == 4 else 3
    width = WIDTH if columns > 1 else NARROW
    with paper():
        labels = list(dict.fromkeys(label for lines in panels.values() for label in lines))
        height = 0.4 + -(-len(panels) // columns) * (2.7 if columns < 3 else 2.1) + legend_height(labels, width)
        figure = Figure(figsize=(width, height))
        axes = grid(figure, len(panels), columns, sharex=x == "rounds", sharey=True)
        registered = {label: name for board in boards for label, name in board.registered.items()}
        drawn = {label: registered[label] for lines in panels.values() for label in lines}
        look = styles(drawn, roles or {})
        largest = max((float(line.x.max()) for lines in panels.values() for line in lines.values()), default=0.0)
        unit, name = (1.0, "") if x == "rounds" else scale(largest, x)
        for ax, (title, lines) in zip(axes, panels.items(), strict=True):
            for label, line in lines.items():
                _draw(ax, label, line, unit, 100 if is_fraction(metric) else 1, look[label])
            entitle(ax, title, columns)
            ax.grid(axis="y")
            ax.xaxis.set_major_locator(MaxNLocator(integer=x == "rounds", nbins=6))
        for ax in axes[-columns:]:
            ax.set_xlabel(f"{AXES[x]} ({name})" if name else AXES[x])
        figure.supylabel(_named(metric, "" if by_domain else _meant(boards)), fontsize=8.5)
        legend_below(figure, axes, width)
        if len(panels) > 1 and boards[0].shared:
            figure.suptitle(folded(boards[0].shared, width - 0.4, 9), fontsize=9)
    return figure


def _named(metric: str, mean: str) -> str:
    what = f"{metric}, mean over {mean}" if mean else metric
    return f"{what} (%)" if is_fraction(metric) else what


def _meant(boards: Sequence[Board]) -> str:
    """What averages are over: "domains", "clients" or, in different panels, both."""
    tested = {
        "domains" if GLOBAL in r.eval["client"].to_pylist() else "clients"
        for board in boards
        for results in board.methods.values()
        for r in results
    }
    return " or ".join(sorted(tested, reverse=True))


def _draw(ax: Axes, label: str, line: Line, unit: float, scale: float, look: Mapping[str, Any]) -> None:
    every = max(1, len(line.x) // 8)  # a marker now and then tells lines apart without colour
    ax.plot(line.x / unit, scale * line.mean, label=label, markevery=every, clip_on=False, zorder=3, **look)
    several = np.isfinite(line.std)
    if several.any():
        low, high = scale * (line.mean - line.std), scale * (line.mean + line.std)
        ax.fill_between(line.x / unit, low, high, where=several, color=look["color"], alpha=0.15, linewidth=0)
