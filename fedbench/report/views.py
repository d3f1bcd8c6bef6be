"""Which view of results is asked for: leaderboards, a summary of many, or one of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.report.board import Leaderboard
from fedbench.report.grouping import cited, roles_of
from fedbench.report.leaderboards import leaderboards
from fedbench.report.page import View
from fedbench.report.selection.selection import Selection
from fedbench.report.tuning import how_tuned
from fedbench.results import Result

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
    results: Sequence[Result], kind: str = "", *, form: str = "rich", wanted: Selection | None = None, **asked: Any
) -> View:
    """The view that an option of `fedbench compare` names, with what stands below any of them.

    Where none is named, leaderboards, or on a terminal (rich) the summary of many: what programs and papers take in
    must not depend on how many there are. wanted: which of its lines and columns, those of leaderboards where no view
    is named. asked: as of `leaderboards`; without roles, those of the installed plugins. Raises: UserError for options
    that mean nothing to the view.
    """
    view = _view(results, kind, brief=form == "rich" and not wanted, **asked)
    view = (wanted.of(view) if wanted else view).named()
    if kind != "--tuning" and (below := how_tuned(results)):
        view = replace(view, legend=[*view.legend, *below])
    if form in CITING:
        view = replace(view, sources=cited(results, Registry().catalogue.papers))
    return view


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
) -> View:
    refuse(kind, {"metric": metric, "at": at, "baseline": baseline, "equivalent": equivalent})
    if kind == "--tuning":
        from fedbench.report import tuning

        return tuning.view(results)
    if kind == "--paper":
        from fedbench.report.paper import comparison, records

        return records.view(comparison.comparisons(results, at=at))
    roles = roles_of(results, Registry().catalogue.roles if roles is None else roles)
    boards = leaderboards(results, metric, at, baseline, roles=roles, equivalent=equivalent)
    if kind == "--pairs":
        from fedbench.report import pairs

        return pairs.view(boards, baseline)
    if kind == "--ranks":
        from fedbench.report import ranks
        from fedbench.report.scenarios import standings

        return ranks.view(standings(boards, equivalent))
    if kind == "--sizes":
        from fedbench.report import sizes

        return sizes.view(results, boards, equivalent)
    if kind in ("--images", "--reach", "--pareto"):
        return _with_results(results, boards, kind, images or (), reach or "", pareto or "")
    from fedbench.report import clients, columns, summary, traffic

    if kind == "--summary" or (brief and not kind and baseline is None and len(boards) > summary.FEW):
        return summary.view(summary.summaries(boards, equivalent))
    return {"--by": clients, "--costs": traffic}.get(kind, columns).view(boards)


def refuse(kind: str, asked: Mapping[str, Any]) -> None:
    """asked: the options of USUAL. Raises: UserError for those that mean nothing to the view."""
    for name, usual in USUAL.items():
        if asked[name] != usual and name not in TAKES[kind]:
            instead = ", or say --boards or --pairs" if (kind, name) == ("--summary", "baseline") else ""
            raise UserError(f"{kind} {WHY.get(f'{kind} {name}', WHY[name])}: leave out --{name}{instead}")


def _with_results(
    results: Sequence[Result], boards: Sequence[Leaderboard], kind: str, images: Sequence[str], reach: str, pareto: str
) -> View:
    """Views that need more of the results than leaderboards have."""
    if kind == "--images":
        from fedbench.report.images import view

        return view(results, boards, *images)
    if kind == "--reach":
        from fedbench.report import reach as reaching

        return reaching.view(results, boards, reach)
    from fedbench.report import pareto as fronts

    return fronts.view(results, boards, pareto)
