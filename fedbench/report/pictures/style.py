"""Style of pictures: sizes for print, panels, legends, names of points, and files that come out equal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.font_manager import FontProperties
from matplotlib.patheffects import withStroke
from matplotlib.textpath import TextToPath

from fedbench.disk import write_atomically
from fedbench.errors import UserError
from fedbench.report.plot_data import FAINT, MOST
from fedbench.results.scores import is_fraction
from fedbench.words import clipped

Panel = TypeVar("Panel")
Named = tuple[str, float, float]  # a label, and where its point stands in data

FORMATS = ("png", "svg", "pdf")
DATES = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None, "Producer": None}}
DPI = 200  # of a png
WIDTH = 7.0  # inches: the text of a page in two columns
NARROW = 4.2  # inches: of one panel
ASIDE = 0.55  # inches of a panel that its title leaves free
MOST_OF_A_NAME = 2.6  # inches, in a legend
LINE = 0.18  # inches: of a row in a legend
HANDLE = 0.55  # inches: of a line in a legend, with what is free next to it
GREY = "#666666"
FONT = "DejaVu Sans"  # comes with matplotlib, so that files are the same everywhere
POINTS = 72  # an inch

PAPER: dict[Any, Any] = {
    "font.family": FONT,
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "lines.markeredgecolor": "white",
    "lines.markeredgewidth": 0.5,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "image.cmap": "Blues",
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
    "svg.hashsalt": "fedbench",
    "text.parse_math": False,  # names may hold dollar signs
}
UNNAMED = re.compile(r"_(child|container)\d+|_nolegend_")  # what matplotlib calls an artist without a label


@contextmanager
def paper() -> Iterator[None]:
    """Within it, figures are drawn for print, whatever the user's matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(PAPER)
        yield


@lru_cache(maxsize=4096)
def inches(text: str, size: float) -> float:
    """How wide a line is in a font of so many points."""
    width, _, _ = TextToPath().get_text_width_height_descent(text, FontProperties(family=FONT, size=size), False)
    return width / POINTS


def fitted(text: str, room: float, size: float) -> str:
    """A line cut in its middle until it is `room` inches wide: what tells two names apart stands at an end."""
    width = len(text)
    while inches(text, size) > room and width > 3:
        width -= 1
        text = clipped(text, width)
    return text


