"""Progress of a run: bars with the time left on a terminal, one line a cell where output is piped."""

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
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from fedbench.commands.output import Screen, tell_left_out, wide
from fedbench.results import examine, read_index
from fedbench.results.columns import HALVED
from fedbench.results.files import believed_manifest
from fedbench.results.index import CELLS, read_expected
from fedbench.results.packed_tables import folder_of
from fedbench.results.result import COMPARED
from fedbench.results.scores import first_metric, is_fraction
from fedbench.runner.cells import Cell
from fedbench.runner.local import OUTPUT
from fedbench.runner.progress import Listen, RunSummary
from fedbench.words import command_line, counted, distinct, duration, quoted

MOST_SHOWN = 10  # failures listed at the end of a run

# How an end is marked, so that it reads without colour.
MARKS = {
    "finished": ("ok", "green"),
    "not_applicable": ("n/a", "dim"),
    "failed": ("FAILED", "red"),
    "timeout": ("TIMEOUT", "red"),
    "interrupted": ("stopped", "yellow"),
    HALVED: ("halved", "dim"),
}


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

    def __call__(self, suite: str, cells: list[Cell], missing: list[Cell], takes: str = "") -> Listen:
        """takes: about how long, where that is known."""
        self.cells = {cell.id: cell for cell in missing}
        self.total, self.done = len(missing), 0
        kept = len(cells) - len(missing)
        names = sum(len(cell.points) for cell in cells)
        if self.quiet:
            return self.event
        same = f" under {names} names" if names > len(cells) else ""
        heading = f": {counted(len(cells), 'cell')}{same}, {kept} already done, {self.total} to run{takes}"
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
        folder = event["folder"]
        cell = self.cells[Path(folder).name]
        if event["event"] == "started":
            self.began[folder] = time.monotonic()
            if self.bars:
                self.bars.add(folder, cell.title, cell.rounds)
        elif event["event"] == "round" and self.bars:
            self.bars.advance(folder, event["round"], scored(event.get("score"), event.get("metric", "")))
        elif event["event"] == "resumed":
            if cell.points[0].candidate is None:  # candidates resume as a rule
                resumed = f"{cell.title} resumes after round {event['round']} of {cell.rounds}"
                self.console.print(Text(resumed, style="dim"), soft_wrap=True)
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

    def _ended(self, event: dict[str, Any], cell: Cell, took: str) -> None:
        self.done += 1
        if self.bars:
            self.bars.clear(event["folder"], cell.rounds)
        mark, style = MARKS[event["status"]]
        width = len(str(self.total))
        line = Text.assemble(
            f"[{self.done:{width}}/{self.total}] ", (f"{mark:7}", style), f" {cell.title}", (f"  {took}", "dim")
        )
        self.console.print(line, soft_wrap=True)
        if event["status"] not in ("finished", HALVED) and event.get("reason"):
            self.console.print(Text(f"{'':{2 * width + 4}}{event['reason']}", style="dim"), soft_wrap=True)


BAR, CLOCK, LEFT = 16, 8, 4  # columns of a bar, of a time and of the word before the second one
SCORE = 6  # columns of "100.0%"
# What else a line shows as far as there is room: its columns, and how many must be left to the title.
PARTS = (("score", SCORE + 1, 10), ("left", LEFT + 1, 20), ("passed", CLOCK + 1, 20),
         ("bar", BAR + 1, 20))  # fmt: skip


class Bars:
    """One bar over all rounds, and one for each cell at work, by the name of its folder.

    Args:
        console: where they are shown, from `start` to `stop`.
        rounds: of all cells together.
    """

    def __init__(self, console: Console, rounds: int) -> None:
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
            *([TimeElapsedColumn()] if fits["passed"] else []),
            *([TextColumn("left")] if fits["left"] else []),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self.all = self.progress.add_task("all rounds", total=rounds, score="")
        self.of: dict[str, TaskID] = {}
        self.titles: dict[str, str] = {}

    def start(self) -> None:
        self.progress.start()

    def stop(self) -> None:
        with suppress(OSError):
            self.progress.stop()

    def add(self, folder: str, title: str, rounds: int) -> None:
        self.titles[folder] = title
        self.of[folder] = self.progress.add_task("", total=rounds, score="")
        self._name()

    def _name(self) -> None:
        """Cut the titles of the cells at work so that none looks like another."""
        titles = [self.titles[folder] for folder in self.of]
        for task, text in zip(self.of.values(), distinct(titles, [self.room] * len(titles)), strict=True):
            self.progress.update(task, description=text)

    def advance(self, folder: str, t: int, score: str = "") -> None:
        """Show t rounds as done, with their score; the last one stays where there is none."""
        self.progress.update(self.all, advance=t - self._done(self.of[folder]))
        fields: dict[str, Any] = {"score": score} if score else {}
        self.progress.update(self.of[folder], completed=t, **fields)

    def clear(self, folder: str, counted: int) -> None:
        """Remove a cell's bar; `counted` of its rounds are done in the bar over all."""
        task = self.of.pop(folder, None)
        self.progress.advance(self.all, counted - (self._done(task) if task is not None else 0))
        if task is not None:
            self.progress.remove_task(task)
            del self.titles[folder]

    def _done(self, task: TaskID) -> float:
        return self.progress.tasks[self.progress.task_ids.index(task)].completed


