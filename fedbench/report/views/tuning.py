"""Tuning: which candidate won, what fewer trials would have given, and how much the choice mattered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from fedbench.errors import UserError
from fedbench.report.frames import Format, frame, number, page
from fedbench.results import Loaded, Result
from fedbench.results.columns import ENDED
from fedbench.results.scores import higher_is_better
from fedbench.results.tuning import Contest, contests, read_tunings, unstable
from fedbench.words import counted, shortened

BY = ("suite", "scenario", "variant", "candidates of")
NAMED = 3  # places that a sentence names

UNSTABLE = "no stable candidate"
CONFIRMED = (
    "by seed: the winner's score on each seed, of which validation is the mean; the best two run on further seeds. "
    "stable: on how many it did not end more than 10 points (0.5 of a loss) below an earlier score or with one class; "
    "one that did cannot win."
)
LEGEND = (
    "Before validation: what the winner was tried with; (edge): the lowest or the highest value that was tried: a "
    "better one may lie beyond.",
    "validation: the winner's score on validation examples after all rounds, on the seeds that candidates are tried "
    "on; the largest of many, and so optimistic.",
    "1 trial, 2 trials, ...: the best score to expect of so many candidates, drawn at random (Dodge et al. 2019). An "
    "order of methods that changes between two of them is a matter of budget.",
    "sd: the standard deviation over candidates: how much the choice matters. Of a halved candidate, here and there, "
    "the last score counts.",
)


def expected(contest: Contest, trials: int) -> float | None:
    """The best score to expect of so many candidates (Dodge et al. 2019, Show Your Work, Equation 2).

    Candidates without a score count as the worst that has one.
    """
    scores = list(contest.last_scores.values())
    if not scores:
        return None
    best, worst = (max, min) if higher_is_better(contest.tuning.metric) else (min, max)
    missing = len(contest.drawn) - len(scores)
    return expected_best([*scores, *[worst(scores)] * missing], trials, best is min)


def expected_best(scores: Sequence[float], trials: int, lowest: bool = False) -> float:
    """E[max of n scores drawn with replacement] = sum_i v_(i) ((i / B)^n - ((i - 1) / B)^n), v_(1) <= ... <= v_(B);
    lowest: of the min."""
    B = len(scores)
    rising = np.sort(np.asarray(scores, dtype=np.float64))[:: -1 if lowest else 1]
    reached = (np.arange(B + 1) / B) ** trials
    return float(rising @ np.diff(reached))


def contests_of(results: Sequence[Result]) -> list[Contest]:
    """The contests that any of these results is a candidate of. Raises: UserError where there are none."""
    asked = {(r.suite_folder, r.entry.scenario, r.entry.variant, r.entry.method): r.suite for r in results}
    found = []
    for folder in dict.fromkeys(r.suite_folder for r in results):
        if read_tunings(folder):
            mine = contests(folder).items()
            found += [replace(one, suite=asked[folder, *key]) for key, one in mine if (folder, *key) in asked]
    if not found:
        raise UserError("nothing of this was tuned; a suite says `tune:` (docs/suites.md has how)")
    return found


def by_scenario(tuned: Sequence[Contest]) -> list[tuple[str, list[Contest]]]:
    """Those of each scenario and place of the sweep with its title; where not all of its methods were tried with the
    same candidates, those that were, with their names in the title."""
    places: dict[tuple[str, str, str], list[list[Contest]]] = {}
    for one in tuned:
        same = places.setdefault((one.suite, *one.key[:2]), [])
        if (ones := next((ones for ones in same if ones[0].tuning == one.tuning), None)) is None:
            same.append(ones := [])
        ones.append(one)
    return [
        (_title(*place, ", ".join(one.method for one in ones) if len(same) > 1 else ""), ones)
        for place, same in places.items()
        for ones in same
    ]


def tuning(results: Sequence[Result], there: Sequence[Contest] | None = None) -> pandas.DataFrame:
    """A row for each tuned method: what its winner was tried with, its validation score, and the best score to expect
    of 1, 2, 4, ... candidates. there: as of `contests_of`, where it was read already.

    Raises:
        UserError: where nothing was tuned.
    """
    rows, pages, formats = [], [], dict[str, Format]()
    for title, ones in by_scenario(contests_of(results) if there is None else there):
        suite, scenario, variant = ones[0].suite, *ones[0].key[:2]
        ranked, tuned = _ranked(ones), ones[0].tuning
        named = ", ".join(one.method for one in ones) if title.endswith(ones[-1].method) else ""
        key = (suite, scenario, variant, named)
        titles = shortest(list(tuned.space))
        formats |= {name: Format(titles[name], left=True) for name in tuned.space}
        for one in ranked:
            rows.append({**dict(zip(BY, key, strict=True)), "method": one.method, **_columns(one, formats)})
        notes = [note for one in ranked for note in _notes(one)]
        pages.append(page(key, title=title, caption=_caption(ones), notes=notes))
    return frame(
        rows,
        (*BY, "method", "metric"),
        caption="How methods were tuned",
        by=BY,
        pages=pages,
        formats={
            **formats,
            "candidate": Format(part=""),
            "validation": Format("validation", "score", "metric"),
            "sd": Format("sd", "score"),
            "seeds": Format("by seed", left=True),
            "stable": Format("stable"),
            "confirmed": Format(part=""),
            "fall": Format("worst fall", "score", "low"),
        },
        legend=[*LEGEND, *([CONFIRMED] if any(row["confirmed"] for row in rows) else [])],
        metric=str(rows[0]["metric"]),
        dashes=True,
    )


def candidates(results: Sequence[Result]) -> pandas.DataFrame:
    """A row for each candidate of each tuned method and each round that it was scored after.

    Raises:
        UserError: where nothing was tuned.
    """
    rows: list[dict[str, Any]] = []
    for one in contests_of(results):
        scenario, variant, method = one.key
        for k, by_round in one.scores.items():
            tried = {key: v for key, v in one.tuning.candidates[k].items() if one.tuning.concerns(key, method)}
            for t, score in by_round.items() or [(None, None)]:
                where = {"suite": one.suite, "scenario": scenario, "variant": variant, "method": method}
                won = k == one.winner
                found = {"metric": one.tuning.metric, "round": t, "validation": score, "winner": won}
                edge = one.tuning.at_edge(k, method, one.cells) if won else []
                stability = _stability(one, k) | {"vetoes": one.vetoes(k)}
                rows.append({**where, "candidate": k, "values": tried, **tried, **found, "edge": edge, **stability})
    metric = str(rows[0]["metric"]) if rows else ""
    return frame(rows, (), caption="Candidates, round by round", by=BY[:3], metric=metric)


def how_tuned(results: Sequence[Result]) -> list[str]:
    """What to say below leaderboards of methods that were tuned, and of which suites, places or methods where that is
    not true of all."""
    tunings = {folder: read_tunings(folder) for folder in dict.fromkeys(r.suite_folder for r in results)}
    trials: dict[tuple[str, ...], int] = {}
    for r in results:
        key = (r.entry.scenario, r.entry.variant, r.entry.method)
        tuned = tunings[r.suite_folder].get(key)
        trials[str(r.suite_folder), r.suite, *key] = tuned.trials if tuned else 0
    sentences: dict[tuple[int, int], list[tuple[str, ...]]] = {}
    for name, n in _equal(trials):
        sentences.setdefault((n, len(name)), []).append(name[1:])
    told = [
        f"Tuned: {_who(names)} the best of {counted(n, 'candidate')}, chosen on validation examples and other seeds; "
        "compare tuning shows how."
        for (n, _), names in sentences.items()
        if n
    ]
    places = {(r.suite_folder, *(r.entry.scenario, r.entry.variant)): r.suite for r in results}
    lost = [
        (places[folder, *key[:2]], *key)
        for folder in tunings
        for key in unstable(folder)
        if (folder, *key[:2]) in places
    ]
    return [
        *told,
        *([f"No stable candidate, and so no result: {_methods(lost)}; compare tuning shows why."] if lost else []),
    ]


def _who(names: Sequence[tuple[str, ...]]) -> str:
    """Who reports: everybody, all of some suites or places, or some methods. names: all as long."""
    if not names[0]:
        return "every method reports"
    if len(names[0]) < 4:
        return f"in {shortened([_title(*name) for name in names])} every method reports"
    return f"{_methods(names)} report{'s' * (len(names) == 1)}"


def _methods(names: Iterable[tuple[str, ...]]) -> str:
    """Suite, scenario, variant and method of each, places once: `s · mixed · fedra, depthfl; s · all_6 · fedra`."""
    places: dict[tuple[str, ...], list[str]] = {}
    for name in dict.fromkeys(names):
        places.setdefault(name[:3], []).append(name[3])
    parts = [_title(*place, shortened(methods)) for place, methods in places.items()]
    return "; ".join(parts[:NAMED]) + (f" and {len(parts) - NAMED} more places" if len(parts) > NAMED else "")


def _equal(trials: Mapping[tuple[str, ...], int], levels: Sequence[int] = (0, 2, 4, 5)) -> Iterator[tuple[tuple, int]]:
    """Numbers of candidates by (folder, suite, scenario, variant, method), once for everything, a suite, a place
    or a method: the widest of which it is true, as the first so many parts of that key."""
    level, *finer = levels
    parts: dict[tuple[str, ...], dict[tuple[str, ...], int]] = {}
    for key, n in trials.items():
        parts.setdefault(key[:level], {})[key] = n
    for name, part in parts.items():
        if len(set(part.values())) == 1:
            yield name, next(iter(part.values()))
        else:
            yield from _equal(part, finer)


def _title(*names: str) -> str:
    return " · ".join(filter(None, names))


def _ranked(ones: Sequence[Contest]) -> list[Contest]:
    """The best validation score first; those without a winner last."""
    sign = -1 if higher_is_better(ones[0].tuning.metric) else 1
    return sorted(ones, key=lambda one: (one.best_score is None, sign * (one.best_score or 0.0)))


def _caption(ones: Sequence[Contest]) -> str:
    tuned = ones[0].tuning
    rungs = next(filter(None, (one.rungs for one in ones)), ())
    halved = f", halved after round{'s' * (len(rungs) > 2)} {' and '.join(map(str, rungs[:-1]))}"
    return (
        f"{tuned.metric} on validation examples · {counted(tuned.trials, 'candidate')}"
        + (halved if len(rungs) > 1 else "")
        + (f" of {counted(rungs[-1], 'round')}" if rungs else "")
        + f" · {counted(len(tuned.seeds), 'seed')}"
        + (f" · the best two also on seed {', '.join(map(str, tuned.confirm))}" if tuned.confirm else "")
    )


def _columns(one: Contest, formats: dict[str, Format]) -> dict[str, Any]:
    """One row; formats gets those of its numbers of trials."""
    tuned, k = one.tuning, one.winner
    found: dict[str, Any] = {"metric": tuned.metric, "candidate": k}
    found |= {key: _value(one, key) for key in tuned.space}
    if one.unstable:
        found[next(iter(tuned.space))] = UNSTABLE
    found |= {"validation": one.best_score, **_stability(one, k)}
    scores = found.pop("by_seed").values()
    found["seeds"] = " ".join(number(score, tuned.metric) for score in scores) if len(scores) > 1 else None
    found |= {"confirmed": bool(tuned.confirm)}
    trials = [n for i in range(12) if (n := 2**i) < tuned.trials] + [tuned.trials]
    for n in trials:
        name = f"{n} trial{'s' * (n > 1)}"
        formats[name] = Format(name, "score", "metric")
        found[name] = expected(one, n)
    return found | {"sd": float(np.std(list(one.last_scores.values()), ddof=1)) if len(one.last_scores) > 1 else None}


def _stability(contest: Contest, k: int | None) -> dict[str, Any]:
    """Of a candidate's seeds that have run all rounds: their scores, how many did not collapse, and the worst fall."""
    ends = contest.ended[k] if k is not None else {}
    scored = {seed: end for seed, end in ends.items() if end.score is not None}
    return {
        "by_seed": {seed: end.score for seed, end in scored.items()},
        "stable": f"{sum(not end.veto for end in ends.values())} of {len(ends)}" if ends else None,
        "fall": max((end.fall for end in scored.values()), default=None),
    }


