"""fedbench plan: what a suite would compute, without computing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fedbench.commands.choices import DEVICE, JOBS, RESULTS, SUITE, cells, workers

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from fedbench.registry.registry import Registry
    from fedbench.runs.estimate import Estimate
    from fedbench.runs.options import Options
    from fedbench.runs.plan import Cell


@click.command(short_help="Show a suite's cells and their cost; nothing is trained.")
@SUITE
@cells
@RESULTS
@click.option("--cost", is_flag=True, help="Estimate the time too; a new kind of cell is tried for a moment.")
@DEVICE
@JOBS
@click.option("--json", "as_json", is_flag=True, help="Print the cells as JSON.")
def plan(
    suite: str,
    results: str,
    cost: bool,
    device: str,
    jobs: str,
    as_json: bool,
    plugins: tuple,
    scenarios: tuple,
    methods: tuple,
    seeds: tuple,
    **choices,
) -> None:
    """Show the cells of SUITE: how many rounds and images, the FLOPs and bytes of all clients together, what is done.

    \b
    fedbench plan suites/extreme_hetero.yaml
    fedbench plan suites/quickstart.yaml --cost --jobs 2
    fedbench plan suites/quickstart.yaml --set train.rounds=100 --json
    """
    import json
    from pathlib import Path

    from fedbench.cell.totals import totals_of
    from fedbench.registry.assets import Assets
    from fedbench.registry.registry import Registry
    from fedbench.runs.options import Options
    from fedbench.runs.plan import cells_of
    from fedbench.runs.runner import load

    options = Options(results=results, device=device, jobs=workers(jobs))
    registry = Registry(plugins)
    loaded = load(suite, registry, **choices)
    assets, folder = Assets(registry), Path(results) / loaded.name
    chosen = cells_of(loaded.points(scenarios=scenarios, methods=methods, seeds=seeds), registry, assets)
    totals = {cell.id: totals_of(assets, cell.id, cell.config) for cell in chosen}
    time = _estimated(chosen, totals, folder, registry, options) if cost else None
    rows = [_row(cell, totals[cell.id], folder, time) for cell in chosen]
    if as_json:
        sums = {"time": _summary(time)} if time else {}
        click.echo(json.dumps({"suite": loaded.name, "cells": rows, **sums}, indent=1))
    else:
        _show(loaded.name, rows, time)


def _estimated(chosen: list[Cell], totals: dict, folder: Path, registry: Registry, options: Options) -> Estimate:
    from rich.console import Console

    from fedbench import machine
    from fedbench.runs.estimate import estimate

    device = "cpu"
    if options.device == "cuda" or (options.device == "auto" and machine.has_gpu()):
        from fedbench.cell.worker import resolved

        device = resolved(options.device)
    with Console(stderr=True).status("How fast is this machine? Trying cells for a moment ..."):
        return estimate(chosen, totals, folder, registry, device, options.workers())


def _row(cell: Cell, totals: dict, folder: Path, time: Estimate | None) -> dict:
    """What is known of a cell, as --json has it."""
    from fedbench.runs.plan import status

    row = {
        "names": [[point.scenario, point.method, point.variant, point.seed] for point in cell.points],
        "id": cell.id,
        "rounds": cell.config["train"]["rounds"],
        "status": status(cell, folder),
        **totals,
    }
    own = time and time.cells.get(cell.id)
    return row | {"seconds": own.seconds, "seconds_from": own.source, "seconds_unknown": own.reason} if own else row


def _summary(time: Estimate) -> dict:
    return {
        "seconds": time.total,
        "seconds_left": time.left,
        "seconds_loading": time.loading,
        "seconds_probing": time.probing,
        "workers": time.workers,
    }


def _show(suite: str, rows: list[dict], time: Estimate | None) -> None:
    """A line a cell under its scenario, what all of them come to, and what needs a word."""
    from rich.console import Console

    console = Console(highlight=False)
    _table(console, rows, timed=time is not None)
    _sums(console, suite, rows)
    if time:
        _duration(console, time)
    _notes(console, rows)


def _table(console: Console, rows: list[dict], timed: bool) -> None:
    from rich.text import Text

    many = len({seed for row in rows for *_, seed in row["names"]}) > 1
    time = ["time"] if timed else []
    heads = ["method", *(["seed"] if many else []), "images", "TFLOPs", "down", "up", *time, "status"]
    table = [heads, *(_cells_of(row, many, timed) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]

    def line(texts: list[str]) -> str:
        numbers = [f"{text:>{width}}" for text, width in zip(texts, widths, strict=True)][1:-1]
        return "  ".join(["", texts[0].ljust(widths[0]), *numbers, texts[-1]])

    console.print(Text(line(heads), style="bold"), soft_wrap=True)
    above = None
    for row, texts in zip(rows, table[1:], strict=True):
        scenario, _, variant, _ = row["names"][0]
        place = f"{scenario}{f' [{variant}]' if variant else ''} · {row['rounds']} rounds"
        if place != above:
            console.print(Text(place, style="bold"), soft_wrap=True)
            above = place
        console.print(Text(line(texts), style="" if "flops" in row else "dim"), soft_wrap=True)


def _cells_of(row: dict, with_seed: bool, timed: bool) -> list[str]:
    """A row's names and amounts, as they are printed."""
    from fedbench.words import human_bytes, roughly, three_digits

    (_, method, _, seed), *others = row["names"]
    names = [f"{method} (+{len(others)})" if others else method, *([str(seed)] if with_seed else [])]
    time = [roughly(row["seconds"]) if row.get("seconds") is not None else "-"] if timed else []
    if "flops" not in row:
        return [*names, *"----", *time, "n/a" if "not_applicable" in row else "?"]
    moved = [human_bytes(row["bytes_down"]), human_bytes(row["bytes_up"])]
    return [*names, f"{row['images']:,}", three_digits(row["flops"] / 1e12), *moved, *time, row["status"]]


