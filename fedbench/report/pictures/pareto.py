"""A metric over what it costs: a panel for each leaderboard, a point for each method, and the front as steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, StrMethodFormatter

from fedbench.report.lines import AXES
from fedbench.report.looks import styles
from fedbench.report.measures import is_fraction
from fedbench.report.pareto import BEATEN, Point
from fedbench.report.pictures.style import GREY, NARROW, WIDTH, entitle, grid, legend_below, legend_height, paper
from fedbench.words import scale

FAR = 20  # times the cheapest: from there on costs stand on a logarithmic axis


def pareto(
    panels: Mapping[str, Sequence[Point]],
    what: str,
    metric: str = "accuracy",
    registered: Mapping[str, str] | None = None,
    roles: Mapping[str, str] | None = None,
) -> Figure:
    """Points of `fedbench.report.pareto`, by the title of their panel; bars are one standard deviation over seeds.

    Methods that somebody has beaten, told apart, are faint; the steps are the front of means. registered: by
    label, the name of a method; roles: of methods, by name.
    """
    columns = len(panels) if len(panels) < 4 else 2 if len(panels) == 4 else 3
    width = WIDTH if columns > 1 else NARROW
    largest = max(p.spent for points in panels.values() for p in points)
    least = min((p.spent for points in panels.values() for p in points if p.spent > 0), default=largest)
    unit, name = scale(largest, "bytes" if what == "memory" else what)
    labels = [p.row.label for points in panels.values() for p in points]
    look = styles({label: (registered or {}).get(label, label) for label in labels}, roles or {})
    with paper():
        height = 0.4 + -(-len(panels) // columns) * (2.7 if columns < 3 else 2.1) + legend_height(list(look), width)
        figure = Figure(figsize=(width, height))
        axes = grid(figure, len(panels), columns, sharex=True, sharey=True)
        for ax, (title, points) in zip(axes, panels.items(), strict=True):
            _draw(ax, points, unit, 100 if is_fraction(metric) else 1, look)
            entitle(ax, title, columns)
            ax.grid(axis="y")
            if largest > FAR * least > 0:
                ax.set_xscale("log")
                ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
                ax.xaxis.set_minor_formatter(NullFormatter())
            else:
                ax.xaxis.set_major_locator(MaxNLocator(nbins=6))
        for ax in axes[-columns:]:
            ax.set_xlabel(f"{AXES.get(what, what)} ({name})")
        figure.supylabel(f"{metric} (%)" if is_fraction(metric) else metric, fontsize=8.5)
        legend_below(figure, axes, width)
    return figure


def _draw(ax: Axes, points: Sequence[Point], unit: float, times: float, look: Mapping[str, Mapping[str, Any]]) -> None:
    front = [p for p in points if p.front]
    x, y = [p.spent / unit for p in front], [times * p.mean for p in front]
    ax.plot(x, y, color=GREY, linewidth=0.8, zorder=1, drawstyle="steps-post")  # between two points the cheaper holds
    for p in points:
        own = {**look[p.row.label], "linestyle": "none"}
        std = p.row.average.std if p.row.average else None
        bar = None if std is None else times * std
        alpha = 0.4 if p.verdict == BEATEN else 1.0
        # Points of an empty line of its own carry the label, so that no legend is as faint as what somebody has beaten.
        ax.errorbar(p.spent / unit, times * p.mean, bar, alpha=alpha, elinewidth=0.8, markersize=6, **own)
        ax.plot([], [], label=p.row.label, markersize=6, **own)