def show_end(outcome: RunSummary, roles: dict[str, str]) -> None:
    """Print the leaderboards, or a summary of many, and what to do next."""
    from fedbench.report.style import show
    from fedbench.report.views.by_name import chosen
    from fedbench.report.views.tuning import undecided

    console = Screen(width=wide())
    console.print(
        f"{counted(outcome.ran, 'cell')} in {duration(outcome.seconds)}"
        + (f", {outcome.kept} kept from before" if outcome.kept else "")
    )
    there = examine([outcome.folder]).read(COMPARED)
    results = there.results
    firsts = [first_metric(r.manifest["config"]["evaluation"]) for r in results if r.status == "finished"]
    metric = "accuracy" if "accuracy" in firsts or not firsts else firsts[0]
    if firsts:
        console.print()
        show(chosen(results, metric=metric, roles=roles), console)
        console.print()
    compare = command_line(["fedbench", "compare", str(outcome.folder)])
    again = compare + ("" if metric == "accuracy" else f" --metric {quoted(metric)}")
    console.print(f"Results: {outcome.folder}    Again: {again}", soft_wrap=True)
    if read_expected(outcome.folder):
        paper = command_line(["fedbench", "compare", "paper", str(outcome.folder)])
        console.print(f"Next to the paper: {paper}", soft_wrap=True)
    _list_printed(console, outcome)
    if outcome.failed:
        _list_failed(console, outcome)
    for which in outcome.undecided:
        line = f"No candidate has a validation score, and so nothing is reported: {which}"
        console.print(Text(line, style="red"), soft_wrap=True)
    if outcome.left:
        broken_off = "Broken off from outside" if outcome.counts["interrupted"] else "Ended before all was computed"
        why = "Stopped by --max-failures" if outcome.gave_up else broken_off
        left = counted(outcome.left, "cell")
        console.print(f"{why}; {left} left, which the same command runs.", style="red")
    tell_left_out(there.wrong, undecided(there, [outcome.folder]))


def _list_printed(console: Console, outcome: RunSummary) -> None:
    """Count the finished cells that printed anything."""
    names = outcome.manifests.keys() - outcome.failed.keys()
    if number := sum((folder_of(outcome.folder, name) / OUTPUT).is_file() for name in names):
        line = f"{counted(number, 'finished cell')} printed something: {outcome.folder}/{CELLS}/*/{OUTPUT}"
        console.print(Text(line, style="dim"), soft_wrap=True)


def _list_failed(console: Console, outcome: RunSummary) -> None:
    """List the first failures: where each reason is written, or the reason where it could not be written."""
    number = counted(len(outcome.failed), "cell")
    console.print(f"{number} failed; `--retry-failed` runs failed cells again:", style="red")
    index = read_index(outcome.folder)
    titles = {entry.cell: entry.title for entry in (reversed(index.entries) if index else ())}
    for name in list(outcome.failed)[:MOST_SHOWN]:
        folder, failed = folder_of(outcome.folder, name), outcome.failed[name]
        also = f", {OUTPUT}" if (folder / OUTPUT).is_file() else ""
        written = (believed_manifest(folder) or {}).get("status") == failed["status"]
        where = f"{folder / 'manifest.json'}{also}" if written else failed["reason"]
        console.print(Text(f"  {titles.get(name, name)}: {where}"), soft_wrap=True)
    if (left := len(outcome.failed) - MOST_SHOWN) > 0:
        console.print(f"  and {left} more")
