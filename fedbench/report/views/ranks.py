"""The view of ranks: methods of each suite over its complete scenarios."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas

from fedbench.report.frames import Format, frame, page, probability
from fedbench.report.standings import BY, RANK, Standing, dependence, how_grouped, unconcluded
from fedbench.words import counted

WIDE = 30  # letters of the diagram of mean ranks, which is drawn in text
POOL = (
    "diagram: o is the mean rank, = reaches as far as the critical difference. Nemenyi's verdict on two methods "
    "depends on which others are in the pool (Benavoli et al. 2016); the letters of group do not."
)


def ranks(found: Sequence[Standing]) -> pandas.DataFrame:
    """A row for each method of each suite: its rank in each complete scenario, mean rank and tie group.

    Mean ranks and a critical difference need five complete scenarios.
    """
    rows, scenarios = [], dict[str, None]()
    for one in found:
        scenarios |= dict.fromkeys(one.scores)
        for method in one.methods:
            placed = {title: by[method] for title, by in one.ranks.items() if method in by}
            over = {"mean_rank": one.mean_ranks.get(method), "group": one.groups.get(method, "")}
            chi2, p = one.friedman or (None, None)
            tested = {"friedman_chi2": chi2, "friedman_p": p, "critical_difference": one.cd}
            diagram = _diagram(one, method) if one.cd is not None else ""
            where = {"suite": one.suite, "profile": one.profile, "method": method}
            rows.append({**where, **over, "diagram": diagram, **tested, **placed})
    hidden = dict.fromkeys(("friedman_chi2", "friedman_p", "critical_difference"), Format(part=""))
    rank = {title: Format(title, "rank", "low") for title in scenarios}
    legend = [RANK]
    if any(one.groups for one in found):
        legend.append(
            "group: methods that share a letter are not significantly different (Benjamini-Hochberg over all pairs of "
            "the suite)."
        )
    if any(one.cd is not None for one in found):
        legend.append(POOL)
    return frame(
        rows,
        (*BY, "method", "mean_rank", "group", "diagram", *hidden, *scenarios),
        caption="Ranks over scenarios",
        by=BY,
        pages=[_ranks_page(one) for one in found],
        formats={**hidden, **rank, "diagram": Format("critical difference", left=True, part="diagram")},
        legend=legend,
        metric=found[0].metric if found else "accuracy",
        correction="Benjamini-Hochberg over all pairs of a suite",
    )


def _ranks_page(one: Standing) -> dict[str, Any]:
    lacking: dict[str, list[str]] = {}
    for title, names in one.left_out.items():
        lacking.setdefault(", ".join(names), []).append(title)
    notes = [f"{', '.join(titles)}: incomplete, no score of {names}" for names, titles in lacking.items()]
    remarks = []
    if one.friedman:
        chi2, p = one.friedman
        what = f"{counted(len(one.methods), 'method')} in {counted(len(one.ranks), 'scenario')}"
        remarks.append(f"Friedman: chi2({len(one.methods) - 1}) = {chi2:.2f}, p = {probability(p)}, of {what}")
    if one.cd is not None:
        remarks.append(f"critical difference {one.cd:.2f} (Nemenyi, 5 %): a label to ranks, not a verdict on pairs")
    return page(
        (one.suite, one.profile),
        title=f"{one.suite} · ranks over scenarios · {one.profile} profile",
        caption=f"{one.metric} · ranks in {counted(len(one.ranks), 'complete scenario')}",
        above=dependence(one),
        notes=notes + unconcluded(one),
        remarks=remarks + how_grouped(one),
    )


def _diagram(one: Standing, method: str) -> str:
    k, cd = len(one.methods), one.cd or 0.0

    def place(rank: float) -> int:
        return round((min(rank, k) - 1) / (k - 1) * (WIDE - 1))

    at, to = place(one.mean_ranks[method]), place(one.mean_ranks[method] + cd)
    return "." * at + "o" + "=" * (to - at) + "." * (WIDE - 1 - to)
