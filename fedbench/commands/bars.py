"""The bars of a run on a terminal: one over all rounds, and one for each cell at work."""

from __future__ import annotations

from contextlib import suppress

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fedbench.words import clipped

BAR, CLOCK, LEFT = 16, 8, 4  # columns of a bar, of a time and of the word before the second one
LEAST = 20  # columns of a title: below, the bar goes first, and then the time that has passed


class Bars:
    """Shown from `start` to `stop`; a cell's bar goes by the name of its folder."""

    def __init__(self, console: Console, rounds: int) -> None:
        """rounds: of all cells together."""
        room = console.width - (2 + 2 * len(str(rounds)) + 1 + 1 + LEFT + 1 + CLOCK + 1)
        with_bar = room - (BAR + 1) - (CLOCK + 1) >= LEAST
        with_passed = room - (CLOCK + 1) >= LEAST
        self.room = max(1, room - with_bar * (BAR + 1) - with_passed * (CLOCK + 1))
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            *([BarColumn(bar_width=BAR)] if with_bar else []),
            MofNCompleteColumn(),
            *([TimeElapsedColumn()] if with_passed else []),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self.all = self.progress.add_task("all rounds", total=rounds)
        self.of: dict[str, TaskID] = {}

    def start(self) -> None:
        self.progress.start()

    def stop(self) -> None:
        with suppress(OSError):
            self.progress.stop()

    def add(self, folder: str, title: str, rounds: int) -> None:
        self.of[folder] = self.progress.add_task(clipped(title, self.room), total=rounds)

    def advance(self, folder: str, t: int) -> None:
        """Show t rounds as done; more than one at once where a cell goes on from its checkpoint."""
        self.progress.advance(self.all, t - self._done(self.of[folder]))
        self.progress.update(self.of[folder], completed=t)

    def clear(self, folder: str, counted: int) -> None:
        """Take a cell's bar away; over all rounds, `counted` of its own are shown as done from now on."""
        task = self.of.pop(folder, None)
        self.progress.advance(self.all, counted - (self._done(task) if task is not None else 0))
        if task is not None:
            self.progress.remove_task(task)

    def _done(self, task: TaskID) -> float:
        return self.progress.tasks[self.progress.task_ids.index(task)].completed
