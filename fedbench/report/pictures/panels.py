"""Panels for each leaderboard: a metric over rounds, over what it costs, or over the memory of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, StrMethodFormatter

from fedbench.errors import UserError
from fedbench.report.grouping import unknown
from fedbench.report.leaderboards import Leaderboard
from fedbench.report.pictures.style import GREY, WIDTH, Named, folded, in_percent, panelled
from fedbench.report.plot_data import AXES, FAINT, MOST, Board, Line, by_panel, greyed, styles
from fedbench.report.views.costs import BEATEN
from fedbench.report.views.sizes import by_size
from fedbench.results import Result
from fedbench.results.scores import higher_is_better, is_fraction
from fedbench.types import GLOBAL
from fedbench.words import scale

FAR = 20  # times the cheapest: from there on costs stand on a logarithmic axis


def curves(
    boards: Sequence[Board],
    metric: str = "accuracy",
    by_domain: bool = False,
    x: str = "rounds",
    roles: Mapping[str, str] | None = None,
) -> Figure:
    """The average after each evaluated round.

    Args:
        boards: What is drawn.
        metric: What of it.
        by_domain: A panel for each domain instead of the average.
        x: One of `plot_data.AXES`.
        roles: Of methods, by name.

    Raises:
        UserError: No result has the metric.
    """
    panels = by_panel(boards, metric, by_domain, x)
    if not panels:
        raise UserError(unknown("metric", metric, _metrics(boards)))
    registered = {label: name for board in boards for label, name in board.registered.items()}
    ordered = _ordered(panels, metric)
    looks = greyed(styles({label: registered[label] for label in registered if label in ordered}, roles or {}), ordered)
    times = 100 if is_fraction(metric) else 1
    largest = max(float(line.x.max()) for lines in panels.values() for line in lines.values())
    unit, x_title = _x_axis(x, largest)

    def draw(ax: Axes, lines: Mapping[str, Line]) -> list[Named]:
        for label, line in lines.items():
            grey = looks[label]["color"] == FAINT
            every = max(1, len(line.x) // 8)  # a marker now and then tells lines apart without colour
            look = {**looks[label], "linewidth": 0.7, "zorder": 2, "markersize": 2} if grey else looks[label]
            shown = "_nolegend_" if grey else label
            ax.plot(
                line.x / unit, times * line.mean, label=shown, markevery=every, clip_on=False, **{"zorder": 3, **look}
            )
            if not grey:
                _band(ax, line, unit, times, look["color"])
        if len(looks) > MOST:
            ax.set_xlim(right=1.25 * largest / unit)  # room for names
        ax.xaxis.set_major_locator(MaxNLocator(integer=x == "rounds", nbins=6))
        ends = {label: (line.x[-1] / unit, times * line.mean[-1]) for label, line in lines.items()}
        return [(label, *ends[label]) for label in ordered if label in ends]

    figure = panelled(panels, draw, looks, x_title, _y_title(boards, metric, by_domain), sharex=x == "rounds")
    if len(panels) > 1 and boards[0].shared:
        figure.suptitle(folded(boards[0].shared, WIDTH - 0.4, 9), fontsize=9)
    return figure


def _metrics(boards: Sequence[Board]) -> list[str]:
    return sorted({name for board in boards for part in board.methods.values() for r in part for name in r.metrics()})


def _band(ax: Axes, line: Line, unit: float, times: float, color: str) -> None:
    several = np.isfinite(line.std)
    if several.any():
        low, high = times * (line.mean - line.std), times * (line.mean + line.std)
        ax.fill_between(line.x / unit, low, high, where=several, color=color, alpha=0.15, linewidth=0)


def _x_axis(x: str, largest: float) -> tuple[float, str]:
    """The unit that values are divided by, and the title."""
    if x == "rounds":
        return 1.0, AXES[x]
    unit, name = scale(largest, x)
    return unit, f"{AXES[x]} ({name})"


def _y_title(boards: Sequence[Board], metric: str, by_domain: bool) -> str:
    mean = "" if by_domain else f", mean over {_meant(boards)}"
    return f"{metric}{mean} (%)" if is_fraction(metric) else f"{metric}{mean}"


def _ordered(panels: Mapping[str, Mapping[str, Line]], metric: str) -> list[str]:
    """The labels, the best mean at the end of the lines first."""
    ends: dict[str, list[float]] = {}
    for lines in panels.values():
        for label, line in lines.items():
            ends.setdefault(label, []).append(float(np.nan_to_num(line.mean[-1])))
    sign = -1 if higher_is_better(metric) else 1
    return sorted(ends, key=lambda label: sign * float(np.mean(ends[label])))


def _meant(boards: Sequence[Board]) -> str:
    """What averages are over: "domains", "clients" or, in different panels, both."""

    def over(result: Result) -> str:
        return "domains" if GLOBAL in result.eval["client"].to_pylist() else "clients"

    tested = {over(r) for board in boards for results in board.methods.values() for r in results}
    return " or ".join(sorted(tested, reverse=True))


def pareto(
    panels: Mapping[str, pandas.DataFrame],
    what: str,
    metric: str = "accuracy",
    registered: Mapping[str, str] | None = None,
    roles: Mapping[str, str] | None = None,
) -> Figure:
    """Rows of `compare pareto`; bars are one standard deviation over seeds, the steps are the front of means.

    Methods that another method beats are faint. Of more than `plot_data.MOST` methods, those on a front and then the
    best are in colour.

    Args:
        panels: By title.
        what: The cost, one of `fedbench.report.views.costs.RESOURCES`.
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
        positions = {}
        for row in found.to_dict("records"):
            label, x, y = row["method"], row["spent"] / unit, times * row["mean"]
            look: dict[str, Any] = {**looks[label], "linestyle": "none"}
            bar = None if pandas.isna(row["std"]) else times * row["std"]
            grey = look["color"] == FAINT
            alpha = 1.0 if row["verdict"] != BEATEN else 0.7 if grey else 0.4
            ax.errorbar(x, y, bar, alpha=alpha, elinewidth=0.8, markersize=4 if grey else 6, **look)
            if not grey:  # the legend has an empty line, which is never faint
                ax.plot([], [], label=label, markersize=6, **look)
            positions[label] = (label, x, y)
        _cost_axis(ax, logarithmic=largest > FAR * least > 0)
        return [positions[label] for label in dict.fromkeys(ordered) if label in positions]

    return panelled(panels, draw, looks, f"{AXES.get(what, what)} ({name})", in_percent(metric))


