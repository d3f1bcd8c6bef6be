"""Many leaderboards on a page: methods over the scenarios of a suite, with means, tie groups and mean ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedbench.report.absences import ABSENCES, DASH
from fedbench.report.board import Leaderboard, Row
from fedbench.report.budget import TOLD
from fedbench.report.columns import number, scored
from fedbench.report.legends import CONDITIONS, left_out, too_few
from fedbench.report.measures import is_fraction
from fedbench.report.page import Column, Page, Shown, Table, View
from fedbench.report.ranks import LONG, how_grouped, mean_rank, numbered, unconcluded
from fedbench.report.records import csv_text, json_text
from fedbench.report.scenarios import Standing, by_suite, standings, titled
from fedbench.words import counted, shortened

FEW = 8  # leaderboards that are printed whole where nobody asked for a view: about a screen each
ACROSS = 6  # scenarios that are columns whatever the methods are; of more the longer side goes down the page
NAME = 36  # letters of a scenario's name at the beginning of a line, and
LABEL = 14  # of a method's above a column, before they are numbered instead
LETTERS = 5  # of a tie group, of which many methods have many; csv and json have all
NOTES = 6  # lines on single leaderboards, before one says how many more there are
PLACES = 4  # scenarios that a line names

AT = {
    "best": "each seed's best round on validation images",
    "last4": "mean of the last four evaluated rounds",
    **{what: f"within a budget of {told}" for what, told in TOLD.items()},
}

CSV_COLUMNS = (
    "suite", "profile", "metric", "split", "method", "ranked", "scenario", "status", "mean", "std", "n_seeds", "group",
    "rank", "complete",
)  # fmt: skip


@dataclass(frozen=True)
class Summary:
    """The leaderboards of one suite by what tells each from the others, and what ranks over them say.

    rows: by leaderboard, then method; second outputs are left out. methods: the best mean rank first, then those
    without a score, then those that are never ranked; where fewer than two scenarios are complete, in their own order.
    """

    boards: Mapping[str, Leaderboard]
    standing: Standing
    rows: Mapping[str, Mapping[str, Row]]
    methods: Sequence[str]

    @property
    def mean_ranks(self) -> Mapping[str, float]:
        """Over two complete scenarios at least: the place in one is no mean."""
        return self.standing.mean_ranks if len(self.standing.ranks) > 1 else {}

    @property
    def unranked(self) -> list[str]:
        """Ceilings."""
        return [m for m in self.methods if any(m in rows and not rows[m].ranked for rows in self.rows.values())]


def summaries(boards: Sequence[Leaderboard], equivalent: float | None = None) -> list[Summary]:
    """One for each suite and profile."""
    return [
        _summary(titled(group), standing)
        for group, standing in zip(by_suite(boards), standings(boards, equivalent), strict=True)
    ]


def _summary(boards: Mapping[str, Leaderboard], standing: Standing) -> Summary:
    rows = {title: {row.label: row for row in board.rows if not row.output} for title, board in boards.items()}
    everyone = {label: row.ranked for found in rows.values() for label, row in found.items()}
    placed = standing.methods if len(standing.ranks) > 1 else ()
    rest = sorted((label for label in everyone if label not in placed), key=lambda m: not everyone[m])
    return Summary(boards, standing, rows, [*placed, *rest])


def view(found: Sequence[Summary], long: int = LONG) -> View:
    """A page for each suite. long: letters of a scenario's name above a column, before they are numbered instead."""
    legend = _legend(found)
    return View(
        [_page(one, long) for one in found], legend, partial(to_csv, found), partial(to_json, found), comments=legend
    )


def _page(one: Summary, long: int) -> Page:
    title = f"{one.standing.suite} · {counted(len(one.boards), 'scenario')} · {one.standing.profile} profile"
    faint = [i for i, name in enumerate(one.methods) if name in one.unranked]
    remarks = [*_ranked_over(one.standing), *how_grouped(one.standing)]
    if len(one.boards) <= max(ACROSS, len(one.methods)):
        told, names = numbered(list(one.boards), long if len(one.boards) > 1 else NAME)
        table = Table([*_standing(one, one.methods), *_across(one, names)], _caption(one), faint=faint)
        return Page(title, [table], _notes(one), [*told, *remarks])
    told, names = numbered(one.methods, LABEL)
    places, starts = numbered(list(one.boards), NAME)
    labels = one.methods if not told else [f"{n} {m}" for n, m in zip(names, one.methods, strict=True)]
    tables = [Table(_standing(one, labels), faint=faint)] if len(labels) > 1 else []
    return Page(title, [*tables, Table(_down(one, starts, names), _caption(one))], _notes(one), [*places, *remarks])


