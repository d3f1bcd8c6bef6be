"""fedbench plan: what a suite would compute, without computing it."""

from __future__ import annotations

import click

from fedbench.commands.choices import RESULTS, SUITE, cells


@click.command(short_help="Show a suite's cells and their cost; nothing is trained.")
@SUITE
@cells
@RESULTS
@click.option("--json", "as_json", is_flag=True, help="Print the cells as JSON.")
def plan(
    suite: str, results: str, as_json: bool, plugins: tuple, scenarios: tuple, methods: tuple, seeds: tuple, **choices
) -> None:
    """Show the cells of SUITE: how many rounds and images, the FLOPs and bytes of all clients together, what is done.

    \b
    fedbench plan suites/extreme_hetero.yaml
    fedbench plan suites/quickstart.yaml --set train.rounds=100 --json
    """
    import json
    from pathlib import Path

    from fedbench import runner
    from fedbench.facts import Facts
    from fedbench.plan import status, works
    from fedbench.plugins import Plugins

    registry = Plugins(plugins)
    loaded = runner.load(suite, registry, **choices)
    facts = Facts(registry)
    todo = works(loaded.cells(scenarios=scenarios, methods=methods, seeds=seeds), registry, facts)
    rows = [
        {
            "names": [[cell.scenario, cell.method, cell.variant, cell.seed] for cell in work.cells],
            "id": work.id,
            "rounds": work.config["train"]["rounds"],
            "status": status(work, Path(results) / loaded.name),
            **facts.totals(work.id, work.config),
        }
        for work in todo
    ]
    if as_json:
        click.echo(json.dumps({"suite": loaded.name, "cells": rows}, indent=1))
    else:
        _show(loaded.name, rows)


def _show(suite: str, rows: list[dict]) -> None:
    """A line a cell, under its scenario."""
    from rich.console import Console
    from rich.text import Text

    from fedbench.compare.columns import human_bytes, three_digits

    console = Console(highlight=False)
    seeds = {seed for row in rows for *_, seed in row["names"]}
    heads = ["method", *(["seed"] if len(seeds) > 1 else []), "images", "TFLOPs", "down", "up", "status"]
    lines: list[tuple[str, list[str], str]] = []
    sums = dict.fromkeys(("images", "flops", "bytes_down", "bytes_up"), 0)
    for row in rows:
        (scenario, method, variant, seed), *others = row["names"]
        place = f"{scenario}{f' [{variant}]' if variant else ''} · {row['rounds']} rounds"
        names = [f"{method} (+{len(others)})" if others else method, *([str(seed)] if len(seeds) > 1 else [])]
        if "flops" not in row:
            lines.append((place, [*names, "-", "-", "-", "-", "n/a" if "not_applicable" in row else "?"], "dim"))
            continue
        sums = {key: sums[key] + row[key] for key in sums}
        moved = [human_bytes(row["bytes_down"]), human_bytes(row["bytes_up"])]
        lines.append(
            (place, [*names, f"{row['images']:,}", three_digits(row["flops"] / 1e12), *moved, row["status"]], "")
        )
    widths = [max(map(len, column)) for column in zip(heads, *(cells for _, cells, _ in lines), strict=True)]

    def line(cells: list[str]) -> str:
        numbers = [f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)][1:-1]
        return "  ".join(["", cells[0].ljust(widths[0]), *numbers, cells[-1]])

    console.print(Text(line(heads), style="bold"), soft_wrap=True)
    above = None
    for place, row_cells, style in lines:
        if place != above:
            console.print(Text(place, style="bold"), soft_wrap=True)
            above = place
        console.print(Text(line(row_cells), style=style), soft_wrap=True)
    names = sum(len(row["names"]) for row in rows)
    cells_and_names = f"{len(rows)} cells" + (f" under {names} names" if names > len(rows) else "")
    traffic = f"{human_bytes(sums['bytes_down'])} down and {human_bytes(sums['bytes_up'])} up"
    console.print(
        f"\n{suite}: {cells_and_names}; in all {sums['images']:,} training images, "
        f"{three_digits(sums['flops'] / 1e12)} TFLOPs, {traffic}.",
        style="bold",
    )
    for key, mark in (("not_applicable", "n/a"), ("unknown", "?  ")):
        for reason in sorted({f"{row['names'][0][1]}: {row[key]}" for row in rows if key in row}):
            console.print(Text(f"{mark}  {reason}", style="dim"), soft_wrap=True)
    if names > len(rows):
        console.print("(+1)  another name of the same cell, which runs once", style="dim")
    console.print("FLOPs are the clients' training; evaluation is not in them.", style="dim")
