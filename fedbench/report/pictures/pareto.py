"""A metric over what it costs: a panel for each leaderboard, a point for each method, and the front as steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, StrMethodFormatter

from fedbench.report.pareto import BEATEN, Point
from fedbench.report.pictures.style import GREY, Named, in_percent, panelled
from fedbench.report.plot_data import AXES
from fedbench.report.plot_style import FAINT, greyed, styles
from fedbench.report.run_scores import is_fraction
from fedbench.results.metric_direction import higher_is_better
from fedbench.words import scale

FAR = 20  # times the cheapest: from there on costs stand on a logarithmic axis


def pareto(
    panels: Mapping[str, Sequence[Point]],
    what: str,
    metric: str = "accuracy",
    registered: Mapping[str, str] | None = None,
    roles: Mapping[str, str] | None = None,
) -> Figure:
    """Points of `fedbench.report.pareto`; bars are one standard deviation over seeds, the steps are the front of means.

    Methods that another method beats are faint. Of more than `plot_style.MOST` methods, those on a front and then the
    best are in colour.

    Args:
        panels: By title.
        what: The cost, one of `fedbench.report.pareto.RESOURCES`.
        metric: What was scored.
        registered: By label, the name of a method.
        roles: Of methods, by name.
    """
    everything = [p for points in panels.values() for p in points]
    largest = max(p.spent for p in everything)
    least = min((p.spent for p in everything if p.spent > 0), default=largest)
    unit, name = scale(largest, "bytes" if what == "memory" else what)
    sign, times = -1 if higher_is_better(metric) else 1, 100 if is_fraction(metric) else 1
    ordered = [p.row.label for p in sorted(everything, key=lambda p: (not p.front, sign * p.mean))]
    looks = greyed(
        styles({p.row.label: (registered or {}).get(p.row.label, p.row.label) for p in everything}, roles or {}),
        ordered,
    )

    def draw(ax: Axes, points: Sequence[Point]) -> list[Named]:
        front = [p for p in points if p.front]
        steps = ([p.spent / unit for p in front], [times * p.mean for p in front])
        ax.plot(*steps, color=GREY, linewidth=0.8, zorder=1, drawstyle="steps-post")  # between two the cheaper holds
        for p in points:
            look = {**looks[p.row.label], "linestyle": "none"}
            std = p.row.average.std if p.row.average else None
            bar = None if std is None else times * std
            grey = look["color"] == FAINT
            alpha = 1.0 if p.verdict != BEATEN else 0.7 if grey else 0.4
            ax.errorbar(
                p.spent / unit, times * p.mean, bar, alpha=alpha, elinewidth=0.8, markersize=4 if grey else 6, **look
            )
            if not grey:  # the legend has an empty line, which is never faint
                ax.plot([], [], label=p.row.label, markersize=6, **look)
        _cost_axis(ax, logarithmic=largest > FAR * least > 0)
        places = {p.row.label: (p.row.label, p.spent / unit, times * p.mean) for p in points}
        return [places[label] for label in dict.fromkeys(ordered) if label in places]

    return panelled(panels, draw, looks, f"{AXES.get(what, what)} ({name})", in_percent(metric))


def _cost_axis(ax: Axes, logarithmic: bool) -> None:
    if logarithmic:
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
    else:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=6))
