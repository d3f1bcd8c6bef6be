"""The console that commands print on: what a name brings along is shown, not obeyed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fedbench.words import visible


class Screen(Console):
    """Rich's console on standard output without highlights.

    A file, a domain or a plugin may be called anything, so that control characters in what is printed are written out;
    rich's own are added later and stay.
    """

    def __init__(self, **choices: Any) -> None:
        super().__init__(highlight=False, **choices)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)
