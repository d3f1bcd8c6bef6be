"""Views by name: leaderboards, a summary of many, or one of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas

from fedbench.registry.registry import Registry
from fedbench.report.frames import chosen as filtered
from fedbench.report.grouping import roles_of
from fedbench.report.leaderboards import Leaderboard, leaderboards
from fedbench.report.paper import cited, comparisons
from fedbench.report.standings import standings
from fedbench.report.views.costs import costs, pareto, time_to_target
from fedbench.report.views.leaderboard import clients, leaderboard, worst_clients
from fedbench.report.views.pairs import matrix, pairs
from fedbench.report.views.paper import paper, side_by_side
from fedbench.report.views.sizes import deployable
from fedbench.report.views.summary import lettered, ranks, summary
from fedbench.report.views.tuning import candidates, how_tuned, tuning
from fedbench.report.views.wire import wire
from fedbench.results import Result

FEW = 8  # leaderboards that are printed whole where no view is named: about a screen each
PEOPLE = ("rich", "markdown", "latex")  # formats that people read
CITING = ("markdown", "latex", "bibtex")  # the formats for papers, which name those that the methods are from
USUAL: Mapping[str, Any] = {"metric": "accuracy", "at": "final", "baseline": None, "equivalent": None}

# By name, what leaderboards show with these options; and what people get of views that are long.
VIEWS: Mapping[str, Callable[[Sequence[Leaderboard], Mapping[str, Any]], pandas.DataFrame]] = {
    "boards": lambda boards, asked: leaderboard(boards),
    "clients": lambda boards, asked: clients(boards),
    "costs": lambda boards, asked: costs(boards),
    "pairs": lambda boards, asked: pairs(boards, asked["baseline"]),
    "pareto": lambda boards, asked: pareto(boards, asked["pareto"]),
    "ranks": lambda boards, asked: ranks(standings(boards, asked["equivalent"])),
    "reach": lambda boards, asked: time_to_target(boards, asked["reach"]),
    "sizes": lambda boards, asked: deployable(boards, asked["equivalent"]),
    "summary": lambda boards, asked: summary(standings(boards, asked["equivalent"])),
    "wire": lambda boards, asked: wire(boards),
}
SHORTER = {"pairs": matrix, "clients": worst_clients, "summary": lettered}


def chosen(
    results: Sequence[Result],
    kind: str = "",
    *,
    form: str = "rich",
    sort: Sequence[str] = (),
    columns: Sequence[str] = (),
    **asked: Any,
) -> pandas.DataFrame:
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
    found = filtered(view(results, kind, brief=brief, people=form in PEOPLE, **asked), sort, columns)
    if kind != "tuning" and (below := how_tuned(results)):
        found.attrs["legend"] = [*found.attrs["legend"], *below]
    found.attrs["view"] = kind or "boards"
    if form in CITING:
        found.attrs["papers"] = cited(results, Registry().catalogue.papers)
    return found


def view(
    results: Sequence[Result],
    kind: str = "",
    *,
    roles: Mapping[str, str] | None = None,
    brief: bool = False,
    people: bool = False,
    **asked: Any,
) -> pandas.DataFrame:
    """The whole frame of a view.

    Args:
        results: what is compared; of a tuning with all candidates.
        kind: as of `chosen`.
        roles: of methods, by name; those of the installed plugins otherwise.
        brief: whether many leaderboards are summed up.
        people: whether it is for people, who get less of what is long.
        asked: USUAL where not given; `reach`, a score, and `pareto`, what it costs, for the views of these names.
    """
    asked = {**USUAL, **asked}
    if kind == "tuning":
        return tuning(results) if people else candidates(results)
    if kind == "paper":
        return (side_by_side if people else paper)(comparisons(results, at=asked["at"], metric=asked["metric"]))
    roles = roles_of(results, Registry().catalogue.roles if roles is None else roles)
    usual = {name: asked[name] for name in USUAL}
    boards = leaderboards(results, **usual, roles=roles)
    if not kind:
        kind = "summary" if brief and asked["baseline"] is None and len(boards) > FEW else "boards"
    found = VIEWS[kind](boards, asked)
    return SHORTER[kind](found) if people and kind in SHORTER else found
