"""Which view of results is asked for: leaderboards, a summary of many, or one of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.report.board import Leaderboard
from fedbench.report.grouping import cited
from fedbench.report.leaderboards import leaderboards
from fedbench.report.page import View
from fedbench.report.selection.selection import Selection
from fedbench.report.tuning import how_tuned
from fedbench.results import Result

CITING = ("markdown", "latex")  # the formats for papers, which name those that the methods are from


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
    if kind == "--tuning":
        from fedbench.report import tuning

        return tuning.view(results)
    if kind == "--paper":
        from fedbench.report.paper import comparison, records

        if metric != "accuracy" or baseline is not None:
            raise UserError("--paper compares accuracies with printed ones: leave out --metric and --baseline")
        return records.view(comparison.comparisons(results, at=at))
    _refuse(kind, at, baseline)
    roles = Registry().catalogue.roles if roles is None else roles
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


def _refuse(kind: str, at: str, baseline: str | None) -> None:
    """Raises: UserError for options that mean nothing to the view."""
    if kind == "--summary" and baseline is not None:
        raise UserError("--summary has no gaps to a baseline: leave out --baseline, or say --boards or --pairs")
    if kind in ("--reach", "--pareto", "--sizes") and baseline is not None:
        raise UserError(f"{kind} has no gaps to a baseline: leave out --baseline")
    if kind == "--reach" and at != "final":
        raise UserError("--reach finds the round by the score: leave out --at")
    if kind == "--sizes" and at != "final":
        raise UserError("--sizes speaks of the model after the last round: leave out --at")


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
