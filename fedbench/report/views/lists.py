"""Lists: the methods by family, the suites that ship, and the cells of a plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas

from fedbench.registry.catalogue import FAMILIES
from fedbench.report.frames import Format, frame, page
from fedbench.words import counted

if TYPE_CHECKING:
    from fedbench.registry.catalogue import Component

OTHERS, BOUNDS = "Other methods", "Bounds and controls"
CELLS = ("scenario", "variant", "rounds", "stage")  # what tells the tables of a plan apart
COSTS = {
    "images": Format("examples", "count", part="cost"),
    "flops": Format("FLOPs", "flops", part="cost"),
    "bytes_down": Format("down", "bytes", part="cost"),
    "bytes_up": Format("up", "bytes", part="cost"),
    "simulated_seconds": Format("simulated", "seconds", part="cost"),
    "seconds": Format("time", "estimate", part="cost"),
}


def methods(components: Collection[Component]) -> pandas.DataFrame:
    """A row for each method, by family, those of fedbench first; what is no `method` by its role stands last."""
    rows = [
        {
            "family": (one.family or OTHERS) if one.role == "method" else BOUNDS,
            "method": one.name,
            "limited": list(one.limited) or ["nothing"],
            "role": one.role,
            "paper": one.paper,
        }
        for one in components
    ]
    papers: dict[str, list[str]] = {}
    for one in components:
        if one.paper:
            papers.setdefault(one.paper, []).append(one.name)
    families = [*FAMILIES, *(row["family"] for row in rows if row["role"] == "method"), BOUNDS]
    order = list(dict.fromkeys(families))
    return frame(
        sorted(rows, key=lambda row: order.index(row["family"])),
        ("family", "method", "limited", "role", "paper"),
        caption="Methods",
        by=("family",),
        formats={"limited": Format(unit="names"), "paper": Format(left=True)},
        legend=["limited: what a client may hold less of. `fedbench plugins show NAME` has options."],
        papers=papers,
    )


def suites(known: Mapping[str, Mapping[str, Any]], here: Mapping[str, str]) -> pandas.DataFrame:
    """A row for each suite that ships.

    Args:
        known: by name, the facts of `fedbench.suite.shipped.listed`.
        here: by data set, whether it is on this machine, in words.
    """
    rows = [
        {
            "suite": name,
            "cells": facts["cells"],
            "tuned": facts["tuned"],
            "seconds": facts["seconds"] or None,
            "data": [f"{one} ({here[one]})" for one in facts["data"]],
            "description": facts["description"],
        }
        for name, facts in known.items()
    ]
    return frame(
        rows,
        ("suite", "cells", "tuned", "seconds", "data", "description"),
        caption="Suites",
        by=(),
        pages=[page((), title="Suites")],
        formats={
            "suite": Format(part="name"),
            "cells": Format(unit="int"),
            "tuned": Format(unit="yes"),
            "seconds": Format("time", "estimate"),
            "data": Format(unit="names"),
            "description": Format("what it is about", part="about", left=True),
        },
        legend=["time: on two cores, where it is known. `fedbench run NAME` runs one, `fedbench plan NAME` plans it."],
    )


def plan(suite: str, rows: Sequence[Mapping[str, Any]], sentences: Iterable[str]) -> pandas.DataFrame:
    """A row for each cell of a plan, and for all candidates of a method that is tuned; below it what needs a word.

    Args:
        suite: its name.
        rows: as `fedbench.commands.plan.forecast` has them.
        sentences: what all cells come to, and more.
    """
    seeds = {seed for row in rows for *_, seed in row["names"] if seed is not None}
    return frame(
        map(_of_plan, rows),
        (*CELLS, "method", "seed", *list(COSTS)[:4], "status"),
        caption=f"The cells of {suite}",
        by=CELLS,
        pages=[page(key, title=_title(*key)) for key in dict.fromkeys(_table_of(row) for row in rows)],
        formats={
            "seed": Format(unit="int", part="name" if len(seeds) > 1 else ""),
            "status": Format(part="status", left=True),
            **COSTS,
        },
        legend=sentences,
        dashes=True,
    )


def _of_plan(row: Mapping[str, Any]) -> dict[str, Any]:
    (_, method, _, seed), *others = row["names"]
    found = dict(zip(CELLS, _table_of(row), strict=True))
    found |= {"method": f"{method} (+{len(others)})" if others else method, "seed": seed}
    found |= {name: row[name] for name in COSTS if name in row and "flops" in row}
    if "flops" not in row:
        return found | {"status": "n/a" if "not_applicable" in row else "failed" if "failed" in row else "?"}
    return found | {"status": f"{row['status']}, {row['unpriced']} ?" if "unpriced" in row else row["status"]}


def _table_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Scenario, variant, rounds, and the stage of a suite that is tuned."""
    scenario, _, variant, _ = row["names"][0]
    stage = f"tuning, to round {', '.join(map(str, row['rungs']))}" if "rungs" in row else ""
    stage += f", and {counted(row['confirm'], 'run')} to confirm" if "confirm" in row else ""
    return scenario, variant, row["rounds"], stage


def _title(scenario: str, variant: str, rounds: int, stage: str) -> str:
    where = f"{scenario} [{variant}]" if variant else scenario
    return " · ".join(filter(None, (where, counted(rounds, "round"), stage)))


def notes_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the marks and amounts of a plan mean: why cells are marked, and what is counted."""
    found = []
    for key, mark in (("not_applicable", "n/a"), ("unknown", "?"), ("failed", "failed")):
        given = [row for row in rows if row.get(key) and (key != "unknown" or "failed" not in row)]
        reasons = {f"{row['names'][0][1]}: {row['unknown' if key == 'failed' else key]}" for row in given}
        found += [f"{mark}: {reason}" for reason in sorted(reasons)]
    if any(len(row["names"]) > 1 for row in rows):
        found.append("(+N): N other names of the same cell, which runs once.")
    found.append("FLOPs are the clients' training; evaluation is not in them.")
    fewest: dict[str, int] = {}
    for row in rows:
        if of_row := row.get("fewest_holders"):
            method = row["names"][0][1]
            fewest[method] = min(of_row, fewest.get(method, of_row))
    if fewest:
        counts = ", ".join(f"{method} {n}" for method, n in sorted(fewest.items(), key=lambda item: item[1]))
        found.append(f"Fewest clients that send one layer, in the first ten rounds: {counts}.")
    if any("simulated_seconds" in row for row in rows):
        found.append("simulated: what all rounds would take on the clients' devices, as the server waits.")
    return found
