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

from fedbench.words import told_apart

BAR, CLOCK, LEFT = 16, 8, 4  # columns of a bar, of a time and of the word before the second one
SCORE, SPEED = 6, 9  # columns of "100.0%" and of "1,234 i/s"
# What a line has beside title, rounds and time left, as far as there is room: its columns, and those left to the title.
PARTS = (("score", SCORE + 1, 10), ("speed", SPEED + 1, 16), ("left", LEFT + 1, 20), ("passed", CLOCK + 1, 20),
         ("bar", BAR + 1, 20))  # fmt: skip


class Bars:
    """Shown from `start` to `stop`; a cell's bar goes by the name of its folder."""

    def __init__(self, console: Console, rounds: int) -> None:
        """rounds: of all cells together."""
        room = console.width - (2 + 2 * len(str(rounds)) + 1 + 1 + CLOCK + 1)
        fits: dict[str, bool] = {}
        for part, columns, least in PARTS:
            if fits.setdefault(part, room - columns >= least):
                room -= columns
        self.room = max(1, room)
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            *([BarColumn(bar_width=BAR)] if fits["bar"] else []),
            MofNCompleteColumn(),
            *([TextColumn("{task.fields[score]:>6}", style="green")] if fits["score"] else []),
            *([TextColumn("{task.fields[speed]:>9}", style="cyan")] if fits["speed"] else []),
            *([TimeElapsedColumn()] if fits["passed"] else []),
            *([TextColumn("left")] if fits["left"] else []),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self.all = self.progress.add_task("all rounds", total=rounds, score="", speed="")
        self.of: dict[str, TaskID] = {}
        self.titles: dict[str, str] = {}

    def start(self) -> None:
        self.progress.start()

    def stop(self) -> None:
        with suppress(OSError):
            self.progress.stop()

    def add(self, folder: str, title: str, rounds: int) -> None:
        self.titles[folder] = title
        self.of[folder] = self.progress.add_task("", total=rounds, score="", speed="")
        self._name()

    def _name(self) -> None:
        """Cut the titles of the cells at work so that none looks like another."""
        titles = [self.titles[folder] for folder in self.of]
        for task, text in zip(self.of.values(), told_apart(titles, [self.room] * len(titles)), strict=True):
            self.progress.update(task, description=text)

    def advance(self, folder: str, t: int, score: str = "", speed: str = "", all_speed: str = "") -> None:
        """Show t rounds as done; more than one at once where a cell goes on from its checkpoint. score: the last there
        is, speed: in images a second, of this cell and of all."""
        self.progress.update(self.all, advance=t - self._done(self.of[folder]), speed=all_speed)
        self.progress.update(self.of[folder], completed=t, score=score, speed=speed)

    def clear(self, folder: str, counted: int) -> None:
        """Take a cell's bar away; over all rounds, `counted` of its own are shown as done from now on."""
        task = self.of.pop(folder, None)
        self.progress.advance(self.all, counted - (self._done(task) if task is not None else 0))
        if task is not None:
            self.progress.remove_task(task)
            del self.titles[folder]

    def _done(self, task: TaskID) -> float:
        return self.progress.tasks[self.progress.task_ids.index(task)].completed
