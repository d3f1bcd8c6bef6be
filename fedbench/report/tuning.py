"""How methods were tuned: who won, what fewer trials would have given, and how much the choice mattered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbench.errors import UserError
from fedbench.report.absences import DASH
from fedbench.report.columns import point, scored, subtracted
from fedbench.report.page import Column, Kept, Page, Shown, Table, View
from fedbench.report.records import csv_text, json_text
from fedbench.results import Result
from fedbench.results.choice import higher_is_better
from fedbench.results.contest import Contest
from fedbench.results.tuning import Search, contests, is_number, read_searches
from fedbench.words import counted, shortened

CSV_COLUMNS = (
    "suite", "scenario", "variant", "method", "candidate", "values", "metric", "round", "validation", "winner", "edge",
)  # fmt: skip

LEGEND = (
    "Before validation: what the winner was tried with; (edge): the lowest or the highest value that was tried: a "
    "better one may lie beyond.",
    "validation: the winner's score on validation images after all rounds, on the seeds that candidates are tried on; "
    "the largest of many, and so optimistic.",
    "1 trial, 2 trials, ...: the best score to expect of so many candidates, drawn at random (Dodge et al. 2019). An "
    "order of methods that changes between two of them is a matter of budget.",
    "sd: the standard deviation over candidates: how much the choice matters. Of a halved candidate, here and there, "
    "the last score counts.",
)


@dataclass(frozen=True)
class Tuned:
    """One method's contest, and the suite it is part of."""

    suite: str
    search: Search
    contest: Contest

    @property
    def scores(self) -> dict[int, float]:
        """Each candidate's last score; nothing of those that have none."""
        return {k: by_round[max(by_round)] for k, by_round in self.contest.scores.items() if by_round}

    @property
    def method(self) -> str:
        return self.contest.key[2]

    def expected(self, trials: int) -> float | None:
        """The best score to expect of so many candidates (Dodge et al. 2019, Show Your Work, Equation 2).

        Candidates without a score count as the worst that has one.
        """
        scores = list(self.scores.values())
        if not scores:
            return None
        best, worst = (max, min) if higher_is_better(self.search.metric) else (min, max)
        missing = len(self.contest.cells) - len(scores)
        return expected_best([*scores, *[worst(scores)] * missing], trials, best is min)


def expected_best(scores: Sequence[float], trials: int, lowest: bool = False) -> float:
    """E[max of n scores drawn with replacement] = sum_i v_(i) ((i / B)^n - ((i - 1) / B)^n), v_(1) <= ... <= v_(B);
    lowest: of the min."""
    B = len(scores)
    rising = np.sort(np.asarray(scores, dtype=np.float64))[:: -1 if lowest else 1]
    reached = (np.arange(B + 1) / B) ** trials
    return float(rising @ np.diff(reached))


def of_results(results: Sequence[Result]) -> list[Tuned]:
    """The contests that any of these results is a candidate of. Raises: UserError where there are none."""
    asked = {(r.folder.parent, r.entry.scenario, r.entry.variant, r.entry.method): r.suite for r in results}
    found = []
    for folder in dict.fromkeys(r.folder.parent for r in results):
        if searches := read_searches(folder):
            mine = contests(folder).items()
            found += [Tuned(asked[folder, *key], searches[key], one) for key, one in mine if (folder, *key) in asked]
    if not found:
        raise UserError("--tuning: nothing of this was tuned; a suite says `tune:` (docs/suites.md has how)")
    return found


def boards(tuned: Sequence[Tuned]) -> list[tuple[str, list[Tuned]]]:
    """Those of each scenario and place of the sweep with its title; where not all of its methods were tried with the
    same candidates, those that were, with their names in the title."""
    places: dict[tuple[str, str, str], list[list[Tuned]]] = {}
    for one in tuned:
        alike = places.setdefault((one.suite, *one.contest.key[:2]), [])
        if (ones := next((ones for ones in alike if ones[0].search == one.search), None)) is None:
            alike.append(ones := [])
        ones.append(one)
    return [
        (_title(*place, ", ".join(one.method for one in ones) if len(alike) > 1 else ""), ones)
        for place, alike in places.items()
        for ones in alike
    ]


