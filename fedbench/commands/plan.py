"""fedbench plan: what a suite would compute, without computing it."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedbench.commands.choices import DEVICE, JOBS, RESULTS, SUITE, TIMEOUT, cells, workers
from fedbench.commands.terminal import say
from fedbench.words import counted, human_bytes, lasting, roughly, three_digits

if TYPE_CHECKING:
    from rich.console import Console

    from fedbench.runner.estimate import Estimate

STATUS = len("finished")  # letters of a status that are shown on any terminal


@click.command()
@SUITE
@cells
@RESULTS
@click.option("--cost", is_flag=True, help="Also estimate the time; a new kind of cell is tried for a moment.")
@TIMEOUT
@DEVICE
@JOBS
@click.option("--json", "as_json", is_flag=True, help="Print the cells as JSON.")
def plan(
    suite: str,
    results: str,
    cost: bool,
    timeout: float | None,
    device: str,
    jobs: str,
    as_json: bool,
    plugins: tuple,
    **choices,
) -> None:
    """Show the cells of SUITE: rounds and examples, the FLOPs and bytes of all clients together, and what is finished.

    \b
    fedbench plan suites/extreme_hetero.yaml
    fedbench plan suites/quickstart.yaml --cost --jobs 2
    fedbench plan suites/quickstart.yaml --set train.rounds=100 --json

    Exit code: 0, or 1 if a plugin fails; its cells are marked.
    """
    from fedbench.commands.output import Spinner, warn_of_lost
    from fedbench.registry.facts import CachedFacts
    from fedbench.registry.registry import Registry
    from fedbench.runner.cells import Options, doubts_of, names_taken, without_hub
    from fedbench.runner.estimate import forecast
    from fedbench.runner.runner import load
    from fedbench.suite.points import repeats

    options = Options(results=results, device=device, jobs=workers(jobs), timeout=timeout)
    with Spinner(f"Planning {suite}") as spinner:
        registry = Registry(plugins, timeout=timeout)
        chosen = {key: choices.pop(key) for key in ("scenarios", "methods", "seeds", "variants")}
        loaded = load(suite, registry, **choices)
        folder, facts = Path(results) / loaded.name, CachedFacts(registry, loaded.base)
        probing = partial(spinner.tell, what="probe")
        rows, time = forecast(
            loaded, chosen, folder, registry, facts, options, cost, preparing=spinner.tell, probing=probing
        )
        points = loaded.points(**chosen)
        configs = [point.config for point in points]
        warnings = [*names_taken(configs, "local", registry), *filter(None, [without_hub(configs, registry)])]
        warnings += doubts_of(configs, facts)
    if as_json:
        shown: dict[str, Any] = {"suite": loaded.name, "cells": rows}
        if time:
            shown["time"] = {"seconds": time.total, "seconds_left": time.left, "workers": time.workers}
        click.echo(json.dumps(shown, indent=1))
    else:
        _show(loaded.name, rows, time, [repeats(points)])
    for warning in warnings:
        say(f"Warning: {warning}", err=True)
    lost = warn_of_lost(registry)
    sys.exit(1 if lost or any("failed" in row for row in rows) else 0)


def _show(suite: str, rows: list[dict], time: Estimate | None, notes: list[str]) -> None:
    """A line a cell under its scenario, what all of them come to, and what needs a word."""
    from fedbench.commands.output import Screen

    console = Screen()
    _table(console, rows, timed=time is not None)
    _sums(console, suite, rows)
    if time:
        _duration(console, time)
    _notes(console, rows)
    for note in filter(None, notes):
        console.print(note, style="dim")


def _table(console: Console, rows: list[dict], timed: bool) -> None:
    from rich.text import Text

    many = len({seed for row in rows for *_, seed in row["names"] if seed is not None}) > 1
    simulated = any("simulated_seconds" in row for row in rows)
    time = [*(["simulated"] if simulated else []), *(["time"] if timed else [])]
    heads = ["method", *(["seed"] if many else []), "examples", "TFLOPs", "down", "up", *time, "status"]
    table = [heads, *(_cells_of(row, many, timed, simulated) for row in rows)]
    if console.is_terminal:  # a file or another program gets all of it
        table = _narrowed(table, console.width)
    widths = _widths(table)

    def line(texts: list[str]) -> str:
        numbers = [f"{text:>{width}}" for text, width in zip(texts, widths, strict=True)][1:-1]
        return "  ".join(["", texts[0].ljust(widths[0]), *numbers, texts[-1]])

    lines, above = [Text(line(table[0]), style="bold")], None
    for row, texts in zip(rows, table[1:], strict=True):
        scenario, _, variant, _ = row["names"][0]
        stage = f" · tuning, to round {', '.join(map(str, row['rungs']))}" if "rungs" in row else ""
        stage += f", and {counted(row['confirm'], 'run')} to confirm" if "confirm" in row else ""
        place = f"{scenario}{f' [{variant}]' if variant else ''} · {counted(row['rounds'], 'round')}{stage}"
        if place != above:
            lines.append(Text(place, style="bold"))
            above = place
        lines.append(Text(line(texts), style="" if "flops" in row else "dim"))
    console.print(*lines, sep="\n", soft_wrap=True)


def _widths(table: list[list[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*table, strict=True)]


def _narrowed(table: list[list[str]], width: int) -> list[list[str]]:
    """The table without amounts that a narrow terminal has no room for, which the sums have below, and of each status
    what then fits."""

    def room() -> int:
        return width - 2 - sum(2 + each for each in _widths(table)[:-1])

    for name in ("up", "down", "examples", "TFLOPs"):
        if room() >= min(_widths(table)[-1], STATUS):
            break
        at = table[0].index(name)
        table = [[*texts[:at], *texts[at + 1 :]] for texts in table]
    most = max(room(), STATUS)
    return [[*texts[:-1], last if len(last := texts[-1]) <= most else f"{last[: most - 1]}…"] for texts in table]


def _cells_of(row: dict, with_seed: bool, timed: bool, simulated: bool) -> list[str]:
    """A row's names and amounts, as they are printed."""
    (_, method, _, seed), *others = row["names"]
    names = [f"{method} (+{len(others)})" if others else method, *(["" if seed is None else str(seed)] * with_seed)]
    time = [lasting(row["simulated_seconds"]) if "simulated_seconds" in row else "-"] if simulated else []
    time += [roughly(row["seconds"]) if row.get("seconds") is not None else "-"] if timed else []
    if "flops" not in row:
        status = "n/a" if "not_applicable" in row else "failed" if "failed" in row else "?"
        return [*names, *"----", *time, status]
    status = f"{row['status']}, {row['unpriced']} ?" if "unpriced" in row else str(row["status"])
    moved = [human_bytes(row["bytes_down"]), human_bytes(row["bytes_up"])]
    return [*names, f"{row['images']:,}", three_digits(row["flops"] / 1e12), *moved, *time, status]