def _value(one: Contest, key: str) -> str | None:
    """What the winner was tried with; with a word where that is the lowest or highest value that was tried."""
    k = one.winner
    if k is None or one.best_score is None or not one.tuning.concerns(key, one.method):
        return None
    edge = key in one.tuning.at_edge(k, one.method, one.cells)
    return f"{one.tuning.candidates[k][key]}{' (edge)' if edge else ''}"


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


def _notes(contest: Contest) -> Iterator[str]:
    if not contest.rungs:
        yield f"{contest.method}: no candidate has begun"
    elif contest.not_applicable:
        yield f"{contest.method}: not applicable, whatever the candidate"
    elif missing := len(contest.drawn) - len(contest.last_scores):
        of_all = counted(len(contest.drawn), "candidate")
        yield f"{contest.method}: {missing} of {of_all} without a score, because not tested yet, failed or diverged"
    if contest.is_confirmed and contest.rungs:
        yield from _of_confirmation(contest)


def _of_confirmation(contest: Contest) -> Iterator[str]:
    """Who was compared on all seeds, who was vetoed, and why."""
    metric = contest.tuning.metric
    if contest.unstable:
        yield f"{contest.method}: {UNSTABLE}, and so no result"
    elif not contest.confirmation.over:
        yield f"{contest.method}: the best candidates are not confirmed yet"
    for k in contest.confirmation.asked:
        name, vetoes = _named(contest, k), contest.vetoes(k)
        if vetoes:
            why = "; ".join(f"seed {seed} {why}" for seed, why in vetoes.items())
            yield f"{contest.method}: {name} cannot win: {why}"
        elif k != contest.winner and (mean := contest.mean(k)) is not None:
            yield f"{contest.method}: {name} has {number(mean, metric)} in the mean of all seeds"


