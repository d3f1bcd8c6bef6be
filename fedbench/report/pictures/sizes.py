"""A metric over the memory that it takes to answer an image: a line for each method, a point for each of its sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from fedbench.errors import UserError
from fedbench.report.deployed import AtSize, Deployed
from fedbench.report.looks import styles
from fedbench.report.measures import is_fraction
from fedbench.report.pictures.style import WIDTH, entitle, grid, legend_below, paper
from fedbench.words import scale


def sizes(
    panels: Mapping[str, Sequence[Deployed]],
    metric: str = "accuracy",
    registered: Mapping[str, str] | None = None,
    roles: Mapping[str, str] | None = None,
) -> Figure:
    """What is deployed of methods, by the title of their panel; bars are one standard deviation over seeds.

    What no device can run alone, and whose memory nobody knows, is left out. registered: by label, the name of a
    method; roles: of methods, by name. Raises: UserError where nothing is left.
    """
    known = {title: {one.row.label: _known(one) for one in rows if _known(one)} for title, rows in panels.items()}
    memories = [at.memory or 0 for methods in known.values() for found in methods.values() for at in found]
    if not memories:
        raise UserError("of no model here is it known what memory it takes to run it")
    unit, name = scale(max(memories), "bytes")
    times, columns = 100 if is_fraction(metric) else 1, min(len(known), 3)
    width = WIDTH if columns > 1 else 4.2
    look = styles({label: (registered or {}).get(label, label) for m in known.values() for label in m}, roles or {})
    with paper():
        figure = Figure(figsize=(width, 0.4 + -(-len(known) // columns) * 2.5))
        axes = grid(figure, len(known), columns, sharex=True, sharey=True)
        for ax, (title, methods) in zip(axes, known.items(), strict=True):
            for label, found in methods.items():
                x, y = [(at.memory or 0) / unit for at in found], [times * at.score.mean for at in found]
                bars = (
                    None if any(at.score.std is None for at in found) else [times * (at.score.std or 0) for at in found]
                )
                ax.errorbar(x, y, bars, label=label, elinewidth=0.8, markersize=4, **look[label])
            entitle(ax, title, columns)
            ax.grid(axis="y")
            ax.set_xscale("log")
            ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            ax.xaxis.set_minor_formatter(NullFormatter())
        for ax in axes[-columns:]:
            ax.set_xlabel(f"memory to answer one image ({name})")
        figure.supylabel(f"{metric} (%)" if is_fraction(metric) else metric, fontsize=8.5)
        legend_below(figure, axes, width)
    return figure


def _known(one: Deployed) -> list[AtSize]:
    """The sizes of a method that are points, the smallest first."""
    return [] if one.row.output else [at for at in one.sizes.values() if at.alone and at.memory is not None]