def _sums(console: Console, suite: str, rows: list[dict]) -> None:
    examples, flops, down, up = (
        sum(row.get(key, 0) for row in rows) for key in ("images", "flops", "bytes_down", "bytes_up")
    )
    cells = sum(len(row.get("ids", [""])) for row in rows)
    unknown = sum(row.get("unpriced", len(row.get("ids", [""]))) for row in rows if "unknown" in row)
    names = sum(len(row["names"]) for row in rows if "ids" not in row)
    reporting = sum("ids" not in row for row in rows)
    cells_and_names = counted(cells, "cell") + (f" under {names} names" if names > reporting else "")
    console.print(
        f"\n{suite}: {cells_and_names}; in all {examples:,} training examples, {three_digits(flops / 1e12)} TFLOPs, "
        f"{human_bytes(down)} down and {human_bytes(up)} up"
        + (f", without the {counted(unknown, 'cell')} marked {_marks(rows)}." if unknown else "."),
        style="bold",
    )


def _marks(rows: list[dict]) -> str:
    return " or ".join(sorted({"failed" if "failed" in row else "?" for row in rows if "unknown" in row}))


def _duration(console: Console, time: Estimate) -> None:
    """How long the suite takes here, and how that was found out."""
    if time.device == "cuda":
        where = "a GPU" + f" that {time.workers} cells share" * (time.workers > 1)
    else:
        where = counted(time.workers, "core")
    if any(one.seconds is None for one in time.cells.values()) and not time.left:
        text = f"How long it takes on {where} is not known."
    elif time.left:
        length = roughly(time.left) + (f" left of {roughly(time.total)}" if time.left < time.total else "")
        found = " and ".join("probes" if source == "probe" else source for source in sorted(time.sources))
        text = f"About {length} on {where}" + (f", from {found} on this machine." if found else ".")
    else:
        text = f"Already finished; it would take about {roughly(time.total)} on {where}."
    console.print(text, style="bold")


def _notes(console: Console, rows: list[dict]) -> None:
    from rich.table import Table
    from rich.text import Text

    reasons = Table.grid(padding=(0, 2))
    for key, mark in (("not_applicable", "n/a"), ("unknown", "?"), ("failed", "failed"), ("seconds_unknown", "-")):
        given = [row for row in rows if row.get(key) and (key != "unknown" or "failed" not in row)]
        for reason in sorted({f"{row['names'][0][1]}: {row['unknown' if key == 'failed' else key]}" for row in given}):
            reasons.add_row(Text(mark, style="dim"), Text(reason, style="dim", overflow="fold"))
    if reasons.rows:
        console.print(reasons)
    if any(len(row["names"]) > 1 for row in rows):
        console.print("(+1)  another name of the same cell, which runs once", style="dim")
    console.print("FLOPs are the clients' training; evaluation is not in them.", style="dim")
    if any("simulated_seconds" in row for row in rows):
        console.print(
            "simulated: what all rounds would take on the clients' devices, as the server waits.", style="dim"
        )
