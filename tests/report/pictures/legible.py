"""Whether every word of a figure can be read: none runs off the figure, and no two run into each other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, FigureBase
from matplotlib.text import Text
from matplotlib.transforms import Bbox

SLACK = 1.0  # pixels, of 100 an inch: the outlines of letters that touch


def wrong(figure: Figure) -> list[str]:
    """What cannot be read, a line each."""
    figure.set_dpi(100)
    FigureCanvasAgg(figure)
    figure.canvas.draw()
    boxes = [(text.get_text(), _inner(text.get_window_extent())) for text in _texts(figure)]
    room = Bbox([[0, 0], figure.bbox.size])
    cut = [f"cut: {said!r}" for said, box in boxes if not _within(box, room)]
    both = [f"overlap: {a!r} and {b!r}" for (a, one), (b, two) in combinations(boxes, 2) if one.overlaps(two)]
    return cut + both


def _inner(box: Bbox) -> Bbox:
    return Bbox([[box.x0 + SLACK, box.y0 + SLACK], [box.x1 - SLACK, box.y1 - SLACK]])


def _within(box: Bbox, room: Bbox) -> bool:
    return box.x0 >= room.x0 and box.y0 >= room.y0 and box.x1 <= room.x1 and box.y1 <= room.y1


def _texts(figure: FigureBase) -> Iterator[Text]:
    """All that is seen, of subfigures too; ticks beyond the limits of their axes are not."""
    found = [figure._suptitle, figure._supxlabel, figure._supylabel, *figure.texts]
    for legend in figure.legends:
        found += legend.get_texts()
    for ax in figure.axes if isinstance(figure, Figure) else ():
        found += _of(ax)
    for part in figure.subfigs:
        found += list(_texts(part))
    seen: set[int] = set()
    for text in found:
        if text is not None and text.get_visible() and text.get_text().strip() and id(text) not in seen:
            seen.add(id(text))
            yield text


def _of(ax: Axes) -> list[Text]:
    if not ax.get_visible():
        return []
    found = [ax.title, *ax.texts]
    for axis in (ax.xaxis, ax.yaxis) if ax.axison else ():
        found += [axis.label, axis.offsetText, *_ticks(axis)]
    return found


def _ticks(axis: Axis) -> list[Text]:
    low, high = sorted(axis.get_view_interval())
    room = 1e-9 * (high - low)
    shown = [t for t in axis.get_major_ticks() if low - room <= t.get_loc() <= high + room]
    return [label for t in shown for label in (t.label1, t.label2) if label.get_visible()]
