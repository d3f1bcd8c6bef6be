"""How much room words take in a picture, and words that are made to fit it."""

from __future__ import annotations

from functools import lru_cache

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath

from fedbench.words import clipped

FONT = "DejaVu Sans"  # comes with matplotlib, so that files are the same everywhere
POINTS = 72  # an inch


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