def folded(text: str, room: float, size: float, most: int = 3) -> str:
    """Words on at most so many lines, each `room` inches wide; what is too long for that is cut in its middle."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if inches(longer, size) <= room or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    if len(lines) > most:
        half = most // 2
        lines = [*lines[: most - half - 1], " ".join([lines[most - half - 1], "…", lines[-half - 1]]), *lines[-half:]]
    return "\n".join(fitted(line, room, size) for line in lines)


def grid(figure: FigureBase, count: int, columns: int, **options: Any) -> list[Axes]:
    """`count` axes in rows of `columns`; what is left over of the last row stays empty."""
    rows = -(-count // columns)
    axes = figure.subplots(rows, columns, squeeze=False, **options).flatten().tolist()
    for extra in axes[count:]:
        extra.remove()
    for above in axes[max(0, count - columns) : count]:
        above.tick_params(labelbottom=True)  # nothing stands below them, even where axes are shared
    return axes[:count]


def entitle(ax: Axes, text: str, columns: int) -> None:
    """A title above one of so many axes side by side, on as many lines as keep it from running into the next."""
    ax.set_title(folded(text, (WIDTH if columns > 1 else NARROW) / columns - ASIDE, PAPER["axes.titlesize"]))


def panelled(
    panels: Mapping[str, Panel],
    draw: Callable[[Axes, Panel], Sequence[Named]],
    looks: Mapping[str, Mapping[str, Any]],
    x_title: str,
    y_title: str,
    sharex: bool = True,
) -> Figure:
    """A panel for each title with one legend below them; of more methods than MOST, points get names.

    Args:
        panels: What to draw, by title.
        draw: Draws one panel, and returns its points to name, the most important first.
        looks: By label, as of `plot_data.greyed`: what is grey is left out of the legend.
        x_title: Below the lowest panels.
        y_title: Left of all.
        sharex: Whether all panels have the same x axis.
    """
    columns = len(panels) if len(panels) < 4 else 2 if len(panels) == 4 else 3
    width = WIDTH if columns > 1 else NARROW
    with paper():
        height = 0.4 + -(-len(panels) // columns) * (2.7 if columns < 3 else 2.1)
        labels = [label for label, look in looks.items() if look["color"] != FAINT]
        figure = Figure(figsize=(width, height + legend_height(labels, width)))
        axes = grid(figure, len(panels), columns, sharex=sharex, sharey=True)
        named = []
        for ax, (title, panel) in zip(axes, panels.items(), strict=True):
            named.append(draw(ax, panel))
            entitle(ax, title, columns)
            ax.grid(axis="y")
        for ax in axes[-columns:]:
            ax.set_xlabel(x_title)
        figure.supylabel(y_title, fontsize=8.5)
        legend_below(figure, axes, width)
        if len(looks) > MOST:
            figure.draw_without_rendering()  # only then it is known where the points stand
            for ax, points in zip(axes, named, strict=True):
                name_points(ax, points, looks)
    return figure


def in_percent(metric: str) -> str:
    """The title of an axis that has the metric."""
    return f"{metric} (%)" if is_fraction(metric) else metric


# Where a name may stand: points to the right and above the middle of its point, and which of its ends is there.
SPOTS = ((5, -2, "left"), (-5, -2, "right"), (0, 5, "center"), (0, -9, "center"), (5, 4, "left"), (5, -8, "left"))
SMALL = 6  # points: of a name in a panel


def name_points(ax: Axes, points: Sequence[Named], looks: Mapping[str, Mapping[str, Any]]) -> None:
    """Write names next to points, as far as there is room for them: none covers another point or name."""
    scale = POINTS / ax.figure.dpi
    room = ax.get_window_extent()
    positions = [ax.transData.transform((x, y)) * scale for _, x, y in points]
    taken = [(x - 3, x + 3, y - 3, y + 3) for x, y in positions]
    for (label, x, y), (left, low) in zip(points, positions, strict=True):
        wide = inches(label, SMALL) * POINTS
        for dx, dy, side in SPOTS:
            start = left + dx - {"left": 0.0, "right": wide, "center": wide / 2}[side]
            box = (start, start + wide, low + dy, low + dy + SMALL)
            within = room.x0 * scale <= box[0] and box[1] <= room.x1 * scale
            within = within and room.y0 * scale <= box[2] and box[3] <= room.y1 * scale
            if within and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                grey = looks[label]["color"] == FAINT
                ax.annotate(
                    label,
                    (x, y),
                    (dx, dy),
                    textcoords="offset points",
                    ha=side,
                    fontsize=SMALL,
                    color=GREY if grey else "black",
                    in_layout=False,
                    path_effects=[withStroke(linewidth=1.5, foreground="white")],
                )
                break


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]


def layer_axis(ax: Axes, L: int) -> None:
    """Layers along x, counted from 1 as in the papers; the data stand at 0 .. L - 1."""
    step = 1 if L <= 6 else next(step for step in (2, 3, 4, 6, 8, 12, 24, L) if L / step <= 4)
    shown = [1, *(j for j in range(step, L + 1, step) if j > 1)]
    ax.set_xticks([j - 1 for j in shown], [str(j) for j in shown])
    ax.set_xlim(-0.5, L - 0.5)


def legend_below(figure: FigureBase, axes: Iterable[Axes], width: float) -> None:
    """One legend for all axes, under them: each label once, in as many columns as fit `width` inches."""
    entries: dict[str, Any] = {}
    for ax in axes:
        drawn: list[Any] = [*ax.lines, *ax.containers]
        for artist in drawn:  # matplotlib's own list lacks names that begin with `_`
            if not UNNAMED.fullmatch(label := str(artist.get_label())):
                entries.setdefault(label, artist)
    names, rows = _legend(list(entries), width)
    columns = -(-len(entries) // rows)  # as even as possible
    figure.legend(list(entries.values()), names, loc="outside lower center", ncols=columns)


def legend_height(labels: Sequence[str], width: float) -> float:
    """Inches that the rows of `legend_below` take beyond the few that every figure has room for."""
    return LINE * max(0, _legend(labels, width)[1] - 3)


def _legend(labels: Sequence[str], width: float) -> tuple[list[str], int]:
    """(the labels as they fit `width` inches, in how many rows)."""
    size = PAPER["font.size"]
    names = [fitted(label, min(MOST_OF_A_NAME, width - HANDLE - 0.3), size) for label in labels]
    fit = max(1, int(width / (HANDLE + max((inches(name, size) for name in names), default=0.1))))
    return names, max(1, -(-len(names) // fit))


def format_of(path: Path) -> str:
    """One of FORMATS, by the path's suffix. Raises: UserError for any other."""
    form = path.suffix[1:].lower()
    if form not in FORMATS:
        raise UserError(f"{path}: pictures end in .png, .svg or .pdf, not {path.suffix!r}")
    return form


def save(figure: Figure, path: Path) -> None:
    """A picture in the format of the path's suffix, written whole or not at all; equal figures give equal bytes.

    Raises: UserError for an unknown suffix, and where the file cannot be written.
    """
    form = format_of(path)
    with paper():
        write_atomically(
            path,
            lambda temporary: figure.savefig(temporary, format=form, dpi=DPI, metadata=DATES[form]),
            mend="Choose another place with --output FILE.",
        )
