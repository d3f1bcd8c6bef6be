"""Data of the page: leaderboards and what goes with them, by suite, and the cells and settings they are from."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import pandas

from fedbench import __version__
from fedbench.errors import UserError
from fedbench.report.frames import PLACE, records, with_attrs
from fedbench.report.grouping import Place, headings, registered, select
from fedbench.report.layout import Column, Page, Shown, laid_out
from fedbench.report.leaderboards import Leaderboard, leaderboards
from fedbench.report.paper import cited, comparisons, listed
from fedbench.report.plot_data import AXES, Board, boards, by_method, styles
from fedbench.report.run_scores import curve
from fedbench.report.standings import Standing, standings
from fedbench.report.statistics.ranks import bars
from fedbench.report.style import style
from fedbench.report.views.costs import COSTS, LEGEND, RESOURCES, costs, pareto
from fedbench.report.views.leaderboard import clients, has_many_domains, leaderboard
from fedbench.report.views.pairs import matrix, pairs
from fedbench.report.views.paper import side_by_side
from fedbench.report.views.sizes import deployable
from fedbench.report.views.summary import lettered, ranks, summary
from fedbench.report.views.tuning import by_scenario, contests_of, expected, tuning
from fedbench.results import Result
from fedbench.results.scores import higher_is_better, is_fraction
from fedbench.results.tuning import Contest

POINTS = 120_000  # numbers in lines; of more, lines keep fewer points
LEAST = 12  # points that a line keeps
DETAILED = 120  # leaderboards, up to which each has its costs, pairs and clients with it, and each seed alone
TEXTS = ("markdown", "latex", "csv")
DIGITS = 5  # significant ones: a picture shows fewer


@dataclass(frozen=True)
class Asked:
    """What is compared, as `fedbench compare` has it. roles: of methods, by name; papers: that they are from."""

    metric: str = "accuracy"
    at: str = "final"
    baseline: str | None = None
    equivalent: float | None = None
    roles: Mapping[str, str] = field(default_factory=dict)
    papers: Mapping[str, str] = field(default_factory=dict)

    def boards(self, results: Sequence[Result]) -> list[Leaderboard]:
        a = self
        return leaderboards(results, a.metric, a.at, a.baseline, roles=a.roles, equivalent=a.equivalent)


@dataclass
class Gathered:
    """data: all that the page shows; texts: by the name of a table, what a reader may take along, by format."""

    data: dict[str, Any]
    texts: dict[str, Mapping[str, str]] = field(default_factory=dict)


def gather(results: Sequence[Result], asked: Asked, wrong: Sequence[str] = (), lacks: str = "") -> Gathered:
    """Of results whose tables are read. wrong: what was left out, a line each; lacks: what has no result, in a
    sentence. Raises: UserError as `leaderboards`."""
    found = asked.boards(results)
    drawn = {one.place: one for one in _drawn(results)}
    names = {r.entry.method: registered([r]) for r in results}
    labels = {row.method: names.get(row.method, row.method) for board in found for row in board.rows}
    for one in drawn.values():
        labels |= one.registered
    gathered = Gathered(
        {
            "fedbench": __version__,
            "metric": asked.metric,
            "fraction": is_fraction(asked.metric),
            "higher": higher_is_better(asked.metric),
            "at": asked.at,
            "axes": AXES,
            "resources": COSTS,
            "looks": styles(labels, asked.roles),
            "statuses": dict(Counter(r.status for r in results)),
            "wrong": list(wrong),
            "lacks": lacks,
            "legends": {"boards": leaderboard(found).attrs["legend"], "costs": LEGEND},
            "origin": origin(results),
        }
    )
    points = fronts(found)
    maker = _Maker(asked, results, found, drawn, points, labels, gathered.texts, _most(results), len(found) <= DETAILED)
    gathered.data["suites"] = [maker.suite(one) for one in standings(found, asked.equivalent)]
    gathered.data["cites"] = bool(maker.papers)
    gathered.data["thinned"] = maker.most if maker.thinned else None
    gathered.data["detailed"] = maker.detailed
    return gathered


def _tuned(results: Sequence[Result]) -> list[Contest]:
    """Nothing where nothing was tuned."""
    try:
        return contests_of(results)
    except UserError:
        return []


def _drawn(results: Sequence[Result]) -> list[Board]:
    return boards(results) if any(r.status == "finished" for r in results) else []


def _most(results: Sequence[Result]) -> int:
    """Points of a line, so that all lines together stay within POINTS numbers."""
    return max(LEAST, POINTS // (9 * max(1, len(results))))


@dataclass
class _Maker:
    """Suite by suite, leaderboard by leaderboard."""

    asked: Asked
    results: Sequence[Result]
    boards: Sequence[Leaderboard]
    drawn: Mapping[Place, Board]
    fronts: Mapping[tuple[str, ...], dict[str, Any]]
    labels: Mapping[str, str]
    texts: dict[str, Mapping[str, str]]
    most: int
    detailed: bool
    thinned: bool = False
    count: int = 0

    def __post_init__(self) -> None:
        self.seeds = self._by_seed() if self.detailed else {}
        self.papers = cited(self.results, self.asked.papers)
        view = partial(deployable, self.boards, self.asked.equivalent)
        self.sizes = self._pages("sizes", view)

    def suite(self, standing: Standing) -> dict[str, Any]:
        found = list(standing.boards.values())
        titles = headings([board.place._replace(suite="") for board in found])  # which stands above
        mine = [r for r in self.results if r.suite == standing.suite and r.entry.profile == standing.profile]
        name = f"{standing.suite}-{standing.profile}"
        several = len(found) > 1
        tuned = _tuned(mine)
        return {
            "name": standing.suite,
            "profile": standing.profile,
            "shared": titles.shared,
            "sources": listed(cited(mine, self.asked.papers)),
            "summary": self._page(f"summary {name}", lettered(summary([standing]))) if several else None,
            "ranks": self._page(f"ranks {name}", ranks([standing])) if several and standing.ranks else None,
            "diagram": _diagram(standing),
            "tuning": list(self._pages(f"tuning {name}", lambda: tuning(mine, tuned)).values()) if tuned else [],
            "contests": contests(tuned),
            "papers": list(self._pages(f"paper {name}", lambda: self._papers(mine)).values()),
            "boards": [self._board(board, title) for board, title in zip(found, titles.titles, strict=True)],
        }

    def _papers(self, results: Sequence[Result]) -> pandas.DataFrame:
        return side_by_side(comparisons(results, at=self.asked.at, metric=self.asked.metric))

    def _board(self, board: Leaderboard, title: str) -> dict[str, Any]:
        self.count += 1
        key = f"board {self.count}"
        drawn = self.drawn.get(board.place)
        roles = {row.method: self.asked.roles.get(self.labels.get(row.method, ""), "method") for row in board.rows}
        curves = lines(drawn, board.metric, self.most)
        self.thinned |= any(one["of"] > self.most for part in curves.values() for one in part)
        many = has_many_domains(board)
        page = self._page(key, leaderboard([board]), leaderboard([board], every_domain=True) if many else None)
        return {
            "key": key,
            **board.place._asdict(),
            "title": title if title else board.place.scenario,
            "domains": list(board.domains),
            "many": many,
            "baseline": board.baseline,
            "byClient": board.by_client,
            "caption": page["tables"][0]["caption"],
            "page": page,
            "rows": [
                {name: getattr(row, name) for name in ("label", "method", "output", "ranked", "group")}
                | {"role": roles[row.method]}
                for row in board.shown
            ],
            "seeds": {
                str(seed): plain_columns(in_rows(columns, labels, [row.label for row in board.shown]))
                for seed, (labels, columns) in self.seeds.get(board.place, {}).items()
            },
            "lines": curves,
            "fronts": self.fronts[board.place],
            "sizes": self.sizes.get(board.place),
            "allocation": allocation(drawn),
            "details": dict(self._details(key, board)) if self.detailed else {},
        }

    def _details(self, key: str, board: Leaderboard) -> Iterator[tuple[str, dict[str, Any]]]:
        views: dict[str, Callable[[], pandas.DataFrame]] = {
            "costs": lambda: costs([board]),
            "pairs": lambda: matrix(pairs([board])),
            "clients": lambda: clients([board]),
        }
        for name, make in views.items():
            for page in self._pages(f"{key} {name}", make).values():
                yield name, page

    def _by_seed(self) -> dict[Place, dict[int, tuple[list[str], Sequence[Column]]]]:
        """(labels of the rows, columns) of each leaderboard by seed, as `compare` has them of that seed's cells alone;
        nothing where there is one seed."""
        seeds = sorted({r.entry.seed for r in self.results})
        found: dict[Place, dict[int, tuple[list[str], Sequence[Column]]]] = {}
        for seed in seeds if len(seeds) > 1 else ():
            alone = select(self.results, seeds=[seed])
            try:
                made = self.asked.boards(alone)
            except UserError:  # no result of that seed has the metric, or is of the baseline
                continue
            for board in made:
                if any(row.runs for row in board.rows):
                    (page,) = laid_out(leaderboard([board], every_domain=True)).pages
                    labels = [row.label for row in board.shown]
                    found.setdefault(board.place, {})[seed] = labels, page.tables[0].columns
        return found

    def _pages(self, key: str, make: Callable[[], pandas.DataFrame]) -> dict[tuple[str, ...], dict[str, Any]]:
        """The pages of a view by key; nothing where it has nothing to show."""
        try:
            found = make()
        except UserError:
            return {}
        self.texts[key] = texts(found)
        return {page.key: plain(page) | {"key": key} for page in laid_out(found).pages}

    def _page(self, key: str, frame: pandas.DataFrame, full: pandas.DataFrame | None = None) -> dict[str, Any]:
        """full: the same with all columns that the page may show."""
        (page,) = laid_out(frame if full is None else full).pages
        self.texts[key] = texts(frame, self.papers if key.startswith("board") else {})
        return plain(page) | {"key": key, "legend": list(frame.attrs["legend"])}


def _diagram(standing: Standing) -> dict[str, Any] | None:
    """Critical differences as numbers; None where fewer than two scenarios are complete."""
    if standing.cd is None:
        return None
    return {
        "methods": list(standing.methods),
        "ranks": {name: rounded(rank) for name, rank in standing.mean_ranks.items()},
        "groups": dict(standing.groups),
        "cd": rounded(standing.cd),
        "bars": [[rounded(end) for end in bar] for bar in bars(list(standing.mean_ranks.values()), standing.cd)],
        "crossing": bool(standing.crossing),
        "scenarios": len(standing.ranks),
    }


# Plain data


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
    by_round = curve(result.scores(metric))
    if not by_round:
        return None
    chosen = thinned(list(by_round), most)
    spent = {axis: found for axis in AXES if axis != "rounds" and (found := result.paid(axis))}
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


def fronts(boards: Sequence[Leaderboard]) -> dict[tuple[str, ...], dict[str, Any]]:
    """By leaderboard the points of `compare pareto`, by what is spent, as far as that is known."""
    found: dict[tuple[str, ...], dict[str, Any]] = {board.place: {} for board in boards}
    for what in RESOURCES:
        try:
            points = pareto(boards, what)
        except UserError:  # of no result is it known
            continue
        for row in records(points):
            point = {"label": row["method"], "spent": rounded(row["spent"])}
            place = tuple(row[name] for name in PLACE)
            found[place].setdefault(what, []).append(point | {"front": row["front"], "verdict": row["verdict"]})
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


def contests(tuned: Sequence[Contest]) -> list[dict[str, Any]]:
    """One for each tuning: by method, what is to be expected of 1, 2, ... candidates, and the score of each."""
    return [
        {
            "title": title,
            "metric": ones[0].tuning.metric,
            "fraction": is_fraction(ones[0].tuning.metric),
            "methods": {one.method: _curve(one) for one in ones if one.last_scores},
        }
        for title, ones in by_scenario(tuned)
    ]


def _curve(one: Contest) -> dict[str, Any]:
    trials = range(1, one.tuning.trials + 1)
    return {
        "expected": [rounded(expected(one, n)) for n in trials],
        "scores": {str(k): rounded(score) for k, score in one.last_scores.items()},
        "winner": one.winner,
    }


def plain(page: Page) -> dict[str, Any]:
    """A page as JSON has it: what `fedbench compare` shows, cell by cell."""
    return {
        "title": page.title,
        "above": page.above,
        "warning": page.warning,
        "tables": [
            {"caption": table.caption, "faint": sorted(table.faint), "columns": plain_columns(table.columns)}
            for table in page.tables
        ],
        "remarks": list(page.remarks),
        "notes": list(page.notes),
    }


def in_rows(columns: Sequence[Column], labels: Sequence[str], wanted: Sequence[str]) -> list[Column]:
    """Columns whose rows are in another order, and blank where there was none.

    Args:
        columns: as they are.
        labels: of their rows.
        wanted: labels of the rows that they are to have.
    """
    at = {label: i for i, label in enumerate(labels)}
    return [
        replace(one, cells=[one.cells[at[label]] if label in at else Shown("") for label in wanted], bold=None)
        for one in columns
    ]


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


def texts(found: pandas.DataFrame, papers: Mapping[str, Sequence[str]] = MappingProxyType({})) -> Mapping[str, str]:
    """A frame in the formats that papers and programs take in. papers: that its methods are from, as `cited` has them,
    which are one of the formats then."""
    citing = with_attrs(found, papers=dict(papers))
    return {form: style(citing, form) for form in (*TEXTS, *(["bibtex"] if papers else []))}


CELL = (
    "suite", "scenario", "variant", "method", "seed", "status", "reason", "id", "seconds", "origin", "config",
)  # fmt: skip
WHERE = ("versions", "fingerprints", "machine", "git", "result_version", "ignored")


class Interned:
    """Values that many cells share, each kept once; a cell has its place."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[str, int] = {}

    def place(self, value: Any) -> int:
        key = json.dumps(value, sort_keys=True)
        if key not in self._places:
            self._places[key] = len(self.values)
            self.values.append(value)
        return self._places[key]