def _named(one: Contest, k: int) -> str:
    """A candidate by its values: `lr 0.1608`."""
    values, titles = one.tuning.candidates[k], shortest(list(one.tuning.space))
    return ", ".join(f"{titles[key]} {value}" for key, value in values.items() if one.tuning.concerns(key, one.method))


def undecided(found: Loaded, paths: Sequence[str | Path], boards: bool = True) -> str:
    """A sentence; "" where everything that is found reports. boards: whether leaderboards are shown, which name
    themselves those without a stable candidate."""
    if not (found.results or found.undecided):
        return f"{', '.join(map(str, paths))}: no cells; whatever ran here had none to compute."
    lost = {(folder, *key) for folder in {r.suite_folder for r in found.undecided} for key in unstable(folder)}
    names: dict[bool, dict[tuple[str, ...], None]] = {True: {}, False: {}}  # by whether all were vetoed
    cells = dict[Path, bool]()  # equal candidates have one
    for r in found.undecided:
        key = (r.entry.scenario, r.entry.variant, r.entry.method)
        vetoed = (r.suite_folder, *key) in lost
        names[vetoed][r.suite, *key] = None
        cells |= {} if vetoed else {r.folder: r.status in ENDED}
    told = []
    if names[True] and not (boards and found.results):
        who = _methods(names[True])
        told.append(f"No stable candidate, and so no result: {who}; `fedbench compare tuning` shows why.")
    if names[False]:
        done, who = sum(cells.values()), _methods(names[False])
        tried = f"Only candidates so far, {done} of {len(cells)} tried, of {who}; `fedbench compare tuning` shows them."
        told.append(tried if done else f"Not begun: {who}.")
    return "\n".join(told)
