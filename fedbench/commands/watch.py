"""What a run shows while it runs: bars with the time left on a terminal, one line a cell where output is piped."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from fedbench.runs.plan import Cell
from fedbench.words import counted, duration

# How an end is marked, so that it reads without colour.
MARKS = {
    "finished": ("ok", "green"),
    "not_applicable": ("n/a", "dim"),
    "failed": ("FAILED", "red"),
    "timeout": ("TIMEOUT", "red"),
    "taken": ("taken", "dim"),
    "interrupted": ("stopped", "yellow"),
}

BAR, BESIDE_TITLE = 16, 50  # columns of a bar, and of all that stands in a bar's line beside its title


class Watch:
    """Listens to a run's events and shows them; a context manager, so that bars are cleared whatever happens."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console, self.quiet = console, quiet
        self.bars: Progress | None = None
        self.began: dict[str, float] = {}
        self.done = 0
        self.stopping = False

    def __call__(self, suite: str, cells: list[Cell], missing: list[Cell]) -> Any:
        self.cells = {cell.id: cell for cell in missing}
        self.total = len(missing)
        kept = len(cells) - len(missing)
        names = sum(len(cell.points) for cell in cells)
        if self.quiet:
            return self.event
        same = f" under {names} names" if names > len(cells) else ""
        heading = f": {counted(len(cells), 'cell')}{same}, {kept} already done, {self.total} to run"
        self.console.print(Text.assemble((suite, "bold"), heading), soft_wrap=True)
        if self.console.is_terminal and missing:
            self.bars = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=BAR),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=self.console,
                transient=True,
            )
            self.rounds = self.bars.add_task("all rounds", total=sum(_rounds(cell) for cell in missing))
            self.tasks: dict[str, Any] = {}
            self.bars.start()
        return self.event

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.bars:
            with suppress(OSError):
                self.bars.stop()

    def event(self, event: dict[str, Any]) -> None:
        if self.quiet:
            return
        try:
            self._show(event)
        except OSError:  # the terminal was closed: nobody looks any more
            self.quiet = True

    def _show(self, event: dict[str, Any]) -> None:
        if event["event"] == "waiting":
            cells, holders = counted(event["cells"], "cell"), ", ".join(event["holders"])
            self.console.print(f"Waiting for {cells} that another run computes: {holders}", soft_wrap=True)
            return
        folder = event["folder"]
        cell = self.cells[Path(folder).name.rpartition("-")[2]]
        if event["event"] == "started":
            self.began[folder] = time.monotonic()
            if self.bars:
                self.tasks[folder] = self.bars.add_task(self._short(cell.title), total=_rounds(cell))
        elif event["event"] == "round" and self.bars:
            self._advance(folder, event["round"])
        elif event["event"] == "resumed":
            told = f"{cell.title} goes on after round {event['round']} of {_rounds(cell)}"
            self.console.print(Text(told, style="dim"), soft_wrap=True)
            if self.bars:
                self._advance(folder, event["round"])
        elif event["event"] == "torn":
            for reason in event["reasons"]:
                self.console.print(Text(reason, style="yellow"), soft_wrap=True)
        elif event["event"] == "stopping" and not self.stopping:
            self.stopping = True
            self.console.print(
                f"Finishing the current round, for at most {event['seconds']:g} s; Ctrl-C again stops at once.",
                style="yellow",
            )
        elif event["event"] == "lost":
            told = f"{cell.title} was lost and runs again: {event['reason']}"
            self.console.print(Text(told, style="yellow"), soft_wrap=True)
        elif event["event"] == "ended":
            self._ended(event, cell, duration(time.monotonic() - self.began[folder]))
        elif event["event"] in ("elsewhere", "unclaimed"):
            self._ended(event, cell, "by another run" if event["event"] == "elsewhere" else "not started")

    def _advance(self, folder: str, t: int) -> None:
        """Show t rounds as done; more than one at once where a cell goes on from its checkpoint."""
        task = self.tasks[folder]
        self.bars.advance(self.rounds, t - self.bars.tasks[self.bars.task_ids.index(task)].completed)
        self.bars.update(task, completed=t)

    def _short(self, title: str) -> str:
        room = max(20, self.console.width - BESIDE_TITLE)
        return title if len(title) <= room else f"{title[: room - 1]}…"

    def _ended(self, event: dict[str, Any], cell: Cell, took: str) -> None:
        self.done += event["status"] != "taken"
        if self.bars:
            self._clear(event, cell)
        mark, style = MARKS[event["status"]]
        width = len(str(self.total))
        line = Text.assemble(
            f"[{self.done:{width}}/{self.total}] ", (f"{mark:7}", style), f" {cell.title}", (f"  {took}", "dim")
        )
        self.console.print(line, soft_wrap=True)
        if event["status"] != "finished" and event.get("reason"):
            self.console.print(Text(f"{'':{2 * width + 4}}{event['reason']}", style="dim"), soft_wrap=True)

    def _clear(self, event: dict[str, Any], cell: Cell) -> None:
        """Take a cell's bar away; what it had done counts again when the cell is taken, and all of it when it ended."""
        task = self.tasks.pop(event["folder"], None)
        done = self.bars.tasks[self.bars.task_ids.index(task)].completed if task is not None else 0
        self.bars.advance(self.rounds, -done if event["status"] == "taken" else _rounds(cell) - done)
        if task is not None:
            self.bars.remove_task(task)


def _rounds(cell: Cell) -> int:
    return cell.config["train"]["rounds"]
