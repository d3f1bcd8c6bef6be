"""Plain data of the page: its tables, and what its pictures draw (lines, fronts, allocations, tunings)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedbench.errors import UserError
from fedbench.report import pareto
from fedbench.report.budget import paid
from fedbench.report.frames import PLACE, Frame
from fedbench.report.layout import Column, Page, Table
from fedbench.report.leaderboards import Leaderboard, Row
from fedbench.report.plot_data import AXES, Board, by_method
from fedbench.report.render import render
from fedbench.report.run_scores import curve, is_fraction
from fedbench.report.tuning import Tuned
from fedbench.report.tuning import boards as tuned_boards
from fedbench.results import Result

TEXTS = ("markdown", "latex", "csv")
DIGITS = 5  # significant ones: a picture shows fewer


def rounded(value: float | None) -> float | None:
    """With as many digits as a picture can show; None for what is no finite number, which JSON does not have."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short == int(short) else short


def lines(drawn: Board | None, metric: str, most: int) -> dict[str, list[dict[str, Any]]]:
    """By method, one line for each seed: {seed, x by axis, average, and values by domain}, `most` points at the most.

    An axis that says nothing of a run, because it costs nothing or was not recorded, is left out of it.
    """
    if drawn is None:
        return {}
    found = {label: [line(result, metric, most) for result in part] for label, part in drawn.methods.items()}
    return {label: kept for label, part in found.items() if (kept := [one for one in part if one])}


def line(result: Result, metric: str, most: int) -> dict[str, Any] | None:
    """None where the result has no such metric."""
    by_round = curve(result.scores, metric)
    if not by_round:
        return None
    chosen = thinned(list(by_round), most)
    spent = {axis: found for axis in AXES if axis != "rounds" and (found := paid(result, axis))}
    x = {"rounds": list(chosen)} | {axis: [rounded(one.by(t)) for t in chosen] for axis, one in spent.items()}
    domains = dict.fromkeys(name for t in chosen for name in by_round[t][1])
    return {
        "seed": result.entry.seed,
        "of": len(by_round),
        "x": {axis: values for axis, values in x.items() if any(values)},
        "average": [rounded(by_round[t][0]) for t in chosen],
        "domains": {d: [rounded(by_round[t][1].get(d)) for t in chosen] for d in domains},
    }


def thinned(rounds: Sequence[int], most: int) -> Sequence[int]:
    """At most so many of them, evenly, the first and the last among them."""
    if len(rounds) <= most:
        return rounds
    step = (len(rounds) - 1) / (most - 1)
    return [rounds[round(i * step)] for i in range(most)]


def row(found: Row, role: str) -> dict[str, Any]:
    """What a row is, beside what its table shows."""
    return {
        "label": found.label,
        "method": found.method,
        "output": found.output,
        "role": role,
        "ranked": found.ranked,
        "group": found.group,
    }


def fronts(boards: Sequence[Leaderboard]) -> dict[tuple[str, ...], dict[str, Any]]:
    """By leaderboard the points of `compare --pareto`, by what is spent, as far as that is known."""
    found: dict[tuple[str, ...], dict[str, Any]] = {board.place: {} for board in boards}
    for what in pareto.RESOURCES:
        try:
            points = pareto.pareto(boards, what)
        except UserError:  # of no result is it known
            continue
        for place, on in points.groupby(list(PLACE), sort=False):
            columns = zip(*(on[name].tolist() for name in ("method", "spent", "front", "verdict")), strict=True)
            found[place][what] = [
                {"label": label, "spent": rounded(spent), "front": front, "verdict": verdict}
                for label, spent, front, verdict in columns
            ]
    return found


def allocation(drawn: Board | None) -> dict[str, Any] | None:
    """Of one seed, in percent of the rounds that a client was there for, row by row; None where nobody trains
    layers."""
    if drawn is None:
        return None
    found, groups = by_method(drawn.one_seed())
    if not found:
        return None
    seeds = {label: result.entry.seed for label, result in drawn.one_seed().items()}
    return {
        "rows": list(groups),
        "alone": all(len(clients) == 1 for clients in groups.values()),
        "methods": {
            label: {
                "seed": seeds[label],
                "share": [[round(100 * v) if math.isfinite(v) else None for v in line] for line in one.share.tolist()],
                "holders": [rounded(v) for v in one.holders.tolist()],
                "gamma": one.gamma,
                "coverage": rounded(one.coverage),
            }
            for label, one in found.items()
        },
    }


def contests(tuned: Sequence[Tuned]) -> list[dict[str, Any]]:
    """One for each tuning: by method, what is to be expected of 1, 2, ... candidates, and the score of each."""
    return [
        {
            "title": title,
            "metric": ones[0].search.metric,
            "fraction": is_fraction(ones[0].search.metric),
            "methods": {one.method: _curve(one) for one in ones if one.scores},
        }
        for title, ones in tuned_boards(tuned)
    ]


def _curve(one: Tuned) -> dict[str, Any]:
    trials = range(1, len(one.search.candidates) + 1)
    return {
        "expected": [rounded(one.expected(n)) for n in trials],
        "scores": {str(k): rounded(score) for k, score in one.scores.items()},
        "winner": one.contest.winner,
    }


def plain(page: Page) -> dict[str, Any]:
    """A page as JSON has it: what `fedbench compare` shows, cell by cell."""
    return {
        "title": page.title,
        "above": page.above,
        "warning": page.warning,
        "tables": [_table(table) for table in page.tables],
        "remarks": list(page.remarks),
        "notes": list(page.notes),
    }


def _table(table: Table) -> dict[str, Any]:
    return {
        "caption": table.caption,
        "faint": sorted(table.faint),
        "columns": plain_columns(table.columns),
    }


def plain_columns(found: Sequence[Column]) -> list[dict[str, Any]]:
    """Each cell is its text, or [text, spread]."""
    return [
        {
            "title": column.title,
            "part": column.part,
            "left": column.left or column.part == "name",
            "cells": [[c.text, c.spread] if c.spread else c.text for c in column.cells],
        }
        for column in found
    ]


def texts(found: Frame, sources: Sequence[str] = ()) -> Mapping[str, str]:
    """A frame in the formats that papers and programs take in."""
    cited = found.copy(deep=False)
    cited.attrs = {**found.attrs, "sources": sources}
    return {form: render(cited, form) for form in TEXTS}