def _standing(one: Summary, labels: Sequence[str]) -> list[Column]:
    """The methods, and where they stand over all scenarios that have all of them."""
    names = [Shown(label, whole=name) for label, name in zip(labels, one.methods, strict=True)]
    found = [Column("method", "name", names)]
    means, groups = one.mean_ranks, one.standing.groups
    if means:
        found.append(mean_rank(means, one.methods))
    if groups:
        found.append(
            Column("group", "score", [Shown(_cut(g := groups.get(m, "")), whole=g) for m in one.methods], left=True)
        )
    if len(one.boards) > max(ACROSS, len(one.methods)):
        there = [sum(bool(rows.get(m) and rows[m].runs) for rows in one.rows.values()) for m in one.methods]
        cells = [Shown(f"{n} of {len(one.boards)}", value=n) for n in there]
        found.append(Column("scenarios", "score", cells, least=9, best="high"))
    return found


def _across(one: Summary, names: Sequence[str]) -> list[Column]:
    """A column for each scenario."""
    return [
        Column(name, "score", [_score(rows.get(method)) for method in one.methods], len(name), **_unit(one, title))
        for name, (title, rows) in zip(names, one.rows.items(), strict=True)
    ]


def _down(one: Summary, starts: Sequence[str], names: Sequence[str]) -> list[Column]:
    """A line for each scenario, a column for each method."""
    titles = [Shown(start, whole=title) for start, title in zip(starts, one.boards, strict=True)]
    first = Column("scenario", "name", titles, least=NAME)
    return [first] + [
        Column(name, "score", [_score(rows.get(method)) for rows in one.rows.values()], len(name), **_unit(one, method))
        for name, method in zip(names, one.methods, strict=True)
    ]


def _unit(one: Summary, name: str) -> dict[str, Any]:
    """What filters know of a column of scores; name: the whole of it, where it is shown as a number."""
    return {**scored(one.standing.metric), "also": (name,), "whole": name}


def _score(row: Row | None) -> Shown:
    """The mean and the letters; a blank where there is no cell, and the word that says why one has no number."""
    if row is None:
        return Shown("")
    if row.average is None:
        return Shown(ABSENCES[row.status].short or DASH)
    return Shown(number(row.average.mean, row.metric), _cut(row.group), row.average.mean)


def _cut(letters: str) -> str:
    return letters if len(letters) <= LETTERS else letters[: LETTERS - 1] + "…"


def _caption(one: Summary) -> str:
    rows = [row for found in one.rows.values() for row in found.values() if row.runs]
    metric = f"{one.standing.metric}{', %' if is_fraction(one.standing.metric) else ''}"
    if not rows:
        return f"{metric}: no cell has finished"
    rounds, seeds = {str(row.round) for row in rows}, sorted({len(row.runs) for row in rows})
    at = AT.get(next(iter(one.boards.values())).at) or (f"round {rounds.pop()}" if len(rounds) == 1 else "last round")
    n = counted(seeds[0], "seed") if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
    return f"{metric} · {at} · {n if seeds == [1] else f'mean of {n}'}"


def _ranked_over(one: Standing) -> list[str]:
    """In how many scenarios ranks are taken, who is missing in the others, and how there would be more."""
    if len(one.scores) < 2 or (not one.ranks and not one.left_out):
        return []
    if not one.left_out:
        return [f"mean rank: over all {len(one.ranks)} scenarios"]
    lacks = Counter(name for names in one.left_out.values() for name in names)
    missing = ", ".join(f"{name} in {n}" for name, n in lacks.most_common())
    whole = f"{len(one.ranks)} of {len(one.scores)} scenarios"
    found = f"mean rank: over {whole}" if len(one.ranks) > 1 else f"no mean rank: {whole} complete"
    found += f", with a score of all {len(one.methods)} ranked methods; without one: {missing}"
    alone = Counter(names[0] for names in one.left_out.values() if len(names) == 1)
    for name, n in alone.most_common(1):
        found += f" (without {name} {len(one.ranks) + n} are complete: choose the others with --method)"
    return [found]


