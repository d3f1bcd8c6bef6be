"""fedbench plan: what a suite would compute, without computing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fedbench.commands.choices import RESULTS, SUITE, cells

if TYPE_CHECKING:
    from rich.console import Console


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
    """A line a cell under its scenario, what all of them come to, and what needs a word."""
    from rich.console import Console

    console = Console(highlight=False)
    _table(console, rows)
    _sums(console, suite, rows)
    _notes(console, rows)


def _table(console: Console, rows: list[dict]) -> None:
    from rich.text import Text

    many = len({seed for row in rows for *_, seed in row["names"]}) > 1
    heads = ["method", *(["seed"] if many else []), "images", "TFLOPs", "down", "up", "status"]
    table = [heads, *(_cells_of(row, with_seed=many) for row in rows)]
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


def _cells_of(row: dict, with_seed: bool) -> list[str]:
    """A row's names and amounts, as they are printed."""
    from fedbench.compare.columns import human_bytes, three_digits

    (_, method, _, seed), *others = row["names"]
    names = [f"{method} (+{len(others)})" if others else method, *([str(seed)] if with_seed else [])]
    if "flops" not in row:
        return [*names, *"----", "n/a" if "not_applicable" in row else "?"]
    moved = [human_bytes(row["bytes_down"]), human_bytes(row["bytes_up"])]
    return [*names, f"{row['images']:,}", three_digits(row["flops"] / 1e12), *moved, row["status"]]


def _sums(console: Console, suite: str, rows: list[dict]) -> None:
    from fedbench.compare.columns import human_bytes, three_digits

    images, flops, down, up = (
        sum(row.get(key, 0) for row in rows) for key in ("images", "flops", "bytes_down", "bytes_up")
    )
    names = sum(len(row["names"]) for row in rows)
    cells_and_names = f"{len(rows)} cells" + (f" under {names} names" if names > len(rows) else "")
    console.print(
        f"\n{suite}: {cells_and_names}; in all {images:,} training images, {three_digits(flops / 1e12)} TFLOPs, "
        f"{human_bytes(down)} down and {human_bytes(up)} up.",
        style="bold",
    )


def _notes(console: Console, rows: list[dict]) -> None:
    from rich.text import Text

    for key, mark in (("not_applicable", "n/a"), ("unknown", "?  ")):
        for reason in sorted({f"{row['names'][0][1]}: {row[key]}" for row in rows if key in row}):
            console.print(Text(f"{mark}  {reason}", style="dim"), soft_wrap=True)
    if any(len(row["names"]) > 1 for row in rows):
        console.print("(+1)  another name of the same cell, which runs once", style="dim")
    console.print("FLOPs are the clients' training; evaluation is not in them.", style="dim")
