"""fedbench plan: what a suite would compute, without computing it."""

from __future__ import annotations

import click

from fedbench.commands.choices import RESULTS, SUITE, cells


@click.command(short_help="Show a suite's cells and their cost; nothing is trained.")
@SUITE
@cells
@RESULTS
@click.option("--json", "as_json", is_flag=True, help="Print the cells as JSON.")
def plan(suite: str, results: str, as_json: bool, plugins: tuple, scenarios: tuple, methods: tuple, seeds: tuple, **choices) -> None:
    """Show the cells of SUITE: how many rounds and images, the FLOPs and bytes of all clients together, and what is done.

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
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from fedbench.compare.columns import human_bytes, three_digits

    console = Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("scenario", "method", "seed"):
        table.add_column(name, overflow="fold")
    for name in ("rounds", "images", "TFLOPs", "down", "up"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("status", no_wrap=True)
    sums = dict.fromkeys(("images", "flops", "bytes_down", "bytes_up"), 0)
    for row in rows:
        scenario, method, variant, seed = row["names"][0]
        names = [scenario + (f" [{variant}]" if variant else ""), method + f" (+{len(row['names']) - 1})" * (len(row["names"]) > 1)]
        if "not_applicable" in row:
            table.add_row(*names, str(seed), "-", "-", "-", "-", "-", "n/a", style="dim")
            continue
        sums = {key: sums[key] + row[key] for key in sums}
        cost = [f"{row['images']:,}", three_digits(row["flops"] / 1e12), human_bytes(row["bytes_down"]), human_bytes(row["bytes_up"])]
        table.add_row(*names, str(seed), str(row["rounds"]), *cost, row["status"])
    console.print(table)
    console.print(
        f"{suite}: {len(rows)} cells under {sum(len(row['names']) for row in rows)} names; in all {sums['images']:,} training images, "
        f"{three_digits(sums['flops'] / 1e12)} TFLOPs, {human_bytes(sums['bytes_down'])} down and {human_bytes(sums['bytes_up'])} up.",
        style="bold",
    )
    reasons = sorted({f"{row['names'][0][1]}: {row['not_applicable']}" for row in rows if "not_applicable" in row})
    for reason in reasons:
        console.print(f"n/a  {reason}", style="dim")
    console.print("(+1): another name of the same cell, which runs once. FLOPs are the clients' training; evaluation is not in them.", style="dim")