def view(results: Sequence[Result]) -> View:
    """A page for each of `boards`. Raises: UserError where nothing was tuned."""
    tuned = of_results(results)
    found = boards(tuned)
    pages = [_page(title, ones) for title, ones in found]

    def few(kept: Kept) -> list[Tuned]:
        return [_ranked(ones)[i] for (_, ones), (lines,) in zip(found, kept, strict=True) for i in lines]

    return View.of(pages, LEGEND, tuned, _to_csv, _to_json, few)


def how_tuned(results: Sequence[Result]) -> list[str]:
    """What to say below leaderboards of methods that were tuned, and of which suites, places or methods where that is
    not true of all."""
    searches = {folder: read_searches(folder) for folder in dict.fromkeys(r.folder.parent for r in results)}
    trials: dict[tuple[str, ...], int] = {}
    for r in results:
        key = (r.entry.scenario, r.entry.variant, r.entry.method)
        search = searches[r.folder.parent].get(key)
        trials[str(r.folder.parent), r.suite, *key] = len(search.candidates) if search else 0
    told: dict[tuple[int, str], list[str]] = {}
    for name, n in _alike(trials):
        who = "{} report{}" if len(name) == 5 else "in {} every method reports" if name else "every method reports"
        told.setdefault((n, who), []).append(_title(*name[1:]))
    return [
        f"Tuned: {who.format(shortened(names), 's' * (len(names) == 1))} the best of {counted(n, 'candidate')}, "
        "chosen on validation images and other seeds; --tuning shows how."
        for (n, who), names in told.items()
        if n
    ]


def _alike(trials: Mapping[tuple[str, ...], int], levels: Sequence[int] = (0, 2, 4, 5)) -> Iterator[tuple[tuple, int]]:
    """Numbers of candidates by (folder, suite, scenario, variant, method), told once for everything, a suite, a place
    or a method: the widest of which it is true, as the first so many parts of that key."""
    level, *finer = levels
    parts: dict[tuple[str, ...], dict[tuple[str, ...], int]] = {}
    for key, n in trials.items():
        parts.setdefault(key[:level], {})[key] = n
    for name, part in parts.items():
        if len(set(part.values())) == 1:
            yield name, next(iter(part.values()))
        else:
            yield from _alike(part, finer)


def _title(*names: str) -> str:
    return " · ".join(filter(None, names))


def _page(title: str, ones: Sequence[Tuned]) -> Page:
    search, ranked = ones[0].search, _ranked(ones)
    rungs = next(filter(None, (one.contest.rungs for one in ones)), ())
    columns = [Column("method", "name", [Shown(one.method) for one in ranked])]
    titles = shortest(list(search.space))
    for key in search.space:
        if any(search.concerns(key, one.method) for one in ones):
            facts: dict[str, Any] = {"left": True, "also": (key,), "whole": key}
            columns.append(Column(titles[key], "score", [_value(one, key) for one in ranked], **facts))
    scores = [one.scores.get(k) if (k := one.contest.winner) is not None else None for one in ranked]
    facts = scored(search.metric)
    validation = [point(score, search.metric, DASH) for score in scores]
    columns.append(Column("validation", "score", validation, least=10, **facts))
    for n in _budgets(len(search.candidates)):
        cells = [point(one.expected(n), search.metric, DASH) for one in ranked]
        columns.append(Column(f"{n} trial{'s' * (n > 1)}", "score", cells, least=8, **facts))
    spreads = [float(np.std(list(one.scores.values()), ddof=1)) if len(one.scores) > 1 else None for one in ranked]
    apart = subtracted(search.metric) | {"best": ""}
    columns.append(Column("sd", "score", [point(spread, search.metric, DASH) for spread in spreads], **apart))
    halved = f", halved after round{'s' * (len(rungs) > 2)} {_listed(rungs[:-1])}"
    caption = (
        f"{search.metric} on validation images · {counted(len(search.candidates), 'candidate')}"
        + (halved if len(rungs) > 1 else "")
        + (f" of {counted(rungs[-1], 'round')}" if rungs else "")
        + f" · {counted(len(search.seeds), 'seed')}"
    )
    return Page(title, [Table(columns, caption)], [note for one in ranked for note in _notes(one)])


