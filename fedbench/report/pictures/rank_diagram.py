"""Critical-difference diagrams (Demsar 2006, Figure 1): mean ranks over scenarios, and groups by paired tests."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedbench.errors import UserError
from fedbench.report.pictures.style import GREY, WIDTH, fitted, inches, paper
from fedbench.report.standings import Standing
from fedbench.report.statistics.ranks import bars
from fedbench.words import counted

CAUTION = (
    "Bars: mean ranks within Nemenyi's critical difference (CD), which depends on the pool of methods (Benavoli et al. "
    "2016).\n"
)
LETTERS = "Letters: methods that share one are not significantly different by paired tests; they decide, not the bars."
NO_LETTERS = {
    False: "No letters: seeds and scenarios are too few for paired tests, and nothing is concluded about two methods.",
    True: "No letters: which of two methods is better depends on the scenario, see `fedbench compare ranks`.",
}
ROW = 0.2  # inches for each method
SIDE = 1.45  # inches for a method's words
SIZE = 8  # points
LETTERS_SHOWN = 6


def diagram(standing: Standing) -> Figure:
    """One suite's methods on an axis of mean ranks, 1 on the left.

    Raises: UserError where fewer than five scenarios are complete.
    """
    if standing.cd is None:
        raise UserError(
            f"{standing.suite}: a critical difference takes two methods and five scenarios that have all methods.\n"
            "`fedbench compare ranks` says which scenarios lack which; --method chooses some that all have."
        )
    rows = -(-len(standing.methods) // 2)
    joined = bars(list(standing.mean_ranks.values()), standing.cd)
    height = 1.45 + ROW * rows + 0.1 * len(joined)
    with paper():
        figure = Figure(figsize=(WIDTH, height))
        _draw(figure.subplots(), standing, joined, rows)
        caution = CAUTION + (LETTERS if standing.groups else NO_LETTERS[bool(standing.crossing)])
        figure.supxlabel(caution, fontsize=7, color=GREY, x=0.01, ha="left")
        title = f"{standing.suite}: mean ranks over {counted(len(standing.ranks), 'scenario')} ({standing.metric})"
        figure.suptitle(title, fontsize=9, x=0.01, ha="left")
    return figure


def _draw(ax: Axes, standing: Standing, joined: Sequence[tuple[float, float]], rows: int) -> None:
    """The axis above, bars below it, and a line from each rank to its method: better half left, worse half right."""
    k, cd = len(standing.methods), standing.cd or 0.0
    bar, top = 0.5, 0.5 * (len(joined) + 1)  # in rows
    ax.set_ylim(top + rows, -2.2)
    ax.set_xlim(1 - 0.42 * (k - 1), k + 0.42 * (k - 1))
    ax.axis("off")
    ax.plot([1, k], [0, 0], color="black", linewidth=0.8)
    for tick in range(1, k + 1):
        ax.plot([tick, tick], [0, -0.25], color="black", linewidth=0.8)
        ax.text(tick, -0.35, str(tick), ha="center", va="bottom")
    shown = min(cd, k - 1)
    ax.plot([1, 1 + shown], [-1.5, -1.5], color=GREY, linewidth=1.2, marker="|", markeredgecolor=GREY)
    longer = "" if cd <= k - 1 else ", longer than the axis"
    ax.text(1 + shown, -1.5, f"  CD {cd:.2f}{longer}", ha="left", va="center", color=GREY)
    for i, (first, last) in enumerate(joined, 1):
        ax.plot([first - 0.02 * k / 6, last + 0.02 * k / 6], [bar * i] * 2, color="black", linewidth=3)
    for i, name in enumerate(standing.methods):
        left = i < rows
        y = top + (i if left else k - 1 - i) + 0.3
        end = 1 - 0.04 * (k - 1) if left else k + 0.04 * (k - 1)
        rank, group = standing.mean_ranks[name], standing.groups.get(name, "")
        ax.plot([rank, rank, end], [0, y, y], color=GREY, linewidth=0.7)
        group = group if len(group) <= LETTERS_SHOWN else f"{group[: LETTERS_SHOWN - 1]}…"
        words = [f"{rank:.2f}", *([group] if group else [])]
        words = [fitted(name, SIDE - inches("    ".join(words), SIZE), SIZE), *words]
        text = "  ".join(words if left else reversed(words))
        ax.text(end, y, f"{text} " if left else f" {text}", ha="right" if left else "left", va="center")
