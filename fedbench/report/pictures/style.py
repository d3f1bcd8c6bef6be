"""How pictures are made: sizes for print, legends, and files that come out equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase

from fedbench.disk import write_atomically
from fedbench.errors import UserError
from fedbench.report.pictures.room import FONT, fitted, folded, inches

FORMATS = ("png", "svg", "pdf")
DATES = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None, "Producer": None}}
WIDTH = 7.0  # inches: the text of a page in two columns
NARROW = 4.2  # inches: of one panel
ASIDE = 0.55  # inches of a panel that its title leaves free
MOST_OF_A_NAME = 2.6  # inches, in a legend
LINE = 0.18  # inches: of a row in a legend
HANDLE = 0.55  # inches: of a line in a legend, with what is free beside it
GREY = "#666666"

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
}


@contextmanager
def paper() -> Iterator[None]:
    """Within it, figures are drawn for print, whatever the user's matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(PAPER)
        yield


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


def layer_axis(ax: Axes, L: int) -> None:
    """Layers along x, counted from 1 as in the papers; the data stand at 0 .. L - 1."""
    step = 1 if L <= 6 else next(step for step in (2, 3, 4, 6, 8, 12, 24, L) if L / step <= 4)
    shown = [1, *(j for j in range(step, L + 1, step) if j > 1)]
    ax.set_xticks([j - 1 for j in shown], [str(j) for j in shown])
    ax.set_xlim(-0.5, L - 0.5)


def legend_below(figure: FigureBase, axes: Iterable[Axes], width: float) -> None:
    """One legend for all axes, under them: each label once, in as many columns as fit `width` inches."""
    entries: dict[str, Artist] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
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


def save(figure: Figure, path: Path, dpi: int) -> None:
    """A picture in the format of the path's suffix, written whole or not at all; equal figures give equal bytes.

    Raises: UserError for an unknown suffix, and where the file cannot be written.
    """
    form = format_of(path)
    with paper():
        write_atomically(
            path,
            lambda temporary: figure.savefig(temporary, format=form, dpi=dpi, metadata=DATES[form]),
            mend="Choose another place with --out FILE.",
        )
