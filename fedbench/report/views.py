"""Views of results by name: leaderboards, a summary of many, or one of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedbench.registry.registry import Registry
from fedbench.report import board_frames, cost_tables, deployable, scenarios, time_to_target
from fedbench.report import pareto as fronts
from fedbench.report.filters import chosen as filtered
from fedbench.report.frames import Frame
from fedbench.report.grouping import cited, roles_of
from fedbench.report.leaderboards import leaderboards
from fedbench.report.tuning_tables import how_tuned
from fedbench.results import Result

FEW = 8  # leaderboards that are printed whole where no view is named: about a screen each
PEOPLE = ("rich", "markdown", "latex")  # formats that people read
CITING = ("markdown", "latex")  # the formats for papers, which name those that the methods are from
USUAL: Mapping[str, Any] = {"metric": "accuracy", "at": "final", "baseline": None, "equivalent": None}


def chosen(
    results: Sequence[Result],
    kind: str = "",
    *,
    form: str = "rich",
    sort: Sequence[str] = (),
    columns: Sequence[str] = (),
    **asked: Any,
) -> Frame:
    """The frame of a view of `fedbench compare`.

    Args:
        results: what is compared.
        kind: the view, such as `pairs`; "" for leaderboards, or on a terminal a summary of many.
        form: the format that it is for.
        sort: columns to sort by.
        columns: columns to show.
        asked: of `leaderboards`, and what the view itself needs; without roles, those of the installed plugins.
    """
    brief = form == "rich" and not (sort or columns)
    found = view(results, kind, brief=brief, people=form in PEOPLE, **asked)
    found = filtered(found, sort, columns)
    if kind != "tuning" and (below := how_tuned(results)):
        found.attrs["legend"] = [*found.attrs["legend"], *below]
    if form in CITING:
        found.attrs["sources"] = cited(results, Registry().catalogue.papers)
    return found


def view(
    results: Sequence[Result],
    kind: str = "",
    *,
    metric: str = "accuracy",
    at: str = "final",
    baseline: str | None = None,
    equivalent: float | None = None,
    reach: str | float = "",
    pareto: str = "bytes",
    roles: Mapping[str, str] | None = None,
    brief: bool = False,
    people: bool = False,
) -> Frame:
    """The whole frame of a view.

    Args:
        results: what is compared; of a tuning with all candidates.
        kind: as of `chosen`.
        metric: what is compared.
        at: which round counts.
        baseline: the method that gaps are measured to.
        equivalent: points below which methods may be called equal.
        reach: a score, for `reach`.
        pareto: what it costs, for `pareto`.
        roles: of methods, by name; those of the installed plugins otherwise.
        brief: whether many leaderboards are summed up.
        people: whether it is for people, who get less of what is long.
    """
    if kind == "tuning":
        from fedbench.report.tuning_tables import candidates, tuning

        return tuning(results) if people else candidates(results)
    if kind == "paper":
        from fedbench.report import paper

        return (paper.side_by_side if people else paper.paper)(paper.comparisons(results, at=at))
    roles = roles_of(results, Registry().catalogue.roles if roles is None else roles)
    boards = leaderboards(results, metric, at, baseline, roles=roles, equivalent=equivalent)
    if kind == "summary" or (brief and not kind and baseline is None and len(boards) > FEW):
        found = scenarios.summary(scenarios.standings(boards, equivalent))
        return scenarios.lettered(found) if people else found
    views: Mapping[str, Callable[[], Frame]] = {
        "pairs": lambda: board_frames.pairs(boards, baseline),
        "clients": lambda: board_frames.clients(boards),
        "costs": lambda: cost_tables.costs(boards),
        "ranks": lambda: scenarios.ranks(scenarios.standings(boards, equivalent)),
        "sizes": lambda: deployable.deployable(boards, equivalent),
        "reach": lambda: time_to_target.time_to_target(boards, reach),
        "pareto": lambda: fronts.pareto(boards, pareto),
    }
    found = views.get(kind, lambda: board_frames.leaderboard(boards))()
    shorter = {"pairs": board_frames.matrix, "clients": board_frames.worst_clients}
    return shorter[kind](found) if people and kind in shorter else found
