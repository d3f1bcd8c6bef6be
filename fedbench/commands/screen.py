"""The console that commands print on, and the line that says what takes long."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from fedbench.words import counted, visible


class Screen(Console):
    """Rich's console on standard output without highlights.

    A file, a domain or a plugin may be called anything, so that control characters in what is printed are written out;
    rich's own are added later and stay. Text is printed as it is: `runs[v2]` is a folder and `:cat:` no picture.
    """

    def __init__(self, **choices: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **choices)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


class Spinner:
    """A context manager that shows on a terminal's stderr what is under way, and counts; the line goes at its end."""

    def __init__(self, what: str, quiet: bool = False) -> None:
        """what: is under way, `Planning quickstart.yaml`."""
        self.what = what
        screen = Screen(stderr=True)
        self._status = None if quiet or not screen.is_terminal else screen.status(Text(what))

    def __enter__(self) -> Spinner:
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def tell(self, done: int, of: int) -> None:
        """So many of so many cells are prepared."""
        if self._status:
            self._status.update(Text(f"{self.what}: {done:,} of {counted(of, 'cell')}"))

    def stop(self) -> None:
        """Show no more."""
        if self._status:
            with suppress(OSError):  # the terminal was closed
                self._status.stop()
