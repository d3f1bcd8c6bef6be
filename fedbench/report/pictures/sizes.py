"""A metric over the memory that it takes to answer an image: a line for each method, a point for each of its sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from fedbench.errors import UserError
from fedbench.report.deployable import AtSize, Deployed
from fedbench.report.pictures.style import Named, in_percent, panelled
from fedbench.report.plot_style import FAINT, greyed, styles
from fedbench.report.run_scores import is_fraction
from fedbench.results.metric_direction import higher_is_better
from fedbench.words import scale


def sizes(
    panels: Mapping[str, Sequence[Deployed]],
    metric: str = "accuracy",
    registered: Mapping[str, str] | None = None,
    roles: Mapping[str, str] | None = None,
) -> Figure:
    """What is deployed of methods; bars are one standard deviation over seeds.

    What no device can run alone, and whose memory is unknown, is left out.

    Args:
        panels: By title.
        metric: What was scored.
        registered: By label, the name of a method.
        roles: Of methods, by name.

    Raises:
        UserError: Nothing is left.
    """
    known = {title: {one.row.label: _known(one) for one in rows if _known(one)} for title, rows in panels.items()}
    memories = [at.memory or 0 for methods in known.values() for found in methods.values() for at in found]
    if not memories:
        raise UserError("of no model here is it known what memory it takes to run it")
    unit, name = scale(max(memories), "bytes")
    sign, times = -1 if higher_is_better(metric) else 1, 100 if is_fraction(metric) else 1
    best = {label: sign * found[-1].score.mean for methods in known.values() for label, found in methods.items()}
    ordered = sorted(best, key=lambda label: best[label])
    looks = greyed(styles({label: (registered or {}).get(label, label) for label in best}, roles or {}), ordered)

    def draw(ax: Axes, methods: Mapping[str, Sequence[AtSize]]) -> list[Named]:
        ends = {}
        for label, found in methods.items():
            x, y = [(at.memory or 0) / unit for at in found], [times * at.score.mean for at in found]
            deviations = [at.score.std for at in found if at.score.std is not None]
            bars = [times * std for std in deviations] if len(deviations) == len(found) else None
            shown = f"_{label}" if looks[label]["color"] == FAINT else label
            ax.errorbar(x, y, bars, label=shown, elinewidth=0.8, markersize=4, **looks[label])
            ends[label] = (label, x[-1], y[-1])
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
        return [ends[label] for label in ordered if label in ends]

    return panelled(known, draw, looks, f"memory to answer one image ({name})", in_percent(metric))


def _known(one: Deployed) -> list[AtSize]:
    """The sizes of a method that are points, the smallest first."""
    return [] if one.row.output else [at for at in one.sizes.values() if at.alone and at.memory is not None]
