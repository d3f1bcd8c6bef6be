"""A metric over what it costs: a panel for each leaderboard, a point for each method, and the front as steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, StrMethodFormatter

from fedbench.report.pareto import BEATEN
from fedbench.report.pictures.style import GREY, Named, in_percent, panelled
from fedbench.report.plot_data import AXES
from fedbench.report.plot_style import FAINT, greyed, styles
from fedbench.report.run_scores import is_fraction
from fedbench.results.metric_direction import higher_is_better
from fedbench.words import scale

FAR = 20  # times the cheapest: from there on costs stand on a logarithmic axis


def pareto(
    panels: Mapping[str, pandas.DataFrame],
    what: str,
    metric: str = "accuracy",
    registered: Mapping[str, str] | None = None,
    roles: Mapping[str, str] | None = None,
) -> Figure:
    """Rows of `fedbench.report.pareto`; bars are one standard deviation over seeds, the steps are the front of means.

    Methods that another method beats are faint. Of more than `plot_style.MOST` methods, those on a front and then the
    best are in colour.

    Args:
        panels: By title.
        what: The cost, one of `fedbench.report.pareto.RESOURCES`.
        metric: What was scored.
        registered: By label, the name of a method.
        roles: Of methods, by name.
    """
    times = 100 if is_fraction(metric) else 1
    points = pandas.concat(panels.values())
    largest, spending = points["spent"].max(), points["spent"][points["spent"] > 0]
    least = spending.min() if len(spending) else largest
    unit, name = scale(largest, "bytes" if what == "memory" else what)
    better = points.sort_values("mean", ascending=not higher_is_better(metric), kind="stable")
    ordered = better.sort_values("front", ascending=False, kind="stable")["method"].tolist()
    names = {label: (registered or {}).get(label, label) for label in points["method"]}
    looks = greyed(styles(names, roles or {}), ordered)

    def draw(ax: Axes, found: pandas.DataFrame) -> list[Named]:
        front = found[found["front"].astype(bool)]
        steps = (front["spent"] / unit, times * front["mean"])
        ax.plot(*steps, color=GREY, linewidth=0.8, zorder=1, drawstyle="steps-post")  # between two the cheaper holds
        places = {}
        for row in found.to_dict("records"):
            label, x, y = row["method"], row["spent"] / unit, times * row["mean"]
            look: dict[str, Any] = {**looks[label], "linestyle": "none"}
            bar = None if pandas.isna(row["std"]) else times * row["std"]
            grey = look["color"] == FAINT
            alpha = 1.0 if row["verdict"] != BEATEN else 0.7 if grey else 0.4
            ax.errorbar(x, y, bar, alpha=alpha, elinewidth=0.8, markersize=4 if grey else 6, **look)
            if not grey:  # the legend has an empty line, which is never faint
                ax.plot([], [], label=label, markersize=6, **look)
            places[label] = (label, x, y)
        _cost_axis(ax, logarithmic=largest > FAR * least > 0)
        return [places[label] for label in dict.fromkeys(ordered) if label in places]

    return panelled(panels, draw, looks, f"{AXES.get(what, what)} ({name})", in_percent(metric))


def _cost_axis(ax: Axes, logarithmic: bool) -> None:
    if logarithmic:
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
    else:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=6))
