"""What the page shows, gathered once: leaderboards and what goes with them, by suite, and where they are from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fedbench import __version__
from fedbench.errors import UserError
from fedbench.report import board_frames, costs, deployable, paper, tuning
from fedbench.report.frames import Frame
from fedbench.report.grouping import cited, registered, select
from fedbench.report.headings import Place, headings
from fedbench.report.html import series
from fedbench.report.html.origin import origin, statuses
from fedbench.report.html.series import plain, plain_columns, texts
from fedbench.report.layout import laid_out
from fedbench.report.leaderboards import Leaderboard, leaderboards
from fedbench.report.pareto import COSTS
from fedbench.report.plot_data import AXES, Board, boards
from fedbench.report.plot_style import styles
from fedbench.report.run_scores import is_fraction
from fedbench.report.scenarios import Standing, lettered, ranks, standings, summary
from fedbench.report.statistics.ranks import bars
from fedbench.results import Result
from fedbench.results.metric_direction import higher_is_better

POINTS = 120_000  # numbers in lines; of more, lines keep fewer points
LEAST = 12  # points that a line keeps
DETAILED = 120  # leaderboards, up to which each has its costs, pairs and clients beside it, and each seed alone


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
            "statuses": statuses(results),
            "wrong": list(wrong),
            "lacks": lacks,
            "legends": _legends(found),
            "origin": origin(results),
        }
    )
    fronts = series.fronts(found)
    maker = _Maker(asked, results, found, drawn, fronts, labels, gathered.texts, _most(results), len(found) <= DETAILED)
    gathered.data["suites"] = [maker.suite(one) for one in standings(found, asked.equivalent)]
    gathered.data["thinned"] = maker.most if maker.thinned else None
    gathered.data["detailed"] = maker.detailed
    return gathered


def _tuned(results: Sequence[Result]) -> list[tuning.Tuned]:
    """Nothing where nothing was tuned."""
    try:
        return tuning.of_results(results)
    except UserError:
        return []


def _drawn(results: Sequence[Result]) -> list[Board]:
    return boards(results) if any(r.status == "finished" for r in results) else []


def _most(results: Sequence[Result]) -> int:
    """Points of a line, so that all lines together stay within POINTS numbers."""
    return max(LEAST, POINTS // (9 * max(1, len(results))))


def _legends(found: Sequence[Leaderboard]) -> dict[str, Sequence[str]]:
    return {"boards": board_frames.leaderboard(found).attrs["legend"], "costs": costs.LEGEND}


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
        self.sources = cited(self.results, self.asked.papers)
        # Of all leaderboards at once: who is told apart depends on how many are looked at.
        view = partial(deployable.deployable, self.boards, self.asked.equivalent)
        self.sizes = {tuple(page.pop("place")): page for page in self._pages("sizes", view)}

    def suite(self, standing: Standing) -> dict[str, Any]:
        found = list(standing.boards.values())
        told = headings([board.place._replace(suite="") for board in found])  # which stands above
        mine = [r for r in self.results if r.suite == standing.suite and r.entry.profile == standing.profile]
        name = f"{standing.suite}-{standing.profile}"
        several = len(found) > 1
        tuned = _tuned(mine)
        return {
            "name": standing.suite,
            "profile": standing.profile,
            "shared": told.shared,
            "sources": cited(mine, self.asked.papers),
            "summary": self._page(f"summary {name}", lettered(summary([standing]))) if several else None,
            "ranks": self._page(f"ranks {name}", ranks([standing])) if several and standing.ranks else None,
            "diagram": _diagram(standing),
            "tuning": self._pages(f"tuning {name}", lambda: tuning.tuning(mine, tuned)) if tuned else [],
            "contests": series.contests(tuned),
            "papers": self._pages(f"paper {name}", lambda: self._papers(mine)),
            "boards": [self._board(board, title) for board, title in zip(found, told.titles, strict=True)],
        }

    def _papers(self, results: Sequence[Result]) -> Frame:
        if self.asked.metric != "accuracy":
            raise UserError("a paper's numbers are accuracies")
        return paper.side_by_side(paper.comparisons(results, at=self.asked.at))

    def _board(self, board: Leaderboard, title: str) -> dict[str, Any]:
        self.count += 1
        key = f"board {self.count}"
        drawn = self.drawn.get(board.place)
        roles = {row.method: self.asked.roles.get(self.labels.get(row.method, ""), "method") for row in board.rows}
        lines = series.lines(drawn, board.metric, self.most)
        self.thinned |= any(one["of"] > self.most for part in lines.values() for one in part)
        page = self._page(key, board_frames.leaderboard([board]))
        caption = page["tables"][0]["caption"]
        return {
            "key": key,
            **board.place._asdict(),
            "title": title if title else board.place.scenario,
            "domains": list(board.domains),
            "baseline": board.baseline,
            "byClient": board.by_client,
            "caption": caption,
            "page": page,
            "rows": [series.row(row, roles[row.method]) for row in board.shown],
            "seeds": {str(seed): plain_columns(found) for seed, found in self.seeds.get(board.place, {}).items()},
            "lines": lines,
            "fronts": self.fronts[board.place],
            "sizes": self.sizes.get(board.place),
            "allocation": series.allocation(drawn),
            "details": dict(self._details(key, board)) if self.detailed else {},
        }

    def _details(self, key: str, board: Leaderboard) -> Iterator[tuple[str, dict[str, Any]]]:
        views: dict[str, Callable[[], Frame]] = {
            "costs": lambda: costs.costs([board]),
            "pairs": lambda: board_frames.matrix(board_frames.pairs([board])),
            "clients": lambda: board_frames.clients([board]),
        }
        for name, make in views.items():
            for page in self._pages(f"{key} {name}", make):
                yield name, page

    def _by_seed(self) -> dict[Place, dict[int, Sequence[Any]]]:
        """The columns of each leaderboard by seed, as `compare` has them of that seed's cells alone; nothing where
        there is one seed."""
        seeds = sorted({r.entry.seed for r in self.results})
        found: dict[Place, dict[int, Sequence[Any]]] = {}
        for seed in seeds if len(seeds) > 1 else ():
            alone = select(self.results, seeds=[seed])
            try:
                made = self.asked.boards(alone)
            except UserError:  # no result of that seed has the metric, or is of the baseline
                continue
            for board in made:
                if any(row.runs for row in board.rows):
                    (page,) = laid_out(board_frames.leaderboard([board])).pages
                    found.setdefault(board.place, {})[seed] = page.tables[0].columns
        return found

    def _pages(self, key: str, make: Callable[[], Frame]) -> list[dict[str, Any]]:
        """Nothing where the view has nothing to show."""
        try:
            found = make()
        except UserError:
            return []
        self.texts[key] = texts(found)
        return [plain(page) | {"key": key, "place": page.key} for page in laid_out(found).pages]

    def _page(self, key: str, frame: Frame) -> dict[str, Any]:
        (page,) = laid_out(frame).pages
        self.texts[key] = texts(frame, self.sources if key.startswith("board") else ())
        return plain(page) | {"key": key, "legend": list(frame.attrs["legend"])}


def _diagram(standing: Standing) -> dict[str, Any] | None:
    """Critical differences as numbers; None where fewer than two scenarios are complete."""
    if standing.cd is None:
        return None
    return {
        "methods": list(standing.methods),
        "ranks": {name: series.rounded(rank) for name, rank in standing.mean_ranks.items()},
        "groups": dict(standing.groups),
        "cd": series.rounded(standing.cd),
        "bars": bars(list(standing.mean_ranks.values()), standing.cd),
        "scenarios": len(standing.ranks),
    }
