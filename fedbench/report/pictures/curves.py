"""A metric over rounds, or over what clients spend: a panel for each setting, a line for each method, a band where
there are several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedbench.errors import UserError
from fedbench.report.grouping import unknown
from fedbench.report.pictures.style import WIDTH, Named, folded, panelled
from fedbench.report.plot_data import AXES, Board, Line, by_panel
from fedbench.report.plot_style import FAINT, MOST, greyed, styles
from fedbench.report.run_scores import is_fraction
from fedbench.results import Result
from fedbench.results.metric_direction import higher_is_better
from fedbench.types import GLOBAL
from fedbench.words import scale


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
            shown = f"_{label}" if grey else label  # matplotlib's legends leave out what begins so
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
    return sorted({name for board in boards for part in board.methods.values() for r in part for name in r.metrics})


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
