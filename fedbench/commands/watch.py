"""What a run shows while it runs: bars with the time left on a terminal, one line a cell where output is piped."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from fedbench.commands.bars import Bars
from fedbench.report.run_scores import is_fraction
from fedbench.results.identity import id_in
from fedbench.results.status import HALVED
from fedbench.runner.cells import Cell
from fedbench.runner.progress import Listen, RunProgress
from fedbench.words import counted, duration, per_second

# How an end is marked, so that it reads without colour.
MARKS = {
    "finished": ("ok", "green"),
    "not_applicable": ("n/a", "dim"),
    "failed": ("FAILED", "red"),
    "timeout": ("TIMEOUT", "red"),
    "taken": ("taken", "dim"),
    "interrupted": ("stopped", "yellow"),
    HALVED: ("halved", "dim"),
}


def left_out(event: dict[str, Any]) -> str:
    """What is said of data that lack images."""
    counts = f"{event['images']:,} of {event['of']:,} images"
    return f"{event['data']}: {counts} cannot be read and are left out (`unreadable: skip`)"


def scored(score: float | None, metric: str) -> str:
    """82.3%, or 0.512 of a loss; "" before the first test."""
    if score is None:
        return ""
    return f"{100 * score:.1f}%" if is_fraction(metric) else f"{score:.3g}"


class Watch:
    """Listens to a run's events and shows them; a context manager, so that bars are cleared whatever happens."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console, self.quiet = console, quiet
        self.bars: Bars | None = None
        self.began: dict[str, float] = {}
        self.done = 0
        self.stopping = False

    def __call__(self, suite: str, cells: list[Cell], missing: list[Cell]) -> Listen:
        self.cells = {cell.id: cell for cell in missing}
        self.total, self.done = len(missing), 0
        kept = len(cells) - len(missing)
        self.progress = RunProgress()
        names = sum(len(cell.points) for cell in cells)
        if self.quiet:
            return self.event
        same = f" under {names} names" if names > len(cells) else ""
        heading = f": {counted(len(cells), 'cell')}{same}, {kept} already done, {self.total} to run"
        self.console.print(Text.assemble((suite, "bold"), heading), soft_wrap=True)
        if self.console.is_terminal and missing:
            self.bars = Bars(self.console, sum(cell.rounds for cell in missing))
            self.bars.start()
        return self.event

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.bars:
            self.bars.stop()

    def event(self, event: dict[str, Any]) -> None:
        if self.quiet:
            return
        try:
            self._show(event)
        except OSError:  # the terminal was closed: nobody looks any more
            self.quiet = True

    def _show(self, event: dict[str, Any]) -> None:
        self.progress.note(event)
        if event["event"] == "waiting":
            cells = counted(event["cells"], "cell")
            self.console.print(f"Waiting for {cells} that another run computes", soft_wrap=True)
            return
        if event["event"] == "left_out":
            self.console.print(Text(left_out(event), style="yellow"), soft_wrap=True)
            return
        folder = event["folder"]
        cell = self.cells[id_in(Path(folder).name)]
        if event["event"] == "started":
            self.began[folder] = time.monotonic()
            if self.bars:
                self.bars.add(folder, cell.title, cell.rounds)
        elif event["event"] == "round" and self.bars:
            one = self.progress.cells[folder]
            speeds = per_second(one.rate), per_second(self.progress.rate)
            self.bars.advance(folder, event["round"], scored(one.score, one.metric), *speeds)
        elif event["event"] == "resumed":
            if cell.points[0].candidate is None:  # these go on as a rule
                told = f"{cell.title} goes on after round {event['round']} of {cell.rounds}"
                self.console.print(Text(told, style="dim"), soft_wrap=True)
            if self.bars:
                self.bars.advance(folder, event["round"])
        elif event["event"] == "torn":
            for reason in event["reasons"]:
                self.console.print(Text(reason, style="yellow"), soft_wrap=True)
        elif event["event"] == "stopping" and not self.stopping:
            self.stopping = True
            self.console.print(
                f"Finishing the current round, for at most {event['seconds']:g} s; Ctrl-C again stops at once.",
                style="yellow",
            )
        elif event["event"] == "ended":
            self._ended(event, cell, duration(time.monotonic() - self.began[folder]))
        elif event["event"] == "elsewhere":
            self._ended(event, cell, "by another run")

    def _ended(self, event: dict[str, Any], cell: Cell, took: str) -> None:
        self.done += event["status"] != "taken"
        if self.bars:
            self.bars.clear(event["folder"], 0 if event["status"] == "taken" else cell.rounds)
        mark, style = MARKS[event["status"]]
        width = len(str(self.total))
        line = Text.assemble(
            f"[{self.done:{width}}/{self.total}] ", (f"{mark:7}", style), f" {cell.title}", (f"  {took}", "dim")
        )
        self.console.print(line, soft_wrap=True)
        if event["status"] not in ("finished", HALVED) and event.get("reason"):
            self.console.print(Text(f"{'':{2 * width + 4}}{event['reason']}", style="dim"), soft_wrap=True)
