"""A metric over rounds: a panel for each setting, a line for each method, a band where there are several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedbench.compare.columns import is_fraction
from fedbench.compare.grouping import unknown
from fedbench.compare.measures import curve
from fedbench.errors import UserError
from fedbench.plots.boards import Board
from fedbench.plots.style import WIDTH, grid, legend_below, paper, styles


@dataclass(frozen=True)
class Line:
    """One method in one panel: rounds (R,), mean and sample standard deviation over seeds (R,), NaN for one seed."""

    rounds: np.ndarray
    mean: np.ndarray
    std: np.ndarray


def curves(boards: Sequence[Board], metric: str = "accuracy", by_domain: bool = False) -> Figure:
    """The average over domains after each evaluated round; by_domain: a panel for each of them.

    Raises: UserError where no result has the metric.
    """
    panels = _panels(boards, metric, by_domain)
    if not panels:
        have = [m for b in boards for part in b.methods.values() for r in part for m in r.eval["metric"].to_pylist()]
        raise UserError(unknown("metric", metric, sorted(set(have))))
    columns = len(panels) if len(panels) < 4 else 2 if len(panels) == 4 else 3
    width = WIDTH if columns > 1 else 4.2
    with paper():
        figure = Figure(figsize=(width, 0.4 + -(-len(panels) // columns) * (2.7 if columns < 3 else 2.1)))
        axes = grid(figure, len(panels), columns, sharex=True, sharey=True)
        look = styles(label for lines in panels.values() for label in lines)
        for ax, (title, lines) in zip(axes, panels.items(), strict=True):
            for label, line in lines.items():
                _draw(ax, label, line, 100 if is_fraction(metric) else 1, look[label])
            ax.set_title(title)
            ax.grid(axis="y")
            ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        for ax in axes[-columns:]:
            ax.set_xlabel("round")
        figure.supylabel(_named(metric, by_domain), fontsize=8.5)
        legend_below(figure, axes, width)
    return figure


def _named(metric: str, by_domain: bool) -> str:
    what = metric if by_domain else f"{metric}, mean over domains"
    return f"{what} (%)" if is_fraction(metric) else what


def _draw(ax: Axes, label: str, line: Line, scale: float, look: Mapping[str, str]) -> None:
    every = max(1, len(line.rounds) // 8)  # a marker now and then tells lines apart without colour
    ax.plot(line.rounds, scale * line.mean, label=label, markevery=every, clip_on=False, zorder=3, **look)
    several = np.isfinite(line.std)
    if several.any():
        low, high = scale * (line.mean - line.std), scale * (line.mean + line.std)
        ax.fill_between(line.rounds, low, high, where=several, color=look["color"], alpha=0.15, linewidth=0)


def _panels(boards: Sequence[Board], metric: str, by_domain: bool) -> dict[str, dict[str, Line]]:
    """The lines of every panel, by title and method, in order."""
    panels: dict[str, dict[str, Line]] = {}
    for board in boards:
        for label, results in board.methods.items():
            seeds = [found for r in results if (found := curve(r.eval, metric))]
            domains = dict.fromkeys(d for seed in seeds for values in seed.values() for d in values)
            for domain in domains if by_domain else [None] if seeds else ():
                title = " · ".join(filter(None, (board.title if len(boards) > 1 or not domain else "", domain)))
                panels.setdefault(title, {})[label] = _line(seeds, domain)
    return panels


def _line(seeds: Sequence[Mapping[int, Mapping[str, float]]], domain: str | None) -> Line:
    rounds = sorted({t for seed in seeds for t in seed})
    values = [[_value(seed[t], domain) for seed in seeds if t in seed] for t in rounds]
    std = [np.std(v, ddof=1) if len(v) > 1 else np.nan for v in values]
    return Line(np.array(rounds), np.array([np.mean(v) for v in values]), np.array(std))


def _value(domains: Mapping[str, float], domain: str | None) -> float:
    return float(np.mean(list(domains.values()))) if domain is None else domains.get(domain, np.nan)
