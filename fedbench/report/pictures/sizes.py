"""A metric over the memory that it takes to answer an image: a line for each method, a point for each of its sizes."""

from __future__ import annotations

from collections.abc import Mapping

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from fedbench.errors import UserError
from fedbench.report.deployable import by_size
from fedbench.report.leaderboards import Leaderboard
from fedbench.report.pictures.style import Named, in_percent, panelled
from fedbench.report.plot_style import FAINT, greyed, styles
from fedbench.report.run_scores import is_fraction
from fedbench.results.metric_direction import higher_is_better
from fedbench.words import scale


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
    known = {title: _known(board) for title, board in panels.items()}
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
            shown = f"_{label}" if looks[label]["color"] == FAINT else label
            ax.errorbar(x, y, bars, label=shown, elinewidth=0.8, markersize=4, **looks[label])
            ends[label] = (label, x[-1], y[-1])
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
        return [ends[label] for label in ordered if label in ends]

    return panelled(known, draw, looks, f"memory to answer one image ({name})", in_percent(metric))


def _known(board: Leaderboard) -> dict[str, pandas.DataFrame]:
    """By method, the sizes that are points, the smallest first."""
    sizes = {row.label: by_size(board, row) for row in board.rows if not row.output}
    points = {label: found[found["alone"].astype(bool) & found["memory"].notna()] for label, found in sizes.items()}
    return {label: found for label, found in points.items() if len(found)}
