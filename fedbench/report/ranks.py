"""Ranks over scenarios, for people and for programs: one table of ranks and one critical-difference diagram a suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from fedbench.report.columns import exact
from fedbench.report.page import Column, Page, Shown, Table, View
from fedbench.report.pairs import probability
from fedbench.report.records import csv_text, json_text
from fedbench.report.scenarios import Standing
from fedbench.words import counted

WIDE = 30  # letters of the diagram, which is drawn in text and so fits any terminal, file and paper
LONG = 10  # letters of a scenario's name, before columns are numbered instead

CSV_COLUMNS = (
    "suite", "profile", "metric", "split", "method", "scenario", "score", "rank", "group", "friedman_chi2",
    "friedman_p", "critical_difference",
)  # fmt: skip

POOL = (
    "Nemenyi's verdict on two methods depends on which others are in the pool (Benavoli et al. 2016): the diagram "
    "stands beside the letters of group, and does not decide them."
)


def view(standings: Sequence[Standing], long: int = LONG) -> View:
    """A page for each suite. long: letters of a scenario's name above a column, before they are numbered instead."""
    pages = [_page(one, long) for one in standings]
    legend = _legend(standings)
    return View(pages, legend, partial(to_csv, standings), partial(to_json, standings), comments=legend)


def _page(one: Standing, long: int) -> Page:
    title = f"{one.suite} · ranks over scenarios · {one.profile} profile"
    remarks, names = numbered(list(one.scores), long)
    tables = []
    if one.methods:
        tables.append(
            Table(_ranks(one, names), f"{one.metric} · ranks in {counted(len(one.ranks), 'complete scenario')}")
        )
    if one.cd is not None:
        caption = f"critical difference {one.cd:.2f} (Nemenyi, 5 %): a label to ranks, not a verdict on pairs"
        tables.append(Table(_diagram(one), caption))
    return Page(title, tables, _notes(one, names), [*remarks, *_tests(one)])


def numbered(names: Sequence[str], long: int = LONG) -> tuple[list[str], list[str]]:
    """(what numbers mean, the columns' titles): long names are numbered."""
    names = list(names)
    if all(len(name) <= long for name in names):
        return [], names
    return [f"{i}: {name}" for i, name in enumerate(names, 1)], [str(i) for i in range(1, len(names) + 1)]


def _ranks(one: Standing, names: Sequence[str]) -> list[Column]:
    """An incomplete scenario is a blank column: ranks in it would not be ranks among all."""
    found = [Column("method", "name", [Shown(name) for name in one.methods])]
    for title, block in zip(names, one.scores, strict=True):
        placed = one.ranks.get(block, {})
        cells = [exact(placed.get(n), "{:g}".format) for n in one.methods]
        found.append(Column(title, "score", cells, best="low", also=(block,), whole=block))
    if one.mean_ranks:
        found.append(mean_rank(one.mean_ranks, one.methods))
    if one.groups:
        found.append(Column("group", "score", [Shown(one.groups[n]) for n in one.methods], left=True))
    return found


def mean_rank(ranks: Mapping[str, float], methods: Sequence[str]) -> Column:
    """Of methods in this order; a blank for one without any."""
    cells = [exact(ranks.get(name), "{:.2f}".format) for name in methods]
    return Column("mean rank", "score", cells, least=9, best="low")


def _diagram(one: Standing) -> list[Column]:
    k, cd = len(one.methods), one.cd or 0.0

    def place(rank: float) -> int:
        return round((min(rank, k) - 1) / (k - 1) * (WIDE - 1))

    lines = []
    for name in one.methods:
        at, to = place(one.mean_ranks[name]), place(one.mean_ranks[name] + cd)
        lines.append("." * at + "o" + "=" * (to - at) + "." * (WIDE - 1 - to))
    return [
        Column("method", "name", [Shown(name) for name in one.methods]),
        mean_rank(one.mean_ranks, one.methods),
        Column(f"rank 1 to {k}", "score", [Shown(line) for line in lines], left=True),
    ]


def _tests(one: Standing) -> list[str]:
    found = []
    if one.friedman:
        chi2, p = one.friedman
        what = f"{counted(len(one.methods), 'method')} in {counted(len(one.ranks), 'scenario')}"
        found.append(f"Friedman: chi2({len(one.methods) - 1}) = {chi2:.2f}, p = {probability(p)}, of {what}")
    return found + how_grouped(one)


def how_grouped(one: Standing) -> list[str]:
    """By which test the letters of `group` are, and of what they speak; nothing where there are none."""
    over = f"{counted(len(one.ranks), 'scenario')} by Wilcoxon's signed ranks, said of scenarios like these"
    seeds = "seeds by paired t-tests of means over these scenarios, said of these alone"
    return [f"group: over {over if one.wilcoxon else seeds}"] if one.groups else []


def _notes(one: Standing, titles: Sequence[str]) -> list[str]:
    lacking: dict[str, list[str]] = {}
    for title, block in zip(titles, one.scores, strict=True):
        if names := one.left_out.get(block):
            lacking.setdefault(", ".join(names), []).append(title)
    found = [f"{', '.join(blocks)}: incomplete, no score of {names}" for names, blocks in lacking.items()]
    return found + unconcluded(one)


def unconcluded(one: Standing) -> list[str]:
    """Why nothing is said over scenarios, where that is so."""
    if not one.ranks:
        return ["no scenario has all methods, so there are no ranks; --method chooses some that all have"]
    if len(one.ranks) == 1:
        return ["1 complete scenario: nothing is concluded over scenarios"]
    if not one.groups and len(one.methods) > 1:
        few = "fewer than three seeds in common and fewer than six scenarios"
        return [f"{few}: nothing is concluded about which method is better over scenarios"]
    return []


def _legend(standings: Sequence[Standing]) -> list[str]:
    found = [
        "rank: 1 is the best mean over seeds in a scenario, ties share the mean of their ranks; ceilings have none."
    ]
    if any(one.groups for one in standings):
        found.append(
            "group: methods that share a letter are not told apart (Benjamini-Hochberg over all pairs of all suites "
            "shown)."
        )
    if any(one.cd is not None for one in standings):
        found.append("o mean rank, = as far as the critical difference reaches. " + POOL)
    return found


def to_csv(standings: Sequence[Standing]) -> str:
    """A row for every method and scenario, then one of `mean`, which has the group and the tests."""
    return csv_text(CSV_COLUMNS, (record for one in standings for record in _records(one)))


def _records(one: Standing) -> Iterator[tuple[Any, ...]]:
    where = (one.suite, one.profile, one.metric, one.split)
    chi2, p = one.friedman or (None, None)
    for name in one.methods:
        for block, scores in one.scores.items():
            if name in scores:
                yield *where, name, block, scores[name], one.ranks.get(block, {}).get(name), "", None, None, None
        yield *where, name, "mean", None, one.mean_ranks.get(name), one.groups.get(name, ""), chi2, p, one.cd


def to_json(standings: Sequence[Standing]) -> str:
    """Everything, the tests and the pairs too."""
    return json_text([_record(one) for one in standings])


def _record(one: Standing) -> dict[str, Any]:
    chi2, p = one.friedman or (None, None)
    tests = {"friedman_chi2": chi2, "friedman_p": p, "critical_difference": one.cd}
    pairs = [asdict(pair) | {"p_sign_flip": pair.p_sign_flip} for pair in one.pairs]
    return asdict(one) | tests | {"pairs": pairs}
