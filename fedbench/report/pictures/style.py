"""How pictures look: one colour, line and marker for each method, sizes for print, and files that come out equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase

from fedbench.disk import write_atomically
from fedbench.errors import UserError

# Colours and markers by role, for methods in the order of their names. Okabe and Ito's, which the colour-blind can tell
# apart, and six of Paul Tol's muted ones.
LOOKS = {
    "method": (
        ("#009E73", "^"), ("#332288", "p"), ("#882255", "*"), ("#D55E00", "o"), ("#999933", "<"),
        ("#661100", "h"), ("#777777", "d"), ("#44AA99", ">"), ("#0072B2", "s"),
    ),
    "ceiling": (("#000000", "D"),),
    "floor": (("#E69F00", "v"),),
    "control": (("#56B4E9", "X"), ("#CC79A7", "P")),
}  # fmt: skip
LINES = {"method": "-", "ceiling": "--", "floor": "-", "control": ":"}
VARIANT = "-."  # of what extends a method, or comes in a file

FORMATS = ("png", "svg", "pdf")
DATES = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None, "Producer": None}}
WIDTH = 7.0  # inches: the text of a page in two columns
GREY = "#666666"

PAPER: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that files are the same everywhere
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


def styles(methods: Mapping[str, str], roles: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Line options by label of a method: registered ones look the same in every figure, others take what is left, in
    order. methods: by label, the name it is registered under; roles: of what is registered, by name."""
    own: dict[str, tuple[str, str]] = {}
    for role, looks in LOOKS.items():
        own.update(zip((name for name, played in roles.items() if played == role), looks, strict=False))
    taken = {own[label] for label in methods if label in own}
    free = cycle([look for looks in LOOKS.values() for look in looks if look not in taken] or LOOKS["method"])
    found = {}
    for label, name in methods.items():
        color, marker = own[label] if label in own else next(free)
        line = LINES[roles.get(name, "method")]
        if label not in roles and line == LINES["method"]:
            line = VARIANT
        found[label] = {"color": color, "linestyle": line, "marker": marker}
    return found


def grid(figure: FigureBase, count: int, columns: int, **options: Any) -> list[Axes]:
    """`count` axes in rows of `columns`; what is left over of the last row stays empty."""
    rows = -(-count // columns)
    axes = figure.subplots(rows, columns, squeeze=False, **options).flatten().tolist()
    for extra in axes[count:]:
        extra.remove()
    for above in axes[max(0, count - columns) : count]:
        above.tick_params(labelbottom=True)  # nothing stands below them, even where axes are shared
    return axes[:count]


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
    longest = max(map(len, entries), default=1)
    fit = max(1, int(width / (0.55 + 0.075 * longest)))
    rows = -(-len(entries) // fit)
    columns = -(-len(entries) // rows)  # as even as possible
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=columns)


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