def _cost_axis(ax: Axes, logarithmic: bool) -> None:
    if logarithmic:
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
    else:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=6))


def sizes(
    panels: Mapping[str, Leaderboard],
    metric: str = "accuracy",
    registered: Mapping[str, str] | None = None,
    roles: Mapping[str, str] | None = None,
) -> Figure:
    """What is deployed of methods; bars are one standard deviation over seeds.

    What no device can run alone, and whose memory is unknown, is left out.

    Args:
        panels: Leaderboards by title.
        metric: What was scored.
        registered: By label, the name of a method.
        roles: Of methods, by name.

    Raises:
        UserError: Nothing is left.
    """
    known = {title: _points(board) for title, board in panels.items()}
    if not any(known.values()):
        raise UserError("of no model here is it known what memory it takes to run it")
    unit, name = scale(max(found["memory"].max() for methods in known.values() for found in methods.values()), "bytes")
    sign, times = -1 if higher_is_better(metric) else 1, 100 if is_fraction(metric) else 1
    best = {label: sign * found["mean"].iloc[-1] for methods in known.values() for label, found in methods.items()}
    ordered = sorted(best, key=lambda label: best[label])
    looks = greyed(styles({label: (registered or {}).get(label, label) for label in best}, roles or {}), ordered)

    def draw(ax: Axes, methods: Mapping[str, pandas.DataFrame]) -> list[Named]:
        ends = {}
        for label, found in methods.items():
            x, y = [memory / unit for memory in found["memory"]], [times * mean for mean in found["mean"]]
            bars = [times * std for std in found["std"]] if found["std"].notna().all() else None
            shown = "_nolegend_" if looks[label]["color"] == FAINT else label
            ax.errorbar(x, y, bars, label=shown, elinewidth=0.8, markersize=4, **looks[label])
            ends[label] = (label, x[-1], y[-1])
        _cost_axis(ax, logarithmic=True)
        return [ends[label] for label in ordered if label in ends]

    return panelled(known, draw, looks, f"memory to answer one image ({name})", in_percent(metric))


def _points(board: Leaderboard) -> dict[str, pandas.DataFrame]:
    """By method, the sizes that are points, the smallest first."""
    sizes = {row.label: by_size(row) for row in board.rows if not row.output}
    points = {label: found[found["alone"].astype(bool) & found["memory"].notna()] for label, found in sizes.items()}
    return {label: found for label, found in points.items() if len(found)}