def _sums(console: Console, suite: str, rows: list[dict]) -> None:
    from fedbench.words import counted, human_bytes, three_digits

    images, flops, down, up = (
        sum(row.get(key, 0) for row in rows) for key in ("images", "flops", "bytes_down", "bytes_up")
    )
    names = sum(len(row["names"]) for row in rows)
    cells_and_names = counted(len(rows), "cell") + (f" under {names} names" if names > len(rows) else "")
    console.print(
        f"\n{suite}: {cells_and_names}; in all {images:,} training images, {three_digits(flops / 1e12)} TFLOPs, "
        f"{human_bytes(down)} down and {human_bytes(up)} up.",
        style="bold",
    )


def _duration(console: Console, time: Estimate) -> None:
    """How long the suite takes here, and how that was found out."""
    from fedbench.words import counted, roughly

    where = counted(time.workers, "core")
    if time.left:
        length = roughly(time.left) + (f" left of {roughly(time.total)}" if time.left < time.total else "")
        probe = f"a probe of {roughly(time.probing)}" if time.probing else "an earlier probe"
        found = " and ".join(probe if source == "probe" else source for source in sorted(time.sources))
        text = f"About {length} on {where}" + (f", from {found} on this machine." if found else ".")
    else:
        text = f"Nothing is left of about {roughly(time.total)} on {where}."
    console.print(text, style="bold")


def _notes(console: Console, rows: list[dict]) -> None:
    from rich.text import Text

    for key, mark in (("not_applicable", "n/a"), ("unknown", "?  "), ("seconds_unknown", "-  ")):
        for reason in sorted({f"{row['names'][0][1]}: {row[key]}" for row in rows if row.get(key)}):
            console.print(Text(f"{mark}  {reason}", style="dim"), soft_wrap=True)
    if any(len(row["names"]) > 1 for row in rows):
        console.print("(+1)  another name of the same cell, which runs once", style="dim")
    console.print("FLOPs are the clients' training; evaluation is not in them.", style="dim")
