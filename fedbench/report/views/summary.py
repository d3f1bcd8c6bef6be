"""Methods of each suite over its scenarios: a summary, and their ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pandas

from fedbench.report.budget import MEANING
from fedbench.report.frames import DASH, FORMATS, Format, cells, frame, is_blank, number, page, probability, with_attrs
from fedbench.report.layout import unit_of
from fedbench.report.run_scores import ABSENCES
from fedbench.report.significance import CONDITIONS, legend_of_groups, too_few
from fedbench.report.standings import BY, PLACES, RANK, Standing, dependence, how_grouped, unconcluded
from fedbench.report.views.leaderboard import MEANINGS, about, replicates, unranked
from fedbench.words import counted, shortened

NOTES = 6  # notes on single leaderboards, before one says how many more there are
AT = {
    "best": "each seed's best round on validation examples",
    "last4": "mean of the last four evaluated rounds",
    **{what: f"within a budget of {meaning}" for what, meaning in MEANING.items()},
}


def summary(found: Sequence[Standing]) -> pandas.DataFrame:
    """A row for each method of each suite: its tie group and mean rank over scenarios, and its mean in each scenario.

    The mean of a scenario is a column of its name; the letters of its tie group there are a column `SCENARIO group`.
    """
    boards = [board for one in found for board in one.boards.values()]
    rows = [row for one in found for row in _summary_rows(one)]
    scenarios = dict.fromkeys(_column(title) for one in found for title in one.boards)
    names = [name for title in scenarios for name in (title, f"{title} group", f"{title} status")]
    formats: dict[str, Format] = {"complete": Format(part="")}
    for title in scenarios:
        formats[title] = Format(title, "score", "metric")
        formats |= {f"{title} {what}": Format(f"{title}, {what}", part="") for what in ("group", "status")}
    ask = (
        "compare boards prints it"
        if len(boards) == 1
        else "compare boards prints them; --scenario, --method, --variant choose"
    )
    legend = [*_summary_legend(found), f"A summary of {counted(len(boards), 'leaderboard')}: {ask}."]
    return frame(
        rows,
        (*BY, "method", "role", "mean_rank", "group", "complete", *names),
        caption="Methods over scenarios",
        by=BY,
        pages=[_summary_page(one) for one in found],
        formats=formats,
        legend=legend,
        **about(boards),
    )


def _summary_rows(one: Standing) -> Iterator[dict[str, Any]]:
    for method, role in one.roles.items():
        found: dict[str, Any] = {"suite": one.suite, "profile": one.profile, "method": method, "role": role}
        ranked = any(rows[method].ranked for rows in one.rows.values() if method in rows)
        found |= {"ranked": ranked, "complete": len(one.ranks)}
        found |= {"mean_rank": one.mean_ranks.get(method), "group": one.groups.get(method, "")}
        for scenario, rows in one.rows.items():
            if row := rows.get(method):
                title, mean = _column(scenario), row.average.mean if row.average else None
                found |= {title: mean, f"{title} group": row.group, f"{title} status": row.status}
        yield found


def _column(scenario: str) -> str:
    """The column of a scenario, which may be called as another column is."""
    taken = (*FORMATS, *BY, "complete", "diagram", *TESTED)
    return f"{scenario} (scenario)" if scenario in taken else scenario


def _summary_page(one: Standing) -> dict[str, Any]:
    return page(
        (one.suite, one.profile),
        title=f"{one.suite} · {counted(len(one.boards), 'scenario')} · {one.profile} profile",
        caption=_caption(one),
        above=dependence(one),
        notes=_notes(one),
        remarks=[*_ranked_over(one), *how_grouped(one)],
    )


def _caption(one: Standing) -> str:
    rows = [row for found in one.rows.values() for row in found.values() if row.runs]
    metric = unit_of(one.metric)
    if not rows:
        return f"{metric}: no cell has finished"
    rounds, n = {str(row.round) for row in rows}, replicates(one.boards.values())
    at = AT.get(one.first.at) or (f"round {rounds.pop()}" if len(rounds) == 1 else "last round")
    return f"{metric} · {at} · {n if n == '1 seed' else f'mean of {n}'}"


def _ranked_over(one: Standing) -> list[str]:
    """In how many scenarios ranks are taken, and which methods are missing in the others."""
    if len(one.scores) < 2 or (not one.ranks and not one.left_out):
        return []
    if not one.left_out:
        return [f"mean rank: over all {len(one.ranks)} scenarios"] if one.ranked else []
    lacks = Counter(name for names in one.left_out.values() for name in names)
    missing = ", ".join(f"{name} in {n}" for name, n in lacks.most_common())
    whole = f"{len(one.ranks)} of {len(one.scores)} scenarios"
    found = f"mean rank: over {whole}" if one.ranked else f"no mean rank: {whole} complete"
    found += f", with a score of all {len(one.methods)} ranked methods; without one: {missing}"
    alone = Counter(names[0] for names in one.left_out.values() if len(names) == 1)
    for name, n in alone.most_common(1):
        found += f" (without {name} {len(one.ranks) + n} are complete: choose the others with --method)"
    return [found]


def _notes(one: Standing) -> list[str]:
    """What stands below the leaderboards, each note once with where it stands."""
    places: dict[str, list[str]] = {}
    for title, board in one.boards.items():
        for text in filter(None, (board.warning, *board.notes, too_few(board.scores, board.replicate))):
            places.setdefault(text, []).append(title)
    where = {text: "" if len(at) == len(one.boards) else f" ({shortened(at, PLACES)})" for text, at in places.items()}
    notes = [f"{text}{where[text]}" for text in sorted(places, key=lambda text: -len(places[text]))]
    more = len(notes) - NOTES
    if more > 1:
        notes = [*notes[:NOTES], f"{counted(more, 'more note')} on single leaderboards: compare boards has them"]
    return notes + (unconcluded(one) if len(one.ranks) > 1 else [])


def _summary_legend(found: Sequence[Standing]) -> list[str]:
    boards = [board for one in found for board in one.boards.values()]
    legend = []
    if any(row.group for board in boards for row in board.rows):
        legend.append(
            "letters after a number: methods that share one in that scenario are not significantly different (paired "
            f"t-tests, {CONDITIONS})." + legend_of_groups(unranked(boards)).partition(").")[2]
        )
    if any(one.mean_ranks for one in found):
        legend.append(f"mean {RANK}")
    if any(one.groups for one in found):
        legend.append("group: methods that share a letter are not significantly different over these scenarios.")
    if any(board.replicate == "draw" for board in boards):
        legend.append(MEANINGS["n_draws"])
    return legend


def lettered(found: pandas.DataFrame) -> pandas.DataFrame:
    """A summary for people: the mean of a scenario with the letters of its tie group, or the word for its absence."""
    if found.attrs.get("columns"):
        return found
    columns, metric = cells(found), found.attrs["metric"]
    formats, texts = dict(found.attrs["formats"]), {}
    for title in [name.removesuffix(" status") for name in columns if name.endswith(" status")]:
        rows = zip(*(columns[name] for name in (title, f"{title} group", f"{title} status")), strict=True)
        texts[title] = [_lettered(score, group, status, metric) for score, group, status in rows]
        formats[title] = Format(title)
    return with_attrs(found, found.assign(**texts), formats=formats)


def _lettered(value: float, group: str, status: str, metric: str) -> str:
    if is_blank(value):
        return (ABSENCES[status].short or DASH) if isinstance(status, str) else ""
    return f"{number(value, metric)} {group}".strip()


TESTED = ("friedman_chi2", "friedman_p", "critical_difference")  # what `ranks` says of a whole suite
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
        scenarios |= dict.fromkeys(map(_column, one.scores))
        for method in one.methods:
            placed = {_column(title): by[method] for title, by in one.ranks.items() if method in by}
            over = {"mean_rank": one.mean_ranks.get(method), "group": one.groups.get(method, "")}
            chi2, p = one.friedman or (None, None)
            tested = dict(zip(TESTED, (chi2, p, one.cd), strict=True))
            diagram = _diagram(one, method) if one.cd is not None else ""
            where = {"suite": one.suite, "profile": one.profile, "method": method}
            rows.append({**where, **over, "diagram": diagram, **tested, **placed})
    hidden = dict.fromkeys(TESTED, Format(part=""))
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