def origin(results: Sequence[Result]) -> dict[str, Any]:
    """What each cell was configured and computed as.

    Returns:
        `cells`: the fields of a row, and the rows. `configs`: by part of a configuration (`train`, `method`), its
        values; a cell's `config` has their places by the order of parts, null for a part that it lacks. `origins`:
        versions, fingerprints, machine and git revision that cells share. `started`: when the first of them was, and
        the last.
    """
    parts = dict.fromkeys(name for r in results for name in r.manifest.get("config", {}))
    configs = {name: Interned() for name in parts}
    origins = Interned()
    rows = []
    for r in results:
        config, e = r.manifest.get("config", {}), r.entry
        rows.append(
            (
                r.suite,
                e.scenario,
                e.variant,
                e.method,
                e.seed,
                r.status,
                _reason(r),
                e.cell,
                None if "computed_as" in r.manifest else r.manifest.get("seconds"),  # which is another's
                origins.place(_where(r)) if r.manifest else None,
                [configs[name].place(config[name]) if name in config else None for name in parts] if config else None,
            )
        )
    return {
        "cells": {"fields": CELL, "rows": rows},
        "configs": {name: found.values for name, found in configs.items()},
        "origins": origins.values,
        "started": _span(results),
    }


def _where(result: Result) -> dict[str, Any]:
    return {name: result.manifest.get(name) for name in WHERE}


def _reason(result: Result) -> str:
    return (result.fault or result.manifest.get("reason") or "").strip().partition("\n")[0]


def _span(results: Sequence[Result]) -> list[str]:
    """When the first and the last of the cells was started."""
    times = sorted(time for r in results if (time := r.manifest.get("started")))
    return [times[0], times[-1]] if times else []