def _notes(one: Summary) -> list[str]:
    """What stands below the leaderboards, once each, with where it does."""
    notes = _gathered(one, lambda board: [*board.notes, *too_few(board)])
    more = len(notes) - NOTES
    if more > 1:
        notes = [*notes[:NOTES], f"{counted(more, 'more note')} on single leaderboards: --boards has them"]
    return notes + (unconcluded(one.standing) if len(one.standing.ranks) > 1 else [])


def _gathered(one: Summary, told: Callable[[Leaderboard], Sequence[str]]) -> list[str]:
    """Those of most leaderboards first."""
    places: dict[str, list[str]] = {}
    for title, board in one.boards.items():
        for text in told(board):
            places.setdefault(text, []).append(title)
    where = {text: "" if len(at) == len(one.boards) else f" ({shortened(at, PLACES)})" for text, at in places.items()}
    return [f"{text}{where[text]}" for text in sorted(places, key=lambda text: -len(places[text]))]


def _legend(found: Sequence[Summary]) -> list[str]:
    boards = [board for one in found for board in one.boards.values()]
    told = []
    if any(row.group for board in boards for row in board.rows):
        told.append(
            "letters beside a number: methods that share one in that scenario are not told apart (paired t-tests, "
            f"{CONDITIONS}).{left_out(boards)}"
        )
    if any(len(row.group) > LETTERS for board in boards for row in board.rows):
        told.append("…: there are more letters, which csv and json have.")
    if any(one.mean_ranks for one in found):
        told.append(
            "mean rank: 1 is the best mean over seeds in a scenario, ties share the mean of their ranks; ceilings have "
            "none, and a blank is no rank."
        )
    if any(one.standing.groups for one in found):
        told.append("group: methods that share a letter are not told apart over these scenarios.")
    ask = "--boards prints it" if len(boards) == 1 else "--boards prints them; --scenario, --method, --variant choose"
    return [*told, f"A summary of {counted(len(boards), 'leaderboard')}: {ask}."]


def to_csv(found: Sequence[Summary]) -> str:
    """A row for every method and scenario in which it has a cell, then one of `mean` with mean rank and group."""
    return csv_text(CSV_COLUMNS, (record for one in found for record in _records(one)))


def _records(one: Summary) -> Iterator[tuple[Any, ...]]:
    standing = one.standing
    where = (standing.suite, standing.profile, standing.metric, standing.split)
    for method in one.methods:
        ranked = method not in one.unranked
        for title, rows in one.rows.items():
            if row := rows.get(method):
                yield *where, method, ranked, title, *_values(one, title, row).values(), title in standing.ranks
        over = (standing.groups.get(method, ""), one.mean_ranks.get(method), len(standing.ranks))
        yield *where, method, ranked, "mean", "", None, None, None, *over


def _values(one: Summary, title: str, row: Row) -> dict[str, Any]:
    """What is said of a method in a scenario."""
    mean, std, n = (row.average.mean, row.average.std, row.average.n) if row.average else (None, None, 0)
    rank = one.standing.ranks.get(title, {}).get(row.label)
    return {"status": row.status, "mean": mean, "std": std, "n_seeds": n, "group": row.group, "rank": rank}


def to_json(found: Sequence[Summary]) -> str:
    """The rows of the CSV: by method what is said over scenarios, and by scenario, then method."""
    return json_text([_record(one) for one in found])


def _record(one: Summary) -> dict[str, Any]:
    told, unranked = one.standing, one.unranked
    return {
        **{name: getattr(told, name) for name in ("suite", "profile", "metric", "split")},
        "complete": len(told.ranks),
        "methods": {
            m: {"ranked": m not in unranked, "mean_rank": one.mean_ranks.get(m), "group": told.groups.get(m, "")}
            for m in one.methods
        },
        "scenarios": {
            title: {name: getattr(board.place, name) for name in ("scenario", "variant", "backbone", "dataset")}
            | {"complete": title in told.ranks}
            | {"methods": {name: _values(one, title, row) for name, row in one.rows[title].items()}}
            for title, board in one.boards.items()
        },
    }
