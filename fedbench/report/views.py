"""Views of results by name: leaderboards, a summary of many, or one of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.report import board_frames, scenario_frames
from fedbench.report.filters import chosen as filtered
from fedbench.report.frames import Frame
from fedbench.report.grouping import cited, roles_of
from fedbench.report.leaderboards import Leaderboard, leaderboards
from fedbench.report.tuning import how_tuned
from fedbench.results import Result

FEW = 8  # leaderboards that are printed whole where no view is named: about a screen each
PEOPLE = ("rich", "markdown", "latex")  # formats that people read
CITING = ("markdown", "latex")  # the formats for papers, which name those that the methods are from
USUAL: Mapping[str, Any] = {"metric": "accuracy", "at": "final", "baseline": None, "equivalent": None}
# By view, which of these options say something to it, and to others why not.
TAKES: Mapping[str, Sequence[str]] = {
    "": ("metric", "at", "baseline", "equivalent"),
    "--boards": ("metric", "at", "baseline", "equivalent"),
    "--summary": ("metric", "at", "equivalent"),
    "--by": ("metric", "at"),
    "--costs": ("metric", "at"),
    "--paper": ("at",),
    "--pairs": ("metric", "at", "baseline", "equivalent"),
    "--ranks": ("metric", "at", "equivalent"),
    "--reach": ("metric",),
    "--pareto": ("metric", "at"),
    "--sizes": ("metric",),
    "--images": ("metric", "at"),
    "--tuning": (),
    "--changes": ("metric", "at", "equivalent"),
}
WHY = {
    "metric": "shows the metric that was tuned by",
    "at": "shows every round that candidates came to",
    "baseline": "has no gaps to a baseline",
    "equivalent": "calls nothing equal",
    "--reach at": "finds the round by the score",
    "--sizes at": "speaks of the model after the last round",
    "--paper metric": "compares accuracies with printed ones",
    "--changes baseline": "has no baseline but the first PATH",
}


def chosen(
    results: Sequence[Result],
    kind: str = "",
    *,
    form: str = "rich",
    where: Sequence[str] = (),
    sort: Sequence[str] = (),
    columns: Sequence[str] = (),
    **asked: Any,
) -> Frame:
    """The frame that an option of `fedbench compare` names.

    Args:
        results: what is compared.
        kind: the option, such as `--pairs`; "" for leaderboards, or on a terminal a summary of many.
        form: the format that it is for.
        where: conditions on rows, see `filters.chosen`.
        sort: columns to sort by.
        columns: columns to show.
        asked: of `leaderboards`, and what the view itself needs; without roles, those of the installed plugins.

    Raises:
        UserError: for options that mean nothing to the view.
    """
    brief = form == "rich" and not (where or sort or columns)
    found = _view(results, kind, brief=brief, people=form in PEOPLE, **asked)
    found = filtered(found, where, sort, columns)
    if kind != "--tuning" and (below := how_tuned(results)):
        found.attrs["legend"] = [*found.attrs["legend"], *below]
    if form in CITING:
        found.attrs["sources"] = cited(results, Registry().catalogue.papers)
    return found


def _view(
    results: Sequence[Result],
    kind: str,
    *,
    metric: str = "accuracy",
    at: str = "final",
    baseline: str | None = None,
    equivalent: float | None = None,
    images: tuple[str, str] | None = None,
    reach: str | None = None,
    pareto: str | None = None,
    roles: Mapping[str, str] | None = None,
    brief: bool = False,
    people: bool = False,
) -> Frame:
    refuse(kind, {"metric": metric, "at": at, "baseline": baseline, "equivalent": equivalent})
    if kind == "--tuning":
        from fedbench.report.tuning import candidates, tuning

        return tuning(results) if people else candidates(results)
    if kind == "--paper":
        from fedbench.report.paper import comparison, frames

        return (frames.side_by_side if people else frames.paper)(comparison.comparisons(results, at=at))
    roles = roles_of(results, Registry().catalogue.roles if roles is None else roles)
    boards = leaderboards(results, metric, at, baseline, roles=roles, equivalent=equivalent)
    if kind == "--pairs":
        found = board_frames.pairs(boards, baseline)
        return board_frames.matrix(found) if people else found
    if kind == "--by":
        found = board_frames.clients(boards)
        return board_frames.worst_clients(found) if people else found
    if kind == "--costs":
        return board_frames.costs(boards)
    if kind == "--ranks":
        from fedbench.report.scenarios import standings

        return scenario_frames.ranks(standings(boards, equivalent))
    if kind == "--summary" or (brief and not kind and baseline is None and len(boards) > FEW):
        found = scenario_frames.summary(boards, equivalent)
        return scenario_frames.lettered(found) if people else found
    return _with_results(results, boards, kind, images or (), reach or "", pareto or "", equivalent)


def refuse(kind: str, asked: Mapping[str, Any]) -> None:
    """asked: the options of USUAL. Raises: UserError for those that mean nothing to the view."""
    for name, usual in USUAL.items():
        if asked[name] != usual and name not in TAKES[kind]:
            instead = ", or say --boards or --pairs" if (kind, name) == ("--summary", "baseline") else ""
            raise UserError(f"{kind} {WHY.get(f'{kind} {name}', WHY[name])}: leave out --{name}{instead}")


def _with_results(
    results: Sequence[Result],
    boards: Sequence[Leaderboard],
    kind: str,
    images: Sequence[str],
    reach: str,
    pareto: str,
    equivalent: float | None,
) -> Frame:
    """Views that need more of the results than leaderboards have; else the leaderboards."""
    if kind == "--sizes":
        from fedbench.report.deployable import deployable

        return deployable(results, boards, equivalent)
    if kind == "--images":
        from fedbench.report.images import images as image_by_image

        return image_by_image(results, boards, *images)
    if kind == "--reach":
        from fedbench.report.time_to_target import time_to_target

        return time_to_target(results, boards, reach)
    if kind == "--pareto":
        from fedbench.report.pareto import pareto as fronts

        return fronts(results, boards, pareto)
    return board_frames.leaderboard(boards)