def _ranked(ones: Sequence[Tuned]) -> list[Tuned]:
    """The best validation score first; those without a winner last."""
    sign = -1 if higher_is_better(ones[0].search.metric) else 1
    return sorted(ones, key=lambda one: (one.contest.winner not in one.scores, sign * _best(one)))


def _best(one: Tuned) -> float:
    k = one.contest.winner
    return one.scores.get(k, 0.0) if k is not None else 0.0


def _value(one: Tuned, key: str) -> Shown:
    k = one.contest.winner
    if k is None or k not in one.scores or not one.search.concerns(key, one.method):
        return Shown(DASH)
    edge = " (edge)" if key in one.search.at_edge(k, one.method) else ""
    value = one.search.candidates[k][key]
    return Shown(f"{value}{edge}", value=value if is_number(value) else None)


def shortest(keys: Sequence[str]) -> dict[str, str]:
    """What dotted keys are called: as few of their last parts as tell each from all others."""

    def tail(key: str, n: int) -> str:
        return ".".join(key.split(".")[-n:])

    found = {}
    for key in keys:
        others = [other for other in keys if other != key]
        lengths = range(1, key.count(".") + 2)
        found[key] = next((tail(key, n) for n in lengths if tail(key, n) not in {tail(o, n) for o in others}), key)
    return found


def _listed(rounds: Sequence[int]) -> str:
    return " and ".join(map(str, rounds))


def _budgets(candidates: int) -> list[int]:
    """1, 2, 4, ..., and all."""
    return [n for i in range(12) if (n := 2**i) < candidates] + [candidates]


def _notes(one: Tuned) -> Iterator[str]:
    if not one.contest.rungs:
        yield f"{one.method}: no candidate has begun"
    elif one.contest.not_applicable:
        yield f"{one.method}: not applicable, whatever the candidate"
    elif missing := len(one.contest.cells) - len(one.scores):
        of_all = counted(len(one.contest.cells), "candidate")
        yield f"{one.method}: {missing} of {of_all} without a score, because not tested yet, failed or diverged"


def _records(tuned: Sequence[Tuned]) -> Iterator[dict[str, Any]]:
    for one in tuned:
        (scenario, variant, method), winner = one.contest.key, one.contest.winner
        for k, by_round in one.contest.scores.items():
            tried = one.search.candidates[k].items()
            own = {key: value for key, value in tried if one.search.concerns(key, method)}
            for t, score in by_round.items() or [(None, None)]:
                place = (one.suite, scenario, variant, method, k, own, one.search.metric, t, score)
                edge = one.search.at_edge(k, method) if k == winner else []
                yield dict(zip(CSV_COLUMNS, (*place, k == winner, edge), strict=True))


def _to_csv(tuned: Sequence[Tuned]) -> str:
    """A row for every candidate and round that it was scored after; one for a candidate without a score."""

    def texts(record: dict[str, Any]) -> Iterator[Any]:
        for value in record.values():
            if isinstance(value, dict):
                yield "; ".join(f"{key}={part}" for key, part in value.items())
            else:
                yield "; ".join(value) if isinstance(value, list) else value

    return csv_text(CSV_COLUMNS, (list(texts(record)) for record in _records(tuned)))


def _to_json(tuned: Sequence[Tuned]) -> str:
    return json_text(list(_records(tuned)))
